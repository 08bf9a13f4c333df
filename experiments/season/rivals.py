"""What re-planning is measured against: the best plan for the whole day, replicas that follow lateness or load, and the
best plan of each window. All have the layouts that the meta controller would choose, and know the day where that makes
them better: the static plan and the followed load are chosen by it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil

from experiments.plans.planning import SAMPLE
from experiments.season.days import DAY_S, PoolLoad
from experiments.season.orchestrated import Orchestrated
from experiments.season.valuing import EngineNames, SeasonValues
from hmas.contracts.pool_plan import Budget, Catalogue
from hmas.laws.placement.plan_search import Placement, PlacementFound, SearchConfig, search
from hmas_loadgen.traces.servegen import WINDOW_S

LATE, EARLY = 0.95, 0.985  # share on time below which a replica is added, and which one fewer must keep to go
LOOK_S = 300.0  # between two looks at lateness, and that load must have been lower for replicas to leave
FIRST_LOOKS = 8  # windows on which static plans are compared first
FINALISTS = 3
TARGETS = (0.6, 0.7, 0.8, 0.9, 1.0)  # of the rate at which a replica keeps LATE, that it is aimed at
DayLoads = tuple[tuple[PoolLoad, ...], ...]
DayPlan = tuple[tuple[str, EngineNames], ...]  # of each pool


class DaySearch:
    """The search that ships, asked once for each load."""

    def __init__(self, catalogue: Catalogue, budget: Budget, values: SeasonValues) -> None:
        self._catalogue, self._budget, self._values = catalogue, budget, values
        self._found: dict[tuple[PoolLoad, ...], PlacementFound] = {}

    def __call__(self, loads: Iterable[PoolLoad]) -> PlacementFound:
        """Returns what is found for these loads of the pools, in the order of their names."""
        own = tuple(sorted(loads, key=lambda load: load.pool))
        if own not in self._found:
            demands = [self._values.demand(load) for load in own]
            value = self._values.searched_by(1)
            self._found[own] = search(demands, self._catalogue, [self._budget], value, SearchConfig())
        return self._found[own]

    def best(self, loads: Iterable[PoolLoad]) -> DayPlan:
        return _engines_of(self(loads).best)

    def one_type(self, loads: Iterable[PoolLoad]) -> DayPlan:
        """Returns the best plan with one type for each model."""
        return _engines_of(self(loads).one_type)


def _engines_of(placement: Placement) -> DayPlan:
    return tuple(
        (each.plan.pool, tuple(sorted(group.type for group in each.plan.groups for _ in range(group.count))))
        for each in placement.pools
    )


def best_of_day(plans: Iterable[DayPlan], loads: DayLoads, values: SeasonValues) -> DayPlan:
    """Returns the plan that keeps the most of the day on time, by the sample."""
    step = len(loads) // FIRST_LOOKS
    found = sorted(dict.fromkeys(plans), key=lambda plan: -_kept(plan, loads[::step], values))
    return max(found[:FINALISTS], key=lambda plan: _kept(plan, loads, values))


def _kept(plan: DayPlan, loads: Iterable[Sequence[PoolLoad]], values: SeasonValues) -> float:
    engines = dict(plan)
    return sum(load.rate_rps * values.share(load, engines[load.pool], SAMPLE) for window in loads for load in window)


def by_window(plans: Sequence[DayPlan]) -> Iterator[tuple[float, float, dict[str, EngineNames]]]:
    """Yields the pieces of a day that changes its engines at once, at each window."""
    for number, plan in enumerate(plans):
        yield WINDOW_S * number, WINDOW_S * (number + 1), dict(plan)


def counts_of(plan: DayPlan) -> dict[str, int]:
    found: dict[str, int] = {}
    for _, engines in plan:
        for kind in engines:
            found[kind] = found.get(kind, 0) + 1
    return found


Wanted = Callable[[PoolLoad, str, int], int]  # load, type and replicas: how many there should be


def scaled_day(fleet: Orchestrated, plan: DayPlan, loads: DayLoads, wanted: Wanted) -> list[float]:
    """Plays a day in which each pool has replicas of one type, looked at every `LOOK_S`. Returns when engines were
    ordered. They are taken within the cards: those of a pool that asks first."""
    fleet.begin(counts_of(plan))
    own = {pool: engines[0] for pool, engines in plan}
    sizes = {kind.name: kind.gpus for kind in fleet.catalogue.types}
    ordered_s = []
    now_s = 0.0
    while now_s < DAY_S:
        if now_s % LOOK_S == 0.0 and now_s > 0.0:
            for load in loads[int((now_s - LOOK_S) // WINDOW_S)]:
                kind = own[load.pool]
                now = fleet.ordered[kind]
                others = sum(sizes[name] * count for name, count in fleet.ordered.items() if name != kind)
                more = min(wanted(load, kind, now), (fleet.cards - others) // sizes[kind])
                if more != now:
                    fleet.order({kind: max(1, more)})
                    ordered_s.append(now_s)
        fleet.work(now_s)
        now_s += 5.0
    return ordered_s


def by_lateness(values: SeasonValues) -> Wanted:
    """One more where less than `LATE` is on time, one fewer where that would keep `EARLY`."""

    def wanted(load: PoolLoad, kind: str, now: int) -> int:
        if values.share(load, (kind,) * now, SAMPLE) < LATE:
            return now + 1
        return now - 1 if now > 1 and values.share(load, (kind,) * (now - 1), SAMPLE) >= EARLY else now

    return wanted


def by_load(most_rps: Mapping[str, float], target: float) -> Wanted:
    """As many as bring the load of a replica to `target` of the rate at which it keeps `LATE` on time."""

    def wanted(load: PoolLoad, kind: str, now: int) -> int:
        return max(1, ceil(load.rate_rps / (target * most_rps[kind])))

    return wanted


def rates_kept(plan: DayPlan, loads: DayLoads, values: SeasonValues) -> dict[str, float]:
    """Returns the highest rate of a replica, of those that windows of the day have, at which the pool keeps `LATE`."""
    found = {}
    for pool, engines in plan:
        seen = sorted(
            {load for window in loads for load in window if load.pool == pool}, key=lambda each: each.rate_rps
        )
        kept = [each.rate_rps for each in seen if values.share(each, engines, SAMPLE) >= LATE]
        found[engines[0]] = max(kept, default=seen[0].rate_rps) / len(engines)
    return found
