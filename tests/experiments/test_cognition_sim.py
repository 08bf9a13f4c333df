from experiments.cognition.simulated import DURATION_S, MAX_TOKENS, with_tags, workload
from hmas.contracts.request import TaskType
from hmas.perception.backends.model import ModelBackend
from hmas.sim.estimators import Shipped
from hmas_lab.perception.training.corpus import CorpusAnswer, Prompt

PROMPTS = [
    Prompt(
        group="a",
        text="Translate to German: the cat sleeps.",
        tokens=8,
        task=TaskType.TRANSLATION,
        source="s",
        answers=(CorpusAnswer("gpt", 7),),
    ),
    Prompt(
        group="b",
        text="Write a long story about a dragon.",
        tokens=8,
        task=TaskType.LONG_FORM_GENERATION,
        source="s",
        answers=(CorpusAnswer("gpt", 1500),),
    ),
    Prompt(
        group="c", text="who wrote hamlet", tokens=4, task=TaskType.QA, source="s", answers=()
    ),  # no answer of a language model: nothing to decode
]


def test_every_request_is_a_prompt_with_its_own_answer_s_length() -> None:
    asked = workload(PROMPTS, rate_rps=3.0, seed=1)
    assert asked == workload(PROMPTS, rate_rps=3.0, seed=1)
    assert 200 < len(asked.requests) < 400
    lengths = {(r.prompt, r.task, r.output_tokens) for r in asked.requests}
    assert lengths == {(p.text, p.task, p.answers[0].tokens) for p in PROMPTS[:2]}
    arrivals = [r.request.arrival_s for r in asked.requests]
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] < DURATION_S
    assert {(r.request.max_tokens, r.request.slo_stated) for r in asked.requests} == {(MAX_TOKENS, False)}


def test_the_model_s_tags_travel_beside_the_requests() -> None:
    asked = with_tags(ModelBackend(), workload(PROMPTS, rate_rps=0.1, seed=1))
    estimates = [Shipped().estimate(r) for r in asked.requests]
    assert all(e is not None and e.output_tokens > 0 for e in estimates)
    assert {e.task for e in estimates if e} == {TaskType.TRANSLATION, TaskType.LONG_FORM_GENERATION}
