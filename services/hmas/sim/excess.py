"""How far, and for how long, an engine was above a limit."""


class Excess:
    """The largest excess of a level over a limit, and the longest time (s) that it was in excess without a break."""

    def __init__(self) -> None:
        self.largest = 0.0
        self.longest_s = 0.0
        self._since_s: float | None = None

    def update(self, now_s: float, excess: float) -> None:
        """Takes the excess from the instant `now_s` on; at most 0 means none."""
        if self._since_s is not None:
            self.longest_s = max(self.longest_s, now_s - self._since_s)
        if excess <= 0.0:
            self._since_s = None
            return
        self.largest = max(self.largest, excess)
        if self._since_s is None:
            self._since_s = now_s
