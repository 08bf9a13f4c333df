"""A plan as a candidate of `hmas whatif`: its engines, the types of those that are there, and the steps in words."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hmas.contracts.control import Split
from hmas.contracts.pool_plan import Budget, Catalogue, PoolPlan
from hmas.contracts.rehearsal import InstanceCount, PoolFacts
from hmas.laws.plan_steps import InstanceCounts, plan_fault, steps_towards
from hmas.laws.rehearsal import typed
from hmas.mesh.planned_pools import cards_taken
from hmas.runtime.catalogue_file import read_catalogue, shipped_catalogue
from hmas.runtime.plan_file import read_plan


@dataclass(frozen=True, slots=True)
class WantedEngines:
    """The engines that the options ask for, None if for no others, and the `facts` of those that the pool has, of a
    plan with their instance types. `steps`: from the ones to the others, in words. `split`: the plan's own; None if it
    has none, or there is no plan."""

    engines: tuple[InstanceCount, ...] | int | None
    facts: PoolFacts
    steps: str = ""
    split: Split | None = None
    leave_after_s: float = 0.0


def planned(
    pool: str, facts: PoolFacts, plan: Path, catalogue: Path | None, budgets: Sequence[Budget] = ()
) -> WantedEngines:
    """Reads what the plan in a file wants of a pool; its types are of the catalogue in a file, by default of the one
    that ships. `budgets` are the cards of all pools, none if they are not known. Raises ValueError, or OSError if a
    file cannot be read."""
    known = shipped_catalogue() if catalogue is None else read_catalogue(catalogue)
    plans = read_plan(plan, known)
    wanted = _of_pool(pool, plans)
    engines = tuple(InstanceCount(known.named(group.type), group.count) for group in wanted.groups)
    model = engines[0].instance_type.model
    facts = typed(facts, [each for each in known.types if each.model == model])
    split = wanted.split if wanted.split.cuts_s else None
    free = _left_by([each for each in plans if each is not wanted], known, budgets)
    leave_after_s = _leave_after_s(wanted, facts, known, free)
    return WantedEngines(engines, facts, steps_told(engines, facts, leave_after_s), split, leave_after_s)


def _left_by(others: Sequence[PoolPlan], catalogue: Catalogue, budgets: Sequence[Budget]) -> list[Budget]:
    """Returns the cards that other pools leave where they have what is planned for them."""
    taken = {each.hardware: each.gpus for each in cards_taken(others, catalogue)}
    return [Budget(each.hardware, each.gpus - taken.get(each.hardware, 0)) for each in budgets]


def _leave_after_s(wanted: PoolPlan, facts: PoolFacts, catalogue: Catalogue, free: Sequence[Budget]) -> float:
    """Returns how long after the order engines leave that have no place: once those have started that join, where there
    are cards for both; at once where these need their cards, or where that is not known."""
    kinds = [each.instance_type for each in facts.engines]
    if not free or None in kinds or plan_fault([wanted], catalogue, free):
        return 0.0
    has = Counter(each.name for each in kinds if each is not None)
    counts = {name: InstanceCounts(wanted.pool, up=number) for name, number in has.items()}
    steps = steps_towards([wanted], catalogue, free, counts, {}, 0.0)
    if any(step.leaving for step in steps):
        return 0.0
    return sum(step.acts_after_s for step in steps if step.count_to > step.count_from)


def _of_pool(pool: str, plans: Sequence[PoolPlan]) -> PoolPlan:
    """Returns the plan of a pool; a record without a pool's name takes the only one."""
    named = {each.pool: each for each in plans}
    if pool in named:
        return named[pool]
    if not pool and len(plans) == 1:
        return plans[0]
    raise ValueError(f"the plan says nothing of the pool {pool!r}: it has {', '.join(named)}")


def steps_told(engines: Sequence[InstanceCount], facts: PoolFacts, leave_after_s: float = 0.0) -> str:
    """Returns the steps from the engines that a pool has to those of a plan, in words."""
    has = Counter(each.instance_type.name for each in facts.engines if each.instance_type is not None)
    unknown = len(facts.engines) - has.total()
    parts = []
    for each in engines:
        kind = each.instance_type
        stay = min(each.count, has[kind.name])
        has[kind.name] -= stay
        if stay:
            parts.append(f"{stay} x {kind.name} stay")
        if each.count > stay:
            parts.append(f"{each.count - stay} x {kind.name} join after {kind.start_s:g} s")
    when = f" after {leave_after_s:g} s" if leave_after_s else ""
    parts += [f"{count} x {name} drain{when}" for name, count in has.items() if count]
    if unknown:
        parts.append(f"{unknown} like no type of the catalogue drain")
    return ", ".join(parts)
