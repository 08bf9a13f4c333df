"""Slots, counted by hand."""

from dataclasses import replace

import pytest

from hmas.contracts.pool_plan import InstanceType
from hmas.contracts.request import Slo, TaskType
from hmas.contracts.step_cost import StepCostModel
from hmas.sim.workload import OfferedRequest
from hmas_lab.placement.slots import PATIENCE_S, ServingScore, SlotInstance, SlotTally, meets, slot_run, total
from tests.builders.requests import client_request

# Two slots; a token takes 1.1 s alone and 1.2 s beside another.
KIND = InstanceType(
    name="a1", model="a", hardware="h", gpus=1, step=StepCostModel(1.0, 0.0, 0.1, 0.0), kv_tokens=10_000, max_num_seqs=2
)
EASY = Slo(100.0, 100.0)


def offered(number: int, arrival_s: float, slo: Slo = EASY, tokens: int = 10) -> OfferedRequest:
    request = client_request(f"r{number}", model="a", arrival_s=arrival_s, slo=slo)
    return OfferedRequest(request=request, output_tokens=tokens, slo=slo, task=TaskType.QA)


def test_a_request_takes_a_free_slot_or_the_one_that_is_free_first() -> None:
    slots = SlotInstance([1.0, 1.1, 1.2])
    assert slots.offer(0.0) == (0.0, 0, 1.1)
    slots.take(11.0)
    assert slots.offer(0.0) == (0.0, 1, 1.2)
    slots.take(12.0)
    assert slots.offer(5.0) == (11.0, 2, 1.2)
    slots.take(23.0)  # in the slot that ended at 11 s
    assert slots.offer(5.0) == (12.0, 2, 1.2)
    assert slots.offer(12.0) == (12.0, 1, 1.2)
    assert slots.offer(23.0) == (23.0, 0, 1.1)


def test_a_tally_counts_speed_waiting_and_what_is_met() -> None:
    requests = [offered(i, 0.0) for i in range(3)]
    found = total(slot_run(requests, ((KIND, 1),), fastest_s=1.1))
    # The third waits for 11 s, longer than what counts as prompt.
    assert (found.requests, found.met) == (3, 3)
    assert found.speed == pytest.approx(1.0 + 1.1 / 1.2 + 1.1 / 1.2)
    assert found.promptness == pytest.approx(2.0)
    found = total(slot_run([*requests[:2], offered(3, 6.0)], ((KIND, 1),), fastest_s=1.1))
    assert found.promptness == pytest.approx(2.0 + 1.0 - 5.0 / PATIENCE_S)


@pytest.mark.parametrize(
    ("slo", "met"),
    [
        (Slo(100.0, 1.15), 1),  # the second would be too slow, and so would the third
        (Slo(10.9, 100.0), 2),  # the third would wait for 11 s
        (Slo(11.0, 1.2), 3),
        (Slo(0.0, 0.0, 11.9, whole=True), 1),
        (Slo(0.0, 0.0, 12.0, whole=True), 2),
        (Slo(0.0, 0.0, 23.0, whole=True), 3),
        (Slo(100.0, 100.0, 12.0), 2),
    ],
)
def test_a_request_that_would_be_late_is_refused(slo: Slo, met: int) -> None:
    assert total(slot_run([offered(i, 0.0, slo) for i in range(3)], ((KIND, 1),), 1.1)).met == met


def test_a_refused_request_takes_no_slot() -> None:
    strict = Slo(100.0, 1.0)
    requests = [offered(0, 0.0, strict), offered(1, 0.0, Slo(100.0, 1.1))]
    assert slot_run(requests, ((KIND, 1),), 1.1) == [SlotTally(1), SlotTally(1, 1, 1.0, 1.0)]


def test_requests_go_where_they_start_first_beside_the_fewest() -> None:
    requests = [offered(i, 0.0, Slo(100.0, 1.1)) for i in range(3)]
    assert total(slot_run(requests, ((KIND, 2),), 1.1)).met == 2
    assert total(slot_run([offered(i, 0.0) for i in range(2)], ((KIND, 2),), 1.1)).speed == 2.0
    spread = total(slot_run([offered(i, 0.0) for i in range(4)], ((KIND, 2),), 1.1))
    assert spread.speed == pytest.approx(2.0 + 2 * 1.1 / 1.2)
    assert spread.promptness == 4.0
    fast = replace(KIND, name="a2", step=StepCostModel(0.5, 0.0, 0.1, 0.0))
    assert total(slot_run(requests, ((KIND, 1), (fast, 1)), 1.1)).met == 3


def test_contexts_slow_the_steps() -> None:
    slow = replace(KIND, step=StepCostModel(1.0, 0.0, 0.0, 0.001))
    # One of 100 prompt tokens and 10 of its own has 105 in the mean: 1.105 s.
    assert total(slot_run([offered(0, 0.0, Slo(1.0, 1.105))], ((slow, 1),), 1.0)).met == 1
    assert total(slot_run([offered(0, 0.0, Slo(1.0, 1.104))], ((slow, 1),), 1.0)).met == 0


def test_nothing_offered_is_nothing_met() -> None:
    assert slot_run([], ((KIND, 1),), 1.0) == []
    assert slot_run([offered(0, 0.0)], (), 1.0) == [SlotTally(1, 0, 0.0, 0.0)]
    assert ServingScore().of(SlotTally()) == 0.0


def test_the_score_weighs_slos_before_speed_and_waiting() -> None:
    tally = SlotTally(10, 5, 2.0, 4.0)
    assert ServingScore(0.8, 0.25).of(tally) == pytest.approx(0.8 * 0.5 + 0.2 * (0.25 * 0.2 + 0.75 * 0.4))
    assert ServingScore(1.0).of(tally) == 0.5
    assert tally.unserved == 5
    assert tally + SlotTally(1, 1, 0.5, 0.25) == SlotTally(11, 6, 2.5, 4.25)


def test_a_deadline_for_the_last_token_counts_the_wait() -> None:
    assert meets(Slo(0.0, 0.0, 5.0, whole=True), 1.0, 0.4, 10)
    assert not meets(Slo(0.0, 0.0, 5.0, whole=True), 1.01, 0.4, 10)
    assert not meets(Slo(1.0, 1.0, 4.9), 1.0, 0.4, 10)
