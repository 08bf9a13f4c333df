"""Which lane a request waits in: that of the pace class that is served for it."""

from collections.abc import Sequence

from hmas.laws.layout import pace_class
from hmas.worker.agent.entry.entry import QueueEntry


class PaceLanes:
    """The lanes by the time per token that keeps a request's SLO: pace class i (by cuts in s) waits in lane
    `serving[i]`. Lane 0 for all, until arranged."""

    __slots__ = ("_cuts_s", "_serving")

    def __init__(self) -> None:
        self._cuts_s: tuple[float, ...] = ()
        self._serving: tuple[int, ...] = (0,)

    @property
    def numbers(self) -> list[int]:
        """The numbers of the lanes, the strictest first."""
        return sorted(set(self._serving))

    def arrange(self, cuts_s: tuple[float, ...], serving: Sequence[int]) -> bool:
        """Takes another arrangement. Returns false if it is so already."""
        arrangement = cuts_s, tuple(serving)
        if arrangement == (self._cuts_s, self._serving):
            return False
        self._cuts_s, self._serving = arrangement
        return True

    def at(self, tpot_s: float) -> int:
        """Returns the number of the lane for requests that need that time per token, in s."""
        return self._serving[pace_class(self._cuts_s, tpot_s)]

    def of(self, entry: QueueEntry) -> int:
        """Returns the number of the lane for the request's pace class, in which it waits until it is late. Where no
        token is generated there is no pace, so that the laxest class has the request."""
        return self.at(entry.needed_tpot_s)
