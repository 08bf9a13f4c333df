"""The plan and the engines of a mesh that runs: what `hmas plan show`, `diff` and `apply` are about."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rich.table import Table
from rich.text import Text

from hmas.contracts.cadences import HEARTBEAT_S
from hmas.contracts.pool_plan import Budget, Catalogue, Group, PlanDecision, PlanStep, PoolPlan, StepKind
from hmas.contracts.routes import Role
from hmas.laws.engine_census import EngineCensus
from hmas.laws.layout import described_split, split_of
from hmas.laws.plan_steps import InstanceCounts, plan_fault, steps_towards
from hmas.mesh.planned_pools import cards_taken
from hmas.meta.agent.config import PlanConfig
from hmas.operator.client import connected
from hmas.operator.mesh_view import MeshView
from hmas.runtime.bus import Bus

LISTEN_S = 12.0  # until a plan was heard, at most
EVERY_WORKER_S = 2.0 * HEARTBEAT_S  # in which each worker is heard


async def heard(bus: Bus, *, plan: bool) -> MeshView:
    """Returns what a mesh tells of itself: its workers, and its plan if `plan` asks for that. Raises MeshUnreachable,
    and ValueError if there is no worker, or no plan where one is asked for."""
    view, told = MeshView(), asyncio.Event()

    def hear(value: Any) -> None:
        view.hear(time.monotonic(), value)
        if view.plan is not None or not plan:
            told.set()

    bus.follow(Role.TOP, hear)
    async with connected(bus):
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(told.wait(), asyncio.sleep(EVERY_WORKER_S)), LISTEN_S)
    if not any(row.heartbeat is not None for row in view.workers.values()):
        raise ValueError("no worker was heard: wait until the mesh is up")
    if plan and view.plan is None:
        raise ValueError(
            f"no plan was heard of in {LISTEN_S:.0f} s: the meta controller tells one once it has HMAS_CATALOGUE, and "
            "an operator's plan or one that it found; `hmas up --plan` gives it both"
        )
    return view


def counts_in(
    view: MeshView, catalogue: Catalogue, plans: Iterable[PoolPlan], ordered: Mapping[str, int] | None = None
) -> dict[str, InstanceCounts]:
    """Returns how many engines of each type of a catalogue there are. What runs is taken to be wanted where nothing
    else was `ordered`."""
    census, now_s = EngineCensus(catalogue), time.monotonic()
    census.house({group.type: each.pool for each in plans for group in each.groups})
    for row in view.workers.values():
        if row.heartbeat is not None:
            census.hear(now_s, row.heartbeat)
    return census.counts(now_s, ordered or {})


def steps_to(
    view: MeshView, plans: Sequence[PoolPlan], catalogue: Catalogue, budgets: Sequence[Budget]
) -> tuple[PlanStep, ...]:
    """Returns the steps from what runs to plans. Without `budgets` they may take the cards of the plans and those that
    are in use, whichever are more. Raises ValueError if the plans cannot be carried out."""
    counts = counts_in(view, catalogue, plans)
    budgets = budgets or _enough(counts, plans, catalogue)
    if fault := plan_fault(plans, catalogue, budgets):
        raise ValueError(f"the plan cannot be carried out: {fault}")
    splits = {each.pool: split_of(view.layout(each.pool)) for each in plans}
    return steps_towards(plans, catalogue, budgets, counts, splits, PlanConfig().drain_s)


def _enough(
    counts: Mapping[str, InstanceCounts], plans: Sequence[PoolPlan], catalogue: Catalogue
) -> tuple[Budget, ...]:
    pools = {each.pool for each in plans}
    running = tuple(Group(name, each.held) for name, each in counts.items())
    kept = tuple(each for each in running if counts[each.type].pool not in pools)
    now = {each.hardware: each.gpus for each in cards_taken([PoolPlan(pool="", groups=running)], catalogue)}
    then = {each.hardware: each.gpus for each in cards_taken([*plans, PoolPlan(pool="", groups=kept)], catalogue)}
    return tuple(Budget(card, max(now.get(card, 0), then.get(card, 0))) for card in now | then)


def steps_table(steps: Sequence[PlanStep], plans: Sequence[PoolPlan], unsettled: str = "") -> Table | Text:
    """Shows the steps that are left, in their order; without any, what they still wait for."""
    if not steps:
        return Text(unsettled or "nothing is left to do: the engines are those of the plan")
    table = Table(title="steps, one after the other", title_justify="left")
    for name in ("pool", "step", "acts after s", "GPU-seconds lost"):
        table.add_column(name, justify="left" if name in ("pool", "step") else "right")
    splits = {each.pool: described_split(each.split) for each in plans}
    for step in steps:
        told = splits.get(step.pool, "") if step.kind is StepKind.RECLASS else _told(step)
        table.add_row(Text(step.pool), Text(told), f"{step.acts_after_s:.0f}", f"{step.lost_gpu_s:.0f}")
    return table


def unsettled_in(counts: Mapping[str, InstanceCounts]) -> str:
    """Returns which engines start or leave, in words; empty if none does."""
    parts = [f"{each.starting} x {name} start" for name, each in counts.items() if each.starting]
    parts += [f"{each.leaving} x {name} leave" for name, each in counts.items() if each.leaving]
    return f"under way: {', '.join(parts)}" if parts else ""


def _told(step: PlanStep) -> str:
    first = "".join(f"{each.count} x {each.type} drain, then " for each in step.leaving)
    number = step.count_to - step.count_from
    return f"{first}{number} x {step.type} start" if number > 0 else f"{-number} x {step.type} drain"


def plan_table(decision: PlanDecision, counts: Mapping[str, InstanceCounts]) -> Table:
    """Shows the plan in force beside what there is."""
    table = Table(title=f"plan by {decision.selector}: {decision.reason}", title_justify="left")
    for name in ("pool", "type", "planned", "ordered", "up", "starting", "leaving", "expected on time"):
        table.add_column(name, justify="left" if name in ("pool", "type") else "right")
    ordered = {each.type: str(each.count) for each in decision.ordered}
    expected = {each.pool: f"{each.share:.1%} ({each.low:.1%} to {each.high:.1%})" for each in decision.expected}
    planned = {group.type: (each.pool, group.count) for each in decision.plans for group in each.groups}
    gone = {name: (each.pool, 0) for name, each in counts.items() if name not in planned}
    for name, (pool, count) in (planned | gone).items():
        now = counts.get(name, InstanceCounts(pool))
        table.add_row(
            Text(pool), Text(name), str(count), ordered.get(name, "-"), str(now.up), str(now.starting),
            str(now.leaving), expected.get(pool, "-"),
        )  # fmt: skip
    return table
