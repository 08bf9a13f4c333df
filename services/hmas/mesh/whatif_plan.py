"""A plan as a candidate of `hmas whatif`: its engines, the types of those that are there, and the steps in words."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hmas.contracts.control import Split
from hmas.contracts.pool_plan import PoolPlan
from hmas.contracts.rehearsal import InstanceCount, PoolFacts
from hmas.laws.rehearsal import typed
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


def planned(pool: str, facts: PoolFacts, plan: Path, catalogue: Path | None) -> WantedEngines:
    """Reads what the plan in a file wants of a pool; its types are of the catalogue in a file, by default of the one
    that ships. Raises ValueError, or OSError if a file cannot be read."""
    known = shipped_catalogue() if catalogue is None else read_catalogue(catalogue)
    wanted = _of_pool(pool, read_plan(plan, known))
    engines = tuple(InstanceCount(known.named(group.type), group.count) for group in wanted.groups)
    model = engines[0].instance_type.model
    facts = typed(facts, [each for each in known.types if each.model == model])
    split = wanted.split if wanted.split.cuts_s else None
    return WantedEngines(engines, facts, steps_told(engines, facts), split)


def _of_pool(pool: str, plans: Sequence[PoolPlan]) -> PoolPlan:
    """Returns the plan of a pool; a record without a pool's name takes the only one."""
    named = {each.pool: each for each in plans}
    if pool in named:
        return named[pool]
    if not pool and len(plans) == 1:
        return plans[0]
    raise ValueError(f"the plan says nothing of the pool {pool!r}: it has {', '.join(named)}")


def steps_told(engines: Sequence[InstanceCount], facts: PoolFacts) -> str:
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
    parts += [f"{count} x {name} drain" for name, count in has.items() if count]
    if unknown:
        parts.append(f"{unknown} like no type of the catalogue drain")
    return ", ".join(parts)
