"""Perception's shell: its agent, and its backend in a thread of its own."""

from hmas.contracts.request import Tags
from hmas.perception.agent.agent import PerceiveItem, PerceptionAgent
from hmas.perception.agent.backend import Backend, Estimate, PromptView
from hmas.perception.metrics import PerceptionMetrics
from hmas.runtime.batching import BatchingShell
from hmas.runtime.recorder import Recorder

NICENESS = 10  # beside what relays tokens (0), a tenth of a core that both want
WARM_UP = PromptView(text="Summarize this text in one sentence.", prompt_tokens=8, model="", tenant="", max_tokens=None)


class PerceptionShell(BatchingShell[PerceiveItem, PromptView, Estimate | None, Tags]):
    """Steps perception's agent and runs its batches on the backend. `budget_s` is the longest time that a call may
    take."""

    def __init__(
        self,
        agent: PerceptionAgent,
        backend: Backend,
        budget_s: float,
        metrics: PerceptionMetrics,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(
            agent, backend.estimate, budget_s, metrics.batch_seconds, metrics.fallbacks, recorder, NICENESS
        )
