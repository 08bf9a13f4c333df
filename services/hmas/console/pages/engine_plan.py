"""The page Plan: the engines that all pools should have beside those that they have, the steps between, why, and what
an operator may order."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from hmas.console.pages.engine_groups import SeenEngine, group_view, seen_engines
from hmas.console.pages.numbers import rounded
from hmas.console.plan_orders import PlanAct, idle_order, told_plan
from hmas.console.state import TOLD_CHARS, ConsoleState, Flag
from hmas.contracts.pool_plan import PlanDecision, PlanStep, PoolPlan, StepKind
from hmas.laws.layout import described, described_split
from hmas.laws.plan_steps import described_plans, described_step, told_type

KINDS = ("plan", "step")  # of what the controller tells of plans; else it names no pool
SHOWN_FLAGS = 20


def view_plan(state: ConsoleState, now_s: float, choice: str) -> dict[str, Any]:
    """Returns the plan in force by pool and by type, its steps in order, the engines that heartbeats tell of by pool
    and cards, what was decided about plans lately, and what may be ordered. `known` is false where no plan was heard
    of."""
    plan, seen = state.top.plan, tuple(seen_engines(state, now_s))
    told: dict[str, Any] = {"connected": state.connected, "known": plan is not None, "engines": _by_cards(seen)}
    if plan is None:
        return told | {
            "by": "", "reason": "", "bound": -1.0, "acts": "", "pools": {}, "types": {}, "steps": {}, "flags": {},
            "orders": {},
        }  # fmt: skip
    return told | {
        "acts": plan.acts,
        "orders": _orders(plan),
        "by": plan.selector,
        "reason": plan.reason[:TOLD_CHARS],
        "bound": rounded(plan.bound, 4),
        "pools": _pools(state, plan),
        "types": _types(plan, seen),
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


def _orders(plan: PlanDecision) -> dict[str, Any]:
    """Returns the plan in words, what ran before it, and why an order would change nothing; empty: it would."""
    return {
        "seen": told_plan(plan), "plan": _words(plan.plans), "before": _words(plan.before),
        "idle": {act.value: idle_order(plan, act) for act in PlanAct},
    }  # fmt: skip


def _words(plans: Iterable[PoolPlan]) -> str:
    return "; ".join(f"{described_plans([each])} ({described_split(each.split)})" for each in plans)


def _types(plan: PlanDecision, seen: Iterable[SeenEngine]) -> dict[str, Any]:
    """Returns how many engines of each type are wanted in the end, and ordered now (-1: the controller orders none),
    and those that there are, with their load and classes."""
    groups = defaultdict[str, list[SeenEngine]](list)
    for each in seen:
        groups[told_type(plan.types, each.kind, each.pool)].append(each)
    cards = {each.name: f"{each.gpus} {each.hardware}" for each in plan.types}
    ordered = {each.type: each.count for each in plan.ordered}
    wanted = {group.type: (each.pool, group.count) for each in plan.plans for group in each.groups}
    found = {}
    for name in dict.fromkeys((*wanted, *ordered, *(name for name in groups if name))):
        pool, count = wanted.get(name, (groups[name][0].pool if groups[name] else "", 0))
        figures = {"pool": pool, "cards": cards.get(name, ""), "wanted": count, "ordered": ordered.get(name, -1)}
        found[name] = figures | group_view(groups[name])
    return found


def _step(plan: PlanDecision, step: PlanStep) -> dict[str, Any]:
    splits = {each.pool: described_split(each.split) for each in plan.plans}
    what = splits.get(step.pool, "") if step.kind is StepKind.RECLASS else described_step(step)
    return {
        "pool": step.pool, "kind": step.kind.value, "what": what,
        "acts_after_s": rounded(step.acts_after_s, 1), "lost_gpu_s": rounded(step.lost_gpu_s, 0),
    }  # fmt: skip


def _by_cards(seen: Iterable[SeenEngine]) -> dict[str, Any]:
    """Returns the engines of each pool by the cards that they have: how many serve and how many do not, their load and
    their classes."""
    groups = defaultdict[tuple[str, str], list[SeenEngine]](list)
    for each in seen:
        groups[each.pool, each.kind.hardware].append(each)
    return {
        f"{pool} {hardware}": {"pool": pool, "cards": hardware} | group_view(groups[pool, hardware])
        for pool, hardware in sorted(groups)
    }


def _about_plans(state: ConsoleState) -> list[Flag]:
    """Returns the last decisions of the meta controller about plans."""
    found = [f for f in state.flags if f.record.source == "meta" and (f.record.kind in KINDS or not f.record.pool)]
    return found[-SHOWN_FLAGS:]


def _told(flag: Flag) -> dict[str, Any]:
    """Returns a decision, with the gains that were predicted and observed where it has them."""
    record = flag.record
    gains = {"predicted": record.predicted_gain, "observed": record.observed_gain}
    return {name: rounded(gain, 4) for name, gain in gains.items() if gain is not None} | {
        "at_s": rounded(flag.at_s, 1), "pool": record.pool, "kind": record.kind, "by": record.selector,
        "decision": record.decision[:TOLD_CHARS], "reason": record.reason[:TOLD_CHARS],
    }  # fmt: skip
