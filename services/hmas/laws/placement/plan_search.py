"""The search for plans: which pool gets how many cards of each kind, and runs what on them.

The pools are independent given their cards. The candidates of so many cards are those that need at most so many. Up to
`all_up_to` cards, everything that the pace law keeps is valued. With more, a pool's candidates of so many cards are
taken to be worth no more than the best of those of more cards that were valued, and the division under these limits to
be at least the best one. Where it takes something that was not valued, that, or what lies between it and what limits
it, is valued next, until no division can bring more than `tolerance` besides.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from hmas.contracts.control import Split
from hmas.contracts.pool_plan import Budget, Catalogue, Group, InstanceType, PoolPlan
from hmas.laws.placement.candidates import Candidate, Cards, KeepConfig, best_few, kept, types_of
from hmas.laws.placement.demand import PoolDemand
from hmas.laws.placement.division import NOTHING, PoolWorth, divide

# Returns the share of the demand, 0 to 1, that is on time on these instances, which the classes of the split get in
# this order.
PoolValue = Callable[[PoolDemand, Sequence[InstanceType], Split], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """`all_up_to`: cards up to which all that is kept is valued. `tolerance`: share of all requests that a division
    which was not valued may bring beyond the one that is returned. `enough`: share of all requests that mixing types
    within a model must gain. `all_on_time`: share from which on nothing better is looked for among candidates of the
    same cards."""

    all_up_to: int = 8
    tolerance: float = 0.002
    enough: float = 0.01
    all_on_time: float = 0.995
    keep: KeepConfig = field(default_factory=KeepConfig)


@dataclass(frozen=True, slots=True)
class PlannedPool:
    """A pool's plan with the share of its demand that is expected on time, the cards that it takes and what these cost
    an hour in US dollars."""

    plan: PoolPlan
    share: float
    cards: int
    usd_h: float


@dataclass(frozen=True, slots=True)
class Placement:
    """A plan for each pool, and the share of all requests that is expected on time."""

    pools: tuple[PlannedPool, ...]
    share: float

    @property
    def cards(self) -> int:
        return sum(each.cards for each in self.pools)

    @property
    def usd_h(self) -> float:
        return sum(each.usd_h for each in self.pools)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementFound:
    """The `best` placement, and beside it the best one with a single type for each model. `evaluations`: how often a
    pool was valued. `bound`: the share of all requests that no placement exceeds, None if it was not asked for."""

    best: Placement
    one_type: Placement
    one_type_is_enough: bool
    evaluations: int
    bound: float | None = None

    @property
    def gap(self) -> float | None:
        """The share of all requests that is possible at most beyond what is expected."""
        return None if self.bound is None else max(0.0, self.bound - self.best.share)


@dataclass(frozen=True, slots=True)
class _Valued:
    candidate: Candidate
    split: Split
    share: float

    @property
    def key(self) -> tuple[float, float, int]:
        return round(self.share, 9), -self.candidate.usd_h, -sum(self.candidate.cards)


class _PoolSearch:
    """The candidates of one pool, and those that were valued. `weight`: its part of all requests."""

    def __init__(
        self, demand: PoolDemand, candidates: Mapping[Cards, Sequence[Candidate]], weight: float, all_on_time: float
    ) -> None:
        self.demand = demand
        self.weight = weight
        self.candidates = candidates
        self._all_on_time = all_on_time
        self._shares: dict[tuple[tuple[InstanceType, ...], Split], float] = {}

    @property
    def evaluations(self) -> int:
        return len(self._shares)

    def value(self, cards: Cards, value: PoolValue, *, single: bool) -> _Valued:
        """Returns the best of the candidates of so many cards; with `single`, of those of one type."""
        best: _Valued | None = None
        for candidate in self.candidates[cards]:
            if single and not candidate.of_one_type:
                continue
            for split in candidate.splits:
                key = candidate.instances, split
                if key not in self._shares:
                    self._shares[key] = value(self.demand, *key)
                found = _Valued(candidate, split, self._shares[key])
                if best is None or found.key > best.key:
                    best = found
                if best.share >= self._all_on_time:
                    return best
        assert best is not None
        return best


def search(
    demands: Sequence[PoolDemand],
    catalogue: Catalogue,
    budgets: Sequence[Budget],
    value: PoolValue,
    config: SearchConfig,
    bound: Callable[[Sequence[PoolDemand], Catalogue, Sequence[Budget]], float] | None = None,
) -> PlacementFound:
    """Returns the plans under which the most of all requests are expected on time, of equal ones the cheapest.

    The budgets name each kind of hardware once. `value` must return the same whenever it is asked the same. Raises
    ValueError if some pool has no type that fits.
    """
    total = sum(demand.rate_rps for demand in demands)
    pools = [
        _PoolSearch(
            demand,
            _at_most(kept(demand, types_of(demand, catalogue, budgets), budgets, config.keep), config.keep),
            demand.rate_rps / total,
            config.all_on_time,
        )
        for demand in demands
    ]
    room = tuple(budget.gpus for budget in budgets)
    one_type = _placed(pools, room, value, config, single=True)
    best = _placed(pools, room, value, config, single=False)
    if best.share < one_type.share:
        best = one_type
    return PlacementFound(
        best=best,
        one_type=one_type,
        one_type_is_enough=best.share - one_type.share < config.enough,
        evaluations=sum(pool.evaluations for pool in pools),
        bound=None if bound is None else bound(demands, catalogue, budgets),
    )


def _at_most(found: Mapping[Cards, Sequence[Candidate]], config: KeepConfig) -> dict[Cards, tuple[Candidate, ...]]:
    """Returns the candidates that need at most so many cards, for each number: where an odd number of cards has nothing
    good, they include the best of fewer cards."""
    return {
        cards: best_few((each for less, few in found.items() if _within(less, cards) for each in few), config)
        for cards in found
    }


def _placed(
    pools: Sequence[_PoolSearch], room: Cards, value: PoolValue, config: SearchConfig, *, single: bool
) -> Placement:
    """Returns the best placement, or with `single` the best with one type for each model."""
    options = [
        [cards for cards, found in pool.candidates.items() if not single or any(c.of_one_type for c in found)]
        for pool in pools
    ]
    valued: list[dict[Cards, _Valued]] = [{} for _ in pools]
    if sum(room) <= config.all_up_to:
        for pool, known, own in zip(pools, valued, options, strict=True):
            known.update({cards: pool.value(cards, value, single=single) for cards in own})
    asked = list(_by_law(pools, options, room, single=single))
    while True:
        for pool, known, cards in zip(pools, valued, asked, strict=True):
            if any(cards) and cards not in known:
                known[cards] = pool.value(cards, value, single=single)
        chosen = divide([_worths(pool, known) for pool, known in zip(pools, valued, strict=True)], room)
        limits = [_limits(known, own) for known, own in zip(valued, options, strict=True)]
        hoped = divide([_hopes(*each) for each in zip(pools, valued, limits, strict=True)], room)
        gain = sum(
            pool.weight * (_share(known, limit, cards) - _share(known, {}, own))
            for pool, known, limit, cards, own in zip(pools, valued, limits, hoped, chosen, strict=True)
        )
        asked = [_between(known, own, cards) for known, own, cards in zip(valued, options, hoped, strict=True)]
        new = any(any(cards) and cards not in known for known, cards in zip(valued, asked, strict=True))
        if not new or gain <= config.tolerance:
            return _placement(pools, valued, chosen)


def _by_law(
    pools: Sequence[_PoolSearch], options: Sequence[Sequence[Cards]], room: Cards, *, single: bool
) -> tuple[Cards, ...]:
    """Returns the division that the pace law alone would choose: where to begin."""
    worths = []
    for pool, own in zip(pools, options, strict=True):
        found: dict[Cards, PoolWorth] = {}
        for cards in own:
            law = max(c.law for c in pool.candidates[cards] if not single or c.of_one_type)
            found[cards] = PoolWorth(pool.weight * law, cards=sum(cards))
        worths.append(found)
    return divide(worths, room)


def _worths(pool: _PoolSearch, known: Mapping[Cards, _Valued]) -> dict[Cards, PoolWorth]:
    return {c: PoolWorth(pool.weight * v.share, v.candidate.usd_h, sum(v.candidate.cards)) for c, v in known.items()}


def _limits(known: Mapping[Cards, _Valued], options: Sequence[Cards]) -> dict[Cards, float]:
    """Returns the upper limits of what was not valued: the best of all that is within the same cards is at most that of
    more cards. With what was valued, cards that bring no more than fewer are left out."""
    limits = {}
    for cards in options:
        if cards not in known:
            above = [_most(known, more) for more in known if _within(cards, more)]
            limits[cards] = min(above, default=1.0)
    return limits


def _most(known: Mapping[Cards, _Valued], room: Cards) -> float:
    return max(each.share for cards, each in known.items() if _within(cards, room))


def _within(cards: Cards, room: Cards) -> bool:
    return all(a <= b for a, b in zip(cards, room, strict=True))


def _hopes(pool: _PoolSearch, known: Mapping[Cards, _Valued], limits: Mapping[Cards, float]) -> dict[Cards, PoolWorth]:
    hoped = {cards: PoolWorth(pool.weight * share, 0.0, sum(cards)) for cards, share in limits.items()}
    return hoped | _worths(pool, known)


def _share(known: Mapping[Cards, _Valued], limits: Mapping[Cards, float], cards: Cards) -> float:
    if not any(cards):
        return NOTHING.share
    return known[cards].share if cards in known else limits[cards]


def _between(known: Mapping[Cards, _Valued], options: Sequence[Cards], cards: Cards) -> Cards:
    """Returns what to value next where the division hopes for `cards`: that itself, or what lies in the middle between
    it and the fewest cards above it that were valued, so that a wide gap is halved."""
    if cards in known or not any(cards):
        return cards
    above = [more for more in known if _within(cards, more)]
    if not above:
        return cards
    most = min(above, key=lambda more: (sum(more), more))
    middle = tuple((a + b) // 2 for a, b in zip(cards, most, strict=True))
    open_ones = [each for each in options if each not in known and _within(cards, each) and _within(each, middle)]
    return max(open_ones, key=lambda each: (sum(each), each), default=cards)


def _placement(
    pools: Sequence[_PoolSearch], valued: Sequence[Mapping[Cards, _Valued]], chosen: Sequence[Cards]
) -> Placement:
    planned = []
    for pool, known, cards in zip(pools, valued, chosen, strict=True):
        if not any(cards):
            planned.append(PlannedPool(PoolPlan(pool=pool.demand.pool, groups=()), 0.0, 0, 0.0))
            continue
        found = known[cards]
        plan = _plan_of(pool.demand.pool, found)
        planned.append(PlannedPool(plan, found.share, sum(found.candidate.cards), found.candidate.usd_h))
    share = sum(pool.weight * each.share for pool, each in zip(pools, planned, strict=True))
    return Placement(tuple(planned), share)


def _plan_of(pool: str, valued: _Valued) -> PoolPlan:
    names = [kind.name for kind in valued.candidate.instances]
    groups = tuple(Group(name, len(list(same))) for name, same in groupby(names))
    return PoolPlan(pool=pool, groups=groups, split=valued.split)
