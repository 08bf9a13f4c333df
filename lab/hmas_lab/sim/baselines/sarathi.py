"""Sarathi-Serve's chunked prefill in a given order of requests: the shared-cluster baselines of Niyama (§2.3, §4).

As in Niyama's EDF and SRPF, the order counts at every iteration: a half-computed prompt waits while a more urgent one
is computed. Decoding requests are never held up.
"""

from collections.abc import Callable

from hmas.engine.core import EngineCore
from hmas.engine.core.kv_cache import PrefixMatch
from hmas.engine.core.profile import EngineProfile
from hmas.engine.core.sequence import Sequence
from hmas.engine.core.step import StepPlan
from hmas.engine.core.waiting import PriorityQueue, WaitingQueue

Key = Callable[[Sequence], tuple[float, ...]]


def request_priority(seq: Sequence) -> tuple[float, ...]:
    """Returns the order by the priority that the client stated, lower first."""
    return (seq.request.priority,)


def remaining_prompt(seq: Sequence) -> tuple[float, ...]:
    """Returns the order by prompt tokens still to be computed, fewest first."""
    return (seq.target - seq.context,)


class SarathiCore(EngineCore):
    """An engine core that computes prompts in the order of `key`, lower first. The queue `waiting` must order its
    sequences in the same way; by default it orders them by the priority that the client stated."""

    def __init__(self, profile: EngineProfile, key: Key, waiting: WaitingQueue | None = None) -> None:
        super().__init__(profile, waiting=PriorityQueue() if waiting is None else waiting)
        self._key = key
        self._limit: tuple[float, ...] | None = None  # only sequences more urgent than this may be admitted now

    def _schedule_prefill(self, plan: StepPlan) -> None:
        for seq in sorted(self._prefill.values(), key=self._key):
            if not plan.preempted:
                self._limit = self._key(seq)
                self._admit(plan)
                self._limit = None
            self._go_on(seq, plan)
            if self._budget(plan) <= 0:
                break

    def _fitting(self, seq: Sequence) -> PrefixMatch | None:
        if self._limit is not None and self._key(seq) >= self._limit:
            return None
        return super()._fitting(seq)
