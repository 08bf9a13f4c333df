"""Balances requests over base URLs on the client's side, for comparisons in which no mesh does so."""


class LeastOutstanding:
    """Chooses the base URL with the fewest outstanding requests of this process. Each `take` must be followed by one
    `release` of the index it returned. Ties are broken in turn, so that idle servers are used evenly."""

    def __init__(self, count: int) -> None:
        self._outstanding = [0] * count
        self._turn = 0

    def take(self) -> int:
        """Returns the index of the chosen base URL and counts one more outstanding request for it."""
        count = len(self._outstanding)
        order = ((self._turn + step) % count for step in range(count))
        chosen = min(order, key=self._outstanding.__getitem__)
        self._turn = (chosen + 1) % count
        self._outstanding[chosen] += 1
        return chosen

    def release(self, index: int) -> None:
        self._outstanding[index] -= 1
