"""The QoS agent: telemetry in, V_short and V_long out."""

from hmas.qos.agent.agent import QosAgent
from hmas.qos.agent.config import QosConfig

__all__ = ["QosAgent", "QosConfig"]
