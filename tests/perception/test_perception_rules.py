import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.request import TaskType
from hmas.perception.agent.backend import Estimate, PromptView
from hmas.perception.agent.rules import (
    _LENGTHS,
    _RULES,
    EXPLICIT,
    MATCHES,
    TASKS,
    RulesBackend,
    instruction,
    matches,
    named,
    tag,
)

QA, ESSAY, UNKNOWN = TaskType.QA, TaskType.ESSAY_GENERATION, TaskType.UNKNOWN


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("Who wrote Middlemarch?", TaskType.QA),
        ("USER: Hi, I need a table for two.\nASSISTANT: When?\nUSER: Tonight.\nASSISTANT:", TaskType.DIALOGUE),
        ("You are Ada Lovelace. Describe the Analytical Engine.", TaskType.DIALOGUE),
        ("Translate the following text from English to German:\n\nGood morning", TaskType.TRANSLATION),
        ("把下面这段话翻译成英文：你好", TaskType.TRANSLATION),
        ("Extract all named entities with their types from the following text.\n\nText: ...", TaskType.EXTRACTION),
        ("Paraphrase the sentence: The sun rose.", TaskType.PARAPHRASING),
        ("Rewrite this paragraph to sound friendlier: ...", TaskType.PARAPHRASING),
        ("Write a Python function that reverses a list.", TaskType.CODE_GENERATION),
        ("def has_close(numbers):\n    '''Check'''", TaskType.CODE_GENERATION),
        ("Summarize the article below in three sentences.\n\n...", TaskType.SUMMARIZATION),
        ("Write a 260 tokens long cover letter to the hiring manager.", TaskType.LETTER_DRAFTING),
        ("A farmer has 17 sheep and buys 5 more. How many sheep does he have?", TaskType.MATH_REASONING),
        (r"Evaluate $\int_0^1 x^2 dx$", TaskType.MATH_REASONING),
        ("Write an argumentative essay on school uniforms.", TaskType.ESSAY_GENERATION),
        ("Tell me a story about a dragon and a lighthouse.", TaskType.LONG_FORM_GENERATION),
        ("Produce a market analysis report on electric bicycles.", TaskType.RESEARCH_AND_COMMUNICATION),
        ("Send an email to Raj about the delayed meeting", TaskType.RESEARCH_AND_COMMUNICATION),
        ("List three pros of working abroad, in all capitals.", TaskType.INSTRUCTION_FOLLOWING),
        ("Придумай сценарий", TaskType.UNKNOWN),
    ],
)
def test_explicit_patterns(text: str, task: TaskType) -> None:
    assert tag(text)[0] is task


def test_a_document_s_own_words_do_not_count() -> None:
    document = "The court found that the essay was a translation of a letter. " * 60
    text = f"Summarize this ruling.\n\n{document}\nBe brief and precise, please, and keep to what the ruling says."
    assert tag(text)[0] is TaskType.SUMMARIZATION


def view(text: str, prompt_tokens: int = 20) -> PromptView:
    return PromptView(text=text, prompt_tokens=prompt_tokens, model="m", tenant="t", max_tokens=None)


def test_a_stated_length_is_believed() -> None:
    (estimate,) = RulesBackend().estimate([view("Write a story of 1000 words about rain.")])
    assert estimate is not None
    assert estimate.output_tokens == pytest.approx(1350.0)
    assert estimate.output_tokens_p90 > estimate.output_tokens


def test_a_translation_is_as_long_as_its_source() -> None:
    short, long = RulesBackend().estimate([view("Translate: hello", 10), view("Translate: hello", 1000)])
    assert short is not None
    assert long is not None
    assert short.output_tokens < 20.0
    assert long.output_tokens == pytest.approx(1005.0)


@given(st.text(max_size=2000), st.integers(1, 200_000))
def test_any_prompt_gets_a_sane_estimate(text: str, prompt_tokens: int) -> None:
    (estimate,) = RulesBackend().estimate([view(text, prompt_tokens)])
    assert estimate is not None
    assert 0.0 < estimate.output_tokens <= estimate.output_tokens_p90
    assert 0.0 <= estimate.confidence <= 1.0


@pytest.mark.parametrize("text", ["user:" * 20_000, "\n" * 100_000, "write " * 50_000, "1 " * 100_000])
def test_hostile_prompts_are_cut_before_any_pattern_runs(text: str) -> None:
    assert len(RulesBackend().estimate([view(text)] * 20)) == 20


@given(st.text(max_size=2000))
def test_matches_are_zeros_and_ones_with_one_type(text: str) -> None:
    found = matches(text)
    assert len(found) == MATCHES
    assert set(found) <= {0.0, 1.0}
    assert sum(found[-len(TASKS) :]) == 1.0


def test_matches_name_the_type_the_rules_give() -> None:
    for text in ("Translate to French: good day", "Summarize the following.\n\nWho knows?", "zzz"):
        assert TASKS[matches(text)[-len(TASKS) :].index(1.0)] is tag(text)[0]


@pytest.mark.parametrize(("length", "cut"), [(520, False), (521, True)])
def test_an_instruction_stands_at_the_ends_of_a_prompt(length: int, cut: bool) -> None:
    text = "".join(chr(97 + i % 26) for i in range(length))
    assert instruction(f"  {text}\n") == (f"{text[:320]}\n{text[-200:]}" if cut else text)


@pytest.mark.parametrize(
    ("text", "task", "confidence", "explicit"),
    [
        ("Translate this essay", TaskType.ESSAY_GENERATION, 0.9, TaskType.ESSAY_GENERATION),
        ("Translate this", TaskType.TRANSLATION, 0.95, TaskType.TRANSLATION),
        ("What is it?\n\nTranslate this", TaskType.TRANSLATION, 0.95, None),
        ("Extract it\n\nTranslate this", TaskType.EXTRACTION, 0.9, TaskType.EXTRACTION),
        ("A poem\n\nWhat", TaskType.LONG_FORM_GENERATION, 0.85, None),
        ("Who", QA, 0.75, None), ("xyz", UNKNOWN, 0.2, None), ("", UNKNOWN, 0.2, None),
    ],
)  # fmt: skip
def test_an_explicit_word_of_the_first_paragraph_outweighs_what_follows(
    text: str, task: TaskType, confidence: float, explicit: TaskType | None
) -> None:
    assert tag(text) == (task, confidence)
    assert named(text) is explicit
    assert TASKS[matches(text)[2 * len(_RULES) :].index(1.0)] is task


def test_matches_say_which_rules_match_and_which_in_the_first_paragraph() -> None:
    text = "Here goes a poem about it\n\nTranslate this"
    row, rules = matches(text), len(_RULES)
    found = {r.task for r, hit in zip(_RULES, row[:rules], strict=True) if hit}
    leading = {r.task for r, hit in zip(_RULES, row[rules : 2 * rules], strict=True) if hit}
    assert found == {TaskType.TRANSLATION, TaskType.LONG_FORM_GENERATION}
    assert leading == {TaskType.LONG_FORM_GENERATION}
    assert set(row) == {0.0, 1.0}
    assert sum(row[2 * rules :]) == 1.0
    assert {r.task for r in _RULES if r.confidence >= EXPLICIT} >= {TaskType.TRANSLATION}


def test_an_estimate_goes_by_the_stated_length_or_else_by_the_type_and_the_prompt() -> None:
    texts = ("Write an essay of 100 tokens", "Write an essay", "Translate it", "2 characters", "xyz")
    found = RulesBackend().estimate([view(text, 50) for text in texts])
    assert found == [
        Estimate(ESSAY, 0.9, 100.0, 140.0), Estimate(ESSAY, 0.9, 645.0, 645.0 * 1.6),
        Estimate(TaskType.TRANSLATION, 0.95, 55.0, 55.0 * 1.8), Estimate(UNKNOWN, 0.2, 1.0, 1.4),
        Estimate(UNKNOWN, 0.2, 205.0, 205.0 * 5.0),
    ]  # fmt: skip
    assert set(_LENGTHS) == set(TaskType)
