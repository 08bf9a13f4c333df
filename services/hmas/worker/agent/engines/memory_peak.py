"""Forecasts the most KV memory that the sequences on an engine will hold at once."""

from bisect import insort
from collections.abc import Iterable, Iterator
from itertools import accumulate, count
from operator import add, mul

Growth = tuple[float, float]  # (left, held)


class MemoryPeak:
    """The most tokens that a set of sequences will hold at once, if each holds `held` tokens now, grows by one token a
    step and leaves after `left` more.

    Sort the sequences by falling `left`: when the k-th leaves, the first k have each grown by left_k, so that

        peak = max over k of (held_1 + ... + held_k + k * left_k)

    (the memory over future time of the Past-Future scheduler, Gong et al. 2025, with bounds for its sampled lengths).
    The peak is at most the sum of what each holds at its end, and as safe a bound while all grow at the same pace.
    """

    __slots__ = ("_another", "_peak_with", "_rows", "_tokens")

    def __init__(self, sequences: Iterable[Growth]) -> None:
        """`sequences`: (left, held) of each."""
        self._rows = sorted(sequences, reverse=True)
        self._tokens: float | None = None
        self._another: Growth | None = None  # the one that `with_another` was last asked about
        self._peak_with = 0.0

    @property
    def tokens(self) -> float:
        if self._tokens is None:
            self._tokens = _peak(self._rows)
        return self._tokens

    def add(self, left: float, held: float) -> None:
        """Adds a sequence that begins now."""
        another = (left, held)
        insort(self._rows, another, key=_soonest_last)
        self._tokens = self._peak_with if another == self._another else None
        self._another = None

    def with_another(self, left: float, held: float) -> float:
        """Returns the peak in tokens if one more sequence begins now.

        The last answer is kept, because the head of a queue asks again at every event until there is room.
        """
        another = (left, held)
        if another != self._another:
            rows = self._rows.copy()
            insort(rows, another, key=_soonest_last)
            self._another, self._peak_with = another, _peak(rows)
        return self._peak_with


def _soonest_last(row: Growth) -> float:
    return -row[0]


def _peak(rows: list[Growth]) -> float:
    """Returns the peak in tokens; `rows` are sorted by falling `left`.

    There is no Python loop over the rows, because a full engine asks at most of its events.
    """
    if not rows:
        return 0.0
    left, held = zip(*rows, strict=True)
    loads: Iterator[float] = map(add, accumulate(held), map(mul, count(1), left))
    return max(loads)
