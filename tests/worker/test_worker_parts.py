"""Heap, prior, meter, regulator, gate and controls, each by itself."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.control import (
    ControlTuple,
    EngineControl,
    Fence,
    FenceBucket,
    FenceTable,
    Hints,
    TopologyDecision,
    TopologyName,
)
from hmas.contracts.request import Slo
from hmas.worker.agent.admission import AdmissionGate
from hmas.worker.agent.config import EngineStateConfig, MeterConfig, WorkerConfig, WorkerPriorConfig
from hmas.worker.agent.controls import ControlState
from hmas.worker.agent.engine_state import EngineState
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.flow import FlowRegulator
from hmas.worker.agent.keyed_heap import KeyedHeap
from hmas.worker.agent.meter import ServiceMeter
from hmas.worker.agent.prior import Assumption, Prior
from hmas.worker.agent.state import AgentState
from hmas.worker.agent.topologies.lottery import TicketTree
from tests.worker.builders import annotation, engine, entry, request


def test_entry_derives_its_deadlines() -> None:
    made = entry(1, request("r", arrival_s=10.0, slo=Slo(2.0, 0.1)), tokens=50.0)
    assert made.deadline_s == 10.0 + 2.0 + 0.1 * 50
    assert made.ttft_deadline_s == 12.0
    made.annotate(annotation(20.0, ttft_s=0.5, tpot_s=0.05, slo=Slo(3.0, 0.2)))
    assert (made.total_s, made.deadline_s, made.slack_s) == (1.5, 17.0, 15.5)
    made.annotate(annotation(20.0, ttft_s=0.5, tpot_s=0.05, slo=Slo(3.0, 0.2, ttlt_s=8.0, whole=True)))
    assert (made.deadline_s, made.ttft_deadline_s) == (18.0, 17.0)
    capped = entry(2, request("c", max_tokens=10), tokens=50.0)
    assert (capped.predicted_tokens, capped.predicted_p90) == (10, 10)


def test_what_generates_nothing_costs_its_prompt_alone() -> None:
    """An embedding: whatever is predicted, no token is expected, no time to make one and no memory for one."""
    req = request("r", max_tokens=0, prompt_tokens=640, slo=Slo(2.0, 0.1))
    made = entry(1, req, tokens=50.0)
    made.annotate(annotation(200.0, ttft_s=0.5, tpot_s=0.05, slo=Slo(3.0, 0.2)))
    assert req.prefill_only
    assert (made.predicted_tokens, made.predicted_p90, made.work_tokens) == (0, 0, 640)
    assert (made.total_s, made.deadline_s) == (0.5, 3.0)
    gate = AdmissionGate(delta_frag=0.0, growth=1.25)
    gate.adopt(Fence((), 400.0))
    assert gate.upper(made) == gate.grown(made) == 1.0


def test_heap_sheds_what_was_removed_or_moved() -> None:
    heap: KeyedHeap[QueueEntry] = KeyedHeap()
    kept, *others = [entry(i) for i in range(1, 500)]
    for each in (kept, *others):
        heap.push(float(each.seq), each)
    for each in others:
        heap.remove(each)
    for i in range(1000):
        heap.rekey(1000.0 - i, kept)
    assert len(heap) == 1
    assert len(heap._items) <= 2 * 1 + 65
    assert heap.pop() == (1.0, kept)
    assert heap.pop() is None


@given(st.lists(st.tuples(st.integers(0, 63), st.integers(0, 50)), max_size=60), st.integers(0, 5))
def test_ticket_tree_finds_the_holder(changes: list[tuple[int, int]], growths: int) -> None:
    tree = TicketTree()
    held = [0]
    for index, (slot, tickets) in enumerate(changes):
        if index % 7 == 0 and len(held) < 1 << growths:
            tree.grow()
            held += [0] * len(held)
        tree.put(slot % len(held), tickets)
        held[slot % len(held)] = tickets
    owners = [slot for slot, tickets in enumerate(held) for _ in range(tickets)]
    assert tree.total == len(owners)
    assert [tree.find(ticket) for ticket in range(tree.total)] == owners


def test_prior_narrows_from_default_to_pool_to_tenant() -> None:
    prior = Prior(
        WorkerPriorConfig(output_tokens=200.0, output_tokens_p90=500.0, prefill_tokens_per_s=1000.0, tpot_s=0.05)
    )
    cold = prior.estimate("a", 100)
    assert (cold.output_tokens, cold.output_tokens_p90, cold.ttft_s, cold.tpot_s) == (200.0, 500.0, 0.1, 0.05)
    for _ in range(20):
        prior.learn_length("b", 100, 40)
    assert prior.estimate("a", 100).output_tokens == pytest.approx(40.0)  # of its prompt bucket
    assert prior.estimate("a", 5000).output_tokens == pytest.approx(40.0)  # of all
    for _ in range(20):
        prior.learn_length("a", 100, 900)
    assert prior.estimate("a", 100).output_tokens == pytest.approx(900.0)
    assert prior.estimate("b", 100).output_tokens == pytest.approx(40.0)


def test_prior_quantile_covers_nine_in_ten() -> None:
    rng, prior = Random(4), Prior(WorkerPriorConfig())
    lengths = [int(rng.lognormvariate(5.0, 0.7)) for _ in range(2000)]
    covered = 0
    for length in lengths:
        covered += length <= prior.estimate("a", 100).output_tokens_p90
        prior.learn_length("a", 100, length)
    assert 0.86 <= covered / len(lengths) <= 0.94


def test_prior_is_bounded_and_follows_measured_speed() -> None:
    config = WorkerPriorConfig(prefill_tokens_per_s=1000.0, tpot_s=0.05)
    prior = Prior(config)
    for tenant in range(config.max_cells + 100):
        prior.learn_length(f"t{tenant}", 100, 10)
    assert len(prior._cells) == config.max_cells
    for _ in range(500):
        prior.learn_prefill(1000, 0.2)
        prior.learn_decode(0.01)
    estimate = prior.estimate("x", 1000)
    assert estimate.ttft_s == pytest.approx(0.2, rel=0.01)
    assert estimate.tpot_s == pytest.approx(0.01, rel=0.01)


def test_meter_measures_only_under_backlog() -> None:
    meter = ServiceMeter(MeterConfig())
    assert meter.wait_s(10.0, 4.0) == 2.5
    meter.close(0.0, backlogged=True)
    meter.add(6.0)
    meter.close(2.0, backlogged=True)
    assert meter.wait_s(30.0, 4.0) == 10.0
    meter.add(0.1)
    meter.close(4.0, backlogged=False)
    assert meter.wait_s(30.0, 4.0) == 10.0


CONTROL = EngineControl(engine="e1", n_run=10, b_token=6, b_min=2, b_max=8, gain_b=10.0, u_low=0.5, u_high=0.8)


def test_regulator_moves_by_gain_times_the_error_outside_the_band() -> None:
    loop = FlowRegulator()
    loop.adopt(CONTROL, 0)
    loop.regulate(0.6, CONTROL, 0)
    assert (loop.b_token, loop.saturated) == (6, 0)
    loop.regulate(1.0, CONTROL, 0)
    assert (loop.b_token, loop.saturated) == (4, 0)
    loop.regulate(1.1, CONTROL, 0)
    assert (loop.b_token, loop.saturated) == (2, -1)
    loop.adopt(CONTROL, 0)  # repeated: the loop stays where it is
    assert loop.b_token == 2
    loop.regulate(0.0, CONTROL, 0)
    loop.regulate(0.0, CONTROL, 0)
    assert (loop.b_token, loop.saturated) == (8, 1)


def test_regulator_never_goes_below_what_runs() -> None:
    loop = FlowRegulator()
    loop.adopt(CONTROL, 12)
    assert loop.b_token == 12
    loop.regulate(2.0, CONTROL, 12)
    assert (loop.b_token, loop.saturated) == (12, -1)


def state(**changes: Any) -> EngineState:
    made = EngineState(engine(**changes), EngineStateConfig())
    made.up = True
    made.cap = 100
    return made


def test_gate_rounds_up_to_blocks_and_keeps_the_margin() -> None:
    gate = AdmissionGate(delta_frag=0.1, growth=1.25)
    target = state(kv_capacity_tokens=1000)
    target.budget_blocks = gate.budget_blocks(target)
    assert target.budget_blocks == 56  # 900 tokens in whole blocks of 16
    assert gate.need(target, entry(1, request(prompt_tokens=16)), 1.0) == 2
    first, second = entry(3, request("r3", prompt_tokens=790)), entry(4, request("r4", prompt_tokens=90))
    second.relegated = True  # which leaves the margin alone, small as it is
    first.blocks = gate.need(target, first, 10.0)
    target.occupy(0.0, first, 0.1)
    assert gate.admits(0.0, target, second, gate.need(target, second, 6.0))
    assert not gate.admits(0.0, target, second, gate.need(target, second, 7.0))
    alone = entry(2, request(prompt_tokens=800))
    assert gate.need(target, alone, 5000.0) == 56  # cut to the budget: it runs alone
    assert gate.could_ever(target, 895)
    assert not gate.could_ever(target, 896)


def test_gate_admits_who_comes_when_others_have_left() -> None:
    """Two of 480 + 320 tokens do not fit 1440 in the end; when one is past half its answer, they do not meet there."""
    gate = AdmissionGate(delta_frag=0.0, growth=1.25)
    target = state(kv_capacity_tokens=1440)
    target.budget_blocks = gate.budget_blocks(target)
    first, second = (entry(n, request(f"r{n}", prompt_tokens=480)) for n in (1, 2))
    first.blocks = gate.need(target, first, 320.0)
    target.occupy(0.0, first, 0.1)
    assert not gate.admits(0.0, target, second, gate.need(target, second, 320.0))
    target.produced(first, 200)
    assert gate.admits(1.0, target, second, gate.need(target, second, 320.0))
    target.reserve(first, gate.need(target, first, 500.0))  # it turns out longer
    assert not gate.admits(1.0, target, second, gate.need(target, second, 320.0))


def test_gate_lets_a_small_request_fill_the_margin() -> None:
    """100 of 110 blocks may be filled, and ten requests hold them: one that takes at most 7 may begin all the same."""
    gate = AdmissionGate(delta_frag=1 / 11, growth=1.25)
    target = state(kv_capacity_tokens=1760)
    target.budget_blocks = gate.budget_blocks(target)
    assert target.budget_blocks == 100

    def begins(number: int, blocks: int, *, relegated: bool = False) -> bool:
        one = entry(number, request(f"r{number}", prompt_tokens=16 * blocks))
        one.relegated = relegated
        if fits := gate.admits(0.0, target, one, blocks):
            one.blocks = blocks
            target.occupy(0.0, one, 0.1)
        return fits

    assert all(begins(n, 10) for n in range(10))
    assert not begins(10, 8)
    assert not begins(11, 7, relegated=True)
    assert begins(12, 7)
    assert not begins(13, 4)
    assert begins(14, 3)


def test_gate_reserves_for_one_of_many_less_than_its_bound_until_it_needs_more() -> None:
    gate = AdmissionGate(delta_frag=0.0, growth=1.25)
    gate.adopt(Fence((FenceTable("v1", (FenceBucket(1 << 31, 2.0, 1.2),)),), 500.0))
    made = entry(1)
    made.annotate(annotation(100.0))
    p90 = made.predicted_p90
    assert (gate.upper(made), gate.reserved(made)) == (2.0 * p90, 1.2 * p90)
    made.admit(gate.upper(made), gate.reserved(made), 9)
    made.output_tokens = int(1.2 * p90) + 1
    assert gate.grown(made) == made.upper_output_tokens == 2.0 * p90
    made.output_tokens = int(2.0 * p90)
    assert gate.grown(made) == max(500.0, 1.25 * made.output_tokens + 1.0)
    gate.adopt(Fence((FenceTable("v1", (FenceBucket(1 << 31, 1.0, 3.0),)),)))
    made.output_tokens = 0
    assert gate.reserved(made) == gate.upper(made)  # never more than the bound
    gate.adopt(Fence((FenceTable("v1", (FenceBucket(1 << 31, 1.5),)),)))
    assert gate.reserved(made) == gate.upper(made)  # a writer that knows of no lower quantile


def test_gate_bound_never_undercuts_what_was_produced() -> None:
    gate = AdmissionGate(delta_frag=0.0, growth=1.25)
    gate.adopt(Fence((FenceTable("v1", (FenceBucket(1 << 31, 0.001),)),), 40.0))
    made = entry(1)
    made.annotate(annotation(100.0))
    assert gate.upper(made) == 1.0
    made.output_tokens = 80
    assert gate.upper(made) == 80.0
    assert gate.grown(made) == 101.0
    gate.adopt(Fence((), 400.0))
    assert gate.grown(made) == 400.0


def test_controls_age_before_they_arrive_and_renew() -> None:
    controls = ControlState("w1", "m")
    decision = TopologyDecision(
        pool="m",
        topology=TopologyName.EDF,
        hints=Hints(),
        bypass=False,
        epoch=1,
        seq=1,
        valid_for_s=10.0,
        reason="",
        selector="",
    )
    assert not controls.take_decision(0.0, decision, 10.0)  # an old value from the bucket
    assert controls.take_decision(0.0, decision, 4.0)
    assert controls.take_decision(5.0, decision, 0.0)
    assert controls.expire(14.9) == []
    before = controls.topology[0]
    assert controls.expire(15.0) == ["topology"]
    assert controls.expire(16.0) == []
    assert (before, controls.topology[0]) == (TopologyName.EDF, TopologyName.FCFS)
    assert controls.take_decision(17.0, decision, 0.0)
    assert controls.expired  # there is no tuple
    assert controls.take_tuple(
        17.0, ControlTuple(worker="w1", engines=(), fence=Fence(), epoch=1, seq=1, valid_for_s=10.0), 0.0
    )
    assert not controls.expired
    other = TopologyDecision(
        pool="another",
        topology=TopologyName.SJF,
        hints=Hints(),
        bypass=False,
        epoch=9,
        seq=1,
        valid_for_s=10.0,
        reason="",
        selector="",
    )
    assert not controls.take_decision(17.0, other, 0.0)


def test_what_every_first_token_waits_for_is_no_work_of_a_prompt_whoever_predicted_it() -> None:
    """The prior learns how long first tokens take, so that its least is more than the cost model's."""
    state = AgentState(WorkerConfig(worker="w", incarnation="i", address="h:1", pool="m"), Random(1))
    for model_s, prior_s in ((0.01, 0.05), (0.03, 0.07)):
        state.see_prefill(model_s)
        state.see_prior(prior_s)
    untagged = QueueEntry(
        request(), attempt=1, gateway="g", seq=1, now_s=0.0, estimate=Assumption(50.0, 100.0, 0.07, 0.02)
    )
    assert state.prefill_s(untagged) == pytest.approx(0.02, rel=0.02)
    untagged.annotate(annotation(50.0, ttft_s=0.03))
    assert state.prefill_s(untagged) == pytest.approx(0.02, rel=0.02)
