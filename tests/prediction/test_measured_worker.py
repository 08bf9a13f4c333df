"""Factor or line: whichever has erred less at the worker answers."""

import random
from math import log
from random import Random

import pytest

from hmas.contracts.request import Cost
from hmas.prediction.agent.measured_line import MeasuredLine
from hmas.prediction.agent.measured_worker import MeasuredKind, MeasuredTime
from hmas.prediction.agent.residual import ResidualScale


def settled(worker: MeasuredKind, count: int, modelled: object, real: object, seed: int = 1) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        prompt, running = rng.randint(10, 4000), rng.randint(0, 60)
        worker.learn(prompt, running, modelled(prompt, running), real(prompt, running))  # type: ignore[operator]


def test_a_line_answers_where_the_model_has_the_shape_wrong() -> None:
    worker = MeasuredKind()
    settled(worker, 100, lambda p, r: Cost(0.4, 0.01), lambda p, r: Cost(0.02 + p * 1e-4, 0.01 + r * 5e-4))
    cost = worker.cost(1000, 9, Cost(0.4, 0.01))
    assert cost.ttft_s == pytest.approx(0.12, rel=0.05)
    assert cost.tpot_s == pytest.approx(0.0145, rel=0.05)


def test_the_model_answers_where_it_knows_more_than_one_quantity() -> None:
    def modelled(prompt: int, running: int) -> Cost:
        return Cost((1 + running) * prompt * 1e-5, 0.01 * (1 + running % 7))  # twice as fast as here

    worker = MeasuredKind()
    settled(worker, 200, modelled, lambda p, r: Cost(2 * modelled(p, r).ttft_s, 2 * modelled(p, r).tpot_s))
    cost = worker.cost(1000, 6, modelled(1000, 6))
    assert cost.ttft_s == pytest.approx(0.14, rel=0.02)
    assert cost.tpot_s == pytest.approx(0.14, rel=0.02)


def test_times_that_are_not_positive_teach_nothing() -> None:
    worker = MeasuredKind()
    settled(worker, 50, lambda p, r: Cost(0.1, 0.0), lambda p, r: Cost(0.0, -1.0))
    assert worker.cost(100, 1, Cost(0.1, 0.02)) == Cost(0.1, 0.02)


def test_the_line_answers_from_the_start_of_its_knowledge_until_the_factor_is_ahead() -> None:
    time = MeasuredTime(MeasuredLine(256.0, 0.02, known_after=2))
    twin, line = ResidualScale(), MeasuredLine(256.0, 0.02, known_after=2)
    assert time.seconds(100.0, 0.7) == 0.7
    ahead, rng = 0.0, Random(5)
    for number in range(60):
        x, modelled = rng.uniform(10, 900), rng.uniform(0.1, 0.9)
        measured = 3.0 * modelled if number < 30 else 0.05 + 1e-3 * x  # first the model has the shape right
        if line.known:
            by_factor = min(2.0, abs(log(modelled * twin.factor / measured)))
            by_line = min(2.0, abs(log(max(1e-9, line.seconds(x)) / measured)))
            ahead += 0.03 * (by_factor - by_line - ahead)
        time.learn(x, modelled, measured)
        twin.update(measured, modelled)
        line.observe(x, measured)
        assert time.factor == twin.factor
        expected = line.seconds(333.0) if line.known and ahead >= 0.0 else 0.4 * twin.factor
        assert time.seconds(333.0, 0.4) == pytest.approx(expected)
    assert ahead != 0.0


@pytest.mark.parametrize(("modelled", "measured"), [(0.0, 1.0), (1.0, 0.0)])
def test_a_time_of_nothing_moves_neither_way_ahead(modelled: float, measured: float) -> None:
    time = MeasuredTime(MeasuredLine(256.0, 0.02, known_after=1))
    time.learn(10.0, 1.0, 1.0)
    before = time._line_ahead
    time.learn(10.0, modelled, measured)
    assert time._line_ahead == before


def test_a_worker_s_prefill_goes_by_the_prompt_and_its_pace_by_the_sequences_with_the_new_one() -> None:
    worker, prefill = MeasuredKind(), MeasuredLine(scale=256.0, origin=0.02)
    pace, rng = MeasuredLine(scale=64.0, flat=16.0), Random(2)
    for _ in range(40):
        prompt, running = rng.randint(10, 3000), rng.randint(0, 30)
        measured = Cost(0.02 + 1e-4 * prompt, 0.01 + 1e-3 * running)
        worker.learn(prompt, running, Cost(0.5, 0.5), measured)
        prefill.observe(prompt, measured.ttft_s)
        pace.observe(running + 1, measured.tpot_s)
    cost = worker.cost(700, 11, Cost(0.5, 0.5))
    assert cost == Cost(prefill.seconds(700), pace.seconds(12))
