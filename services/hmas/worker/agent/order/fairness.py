"""Whose requests step aside for those of others.

- A tenant that was served more than `tolerated` times its weighted share lately (virtual token counter) is given up
  first: the price of its work is multiplied, so that its flood does not make the others late. It passes nobody.
- While jobs are given up, a tenant that got more service than another gives up its own first, and what it sends waits
  behind what the other sends (`job_shares.py`).
"""

from collections.abc import Sized
from dataclasses import dataclass, field

from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.job_shares import JobShares, JobSharesConfig
from hmas.worker.agent.order.served_shares import ServedShares, ServedSharesConfig

YIELDED_S = 1e6  # seconds; added to the key of what a tenant sends that is ahead of others, and a factor on its price


@dataclass(frozen=True, slots=True, kw_only=True)
class FairnessConfig:
    """Of two tenants none can have more than twice its share; where jobs wait, less than that is a flood."""

    tolerated: float = 2.0  # a tenant served more than this multiple of its share is given up first
    beside_jobs: float = 1.25  # that multiple while jobs with a budget wait
    flood_power: int = 8  # exponent with which the excess over that raises the price of the tenant's work
    served: ServedSharesConfig = field(default_factory=ServedSharesConfig)
    job_shares: JobSharesConfig = field(default_factory=JobSharesConfig)


class Fairness:
    """What tenants were served, and how much dearer that makes their work. `jobs`: the waiting stages of jobs."""

    __slots__ = ("_config", "_floods", "_jobs", "_served", "job_shares")

    def __init__(self, config: FairnessConfig, jobs: Sized) -> None:
        self._config = config
        self._jobs = jobs
        self._served = ServedShares(config.served)
        self._floods: dict[str, float] = {}  # price factors by tenant, valid until more is served
        self.job_shares = JobShares(config.job_shares)

    def flood(self, tenant: str) -> float:
        """Returns the factor on the price of a tenant's work: above 1 for one that was served too far beyond its share
        lately, otherwise 1."""
        known = self._floods.get(tenant)
        if known is not None:
            return known
        config = self._config
        excess = self._served.excess(tenant) / (config.beside_jobs if len(self._jobs) else config.tolerated)
        flood = self._floods[tenant] = excess**config.flood_power if excess > 1.0 else 1.0
        return flood

    def yielding(self, tenant: str) -> float:
        """Returns the factor on the price of the work of a tenant, above 1 if it is ahead of others."""
        return YIELDED_S if self.job_shares.ahead(tenant) else 1.0

    def served(self, now_s: float, entry: QueueEntry, tokens: float) -> None:
        """Charges the tenant of a request that has received `tokens` weighted tokens in all."""
        request = entry.request
        self._served.add(now_s, request.tenant, request.weight, max(0.0, tokens - entry.charged))
        self._floods.clear()
        entry.charged = tokens

    def granted(self, now_s: float, entry: QueueEntry, work: float, *, budgeted: bool) -> None:
        """Counts granted work for the shares of tenants with jobs: what is served beside jobs counts, too."""
        if budgeted or len(self.job_shares):
            self.job_shares.served(now_s, entry.request.tenant, entry.request.weight, work)
