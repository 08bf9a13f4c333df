"""The meta agent, which turns V_long into topology decisions, behind its guards."""

from hmas.meta.agent.agent import MetaAgent
from hmas.meta.agent.config import MetaConfig

__all__ = ["MetaAgent", "MetaConfig"]
