"""How much of the engines a request takes, what it is worth, and how long it may wait: beside plain sums."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from hmas.contracts.control import StepTime
from hmas.contracts.job import JobFacts
from hmas.contracts.request import Slo
from hmas.worker.agent.engines.service_view import EngineOccupancy, ServiceView
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.fairness import YIELDED_S, Fairness, FairnessConfig
from hmas.worker.agent.order.work_model import WorkModel, WorkModelConfig
from tests.worker.builders import annotation, entry, request

CONFIG = WorkModelConfig(smoothing=1.0, patience=0.5)


def model(*, by_tokens: bool = False, config: WorkModelConfig = CONFIG) -> WorkModel:
    return WorkModel(config, Fairness(FairnessConfig(), ()), by_tokens=by_tokens)


def tagged(seq: int = 1, tokens: float = 40.0, **changes: Any) -> QueueEntry:
    """A request of 100 prompt tokens with 0.5 s of prefill and 0.0625 s for each token."""
    made = entry(seq, request(f"r{seq}", slo=Slo(8.0, 0.25), **changes))
    made.annotate(annotation(tokens, ttft_s=0.5, tpot_s=0.0625, slo=Slo(8.0, 0.25)))
    return made


def occupied(**changes: Any) -> EngineOccupancy:
    return replace(EngineOccupancy(cap=16, running=8, kv_tokens=0, kv_free_tokens=0), **changes)


def test_by_slots_a_request_takes_its_part_of_a_step() -> None:
    made = model()
    made.see(ServiceView(0.0, (occupied(cap=20, running=12), occupied(cap=12, running=8)), 0.125))
    assert made.rate.engines == 2
    job = made.job(tagged())
    decode = 40 * 0.0625 / 16  # one of 16 slots of an engine in the mean
    assert job.work == pytest.approx(decode + 0.5 - 0.125)
    full = (20 / 32 - 0.5) / (0.9 - 0.5)
    start_s = 8.0 - 0.5
    assert job.rank[0] == pytest.approx(start_s + 0.5 * full * 16 * decode)
    assert job.rank[1] == 1
    assert job.due_s == pytest.approx(start_s + job.work / made.planned_rate)
    assert job.price == pytest.approx(job.work)
    assert job.passing == job.work
    short = made.job(entry(2, request("r2", prompt_tokens=100)))  # its prefill of 0.1 s is below the floor
    assert short.work == pytest.approx(50 * 0.02 / 16)


def test_by_memory_a_request_takes_its_part_of_what_is_scarcer_than_slots() -> None:
    made = model()
    engines = (occupied(running=8, kv_tokens=1000, kv_free_tokens=100), occupied(kv_tokens=600, kv_free_tokens=220))
    made.see(ServiceView(0.0, engines))
    memory, slots = 1.0 - 320 / 1600, 0.5
    assert made._memory_lead == pytest.approx(memory - slots)
    job = made.job(tagged())
    decode = 40 * 0.0625 * 120 / 800  # 100 + 20 of 800 tokens of an engine in the mean
    assert job.work == pytest.approx(decode + 0.5)
    typical = min(32, 16 / memory) / 2
    full = (memory - 0.5) / 0.4
    assert job.rank[0] == pytest.approx(7.5 + 0.5 * full * typical * decode)
    huge = made.job(tagged(2, 5000.0))
    assert huge.work == pytest.approx(5000 * 0.0625 + 0.5), "nobody takes more than all"
    made.see(ServiceView(0.0, (occupied(running=15, kv_tokens=1000, kv_free_tokens=900),)))
    assert made.job(tagged()).work == pytest.approx(40 * 0.0625 / 16 + 0.5), "slots are scarcer again"


def test_by_the_time_of_a_step_a_request_takes_its_context() -> None:
    made = model()
    step = StepTime(base_s=0.04, sequence_s=0.001, context_s=1e-4)
    timed = occupied(running=2, step=step, room_s=0.05, used_s=0.03), occupied(running=2, step=step, room_s=0.15,
        used_s=0.3)  # fmt: skip
    made.see(ServiceView(0.0, timed))
    job = made.job(tagged())
    decode = 40 * 0.0625 * (1e-4 * 120 / 0.1)
    assert job.work == pytest.approx(decode + 0.5)
    full = ((0.03 / 0.05 + 1.0) / 2 - 0.5) / 0.4
    assert job.rank[0] == pytest.approx(7.5 + 0.5 * full * 16 * decode)
    made.see(ServiceView(0.0, (occupied(),)))
    assert made._room_s == inf


def test_engines_that_are_not_full_delay_nobody() -> None:
    made = model()
    for running, fullness in ((8, 0.0), (0, 0.0), (16, 1.0)):
        made.see(ServiceView(0.0, (occupied(running=running),)))
        assert made._fullness == fullness
    made.see(ServiceView(0.0, (occupied(prefill_pace=0.5, prefill_wait_s=0.25), occupied(prefill_pace=3.0))))
    assert made.rate.most == 4.0
    assert made.latest_start_s(tagged()) == 8.0 - 0.5 - 0.125
    made.see(ServiceView(0.0, ()))
    assert made.rate.most == 4.0, "without an engine nothing is seen"


def test_a_new_rate_is_planned_with_once_it_differs() -> None:
    made = model(config=WorkModelConfig(headroom=0.5, replanned=0.25))
    assert made.planned_rate == 0.5 * 0.8
    made.planned_rate = 0.5
    for measured, planned in ((1.25, 0.5), (0.75, 0.5), (1.5, 0.75), (1.0, 0.5), (2.0, 1.0)):
        made.rate._rate = measured
        made.replan()
        assert made.planned_rate == planned


@pytest.mark.parametrize(("priority", "factor"), [(0, 1.0), (2, 0.25), (-3, 8.0), (8, 2.0**-8), (9, 2.0**-8),
                                                  (-8, 256.0), (-30, 256.0)])  # fmt: skip
def test_value_halves_with_each_priority(priority: int, factor: float) -> None:
    made = tagged(weight=3.0, priority=priority)
    assert model().value(made) == 3.0 * factor
    assert model().job(made).price == pytest.approx(model().job(made).work / (3.0 * factor))
    by_tokens = 3.0 * factor * (100 + 2 * 40) * 60.0 / (60.0 + 8.0 + 40 * 0.25)
    assert model(by_tokens=True).value(made) == pytest.approx(by_tokens)


def test_for_esg_a_start_may_come_later() -> None:
    made = tagged()
    slack_s = 8.0 + 40 * 0.25 - 0.5 - 40 * 0.0625
    assert model(by_tokens=True).latest_start_s(made) == pytest.approx(7.5 + 0.2 * (slack_s - 7.5))


def test_a_job_with_a_budget_costs_all_that_it_still_needs() -> None:
    facts = JobFacts(
        job="j", index=1, left_s=20.0, future_stages=2, future_prompt_tokens=200, future_output_tokens=64,
        future_outside_s=1.0,
    )  # fmt: skip
    made = entry(1, replace(request("r1", slo=Slo(8.0, 0.25), arrival_s=3.0), job=facts))
    made.annotate(annotation(40.0, ttft_s=0.5, tpot_s=0.0625, slo=Slo(8.0, 0.25)))
    work_model = model()
    work_model.see(ServiceView(0.0, (occupied(prefill_wait_s=0.25),)))
    job = work_model.job(made)
    assert made.future_s == 200 * 0.5 / 100 + 64 * 0.0625
    work = 40 * 0.0625 / 16 + 0.5
    assert job.work == pytest.approx(work)
    assert job.price == pytest.approx(work + 1.0 + 64 * 0.0625 / 16)
    assert job.rank[0] == 23.0
    assert job.passing == inf
    assert work_model.latest_start_s(made) == 11.0 - 0.5, "its forecast is one of hope"
    made.promised = True
    assert work_model.job(made).price == 0.0


def test_a_flood_makes_work_dearer_and_passes_nobody() -> None:
    jobs: list[None] = []
    fairness = Fairness(FairnessConfig(tolerated=1.5, beside_jobs=1.25, flood_power=2), jobs)
    first, second = tagged(1, tenant="a"), tagged(2, tenant="b")
    work_model = WorkModel(CONFIG, fairness, by_tokens=False)
    fairness.served(1.0, first, 900.0)
    fairness.served(1.0, second, 100.0)
    assert (first.charged, second.charged) == (900.0, 100.0)
    assert fairness.flood("b") == 1.0
    assert fairness.flood("a") == pytest.approx((1.8 / 1.5) ** 2)
    job = work_model.job(first)
    assert job.price == pytest.approx(job.work * 1.44)
    assert job.passing == inf
    assert work_model.job(second).passing < inf
    jobs.append(None)
    fairness.served(1.0, second, 100.0)  # nothing more
    assert fairness.flood("a") == pytest.approx((1.8 / 1.25) ** 2), "where jobs wait, less is a flood"
    fairness.served(1.0, first, 800.0)
    assert first.charged == 800.0
    assert fairness.flood("a") == pytest.approx((1.8 / 1.25) ** 2), "service is never taken back"


def test_who_is_ahead_of_others_waits_behind_them() -> None:
    fairness = Fairness(FairnessConfig(), [])
    first = tagged(1, tenant="a")
    fairness.granted(0.0, first, 5.0, budgeted=False)
    assert len(fairness.job_shares) == 0, "without jobs nobody is counted"
    fairness.granted(0.0, first, 5.0, budgeted=True)
    fairness.job_shares.waits(0.0, "b")
    fairness.job_shares.served(0.0, "b", 1.0, -5.0)
    work_model = WorkModel(CONFIG, fairness, by_tokens=False)
    plain = work_model.job(first)
    fairness.job_shares.refresh(0.0, 1.0, crowded=False)
    assert fairness.yielding("a") == 1.0
    assert work_model.job(first).passing == inf
    fairness.job_shares.refresh(0.0, 1.0, crowded=True)
    assert fairness.yielding("a") == YIELDED_S
    assert work_model.job(first).rank[0] == plain.rank[0] + YIELDED_S
    assert work_model.job(first).price == pytest.approx(plain.price * YIELDED_S)


@pytest.mark.parametrize(("cap", "decode_s"), [(1, 2.5), (2, 1.25), (16, 2.5 / 16)])
def test_a_request_takes_as_much_of_an_engine_as_that_has_places(cap: int, decode_s: float) -> None:
    work_model = model()
    work_model.see(ServiceView(0.0, (occupied(cap=cap, running=cap),)))
    assert work_model.job(tagged()).work == pytest.approx(0.5 + decode_s)
