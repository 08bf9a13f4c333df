"""The gateway's decisions: which requests it accepts, which worker gets each, how each ends, what it asks cognition."""

from hmas.gateway.agent.agent import GatewayAgent
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.questions.cognition_queue import CognitionQueue, CognitionQueueConfig

__all__ = ["CognitionQueue", "CognitionQueueConfig", "GatewayAgent", "GatewayConfig"]
