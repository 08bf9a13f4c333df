"""Skipping quiet steps changes nothing."""

import pytest

from hmas.engine.core import EngineCore
from hmas.engine.core.sequence import EngineRequest
from hmas.engine.core.step import StepResult
from hmas.sim.estimators import linear_costs
from hmas.sim.processes.engine import SimEngine
from hmas.sim.processes.fleet import EngineFleet, FleetSetting
from hmas.sim.processes.heap import EventHeap
from hmas_lab.sim.baselines.systems import BASELINES
from tests.sim.sim_cases import SMALL, random_workload


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("rate", [2.0, 9.0])
def test_skipping_equals_stepping(name: str, rate: float) -> None:
    baseline, workload = BASELINES[name], random_workload(3, rate, 25.0)
    runs = []
    for skip in (True, False):
        cores = [baseline.core(SMALL, FleetSetting(5 + i)) for i in range(2)]
        runs.append(EngineFleet(baseline, cores, workload, skip=skip, costs=linear_costs()).run())
    assert runs[0].settlements == runs[1].settlements
    assert runs[0].run.engine_steps == runs[1].run.engine_steps
    assert runs[0].run.busy_s == pytest.approx(runs[1].run.busy_s)


@pytest.mark.parametrize("skip", [True, False])
def test_interruptions_fall_into_the_step_in_flight(skip: bool) -> None:
    heap, seen = EventHeap(), []

    def listen(engine: SimEngine, result: StepResult) -> None:
        seen.append((heap.now_s, tuple(result.first), tuple(result.finished)))

    engine = SimEngine(heap, EngineCore(SMALL), "e0", listen, skip)
    heap.at(0.0, engine.add, EngineRequest("a", 100, 200))
    heap.at(0.3333, engine.add, EngineRequest("b", 50, 100))
    heap.at(0.7777, engine.abort, "a")
    heap.at(0.9, engine.set_limits, 1, 1)
    heap.at(0.95, engine.catch_up)
    heap.run(10.0)
    assert [first for _, first, _ in seen if first] == [("a",), ("b",)]
    assert [done for _, _, done in seen if done] == [("b",)]
    assert engine.core.stats().generation_tokens > 100
    assert seen == _reference(not skip)


def _reference(skip: bool) -> list[tuple[float, tuple[str, ...], tuple[str, ...]]]:
    heap: EventHeap = EventHeap()
    seen: list[tuple[float, tuple[str, ...], tuple[str, ...]]] = []
    engine = SimEngine(
        heap,
        EngineCore(SMALL),
        "e0",
        lambda engine, result: seen.append((heap.now_s, tuple(result.first), tuple(result.finished))),
        skip,
    )
    for at, call, args in (
        (0.0, engine.add, (EngineRequest("a", 100, 200),)),
        (0.3333, engine.add, (EngineRequest("b", 50, 100),)),
        (0.7777, engine.abort, ("a",)),
        (0.9, engine.set_limits, (1, 1)),
    ):
        heap.at(at, call, *args)
    heap.run(10.0)
    return seen


def test_the_heap_keeps_order_and_time() -> None:
    heap = EventHeap()
    seen: list[str] = []

    def first() -> None:
        seen.append("a")
        heap.after(0.1, seen.append, "late")

    heap.at(1.0, seen.append, "b")
    heap.at(1.0, seen.append, "c")
    heap.at(0.5, first)
    heap.run(1.0)
    assert seen == ["a", "late", "b", "c"]
    assert heap.now_s == 1.0
    with pytest.raises(ValueError, match="cannot be scheduled"):
        heap.at(0.9, seen.append, "past")
