"""Who was served more than its share lately: a virtual token counter (Sheng et al., OSDI 2024) that forgets."""

from collections import OrderedDict
from math import exp

WINDOW_S = 30.0  # time constant of what was served
SILENT_S = 120.0  # served nothing for so long, a tenant counts no more
MAX_TENANTS = 4096  # the longest silent go first


class ServedTokens:
    """One tenant's service tokens, as of `seen_s`."""

    __slots__ = ("seen_s", "tokens", "weight")

    def __init__(self, now_s: float) -> None:
        self.seen_s = now_s
        self.weight = 0.0
        self.tokens = 0.0


class ServedShares:
    """Service tokens by tenant, exponentially forgotten. What is served and a question cost O(1)."""

    __slots__ = ("_all", "_tenants", "_weights")

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, ServedTokens] = OrderedDict()  # longest silent first
        self._weights = 0.0
        self._all = ServedTokens(0.0)

    def add(self, now_s: float, tenant: str, weight: float, tokens: float) -> None:
        """`tokens` more were served to a tenant."""
        served = self._tenants.get(tenant)
        stale = served is None or self._all.seen_s != now_s  # a cycle tells of many requests at one instant
        if served is None:
            served = self._tenants[tenant] = ServedTokens(now_s)
        self._weights += weight - served.weight
        served.weight = weight
        for counter in (served, self._all):
            if counter.seen_s != now_s:
                counter.tokens *= exp((counter.seen_s - now_s) / WINDOW_S)
                counter.seen_s = now_s
            counter.tokens += tokens
        self._tenants.move_to_end(tenant)
        if stale:
            self._forget(now_s)

    def _forget(self, now_s: float) -> None:
        while True:
            tenant, served = next(iter(self._tenants.items()))
            if now_s - served.seen_s < SILENT_S and len(self._tenants) <= MAX_TENANTS:
                return
            self._weights -= served.weight
            self._all.tokens -= served.tokens * exp((served.seen_s - now_s) / WINDOW_S)
            del self._tenants[tenant]

    def excess(self, tenant: str) -> float:
        """The tenant's part of all service over its part of all weights; 0 for one that had none."""
        served = self._tenants.get(tenant)
        if served is None or self._all.tokens <= 0.0:
            return 0.0
        since_s = self._all.seen_s - served.seen_s
        share = served.tokens * exp(-since_s / WINDOW_S) / self._all.tokens
        return share * self._weights / served.weight
