"""Placements with one instance type for each pool, solved exactly: Selective Replication's and AlpaServe's spaces, and
the best plans of one size for all or one size for each pool.

Pools do not share engines, so that what a pool makes of a number of instances is its own affair, and a division of the
cards is found by dynamic programming over the pools. AlpaServe (OSDI 2023, section 4.2) searches this space greedily
and by simulation; here it is solved exactly, under whatever judges a pool's engines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hmas.contracts.pool_plan import Group, InstanceType, PoolPlan

Judge = Callable[[str, InstanceType, int], float]  # requests per second that so many instances keep on time in a pool
PoolKinds = Mapping[str, Sequence[InstanceType]]  # of each pool


@dataclass(frozen=True, slots=True)
class _Division:
    """The pools' engines on some cards: requests per second that they keep on time, the cards, and the engines."""

    kept_rps: float = 0.0
    cards: int = 0
    engines: tuple[tuple[str, InstanceType, int], ...] = ()

    def __add__(self, other: "_Division") -> "_Division":
        return _Division(self.kept_rps + other.kept_rps, self.cards + other.cards, self.engines + other.engines)


def one_type_each(kinds: PoolKinds, gpus: int, judge: Judge) -> tuple[PoolPlan, ...]:
    """Returns the plans with one type for each pool that keep the most on time on at most `gpus` cards; of equal ones
    those with the fewest cards. A pool that gets none has a plan without engines."""
    return _plans(kinds, _best_division(kinds, gpus, judge))


def _best_division(kinds: PoolKinds, gpus: int, judge: Judge) -> _Division:
    best = [_Division()] * (gpus + 1)
    for pool, own in kinds.items():
        values = _values(pool, own, gpus, judge)
        best = [max((values[g] + best[most - g] for g in range(most + 1)), key=_key) for most in range(gpus + 1)]
    return best[gpus]


def one_size_for_all(kinds: PoolKinds, gpus: int, judge: Judge) -> tuple[PoolPlan, ...]:
    """Returns the best plans, as `one_type_each`, whose engines all have the same number of cards. Raises ValueError
    where no number of cards suits all pools."""
    sizes = set.intersection(*({kind.gpus for kind in own} for own in kinds.values()))
    if not sizes:
        raise ValueError("no number of cards suits all pools: give each pool a type with as many")
    found = [
        _best_division({pool: [k for k in own if k.gpus == size] for pool, own in kinds.items()}, gpus, judge)
        for size in sorted(sizes)
    ]
    return _plans(kinds, max(found, key=_key))


def replicated(kinds: PoolKinds, gpus: int, judge: Judge) -> tuple[PoolPlan, ...]:
    """Returns the plans of Selective Replication: only each pool's smallest instances, whose batch limit and number are
    searched."""
    smallest = {pool: min(kind.gpus for kind in own) for pool, own in kinds.items()}
    return one_type_each(
        {pool: [kind for kind in own if kind.gpus == smallest[pool]] for pool, own in kinds.items()}, gpus, judge
    )


def _values(pool: str, kinds: Sequence[InstanceType], gpus: int, judge: Judge) -> list[_Division]:
    """Returns the best engines of one type on at most 0, 1 ... `gpus` cards."""
    best = [_Division()] * (gpus + 1)
    for kind in kinds:
        for count in range(1, gpus // kind.gpus + 1):
            own = _Division(judge(pool, kind, count), count * kind.gpus, ((pool, kind, count),))
            best[own.cards] = max(best[own.cards], own, key=_key)
    for cards in range(1, gpus + 1):
        best[cards] = max(best[cards - 1], best[cards], key=_key)
    return best


def _key(division: _Division) -> tuple[float, int]:
    """More on time is better, and with as much fewer cards; sums that differ by rounding alone are alike."""
    return round(division.kept_rps, 9), -division.cards


def _plans(kinds: PoolKinds, division: _Division) -> tuple[PoolPlan, ...]:
    groups = {pool: (Group(kind.name, count),) for pool, kind, count in division.engines}
    return tuple(PoolPlan(pool=pool, groups=groups.get(pool, ())) for pool in kinds)
