"""Least-outstanding choice among base URLs, as a client-side balancer of the direct comparison would do it."""


class LeastOutstanding:
    """Each `take` must be followed by one `release` of what it returned. Ties go round, so that an idle fleet is used
    evenly. Counts are this process's own requests."""

    def __init__(self, count: int) -> None:
        self._outstanding = [0] * count
        self._turn = 0

    def take(self) -> int:
        """Index of the chosen one, counted as outstanding from now on."""
        count = len(self._outstanding)
        order = ((self._turn + step) % count for step in range(count))
        chosen = min(order, key=self._outstanding.__getitem__)
        self._turn = (chosen + 1) % count
        self._outstanding[chosen] += 1
        return chosen

    def release(self, index: int) -> None:
        self._outstanding[index] -= 1
