"""Tells which tenants were served more than their share lately: a virtual token counter (Sheng et al., OSDI 2024) that
forgets."""

from collections import OrderedDict
from dataclasses import dataclass
from math import exp


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSharesConfig:
    """How long past service counts, and for how many tenants it is remembered."""

    window_s: float = 30.0  # time constant with which past service is forgotten
    silent_s: float = 120.0  # a tenant that was served nothing for this long is forgotten
    max_tenants: int = 4096  # beyond, the tenants served least recently are forgotten


class ServedTokens:
    """The decayed sum of the service tokens of one tenant, or of all, as it was at the instant `seen_s`."""

    __slots__ = ("seen_s", "tokens", "weight")

    def __init__(self, now_s: float) -> None:
        self.seen_s = now_s
        self.weight = 0.0
        self.tokens = 0.0


class ServedShares:
    """Service tokens by tenant, exponentially forgotten. `add` and `excess` take O(1)."""

    __slots__ = ("_all", "_config", "_tenants", "_weights", "_window_s")

    def __init__(self, config: ServedSharesConfig) -> None:
        self._config = config
        self._window_s = config.window_s
        self._tenants: OrderedDict[str, ServedTokens] = OrderedDict()  # longest silent first
        self._weights = 0.0
        self._all = ServedTokens(0.0)

    def add(self, now_s: float, tenant: str, weight: float, tokens: float) -> None:
        """Records that `tokens` more service tokens went to a tenant of that weight."""
        served = self._tenants.get(tenant)
        stale = served is None or self._all.seen_s != now_s  # a cycle tells of many requests at one instant
        if served is None:
            served = self._tenants[tenant] = ServedTokens(now_s)
        self._weights += weight - served.weight
        served.weight = weight
        for counter in (served, self._all):
            if counter.seen_s != now_s:
                counter.tokens *= exp((counter.seen_s - now_s) / self._window_s)
                counter.seen_s = now_s
            counter.tokens += tokens
        self._tenants.move_to_end(tenant)
        if stale:
            self._forget(now_s)

    def _forget(self, now_s: float) -> None:
        while True:
            tenant, served = next(iter(self._tenants.items()))
            if now_s - served.seen_s < self._config.silent_s and len(self._tenants) <= self._config.max_tenants:
                return
            self._weights -= served.weight
            self._all.tokens -= served.tokens * exp((served.seen_s - now_s) / self._window_s)
            del self._tenants[tenant]

    def excess(self, tenant: str) -> float:
        """Returns the tenant's share of all recent service, divided by its share of the weights of all tenants served:
        1 is fair, above 1 is more than its share, 0 means that it was served nothing."""
        served = self._tenants.get(tenant)
        if served is None or self._all.tokens <= 0.0:
            return 0.0
        since_s = self._all.seen_s - served.seen_s
        share = served.tokens * exp(-since_s / self._window_s) / self._all.tokens
        return share * self._weights / served.weight
