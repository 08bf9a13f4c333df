"""Which multisets of instance types a pool may run, and which few of them the pace law keeps.

Cards are counted by kind of hardware, as a tuple in the order of the budgets.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import inf

from hmas.contracts.control import Split
from hmas.contracts.pool_plan import Budget, Catalogue, InstanceType
from hmas.laws.pace import MIXED_SPLIT, PaceConfig, borders, bounds, served
from hmas.laws.placement.demand import PoolDemand, in_order, moments_of, pace_of

Cards = tuple[int, ...]
Counts = tuple[int, ...]  # of each type of a pool, in the order of their steps
CUTS = 12  # bounds that are tried as cuts, as by the meta controller


@dataclass(frozen=True, slots=True)
class Candidate:
    """Instances that a pool may run, in the order in which classes get them, and the `splits` that the pace law expects
    most of, the best first. `law`: the share of the demand that it expects on time with that one. `usd_h`: what they
    cost an hour, in US dollars."""

    instances: tuple[InstanceType, ...]
    splits: tuple[Split, ...]
    law: float
    cards: Cards
    usd_h: float

    @property
    def of_one_type(self) -> bool:
        return len(set(self.instances)) == 1


def types_of(demand: PoolDemand, catalogue: Catalogue, budgets: Sequence[Budget]) -> tuple[InstanceType, ...]:
    """Returns the types that the pool may run within the budgets, in the order of their steps. Raises ValueError if
    there is none."""
    room = {budget.hardware: budget.gpus for budget in budgets}
    usable = [
        kind for kind in catalogue.types if kind.model == demand.model and kind.gpus <= room.get(kind.hardware, 0)
    ]
    if not usable:
        raise ValueError(f"the catalogue has no type of {demand.model} that fits these budgets")
    return in_order(usable)


def cards_of(kinds: Sequence[InstanceType], counts: Counts, budgets: Sequence[Budget]) -> Cards:
    """Returns the cards of each budget's kind that so many instances of these types take."""
    return tuple(
        sum(n * kind.gpus for kind, n in zip(kinds, counts, strict=True) if kind.hardware == budget.hardware)
        for budget in budgets
    )


def multisets(kinds: Sequence[InstanceType], budgets: Sequence[Budget]) -> Iterator[Counts]:
    """Yields the counts of every multiset of at least one instance that fits the budgets."""
    left = {budget.hardware: budget.gpus for budget in budgets}

    def rest(number: int) -> Iterator[Counts]:
        if number == len(kinds):
            yield ()
            return
        kind = kinds[number]
        for count in range(left[kind.hardware] // kind.gpus + 1):
            left[kind.hardware] -= count * kind.gpus
            for more in rest(number + 1):
                yield (count, *more)
            left[kind.hardware] += count * kind.gpus

    return (counts for counts in rest(0) if any(counts))


class PaceTable:
    """What the pace law expects of a pool's demand on multisets of `kinds`, which are in the order of their steps.

    It values splits as `hmas.laws.pace.best_split` does with two classes. What it expects of one class is kept: most
    multisets have classes in common.
    """

    def __init__(self, demand: PoolDemand, kinds: Sequence[InstanceType], config: PaceConfig) -> None:
        self._kinds = tuple(kinds)
        self._paces = [pace_of(kind) for kind in kinds]
        self._offered = moments_of(demand)
        self._rate_rps = demand.rate_rps
        self._config = config
        self._cuts_s = bounds(self._offered, CUTS)
        self._kept: dict[tuple[float, float, Counts], float] = {}

    def ranked(self, counts: Counts, most: int) -> tuple[tuple[Split, float], ...]:
        """Returns at most `most` splits with the share of the demand that is expected on time under each, the best
        first and mixed before what is no better. Of one division of the instances only the best cut counts."""
        found = [(MIXED_SPLIT, self._class_rps(0.0, inf, counts))]
        engines = sum(counts)
        for first in borders(engines) if self._cuts_s else ():
            strict = _first(counts, first)
            lax = tuple(n - s for n, s in zip(counts, strict, strict=True))
            by_cut = [(self._class_rps(0.0, c, strict) + self._class_rps(c, inf, lax), -c) for c in self._cuts_s]
            rps, cut_s = max(by_cut)
            found.append((Split((-cut_s,), (first, engines - first)), rps))
        found.sort(key=lambda each: -each[1])
        return tuple((split, rps / self._rate_rps) for split, rps in found[:most])

    def _class_rps(self, low_s: float, high_s: float, counts: Counts) -> float:
        """Returns the requests per second on time of those that need more than `low_s` and at most `high_s` per token,
        in the mean over the loads."""
        key = low_s, high_s, counts
        if (known := self._kept.get(key)) is None:
            part = [each for each in self._offered if low_s < each[0].tpot_slo_s <= high_s]
            paces = [pace for pace, count in zip(self._paces, counts, strict=True) for _ in range(count)]
            loads = self._config.loads
            rps = (served([(d, load * r) for d, r in part], paces, self._config).on_time_rps / load for load in loads)
            known = self._kept[key] = sum(rps) / len(loads)
        return known


def _first(counts: Counts, most: int) -> Counts:
    """Returns the counts of the first `most` instances."""
    taken = []
    for count in counts:
        taken.append(min(count, most))
        most -= taken[-1]
    return tuple(taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepConfig:
    """`most` candidates of each number of cards are kept, those within the share `within` of the best, each with
    `splits` splits. Up to `in_full` multisets are ranked one by one; beyond that, a pool that may mix hardware combines
    what is kept of each kind alone."""

    most: int = 3
    within: float = 0.03
    splits: int = 2
    in_full: int = 2500
    pace: PaceConfig = field(default_factory=PaceConfig)


def kept(
    demand: PoolDemand, kinds: Sequence[InstanceType], budgets: Sequence[Budget], config: KeepConfig
) -> dict[Cards, tuple[Candidate, ...]]:
    """Returns the candidates of each number of cards, the best by the pace law first; of equals the cheaper one. The
    best of those with one type alone are among them, however much less is expected of them."""
    table = PaceTable(demand, kinds, config.pace)
    ranked: dict[Cards, list[Candidate]] = {}
    for counts in _considered(table, kinds, budgets, config):
        splits = table.ranked(counts, config.splits)
        instances = tuple(kind for kind, count in zip(kinds, counts, strict=True) for _ in range(count))
        cards = cards_of(kinds, counts, budgets)
        usd_h = sum(kind.usd_h for kind in instances)
        ways = tuple(dict.fromkeys((*(split for split, _ in splits), MIXED_SPLIT)))
        ranked.setdefault(cards, []).append(Candidate(instances, ways, splits[0][1], cards, usd_h))
    return {cards: best_few(found, config) for cards, found in ranked.items()}


def best_few(candidates: Iterable[Candidate], config: KeepConfig) -> tuple[Candidate, ...]:
    """Returns the candidates that the pace law keeps of these, the best first, and the best of one type."""
    found = sorted(candidates, key=lambda each: (-each.law, each.usd_h, len(each.instances)))
    few = [each for each in found[: config.most] if each.law >= found[0].law - config.within]
    single = next((each for each in found if each.of_one_type), None)
    return tuple(few) if single is None or single in few else (*few, single)


def _considered(
    table: PaceTable, kinds: Sequence[InstanceType], budgets: Sequence[Budget], config: KeepConfig
) -> list[Counts]:
    """Returns the multisets that are ranked."""
    found: list[Counts] = []
    for counts in multisets(kinds, budgets):
        found.append(counts)
        if len(found) > config.in_full:
            break
    else:
        return found
    by_hardware = [_best_alone(table, kinds, budgets, budget, config) for budget in budgets]
    summed = {tuple(map(sum, zip(*parts, strict=True))) for parts in product(*by_hardware)}
    return sorted(counts for counts in summed if any(counts))


def _best_alone(
    table: PaceTable, kinds: Sequence[InstanceType], budgets: Sequence[Budget], budget: Budget, config: KeepConfig
) -> list[Counts]:
    """Returns the empty multiset and the best of each number of cards of one kind of hardware."""
    own: Mapping[str, int] = {budget.hardware: budget.gpus}
    alone = [Budget(each.hardware, own.get(each.hardware, 0)) for each in budgets]
    ranked: dict[Cards, list[tuple[float, Counts]]] = {}
    for counts in multisets(kinds, alone):
        law = table.ranked(counts, 1)[0][1]
        ranked.setdefault(cards_of(kinds, counts, budgets), []).append((-law, counts))
    empty = (0,) * len(kinds)
    return [empty, *(counts for found in ranked.values() for _, counts in sorted(found)[: config.most])]
