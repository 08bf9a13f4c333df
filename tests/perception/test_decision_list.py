from hmas.contracts.request import TaskType
from hmas_lab.perception.training.decision_list import DecisionList

TEXTS = ["Translate this to German: cats", "Translate this: dogs", "please translate: rain", "Summarize this: cats",
         "Summarize it: rain", "Summarize: dogs"]  # fmt: skip
TASKS = [TaskType.TRANSLATION] * 3 + [TaskType.SUMMARIZATION] * 3


def test_the_most_telling_word_decides() -> None:
    rules = DecisionList(TEXTS, TASKS)
    assert rules.tag("translate cats") is TaskType.TRANSLATION
    assert rules.tag("dogs and cats, summarize") is TaskType.SUMMARIZATION


def test_words_too_rare_to_be_a_rule_tell_nothing() -> None:
    assert DecisionList(TEXTS, TASKS).tag("German rain") is TaskType.UNKNOWN
