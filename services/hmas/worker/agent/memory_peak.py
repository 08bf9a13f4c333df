"""The most KV memory that the sequences on an engine will hold at once."""

from bisect import insort
from collections.abc import Iterable, Iterator
from itertools import accumulate, count
from operator import add, mul

Growth = tuple[float, float]  # (left, held)


class MemoryPeak:
    """A forecast, in tokens. Each sequence holds `held` now, grows by a token a step and leaves after `left` more.

    By falling `left`, the k-th leaves when the first k have all grown by as much as it still had to, so that

        peak = max over k of (held_1 + ... + held_k + k * left_k)

    (the memory over future time of the Past-Future scheduler, Gong et al. 2025, with bounds for its sampled lengths).
    It is at most the sum of what each holds in the end, and as safe while all grow at one pace.
    """

    __slots__ = ("_another", "_peak_with", "_rows", "_tokens")

    def __init__(self, sequences: Iterable[Growth]) -> None:
        """`sequences`: (left, held) of each."""
        self._rows = sorted(sequences, reverse=True)
        self._tokens: float | None = None
        self._another: Growth | None = None  # asked about last
        self._peak_with = 0.0

    @property
    def tokens(self) -> float:
        if self._tokens is None:
            self._tokens = _peak(self._rows)
        return self._tokens

    def with_another(self, left: float, held: float) -> float:
        """The peak if one more begins now. The head of a queue asks again at every event until there is room."""
        another = (left, held)
        if another != self._another:
            rows = self._rows.copy()
            insort(rows, another, key=_soonest_last)
            self._another, self._peak_with = another, _peak(rows)
        return self._peak_with


def _soonest_last(row: Growth) -> float:
    return -row[0]


def _peak(rows: list[Growth]) -> float:
    """`rows` by falling `left`; no loop of ours over them, since a full engine asks at most of its events."""
    if not rows:
        return 0.0
    left, held = zip(*rows, strict=True)
    loads: Iterator[float] = map(add, accumulate(held), map(mul, count(1), left))
    return max(loads)
