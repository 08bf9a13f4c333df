"""Plans near what runs: a search finds the best engines, however many steps away; of plans that are nearly as good,
those are worth more whose steps take fewer cards from what serves.

Each pool has as options what runs, that with one engine more or fewer of some type, and what the search has valued on
its way. All combinations within the budgets are weighed by what they gain for as long as it lasts, less what their
steps cost.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from hmas.contracts.control import Split
from hmas.contracts.pool_plan import Budget, Catalogue, Group, InstanceType, PoolPlan
from hmas.laws.pace import PaceConfig
from hmas.laws.placement.candidates import PaceTable, types_of
from hmas.laws.placement.demand import PoolDemand
from hmas.laws.placement.plan_search import PlacementFound, PoolValue
from hmas.laws.plan_steps import InstanceCounts, requests_lost, steps_towards

Plans = tuple[PoolPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NearConfig:
    """For each of `horizons_s`, the seconds that a gain may last, one plan is looked for. An engine is expected to
    drain for `drain_s`. `splits` of the pace law are tried beside mixed. With many pools, each has only so many options
    that at most `combinations` are weighed."""

    horizons_s: tuple[float, ...] = (600.0, 3600.0)
    drain_s: float = 60.0
    splits: int = 2
    combinations: int = 5000


@dataclass(frozen=True, slots=True)
class _Option:
    """One way to run a pool: its plan, the requests per second that it keeps on time beyond what runs, and the cards
    that it takes beyond that."""

    plan: PoolPlan
    gain_rps: float
    cards: int


def near_plans(
    found: PlacementFound,
    standing: Plans,
    demands: Sequence[PoolDemand],
    catalogue: Catalogue,
    budgets: Sequence[Budget],
    value: PoolValue,
    config: NearConfig,
) -> tuple[Plans, ...]:
    """Returns for each horizon the plans of all pools that are worth the most beside those that run, `standing`, where
    they are worth more than these. `demands` and what was `found` are in the order of `standing`."""
    options = [
        _options_of(*each, catalogue, budgets, value, config)
        for each in zip(standing, demands, found.options, strict=True)
    ]
    room = {each.hardware: each.gpus for each in budgets}
    counts = {
        group.type: InstanceCounts(plan.pool, up=group.count)
        for plan in standing
        for group in plan.groups
        if group.count
    }
    rps = sum(each.rate_rps for each in demands)
    gpus = sum(catalogue.named(name).gpus * each.up for name, each in counts.items())
    few = max(2, int(config.combinations ** (1.0 / len(options))))
    weighed = []
    for combined in product(*(_best_of(each, few, rps / max(1, gpus)) for each in options)):
        plans = tuple(each.plan for each in combined)
        if plans == standing or not _fits(plans, catalogue, room):
            continue
        gain_rps = sum(each.gain_rps for each in combined)
        steps = steps_towards(plans, catalogue, budgets, counts, {}, config.drain_s)
        weighed.append((gain_rps, requests_lost(steps, rps, gpus), plans))
    best = []
    for horizon_s in config.horizons_s:
        gain_rps, lost, plans = max(
            weighed, key=lambda each: horizon_s * each[0] - each[1], default=(0.0, 0.0, standing)
        )
        if horizon_s * gain_rps > lost:
            best.append(plans)
    return tuple(dict.fromkeys(best))


def _best_of(options: Sequence[_Option], most: int, card_rps: float) -> list[_Option]:
    """Returns what runs, and the best others where a card is worth what cards serve in the mean."""
    now, *others = options
    return [now, *sorted(others, key=lambda each: card_rps * each.cards - each.gain_rps)[: most - 1]]


def _fits(plans: Plans, catalogue: Catalogue, room: Mapping[str, int]) -> bool:
    used = Counter[str]()
    for plan in plans:
        for group in plan.groups:
            kind = catalogue.named(group.type)
            used[kind.hardware] += group.count * kind.gpus
    return all(number <= room.get(hardware, 0) for hardware, number in used.items())


def _options_of(
    standing: PoolPlan,
    demand: PoolDemand,
    valued: Sequence[tuple[PoolPlan, float]],
    catalogue: Catalogue,
    budgets: Sequence[Budget],
    value: PoolValue,
    config: NearConfig,
) -> list[_Option]:
    """Returns the options of a pool, with what runs first."""
    kinds = types_of(demand, catalogue, budgets)
    now = Counter({group.type: group.count for group in standing.groups})
    instances = [kind for group in standing.groups for kind in [catalogue.named(group.type)] * group.count]
    before = value(demand, instances, standing.split) if instances else 0.0
    table = PaceTable(demand, kinds, PaceConfig())
    shares = {standing: before} | {plan: share for plan, share in valued if plan.groups}
    for kind in kinds:
        for change in (1, -1):
            other = now + Counter()
            other[kind.name] += change
            if other[kind.name] >= 0 and any(other.values()):
                plan, share = _valued(demand, kinds, other, table, value, config)
                shares.setdefault(plan, share)

    def cards(plan: PoolPlan) -> int:
        return sum(catalogue.named(group.type).gpus * group.count for group in plan.groups)

    held, rps = cards(standing), demand.rate_rps
    return [_Option(plan, rps * (share - before), cards(plan) - held) for plan, share in shares.items()]


def _valued(
    demand: PoolDemand,
    kinds: Sequence[InstanceType],
    number: Mapping[str, int],
    table: PaceTable,
    value: PoolValue,
    config: NearConfig,
) -> tuple[PoolPlan, float]:
    """Returns so many engines of each type in the best of the splits that are tried, and their share on time."""
    counts = tuple(number.get(kind.name, 0) for kind in kinds)
    instances = [kind for kind, count in zip(kinds, counts, strict=True) for _ in range(count)]
    tried = dict.fromkeys((*(split for split, _ in table.ranked(counts, config.splits)), Split()))
    share, split = max(((value(demand, instances, each), each) for each in tried), key=lambda each: each[0])
    groups = tuple(Group(kind.name, count) for kind, count in zip(kinds, counts, strict=True) if count)
    return PoolPlan(pool=demand.pool, groups=groups, split=split), share
