"""The exact division of cards over pools: dynamic programming over what is left of each kind of hardware."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hmas.laws.placement.candidates import Cards

UNIT = 1e9  # shares and dollars are added up as integers of this many to 1, so that equals stay equal


@dataclass(frozen=True, slots=True)
class PoolWorth:
    """What an option of a pool brings: the `share` of all requests that it keeps on time, for `usd_h` US dollars an
    hour and `cards` cards."""

    share: float
    usd_h: float = 0.0
    cards: int = 0

    @property
    def key(self) -> tuple[int, int, int]:
        return round(self.share * UNIT), -round(self.usd_h * UNIT), -self.cards


NOTHING = PoolWorth(0.0)


def divide(pools: Sequence[Mapping[Cards, PoolWorth]], room: Cards) -> tuple[Cards, ...]:
    """Returns the cards that each pool gets, all of one pool being one of its options or none, so that the sum of the
    shares is the highest that fits `room`; of equal ones the fewest dollars, then the fewest cards, and then the
    fewest for the first pools.

    All three add up, so that the best division of a part of the pools and cards is part of the best of all (Bellman's
    principle); the work is the product of the states and the options of a pool.
    """
    none = (0,) * len(room)
    states: dict[Cards, tuple[tuple[int, int, int], tuple[Cards, ...]]] = {none: ((0, 0, 0), ())}
    for options in pools:
        keys = {cards: worth.key for cards, worth in options.items()}
        keys.setdefault(none, NOTHING.key)
        found: dict[Cards, tuple[tuple[int, int, int], tuple[Cards, ...]]] = {}
        for used, (key, chosen) in states.items():
            for cards, own in keys.items():
                total = tuple([a + b for a, b in zip(used, cards, strict=True)])
                if any(a > b for a, b in zip(total, room, strict=True)):
                    continue
                new = (key[0] + own[0], key[1] + own[1], key[2] + own[2])
                known = found.get(total)
                way = (*chosen, cards)
                if known is None or new > known[0] or (new == known[0] and way < known[1]):
                    found[total] = new, way
        states = found
    return max(states.values(), key=lambda state: (state[0], tuple(tuple(-n for n in c) for c in state[1])))[1]
