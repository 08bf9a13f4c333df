import heapq
from itertools import count
from math import exp, log
from random import Random

import pytest

from hmas.contracts.request import Request, Tags, TaskType
from hmas.worker.agent.config import LengthBiasConfig, WorkerConfig
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.estimates.length_bias import LengthBias, _Cell
from tests.worker.builders import Scripted, annotation, engine, entry, request

CONFIG = LengthBiasConfig()
NUMBERS = count()


def tags(tokens: float, version: str = "v1", task: TaskType = TaskType.QA) -> Tags:
    made = annotation(tokens, p90=2 * tokens, version=version).tags
    return Tags(
        task=task,
        slo=made.slo,
        output_tokens=made.output_tokens,
        output_tokens_p90=made.output_tokens_p90,
        confidence=made.confidence,
        source=made.source,
        version=version,
    )


def begun(bias: LengthBias, predicted: float, **fields: object) -> QueueEntry:
    made = entry(1, request(f"n{next(NUMBERS)}", **fields))  # type: ignore[arg-type]
    made.claimed = tags(predicted)
    bias.began(made)
    return made


def learn(bias: LengthBias, predicted: float, actual: int, **fields: object) -> None:
    made = begun(bias, predicted, **fields)
    made.output_tokens = actual
    bias.learn(made)


def learnt(bias: LengthBias, factor: float, count: int, spread: float = 0.0, **fields: object) -> LengthBias:
    rng = Random(1)
    for n in range(count):
        predicted = 50.0 + 10 * (n % 40)
        learn(bias, predicted, round(predicted * factor * exp(rng.gauss(0.0, spread))), **fields)
    return bias


def factor(bias: LengthBias, made: Request, said: Tags) -> float:
    corrected = bias.corrected(made, said)
    assert corrected.output_tokens_p90 == pytest.approx(2 * corrected.output_tokens)
    return corrected.output_tokens / said.output_tokens


def served(bias: LengthBias, true: float, rate: float, seconds: float, spread: float = 0.8) -> list[float]:
    """Returns the factors of requests that arrive evenly, of 100 predicted tokens each, and get 20 tokens a second."""
    rng, running, factors = Random(2), list[tuple[float, int, QueueEntry, float]](), []
    for n in range(int(rate * seconds)):
        now_s = n / rate
        while running and running[0][0] <= now_s:
            ended_s, _, ended, began_s = heapq.heappop(running)
            ended.output_tokens = round(20 * (ended_s - began_s))
            bias.learn(ended)
        for *_, some, began_s in running:
            some.output_tokens = int(20 * (now_s - began_s))
        factors.append(factor(bias, request(), tags(100.0)))
        length = 100.0 * true * exp(rng.gauss(0.0, spread))
        heapq.heappush(running, (now_s + length / 20, n, begun(bias, 100.0), now_s))
    return factors


def test_it_finds_a_factor_in_noise_and_leaves_the_unbiased_alone() -> None:
    for true in (0.1, 1.0, 3.0):
        assert factor(learnt(LengthBias(CONFIG), true, 400, 0.8), request(), tags(500.0)) == pytest.approx(
            true, rel=0.4
        )
    assert factor(LengthBias(CONFIG), request(), tags(500.0)) == 1.0


def test_few_settled_requests_are_half_believed() -> None:
    assert factor(learnt(LengthBias(CONFIG), 0.1, 1), request(), tags(500.0)) > 0.4
    assert factor(learnt(LengthBias(CONFIG), 0.1, 8), request(), tags(500.0)) < 0.4


def test_short_answers_that_end_first_do_not_pass_for_all() -> None:
    """At the start, those that have ended are the short ones; their mean error alone says less than half."""
    factors = served(LengthBias(CONFIG), 1.0, 3.0, 10.0)
    assert 0.8 < exp(sum(map(log, factors)) / len(factors)) < 1.25


@pytest.mark.parametrize("rate", [1.0, 30.0])
@pytest.mark.parametrize("true", [0.2, 1.0, 4.0])
def test_running_requests_hide_no_lasting_factor(true: float, rate: float) -> None:
    """At the higher rate, hundreds run at once, and none of those that began last has ended."""
    late = served(LengthBias(CONFIG), true, rate, 120.0)[-int(60 * rate) :]
    assert exp(sum(map(log, late)) / len(late)) == pytest.approx(true, rel=0.3)


def test_answers_that_outgrow_their_prediction_teach_before_they_end() -> None:
    bias = learnt(LengthBias(CONFIG), 1.0, 50)
    running = [begun(bias, 5.0) for _ in range(20)]
    before = factor(bias, request(), tags(5.0))
    for made in running:
        made.output_tokens = 200
    assert before < 1.5
    assert max(factor(bias, request(), tags(5.0)) for _ in range(5)) > 5.0


def test_what_is_given_up_says_nothing() -> None:
    bias = LengthBias(CONFIG)
    running = [begun(bias, 5.0) for _ in range(20)]
    for made in running:
        made.output_tokens = 200
        bias.forget(made)
    assert factor(bias, request(), tags(5.0)) == 1.0
    learn(bias, 5.0, 500)
    assert factor(bias, request(), tags(5.0)) > 1.0


def test_a_tenant_that_claims_short_answers_is_corrected_and_the_others_stay() -> None:
    bias = LengthBias(CONFIG)
    for _ in range(10):
        learnt(bias, 4.0, 10, tenant="liar")
        learnt(bias, 1.0, 50, tenant="honest")
    assert factor(bias, request(tenant="liar"), tags(100.0)) > 3.0
    assert factor(bias, request(tenant="honest"), tags(100.0)) == pytest.approx(1.0, rel=0.1)
    assert 1.0 <= factor(bias, request(tenant="new"), tags(100.0)) < 2.5


def test_predictors_and_task_types_are_kept_apart() -> None:
    bias = learnt(LengthBias(CONFIG), 0.1, 50)
    assert factor(bias, request(), tags(500.0, version="v2")) == 1.0
    assert factor(bias, request(), tags(500.0, task=TaskType.CODE_GENERATION)) == 1.0


def test_a_bound_that_both_reach_teaches_nothing() -> None:
    bias = LengthBias(CONFIG)
    for _ in range(50):
        made = begun(bias, 900.0, max_tokens=100)
        made.output_tokens = 100
        bias.learn(made)
        bias.forget(made)
    assert factor(bias, request(), tags(500.0)) == 1.0
    learn(bias, 900.0, 40, max_tokens=100)
    learn(bias, 50.0, 100, max_tokens=100)
    assert factor(bias, request(), tags(500.0)) != 1.0


def test_memory_is_bounded() -> None:
    bias = LengthBias(CONFIG)
    for n in range(2 * CONFIG.max_cells):
        learn(bias, 10.0, 10, tenant=f"t{n}")
    assert len(bias) <= CONFIG.max_cells
    many = [begun(bias, 10.0) for _ in range(10 * CONFIG.memory)]
    (cell,) = {id(cell): cell for name, cell in bias._cells.items() if name[2:] == (many[0].request.tenant,)}.values()
    assert len(cell.errors) == CONFIG.most_running
    learnt(bias, 1.0, 10 * CONFIG.memory)
    assert len(cell.errors) <= CONFIG.memory


def predicted(w: Scripted, name: str) -> float:
    w.submit(1.0, request(name))
    w.annotate(1.0, name, annotation(5.0))
    return next(e for e in w.state.queue.entries() if e.request.id == name).predicted_tokens


@pytest.mark.parametrize("tags_first", [True, False])
def test_the_agent_corrects_by_what_its_running_requests_have_got(tags_first: bool) -> None:
    w = Scripted(WorkerConfig(worker="w", incarnation="1", address="", pool="m"))
    names = [f"r{n}" for n in range(6)]
    if not tags_first:
        w.up(0.0, engine(max_num_seqs=64))
    w.submit(0.0, *map(request, names))
    for name in names:
        w.annotate(0.0, name, annotation(5.0))
    if tags_first:
        w.up(0.0, engine(max_num_seqs=64))
    assert set(names) <= set(w.grants)
    assert predicted(w, "early") < 10.0
    for name in names:
        w.first_token(1.0, name)
        w.progress(1.0, name, 300)
    assert predicted(w, "late") > 20.0
    w.finish(1.0, names[0], 300)
    for name in names[1:]:
        w.fail(1.0, name, retryable=False)
    (known,) = {tuple(cell.errors) for cell in w.state.length_bias._cells.values()}
    assert known == (names[0], "early", "late")


def test_a_tenant_that_begins_to_lie_is_believed_no_longer_within_a_few_answers() -> None:
    bias = learnt(LengthBias(CONFIG), 1.0, 40, 0.8)
    for _ in range(CONFIG.newest + 4):
        learn(bias, 3.0, 900)
    assert factor(bias, request(), tags(3.0)) > 100.0


def test_chance_makes_it_forget_nothing() -> None:
    rng, cell = Random(7), _Cell(CONFIG)
    for n in range(2000):
        made = begun(LengthBias(CONFIG), 100.0)
        made.output_tokens = round(100.0 * exp(rng.gauss(0.0, 0.8)))
        cell.add(made)
        cell.end(made)
        cell.estimate()
        assert len(cell.errors) == min(n + 1, CONFIG.memory)
