"""A share of one core, for work that must yield to others: a token bucket of CPU seconds. Pure."""

from math import inf

SAVED_S = 1.0  # the share of this many seconds may be saved up
FIRST_COST_S = 0.005  # of an item, until the first was measured
_GAIN = 0.1  # of the running mean of an item's cost


class CpuShare:
    """Says for how many items there is CPU time. Over the long run they get no more than `share` of one core, and in
    any second at most twice that.

    Items are taken by `room` and `take`; each is settled when its CPU time is known, or released if it was never
    worked on. What cost more than expected is a debt, which is paid before anything else is taken.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._most_s = share * SAVED_S
        self._left_s = self._most_s
        self._cost_s = FIRST_COST_S
        self._open = 0
        self._at_s = -inf

    def room(self, now_s: float) -> int:
        """Returns how many more items may be taken: at least one if nothing was spent for a while, however costly."""
        self._left_s = min(self._most_s, self._left_s + self._share * max(0.0, now_s - self._at_s))
        self._at_s = max(self._at_s, now_s)
        if self._left_s == self._most_s and not self._open:
            return max(1, int(self._left_s / self._cost_s))
        return max(0, int(self._left_s / self._cost_s) - self._open)

    def take(self, items: int) -> None:
        self._open += items

    def release(self, items: int) -> None:
        self._open -= items

    def settle(self, items: int, cpu_s: float) -> None:
        """Counts the CPU time of `items` items, at least one, that were taken."""
        self._open -= items
        self._left_s -= cpu_s
        self._cost_s = max(1e-6, self._cost_s + _GAIN * (cpu_s / items - self._cost_s))
