"""The state that the gateway agent's event handlers share, and what they all ask of it."""

from hmas.contracts.execution import GatewayMessage
from hmas.contracts.gateway import GatewayEffect, ToWorker
from hmas.contracts.request import TaskType
from hmas.gateway.agent.admission.limits import TenantGate
from hmas.gateway.agent.admission.promises import Promises
from hmas.gateway.agent.admission.waiting import WaitEstimator
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.jobs.job_outlook import JobOutlook
from hmas.gateway.agent.jobs.linking import JobLinker
from hmas.gateway.agent.pools.directory import ModelDirectory
from hmas.gateway.agent.requests.batches import Batches
from hmas.gateway.agent.requests.ledger import Ledger, LedgerEntry
from hmas.gateway.agent.requests.legs import Legs
from hmas.gateway.agent.requests.stalls import StallWatch
from hmas.gateway.agent.routing.bypass import Bypass
from hmas.gateway.agent.routing.rebalancing import Rebalancer
from hmas.gateway.agent.routing.route_chooser import RouteChooser
from hmas.gateway.agent.routing.routing import Router


class GatewayState:
    """Everything that one gateway agent knows. `now_s` is the instant of the current step."""

    def __init__(self, config: GatewayConfig, chooser: RouteChooser | None = None) -> None:
        self.config = config
        self.ledger = Ledger()
        self.linker = JobLinker(config.linking)
        self.job_outlook = JobOutlook(
            config.job_outlook, prefill_tokens_per_s=config.prior.prefill_tokens_per_s, tpot_s=config.prior.tpot_s
        )
        self.directory = ModelDirectory(config.max_pools)
        self.router = Router(config, chooser)
        self.tenants = TenantGate(config)
        self.classes: dict[TaskType, float] = {}  # weights of task types
        self.waits = WaitEstimator(config.waits)
        self.promises = Promises(config)
        self.batches = Batches(config)
        self.rebalancer = Rebalancer(config, self.router, self.ledger)
        self.bypass = Bypass(config, self.router, self.ledger)
        self.stalls = StallWatch(config.stalls, self.ledger)
        self.legs = Legs(config.legs)
        self.draining = False
        self.now_s = 0.0
        self._runs = 0

    def next_run(self) -> int:
        self._runs += 1
        return self._runs

    def tell(self, worker: str, message: GatewayMessage) -> list[GatewayEffect]:
        """Returns the effect that sends a message to a worker; none if the worker's stream is closed."""
        return [ToWorker(worker, message)] if self.router.is_connected(worker) else []

    def wait_s(self, pool: str) -> float:
        return self.waits.wait_s(self.now_s, pool, self.router.usable(pool))

    def retry_after_s(self, pool: str) -> float:
        return self.waits.retry_after_s(self.now_s, pool, self.router.usable(pool))

    def is_unattended(self, worker: str) -> bool:
        """Returns whether this gateway alone watches what it runs on the worker's engines: the worker is silent, or
        the gateway only observes."""
        return self.config.observe or not self.router.is_connected(worker)

    def may_bypass(self, entry: LedgerEntry) -> bool:
        """Returns whether the gateway may place the request by itself, on an engine that is in bypass now."""
        return self.bypass.allows(entry) and self.bypass.covers(self.now_s, entry.pool)
