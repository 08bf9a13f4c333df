"""The state that the agent's event handlers share."""

from collections.abc import Mapping

from hmas.contracts.control import LayoutDecision, TopologyDecision
from hmas.laws.epochs import MAX_SEQ
from hmas.meta.agent.config import MetaConfig
from hmas.meta.agent.plans.plan_state import PlanState
from hmas.meta.agent.pool import PIN, PoolState, new_pool
from hmas.meta.agent.rehearsing import CpuBudget, OpenForetelling, OpenRehearsal
from hmas.meta.agent.selectors.table import SELECTORS, MakeSelector, check_selector


class MetaState:
    """Everything that one meta agent knows. `now_s` is the instant of the current step; `epoch` is None while the agent
    may neither decide nor publish. Raises ValueError if the configured selector is unknown."""

    def __init__(self, config: MetaConfig, selectors: Mapping[str, MakeSelector] = SELECTORS) -> None:
        check_selector(config.selector, selectors)
        self.config = config
        self._selectors = selectors
        self.pools: dict[str, PoolState] = {}
        self.epoch: int | None = None
        self.seq = 0  # number of the last decisions that were published
        self.asks = 0  # number of the last question to a language model
        self.rehearsals = 0  # number of the last rehearsal
        self.rehearsal: OpenRehearsal | None = None
        self.foretelling: OpenForetelling | None = None
        self.budget = CpuBudget(config.rehearsal.cpu_share)
        catalogue = config.plan.catalogue
        self.plans = PlanState(config.plan, catalogue) if catalogue is not None else None
        self.now_s = 0.0

    def pool(self, name: str) -> PoolState:
        """Returns a pool, which is heard of now. The one that was heard of longest ago makes room for a new one."""
        pool = self.pools.get(name)
        if pool is None:
            if len(self.pools) >= self.config.max_pools:
                del self.pools[min(self.pools, key=lambda each: self.pools[each].seen_s)]
            pool = self.pools[name] = new_pool(self.config, name, self.now_s, self._selectors)
            pool.decide_due_s = self.now_s + self.config.decide_every_s
        pool.seen_s = self.now_s
        return pool

    def forget(self) -> None:
        """Forgets the pools that were not heard of for long, except those with a pin."""
        horizon_s = self.now_s - self.config.pool_forgotten_after_s
        self.pools = {n: p for n, p in self.pools.items() if p.seen_s > horizon_s or p.pin is not None}

    def begin(self, epoch: int) -> None:
        self.epoch = epoch
        for pool in self.pools.values():
            pool.sent = None  # nothing was published in the new epoch yet
        if self.plans is not None:
            self.plans.sent = None

    def end(self) -> None:
        self.epoch, self.rehearsal, self.foretelling = None, None, None
        for pool in self.pools.values():
            pool.ask = None

    def resume(self, decision: TopologyDecision) -> None:
        """Follows the decision of a previous writer, unless this one has decided something itself."""
        self.seq = max(self.seq, min(decision.seq, MAX_SEQ))
        pool = self.pool(decision.pool)
        if self.epoch is None or (pool.untouched and decision.epoch < self.epoch):
            pool.resume(self.now_s, decision)
            pool.untouched = decision.selector == PIN

    def resume_layout(self, decision: LayoutDecision) -> None:
        """Follows the layout of a previous writer, unless this one has chosen one itself."""
        self.seq = max(self.seq, min(decision.seq, MAX_SEQ))
        pool = self.pool(decision.pool)
        if self.epoch is None or (not pool.laid_out and decision.epoch < self.epoch):
            pool.resume_layout(decision)
            pool.laid_out = False
