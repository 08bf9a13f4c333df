"""The page Plan: the engines that all pools should have beside those that they have, the steps between, and why."""

from collections import Counter
from typing import Any

from hmas.console.pages.numbers import rounded
from hmas.console.state import TOLD_CHARS, ConsoleState, Flag
from hmas.contracts.pool_plan import PlanDecision, PlanStep, StepKind
from hmas.laws.layout import described, described_split
from hmas.laws.plan_steps import described_step

KINDS = ("plan", "step")  # of what the controller tells of plans; else it names no pool
SHOWN_FLAGS = 20


def view_plan(state: ConsoleState, now_s: float, choice: str) -> dict[str, Any]:
    """Returns the plan in force by pool and by type, its steps in order, the engines that heartbeats tell of by pool
    and cards, and what was decided about plans lately. `known` is false where no plan was heard of."""
    plan = state.top.plan
    told: dict[str, Any] = {"connected": state.connected, "known": plan is not None, "engines": _engines(state)}
    if plan is None:
        return told | {"by": "", "reason": "", "bound": -1.0, "pools": {}, "types": {}, "steps": {}, "flags": {}}
    return told | {
        "by": plan.selector,
        "reason": plan.reason[:TOLD_CHARS],
        "bound": rounded(plan.bound, 4),
        "pools": _pools(state, plan),
        "types": _types(plan),
        "steps": {str(place): _step(plan, step) for place, step in enumerate(plan.steps, 1)},
        "flags": {str(flag.number): _told(flag) for flag in _about_plans(state)},
    }


def _pools(state: ConsoleState, plan: PlanDecision) -> dict[str, Any]:
    expected = {each.pool: each for each in plan.expected}
    found = {}
    for each in plan.plans:
        share = expected.get(each.pool)
        figures = (-1.0,) * 4 if share is None else (share.share, share.low, share.high, share.before)
        names = ("expected", "low", "high", "before")
        found[each.pool] = {
            "classes": described_split(each.split),
            "classes_now": described(state.top.layout(each.pool)),
            **{name: rounded(value) for name, value in zip(names, figures, strict=True)},
        }
    return found


def _types(plan: PlanDecision) -> dict[str, Any]:
    """Returns how many engines of each type are wanted in the end, and ordered now; -1: the controller orders none."""
    ordered = {each.type: each.count for each in plan.ordered}
    wanted = {group.type: (each.pool, group.count) for each in plan.plans for group in each.groups}
    found = {}
    for name in (*wanted, *(name for name in ordered if name not in wanted)):
        pool, count = wanted.get(name, ("", 0))
        found[name] = {"pool": pool, "wanted": count, "ordered": ordered.get(name, -1)}
    return found


def _step(plan: PlanDecision, step: PlanStep) -> dict[str, Any]:
    splits = {each.pool: described_split(each.split) for each in plan.plans}
    what = splits.get(step.pool, "") if step.kind is StepKind.RECLASS else described_step(step)
    return {
        "pool": step.pool, "kind": step.kind.value, "what": what,
        "acts_after_s": rounded(step.acts_after_s, 1), "lost_gpu_s": rounded(step.lost_gpu_s, 0),
    }  # fmt: skip


def _engines(state: ConsoleState) -> dict[str, Any]:
    """Returns the engines of each pool by the cards that they have: how many serve, and how many do not."""
    up, down = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in state.top.workers.values():
        for each in row.heartbeat.engines if row.heartbeat is not None else ():
            key = row.heartbeat.pool if row.heartbeat is not None else "", each.hardware
            (up if each.up else down)[key] += 1
    return {
        f"{pool} {hardware}": {"pool": pool, "cards": hardware, "up": up[pool, hardware], "down": down[pool, hardware]}
        for pool, hardware in sorted({*up, *down})
    }


def _about_plans(state: ConsoleState) -> list[Flag]:
    """Returns the last decisions of the meta controller about plans."""
    found = [f for f in state.flags if f.record.source == "meta" and (f.record.kind in KINDS or not f.record.pool)]
    return found[-SHOWN_FLAGS:]


def _told(flag: Flag) -> dict[str, Any]:
    record = flag.record
    return {
        "at_s": rounded(flag.at_s, 1), "pool": record.pool, "kind": record.kind, "by": record.selector,
        "decision": record.decision[:TOLD_CHARS], "reason": record.reason[:TOLD_CHARS],
    }  # fmt: skip
