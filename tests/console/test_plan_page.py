"""The page Plan: what is planned beside what there is."""

from dataclasses import replace

from hmas.console.pages.engine_plan import view_plan
from hmas.console.state import ConsoleState
from hmas.contracts.control import Split
from hmas.contracts.pool_plan import ExpectedShare, Group, PlanDecision, PlanStep, StepKind
from tests.builders.instance_types import pool_plan
from tests.builders.registry import engine_info, worker_heartbeat
from tests.console.heard import AUDIT

PLAN = PlanDecision(
    plans=(pool_plan("m", Split((0.02,), (1, 2)), tp4=1, tp2=2),),
    expected=(ExpectedShare(pool="m", share=0.95, low=0.9, high=0.97, before=0.8),),
    bound=0.99,
    steps=(
        PlanStep(kind=StepKind.RECLASS, pool="m", acts_after_s=1.0, reversible=True),
        PlanStep(kind=StepKind.SCALE, pool="m", type="tp2", count_to=2, acts_after_s=100.0, lost_gpu_s=400.0),
    ),
    ordered=(Group("tp4", 1), Group("tp1", 0)), epoch=1, seq=1, valid_for_s=15.0, reason="tight", selector="search",
)  # fmt: skip


def test_a_plan_stands_beside_the_engines_that_there_are() -> None:
    state = ConsoleState()
    engines = (engine_info("a", hardware="h100x4"), engine_info("b", hardware="h100x4", up=False))
    state.hear(1.0, worker_heartbeat("w", pool="m", engines=engines))
    assert view_plan(state, 1.0, "")["known"] is False
    assert view_plan(state, 1.0, "")["engines"] == {"m h100x4": {"pool": "m", "cards": "h100x4", "up": 1, "down": 1}}
    state.hear(2.0, PLAN)
    view = view_plan(state, 2.0, "")
    assert (view["known"], view["by"], view["reason"], view["bound"]) == (True, "search", "tight", 0.99)
    assert view["types"] == {
        "tp4": {"pool": "m", "wanted": 1, "ordered": 1}, "tp2": {"pool": "m", "wanted": 2, "ordered": -1},
        "tp1": {"pool": "", "wanted": 0, "ordered": 0},
    }  # fmt: skip
    assert view["pools"]["m"] == {
        "classes": "<= 20 ms: 1, > 20 ms: 2", "classes_now": "mixed", "expected": 0.95, "low": 0.9, "high": 0.97,
        "before": 0.8,
    }  # fmt: skip
    told = [(step["what"], step["acts_after_s"], step["lost_gpu_s"]) for step in view["steps"].values()]
    assert told == [("<= 20 ms: 1, > 20 ms: 2", 1.0, 0.0), ("tp2: 0 to 2", 100.0, 400.0)]


def test_what_is_decided_about_plans_stands_apart_from_topologies() -> None:
    state = ConsoleState()
    state.hear(1.0, PLAN)
    for pool, kind in (("m", "rejected"), ("", "rejected"), ("m", "step"), ("m", "rolled_back"), ("", "outcome")):
        state.hear(2.0, replace(AUDIT, source="meta", pool=pool, kind=kind, decision=f"{pool} {kind}"))
    state.hear(3.0, replace(AUDIT, source="statera", pool="", kind="frozen"))
    found = view_plan(state, 3.0, "")["flags"].values()
    assert [each["decision"] for each in found] == [" rejected", "m step", " outcome"]
