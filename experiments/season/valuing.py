"""What engines keep on time under a load, by the quick simulation. Whatever was asked once is kept."""

from collections import Counter
from collections.abc import Sequence
from functools import cache

from experiments.plans.cases import kinds_of
from experiments.plans.planning import SAMPLE
from experiments.season.days import PoolLoad, sample
from hmas.contracts.control import Split
from hmas.contracts.pool_plan import InstanceType
from hmas.laws.pace import PaceConfig
from hmas.laws.placement.candidates import PaceTable
from hmas.laws.placement.demand import PoolDemand, in_order
from hmas.laws.placement.plan_search import PoolValue
from hmas.sim.quick import QuickValue

SPLITS = 2  # of the pace law, beside mixed, that are tried
EngineNames = tuple[str, ...]  # names of instance types, sorted


@cache
def _valued(load: PoolLoad, seed: int, draw: int, instances: tuple[InstanceType, ...], split: Split) -> float:
    return QuickValue(seed=draw)(sample(load, seed), instances, split)


class SeasonValues:
    """Values of engines. `start_s` does not matter to what they keep once they serve."""

    def __init__(self) -> None:
        self._loads: dict[int, PoolLoad] = {}
        self._tables: dict[PoolLoad, PaceTable] = {}
        self._layouts: dict[tuple[PoolLoad, EngineNames], tuple[tuple[InstanceType, ...], Split]] = {}

    def demand(self, load: PoolLoad) -> PoolDemand:
        """Returns the sample of a load by which plans are searched."""
        found = sample(load, SAMPLE)
        self._loads[id(found)] = load
        return found

    def searched_by(self, draw: int) -> PoolValue:
        """Returns what a search values engines by, of demands that `demand` returned."""

        def value(demand: PoolDemand, instances: Sequence[InstanceType], split: Split) -> float:
            own = _own(instances, self._loads[id(demand)].pool)
            return _valued(self._loads[id(demand)], SAMPLE, draw, own, split)

        return value

    def share(self, load: PoolLoad, engines: EngineNames, seed: int) -> float:
        """Returns the share of a load's requests that `engines` keep on time, in the layout that the sample calls for:
        by the pace law's best splits and mixed, as the meta controller would choose."""
        if not engines:
            return 0.0
        instances, split = self._layout(load, engines)
        return _valued(load, seed, 1, instances, split)

    def _layout(self, load: PoolLoad, engines: EngineNames) -> tuple[tuple[InstanceType, ...], Split]:
        if (known := self._layouts.get((load, engines))) is not None:
            return known
        kinds = in_order(kinds_of(load.pool))
        table = self._tables.setdefault(load, PaceTable(sample(load, SAMPLE), kinds, PaceConfig()))
        number = Counter(engines)
        instances = tuple(kind for kind in kinds for _ in range(number[kind.name]))
        tried = [split for split, _ in table.ranked(tuple(number[kind.name] for kind in kinds), SPLITS)]
        best = max(dict.fromkeys((*tried, Split())), key=lambda split: _valued(load, SAMPLE, 1, instances, split))
        self._layouts[load, engines] = instances, best
        return instances, best


def _own(instances: Sequence[InstanceType], pool: str) -> tuple[InstanceType, ...]:
    """Returns the instances as the shipped catalogue has them, so that one that takes longer to start is no other."""
    named = {kind.name: kind for kind in kinds_of(pool)}
    return tuple(named[each.name] for each in instances)
