"""The page Plan: what is planned beside what there is."""

from dataclasses import replace

from hmas.console.pages.engine_plan import view_plan
from hmas.console.plan_orders import PlanAct, told_plan
from hmas.console.state import ConsoleState
from hmas.contracts.cadences import WORKER_LOST_AFTER_S
from hmas.contracts.control import EngineClass, Layout, LayoutDecision, Split
from hmas.contracts.pool_plan import ExpectedShare, Group, PlanDecision, PlannedType, PlanStep, StepKind
from tests.builders.instance_types import pool_plan
from tests.builders.registry import engine_info, worker_heartbeat
from tests.builders.telemetry import engine_sample, worker_telemetry
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
    acts="scale", before=(pool_plan("m", tp4=2),),
    types=tuple(PlannedType(name=f"tp{n}", model="m", hardware="h100", gpus=n) for n in (1, 2, 4, 8)),
)  # fmt: skip
NONE_THERE = {"up": 0, "down": 0, "running": 0, "waiting": 0, "load": -1.0, "classes": ""}


def test_a_plan_stands_beside_the_engines_that_there_are() -> None:
    state = ConsoleState()
    engines = (engine_info("a", hardware="h100x4"), engine_info("b", hardware="h100x4", up=False))
    state.hear(1.0, worker_heartbeat("w", pool="m", engines=engines))
    assert view_plan(state, 1.0, "")["known"] is False
    there = {"up": 1, "down": 1, "running": 0, "waiting": 0, "load": -1.0, "classes": "mixed"}
    assert view_plan(state, 1.0, "")["engines"] == {"m h100x4": {"pool": "m", "cards": "h100x4", **there}}
    state.hear(2.0, PLAN)
    view = view_plan(state, 2.0, "")
    assert (view["known"], view["by"], view["reason"], view["bound"]) == (True, "search", "tight", 0.99)
    assert view["types"] == {
        "tp4": {"pool": "m", "cards": "4 h100", "wanted": 1, "ordered": 1, **there},
        "tp2": {"pool": "m", "cards": "2 h100", "wanted": 2, "ordered": -1, **NONE_THERE},
        "tp1": {"pool": "", "cards": "1 h100", "wanted": 0, "ordered": 0, **NONE_THERE},
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


def test_each_group_has_its_load_and_its_classes() -> None:
    state = ConsoleState()
    names = {"a": "h100x4", "b": "h100x2", "c": "h100x2", "d": "h100x8", "e": "l40s"}
    engines = tuple(engine_info(name, hardware=cards) for name, cards in names.items())
    state.hear(1.0, worker_heartbeat("w", pool="m", engines=engines))
    samples = [
        engine_sample(engine=name, running=running, waiting=waiting, utilisation=load)
        for name, running, waiting, load in (("a", 3, 0, 0.4), ("b", 5, 1, 0.5), ("c", 7, 2, 1.0), ("e", 1, 0, 0.1))
    ]
    state.hear(1.0, worker_telemetry("w", engines=tuple(samples)))
    layout = Layout((0.02,), tuple(EngineClass(f"w/{name}", int(name not in "ab")) for name in names))
    state.hear(
        1.0, LayoutDecision(pool="m", layout=layout, epoch=1, seq=1, valid_for_s=15.0, reason="", selector="plan")
    )
    state.hear(1.0, PLAN)
    view = view_plan(state, 1.0, "")
    figures = {name: (row["up"], row["running"], row["waiting"], row["load"]) for name, row in view["types"].items()}
    assert figures == {
        "tp4": (1, 3, 0, 0.4), "tp2": (2, 12, 3, 0.75), "tp1": (0, 0, 0, -1.0), "tp8": (1, 0, 0, -1.0),
    }  # fmt: skip
    assert [row["classes"] for row in view["types"].values()] == [
        "<= 20 ms: 1", "<= 20 ms: 1, > 20 ms: 1", "", "> 20 ms: 1",
    ]  # fmt: skip
    assert (view["types"]["tp8"]["pool"], view["types"]["tp8"]["wanted"]) == ("m", 0)  # nobody plans it
    assert view["engines"]["m l40s"] == {
        "pool": "m", "cards": "l40s", "up": 1, "down": 0, "running": 1, "waiting": 0, "load": 0.1,
        "classes": "> 20 ms: 1",
    }  # fmt: skip


def test_engines_of_a_worker_that_drains_or_is_lost_do_not_serve() -> None:
    state = ConsoleState()
    for worker, draining in (("w1", True), ("w2", False)):
        state.hear(1.0, worker_heartbeat(worker, pool="m", engines=(engine_info(hardware="l40s"),), draining=draining))
    for now_s, serving in ((1.0, 1), (1.1 + WORKER_LOST_AFTER_S, 0)):
        row = view_plan(state, now_s, "")["engines"]["m l40s"]
        assert (row["up"], row["down"]) == (serving, 2 - serving)


def test_what_was_predicted_of_a_change_stands_beside_what_was_observed() -> None:
    state = ConsoleState()
    state.hear(1.0, PLAN)
    decided = replace(AUDIT, source="meta", pool="", kind="plan", decision="m: 2 tp4", predicted_gain=0.2)
    state.hear(2.0, decided)
    state.hear(3.0, replace(decided, kind="step", pool="m", predicted_gain=None))
    state.hear(4.0, replace(decided, kind="outcome", observed_gain=-0.01234))
    found = [(each.get("predicted"), each.get("observed")) for each in view_plan(state, 4.0, "")["flags"].values()]
    assert found == [(0.2, None), (None, None), (0.2, -0.0123)]


def test_the_page_says_what_may_be_ordered_and_why_not() -> None:
    def idle(plan: PlanDecision) -> dict[str, str]:
        state = ConsoleState()
        state.hear(1.0, plan)
        orders = view_plan(state, 1.0, "")["orders"]
        assert list(orders["idle"]) == list(PlanAct)
        assert orders["seen"] == told_plan(plan)
        return {name: reason for name, reason in orders["idle"].items() if reason}

    assert idle(PLAN) == idle(replace(PLAN, acts="routing")) == {}
    already, unknown = "an operator's plan is in force already", "nothing else is known to have run before this plan"
    assert idle(replace(PLAN, selector="pin")) == idle(replace(PLAN, selector="console")) == {"apply": already}
    assert idle(replace(PLAN, before=())) == {"roll_back": unknown}
    for acts, words in (("advise", "HMAS_PLAN=advise"), ("", "older than this console")):
        assert {name: words in reason for name, reason in idle(replace(PLAN, acts=acts)).items()} == {
            "apply": True, "roll_back": True,
        }  # fmt: skip
    state = ConsoleState()
    state.hear(1.0, PLAN)
    orders = view_plan(state, 1.0, "")["orders"]
    assert orders["plan"] == "m: 1 tp4, 2 tp2 (<= 20 ms: 1, > 20 ms: 2)"
    assert orders["before"] == "m: 2 tp4 (mixed)"


def test_a_plan_is_told_from_any_other() -> None:
    others = (PLAN, replace(PLAN, plans=PLAN.before), replace(PLAN, before=()))
    assert len({told_plan(each) for each in others}) == 3
    assert told_plan(replace(PLAN, seq=7, reason="late", steps=())) == told_plan(PLAN)
