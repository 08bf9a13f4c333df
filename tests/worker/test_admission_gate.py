"""The gate of KV memory: who is admitted, and what is reserved for it."""

from typing import Any

from hmas.contracts.control import (
    Fence,
    FenceBucket,
    FenceTable,
)
from hmas.worker.agent.config import EngineStateConfig
from hmas.worker.agent.engines.admission import AdmissionGate
from hmas.worker.agent.engines.engine_state import EngineState
from tests.worker.builders import annotation, engine, entry, request


def state(**changes: Any) -> EngineState:
    made = EngineState(engine(**changes), EngineStateConfig())
    made.come_up(0.0)
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


def test_a_tenants_own_table_comes_first() -> None:
    gate = AdmissionGate(delta_frag=0.0, growth=1.25)
    own, other = (entry(n, request(f"r{n}", tenant=tenant)) for n, tenant in ((1, "a"), (2, "b")))
    for each in (own, other):
        each.annotate(annotation(100.0))
    gate.adopt(Fence((
        FenceTable(own.predictor, (FenceBucket(1 << 31, 3.0),)),
        FenceTable(own.predictor, (FenceBucket(1 << 31, 0.5),), tenant="a"),
    )))  # fmt: skip
    assert gate.upper(own) * 6.0 == gate.upper(other)
