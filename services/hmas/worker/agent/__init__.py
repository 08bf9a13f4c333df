"""The worker's decisions: what is queued, in which order, what fits, and when it is given up."""

from hmas.worker.agent.agent import WorkerAgent
from hmas.worker.agent.config import WorkerConfig

__all__ = ["WorkerAgent", "WorkerConfig"]
