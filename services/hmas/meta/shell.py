"""The meta controller's shell: publishes decisions, keeps them in the control bucket and shows them as metrics, and
sends the agent's questions to the language model and its rehearsals to a process of their own."""

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

import structlog

from hmas.contracts.control import AuditRecord
from hmas.contracts.control_agents import (
    AskSelector,
    MetaEffect,
    MetaEvent,
    PlanRestored,
    PublishAudit,
    PublishGain,
    PublishLayout,
    PublishPlan,
    PublishTopology,
    Rehearse,
    SearchPlans,
)
from hmas.contracts.pool_plan import PlanDecision
from hmas.laws.recording import AgentOrigin
from hmas.laws.scheduling_gains import told_gain
from hmas.meta.agent import MetaAgent
from hmas.meta.agent.selectors import llm
from hmas.meta.metrics import MetaMetrics
from hmas.meta.plan_searches import plan_search_runs
from hmas.meta.rehearsals import rehearsal_runs
from hmas.meta.server import MetaServer
from hmas.meta.settings import MetaSettings
from hmas.runtime.agent_service import AgentService
from hmas.runtime.extras import needs
from hmas.wire import subjects

if TYPE_CHECKING:
    from hmas.meta.llm_client import LlmClient

log = structlog.get_logger()


def _llm_client(settings: MetaSettings, post: Callable[[object], None]) -> "LlmClient":
    with needs("meta", "set HMAS_SELECTOR=rules"):
        from hmas.meta.llm_client import LlmClient
    return LlmClient(settings.llm_url, settings.llm_model, settings.llm_api_key(), post)


class MetaShell:
    """Executes the effects of the meta agent. The agent's events are posted to `service`. Raises OSError if the file
    with the API key of the language model cannot be read."""

    def __init__(
        self, origin: AgentOrigin, settings: MetaSettings, agent: MetaAgent, server: MetaServer, metrics: MetaMetrics
    ) -> None:
        self._server = server
        self._metrics = metrics
        self.service: AgentService[MetaEvent, MetaEffect] = AgentService(origin, settings, agent, self.execute)
        self._llm = _llm_client(settings, self.service.post) if settings.asks_llm else None
        self._useless_told = False
        self._rehearsals = rehearsal_runs(self.service.bus, settings.rehearsal_profile, self.service.post)
        self._searches = plan_search_runs(self.service.bus, self.service.post)

    def execute(self, effect: MetaEffect) -> None:
        match effect:
            case PublishTopology(decision):
                self.service.bus.publish(subjects.subject_of(decision), decision)
                self.service.keeper.keep(subjects.topology_key(decision.pool), decision)
                self._metrics.show(decision)
            case PublishLayout(layout):
                self.service.bus.publish(subjects.subject_of(layout), layout)
                self.service.keeper.keep(subjects.layout_key(layout.pool), layout)
                self._metrics.show_layout(layout)
            case PublishPlan(plan):
                self.service.bus.publish(subjects.subject_of(plan), plan)
                self.service.keeper.keep(subjects.PLAN_KEY, plan)
            case PublishAudit(record):
                self.service.bus.publish(subjects.AUDIT, record)
                self._server.record(record)
                self._metrics.count(record)
                self._tell_useless(record)
                log.info(
                    "topology_decision",
                    kind=record.kind,
                    pool=record.pool,
                    decision=record.decision,
                    reason=record.reason,
                    selector=record.selector,
                )
            case PublishGain(gain):
                self.service.bus.publish(subjects.subject_of(gain), gain)
                self._metrics.show_gain(gain)
                log.info("scheduling_foretold", pool=gain.pool, told=told_gain(gain))
            case AskSelector():
                if self._llm is not None:
                    self._llm.ask(effect)
            case Rehearse():
                self._rehearsals.start(effect)
            case SearchPlans():
                self._searches.start(effect)
            case _:
                assert_never(effect)

    def hear_plan(self, decision: PlanDecision) -> None:
        """Takes the plan of the copy that decides, this one or another. All copies show it, so that what scales by it
        reads one number."""
        self._metrics.show_plan(decision)
        self.service.post(PlanRestored(decision))

    def _tell_useless(self, record: AuditRecord) -> None:
        """Logs once that the language model gave no answer that could be used."""
        if record.selector == llm.NAME and record.kind == "rejected" and record.decision == llm.NOTHING:
            if not self._useless_told:
                log.warning("llm_not_useful", reason=record.reason, effect="the rules decide; this is logged once")
            self._useless_told = True

    async def close(self) -> None:
        await self._rehearsals.close()
        await self._searches.close()
        if self._llm is not None:
            await self._llm.close()
