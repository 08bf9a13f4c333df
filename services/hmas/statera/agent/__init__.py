"""The Statera agent, which turns telemetry and views into control tuples."""

from hmas.statera.agent.agent import StateraAgent
from hmas.statera.agent.config import StateraConfig

__all__ = ["StateraAgent", "StateraConfig"]
