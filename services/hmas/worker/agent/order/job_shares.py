"""Which tenants are ahead of others in the service that they got: virtual token counting (Sheng et al., OSDI 2024) over
work, as long as there are jobs with a budget.

A tenant's level is the work that it was granted, over its weight. A tenant that comes, or comes again after
`silent_s`, starts at the least level of those that are here: what an idle mesh gave one of them before is not held
against it, and nobody saves up service by staying away. For the same reason nobody falls further than `credit_s` of
all work behind the first.
"""

from collections import OrderedDict
from dataclasses import dataclass

FEW = 16  # tenants whose least level is looked up whenever one more comes


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSharesConfig:
    """`lead_s`: a tenant leads once its level exceeds that of the least served tenant by this many seconds of all
    work, and is ahead as long as something was given up in the last `crowded_s`. `max_tenants`: beyond, the tenant
    seen longest ago is forgotten."""

    lead_s: float = 1.0
    credit_s: float = 10.0
    silent_s: float = 30.0
    crowded_s: float = 10.0
    max_tenants: int = 4096


class JobShares:
    """The levels of the tenants whose jobs wait or were served lately."""

    __slots__ = ("_ahead", "_config", "_crowded_s", "_leading", "_least", "_levels", "_seen_s")

    def __init__(self, config: JobSharesConfig) -> None:
        self._config = config
        self._levels: OrderedDict[str, float] = OrderedDict()  # longest silent first
        self._seen_s: dict[str, float] = {}
        self._leading: frozenset[str] = frozenset()
        self._least = 0.0  # when that was last decided
        self._ahead: frozenset[str] = frozenset()
        self._crowded_s = -config.crowded_s

    def __len__(self) -> int:
        return len(self._levels)

    def leads(self, tenant: str) -> bool:
        """Whether the tenant got more than the least served one."""
        return tenant in self._leading

    def ahead(self, tenant: str) -> bool:
        """Whether it leads while some of what waits is given up."""
        return tenant in self._ahead

    def waits(self, now_s: float, tenant: str) -> None:
        """Records that a stage of the tenant came."""
        if tenant not in self._levels:
            few = len(self._levels) <= FEW
            self._levels[tenant] = min(self._levels.values(), default=0.0) if few else self._least
            if len(self._levels) > self._config.max_tenants:
                self._forget(next(iter(self._levels)))
        self._levels.move_to_end(tenant)
        self._seen_s[tenant] = now_s

    def served(self, now_s: float, tenant: str, weight: float, work: float) -> None:
        """Records that a stage of the tenant was granted."""
        self.waits(now_s, tenant)
        self._levels[tenant] += work / weight

    def refresh(self, now_s: float, rate: float, crowded: bool) -> frozenset[str]:
        """Decides anew who is ahead, and returns the tenants of whom that changed. `crowded`: some of what waits was
        given up."""
        config, levels = self._config, self._levels
        while levels and now_s - self._seen_s[next(iter(levels))] > config.silent_s:
            self._forget(next(iter(levels)))
        if crowded:
            self._crowded_s = now_s
        led, before = self._leading, self._ahead
        self._leading = self._ahead = frozenset()
        if len(levels) > 1:
            floor = max(levels.values()) - config.credit_s * rate
            for tenant, level in levels.items():
                levels[tenant] = max(level, floor)
            self._least = min(levels.values())
            leads = self._least + config.lead_s * rate
            self._leading = frozenset(tenant for tenant, level in levels.items() if level > leads)
            if now_s - self._crowded_s < config.crowded_s:
                self._ahead = self._leading
        return (led ^ self._leading) | (before ^ self._ahead)

    def _forget(self, tenant: str) -> None:
        del self._levels[tenant], self._seen_s[tenant]
