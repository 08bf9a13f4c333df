"""The gateway's decisions: who is taken, where each request goes, how it ends; what cognition is asked, and when."""

from hmas.gateway.agent.agent import GatewayAgent
from hmas.gateway.agent.cognition_queue import CognitionQueue, CognitionQueueConfig
from hmas.gateway.agent.config import GatewayConfig

__all__ = ["CognitionQueue", "CognitionQueueConfig", "GatewayAgent", "GatewayConfig"]
