"""The worker's decisions: which requests it queues, in which order, which fit an engine, and when it gives one up."""

from hmas.worker.agent.agent import WorkerAgent
from hmas.worker.agent.config import WorkerConfig

__all__ = ["WorkerAgent", "WorkerConfig"]
