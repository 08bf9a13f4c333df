"""The QoS service's shell: publishes the agent's views and shows them as metrics."""

from typing import assert_never

from hmas.contracts.control_agents import PublishLong, PublishShort, QosEffect, QosEvent
from hmas.laws.recording import AgentOrigin
from hmas.qos.agent import QosAgent
from hmas.qos.metrics import QosMetrics
from hmas.qos.settings import QosSettings
from hmas.runtime.agent_service import AgentService
from hmas.wire.subjects import subject_of


class QosShell:
    """Executes the effects of the QoS agent. The agent's events are posted to `service`."""

    def __init__(self, origin: AgentOrigin, settings: QosSettings, agent: QosAgent, metrics: QosMetrics) -> None:
        self._metrics = metrics
        self.service: AgentService[QosEvent, QosEffect] = AgentService(origin, settings, agent, self.execute)

    def execute(self, effect: QosEffect) -> None:
        match effect:
            case PublishShort(view):
                self.service.bus.publish(subject_of(view), view)
                self._metrics.show(view)
            case PublishLong(view):
                self.service.bus.publish(subject_of(view), view)
            case _:
                assert_never(effect)
