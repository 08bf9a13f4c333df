"""The gateway's decisions: who is taken, where each request goes, how it ends."""

from hmas.gateway.agent.agent import GatewayAgent
from hmas.gateway.agent.config import GatewayConfig

__all__ = ["GatewayAgent", "GatewayConfig"]
