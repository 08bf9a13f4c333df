"""The meta controller: V_long in, topology decisions out, behind its guards."""

from hmas.meta.agent.agent import MetaAgent
from hmas.meta.agent.config import MetaConfig

__all__ = ["MetaAgent", "MetaConfig"]
