"""Corrects the estimate of prompt tokens by what a pool's engines count: their tokenizers differ from one another, and
from four bytes a token."""

from math import exp, log

LEAST = 20  # prompts that were counted before their ratio is believed
MEMORY = 50  # prompts over which it is averaged
MOST_POOLS = 256
MOST_RATIO = 3.0
SMALLEST = 8  # tokens of a prompt that tells something; in a shorter one the template counts most


class TokenScale:
    """The ratio of an engine's count to the estimate, by pool: the mean of its logarithm over the last prompts."""

    def __init__(self) -> None:
        self._pools: dict[str, tuple[int, float]] = {}  # how many were counted, and the mean

    def scaled(self, pool: str, estimate: int) -> int:
        """Returns a prompt's tokens by its estimate, at least 1."""
        count, mean = self._pools.get(pool, (0, 0.0))
        return estimate if count < LEAST or estimate < SMALLEST else max(1, round(estimate * exp(mean)))

    def learn(self, pool: str, estimate: int, counted: int) -> None:
        """Records what an engine counted where this was the estimate."""
        if estimate < SMALLEST or counted <= 0:
            return
        count, mean = self._pools.pop(pool, (0, 0.0))
        if len(self._pools) >= MOST_POOLS:
            del self._pools[next(iter(self._pools))]
        count = min(count + 1, MEMORY)
        error = max(-log(MOST_RATIO), min(log(MOST_RATIO), log(counted / estimate)))
        self._pools[pool] = (count, mean + (error - mean) / count)
