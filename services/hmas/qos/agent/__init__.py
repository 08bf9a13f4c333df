"""The QoS agent, which turns telemetry into V_short and V_long."""

from hmas.qos.agent.agent import QosAgent
from hmas.qos.agent.config import QosConfig

__all__ = ["QosAgent", "QosConfig"]
