"""Statera's shell: publishes its control tuples, keeps them in the control bucket and shows them as metrics."""

from typing import assert_never

import structlog

from hmas.contracts.control_agents import PublishAudit, PublishTuple, StateraEffect, StateraEvent
from hmas.laws.recording import AgentOrigin
from hmas.runtime.agent_service import AgentService
from hmas.statera.agent import StateraAgent
from hmas.statera.metrics import StateraMetrics
from hmas.statera.settings import StateraSettings
from hmas.wire import subjects

log = structlog.get_logger()


class StateraShell:
    """Executes the effects of the Statera agent. The agent's events are posted to `service`."""

    def __init__(
        self, origin: AgentOrigin, settings: StateraSettings, agent: StateraAgent, metrics: StateraMetrics
    ) -> None:
        self._metrics = metrics
        self.service: AgentService[StateraEvent, StateraEffect] = AgentService(origin, settings, agent, self.execute)

    def execute(self, effect: StateraEffect) -> None:
        match effect:
            case PublishTuple(control):
                self.service.bus.publish(subjects.subject_of(control), control)
                self.service.keeper.keep(subjects.tuple_key(control.worker), control)
                self._metrics.show(control)
            case PublishAudit(record):
                self.service.bus.publish(subjects.AUDIT, record)
                log.info("tuple_moved", pool=record.pool, decision=record.decision, reason=record.reason)
            case _:
                assert_never(effect)
