"""Statera: telemetry in, control tuples out."""

from hmas.statera.agent.agent import StateraAgent
from hmas.statera.agent.config import StateraConfig

__all__ = ["StateraAgent", "StateraConfig"]
