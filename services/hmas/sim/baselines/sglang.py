"""SGLang's scheduler: prefill before decode, admission by the new-token ratio, FCFS or longest prefix first.

Source: sgl-project/sglang, `managers/schedule_policy.py` (`PrefillAdder`, `SchedulePolicy`) and
`managers/schedule_batch.py` (`retract_decode`), with the defaults of its environment variables. A new request is
admitted if its prompt and its whole `max_new_tokens` (clipped at 4096) fit into memory beside the tokens that running
requests may still generate, times the new-token ratio. That ratio starts at 0.7, decays over 600 decode steps to 14 %
of that, and is set anew from the progress of the batch when memory ran out and a request had to be retracted.
"""

from hmas.engine.core import EngineCore
from hmas.engine.core.kv_cache import KvCache
from hmas.engine.core.profile import EngineProfile
from hmas.engine.core.sequence import Sequence
from hmas.engine.core.step import FastForward, StepPlan
from hmas.engine.core.waiting import FcfsQueue, WaitingQueue

CLIP_MAX_NEW_TOKENS = 4096
INIT_RATIO = 0.7
MIN_RATIO = 0.7 * 0.14
DECAY_STEPS = 600
RETRACT_STEPS = 20
LPM_QUEUE_LIMIT = 128  # beyond it SGLang falls back to FCFS


class SglangCore(EngineCore):
    """An engine core that schedules as SGLang does. `max_tokens` is the most output tokens that any client asks for."""

    def __init__(self, profile: EngineProfile, max_tokens: int, waiting: WaitingQueue | None = None) -> None:
        super().__init__(profile, waiting=waiting, gate=lambda _, seq: self._has_room(seq), separate_prefill=True)
        self._max_new = max_tokens
        self._ratio = INIT_RATIO

    def step_begin(self, now_s: float = 0.0) -> StepPlan | None:
        plan = super().step_begin(now_s)
        if plan is None:
            self._ratio = INIT_RATIO
        elif plan.preempted:
            self._ratio = self._ratio_after_retraction()
        elif plan.decode_seqs:
            self._decay(1)
        return plan

    def fast_forward(self, now_s: float, until_s: float) -> FastForward:
        jump = super().fast_forward(now_s, until_s)
        self._decay(jump.steps)
        return jump

    def _decay(self, steps: int) -> None:
        self._ratio = max(MIN_RATIO, self._ratio - steps * (INIT_RATIO - MIN_RATIO) / DECAY_STEPS)

    def _ratio_after_retraction(self) -> float:
        count = len(self.running)
        generated = sum(self.generated(request_id) for request_id in self.running)
        return min(1.0, (generated + RETRACT_STEPS * count) / (self._max_new * count + 1))

    def _left(self, generated: int) -> int:
        return min(self._max_new - generated, CLIP_MAX_NEW_TOKENS)

    def _has_room(self, seq: Sequence) -> bool:
        """Tells whether memory suffices for a waiting request beside the running ones."""
        # It is asked at every step while a request waits, so the sum over decoding requests avoids a call for each.
        most = self._max_new
        left = sum(min(most - generated, CLIP_MAX_NEW_TOKENS) for _, generated in self.progress())
        for other in self._prefill.values():
            if other.generated:
                left += self._left(other.generated)
        reserved = left * self._ratio
        for other in self._prefill.values():
            if not other.generated:  # admitted just now: its full output length and the rest of its prompt count
                reserved += self._left(0) + other.target - other.context
        room = self.kv.free * self.kv.block_size - reserved
        return seq.target + self._left(seq.generated) < room

    def _victim(self) -> Sequence:
        """Returns the running request to retract: the one with the fewest output tokens, then the longest prompt."""
        return min(
            self.running.values(),
            key=lambda seq: (self.generated(seq.id), -seq.request.prompt_tokens),
        )


class LpmQueue(FcfsQueue):
    """A queue whose head is the request with the longest cached prefix, by arrival among equals; it is FCFS while more
    than 128 requests wait."""

    cache: KvCache

    def peek(self) -> Sequence | None:
        if len(self._queue) <= 1 or len(self._queue) > LPM_QUEUE_LIMIT:
            return super().peek()
        return max(self._queue.values(), key=lambda seq: self.cache.match(seq).blocks)

    def pop(self) -> Sequence:
        seq = self.peek()
        if seq is None:
            raise IndexError("pop from an empty queue: call peek first, which returns None if no request waits")
        self.remove(seq)
        return seq
