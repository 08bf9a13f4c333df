"""Factor or line: whichever has erred less at the worker answers."""

import random

import pytest

from hmas.contracts.request import Cost
from hmas.prediction.agent.measured_worker import MeasuredWorker


def settled(worker: MeasuredWorker, count: int, modelled: object, real: object, seed: int = 1) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        prompt, running = rng.randint(10, 4000), rng.randint(0, 60)
        worker.learn(prompt, running, modelled(prompt, running), real(prompt, running))  # type: ignore[operator]


def test_a_line_answers_where_the_model_has_the_shape_wrong() -> None:
    worker = MeasuredWorker()
    settled(worker, 100, lambda p, r: Cost(0.4, 0.01), lambda p, r: Cost(0.02 + p * 1e-4, 0.01 + r * 5e-4))
    cost = worker.cost(1000, 9, Cost(0.4, 0.01))
    assert cost.ttft_s == pytest.approx(0.12, rel=0.05)
    assert cost.tpot_s == pytest.approx(0.0145, rel=0.05)


def test_the_model_answers_where_it_knows_more_than_one_quantity() -> None:
    def modelled(prompt: int, running: int) -> Cost:
        return Cost((1 + running) * prompt * 1e-5, 0.01 * (1 + running % 7))  # twice as fast as here

    worker = MeasuredWorker()
    settled(worker, 200, modelled, lambda p, r: Cost(2 * modelled(p, r).ttft_s, 2 * modelled(p, r).tpot_s))
    cost = worker.cost(1000, 6, modelled(1000, 6))
    assert cost.ttft_s == pytest.approx(0.14, rel=0.02)
    assert cost.tpot_s == pytest.approx(0.14, rel=0.02)


def test_times_that_are_not_positive_teach_nothing() -> None:
    worker = MeasuredWorker()
    settled(worker, 50, lambda p, r: Cost(0.1, 0.0), lambda p, r: Cost(0.0, -1.0))
    assert worker.cost(100, 1, Cost(0.1, 0.02)) == Cost(0.1, 0.02)
