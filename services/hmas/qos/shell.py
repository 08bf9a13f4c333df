"""The QoS service's shell: publishes the agent's views, shows them as metrics, and keeps the past requests."""

from typing import assert_never

from hmas.contracts.control_agents import KeepPast, PublishLong, PublishShort, QosEffect, QosEvent
from hmas.laws.recording import AgentOrigin
from hmas.qos.agent import QosAgent
from hmas.qos.metrics import QosMetrics
from hmas.qos.past_store import SLOTS, PastStore, answer
from hmas.qos.settings import QosSettings
from hmas.runtime.agent_service import AgentService
from hmas.runtime.bucket import PastBucket
from hmas.wire.subjects import QUERY_PAST, past_key, subject_of


class QosShell:
    """Executes the effects of the QoS agent. The agent's events are posted to `service`."""

    def __init__(self, origin: AgentOrigin, settings: QosSettings, agent: QosAgent, metrics: QosMetrics) -> None:
        self._metrics = metrics
        self.service: AgentService[QosEvent, QosEffect] = AgentService(origin, settings, agent, self.execute)
        self.past = PastStore(PastBucket(self.service.bus, origin.name), self.service.post)
        self.service.bus.answer(QUERY_PAST, lambda data: answer(agent, origin.name, data))

    def execute(self, effect: QosEffect) -> None:
        match effect:
            case PublishShort(view):
                self.service.bus.publish(subject_of(view), view)
                self._metrics.show(view)
            case PublishLong(view):
                self.service.bus.publish(subject_of(view), view)
            case KeepPast(pool, block):
                self.past.keeper.keep(past_key(pool, block.number % SLOTS), block)
            case _:
                assert_never(effect)
