"""The most KV memory that the sequences on an engine will hold at once."""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate


class MemoryPeak:
    """A forecast, in tokens. Each sequence holds `held` now, grows by a token a step and leaves after `left` more.

    By falling `left`, the k-th leaves when the first k have all grown by as much as it still had to, so that

        peak = max over k of (held_1 + ... + held_k + k * left_k)

    (the memory over future time of the Past-Future scheduler, Gong et al. 2025, with bounds for its sampled lengths).
    It is at most the sum of what each holds in the end, and as safe while all grow at one pace.
    """

    __slots__ = ("_held", "_later", "_order", "_sooner")

    def __init__(self, sequences: Iterable[tuple[float, float]]) -> None:
        """`sequences`: (left, held) of each."""
        rows = sorted(sequences, reverse=True)
        self._order = [-left for left, _ in rows]
        self._held = list(accumulate((held for _, held in rows), initial=0.0))
        loads = [held + k * left for k, (held, (left, _)) in enumerate(zip(self._held[1:], rows, strict=True), 1)]
        # [k]: the highest of the first k loads; of the others, each with one more sequence that is still there.
        self._later = list(accumulate(loads, max, initial=0.0))
        grown = [load + left for load, (left, _) in zip(loads, rows, strict=True)]
        self._sooner = list(accumulate(reversed(grown), max, initial=0.0))[::-1]

    @property
    def tokens(self) -> float:
        return self._later[-1]

    def with_another(self, left: float, held: float) -> float:
        """The peak if one more begins now."""
        outlast = bisect_right(self._order, -left)
        own = self._held[outlast] + held + (outlast + 1) * left
        sooner = self._sooner[outlast] + held if outlast < len(self._order) else 0.0
        return max(own, self._later[outlast], sooner)
