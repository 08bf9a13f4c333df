"""The perception agent, which batches calls for a backend and answers from the prior where the backend does not."""

from hmas.perception.agent.agent import PerceptionAgent, PerceptionConfig

__all__ = ["PerceptionAgent", "PerceptionConfig"]
