"""SGLang's scheduler: prefill before decode, admission by the new-token ratio, FCFS or longest prefix first.

Source: sgl-project/sglang, `managers/schedule_policy.py` (`PrefillAdder`, `SchedulePolicy`) and
`managers/schedule_batch.py` (`retract_decode`), with the defaults of its environment variables. A new request is
admitted if its prompt and the most tokens that it may generate (its own `max_tokens`, or without one what the context
leaves; clipped at 4096) fit into memory beside the tokens that running requests may still generate, times the new-token
ratio. That ratio starts at 0.7, decays over 600 decode steps to 14 % of that, and is set anew from the progress of the
batch when memory ran out and a request had to be retracted, which then waits behind all others. Once a request did not
fit beside decoding ones, none is admitted until one of these leaves (`batch_is_full`). Its pages hold one token each.
Requests with `ignore_eos`, for which SGLang takes the ratio 1, are not told apart: workloads have none.

The size of a prefill chunk follows from the memory of the card (`server_args.py`, `chunked_prefill_size`), and the most
requests that run from the KV memory and the context (`model_runner_kv_cache_mixin.py`, `_resolve_max_num_reqs`).
"""

from hmas.engine.core import EngineCore
from hmas.engine.core.kv_cache import KvCache
from hmas.engine.core.profile import EngineProfile
from hmas.engine.core.sequence import EngineRequest, Sequence
from hmas.engine.core.step import FastForward, StepPlan
from hmas.engine.core.waiting import FcfsQueue, WaitingQueue

CLIP_MAX_NEW_TOKENS = 4096
INIT_RATIO = 0.7
MIN_RATIO = 0.7 * 0.14
DECAY_STEPS = 600
RETRACT_STEPS = 20
PAGE_TOKENS = 1
LPM_QUEUE_LIMIT = 128  # beyond it SGLang falls back to FCFS
CHUNKS = ((35.0, 2048), (60.0, 4096), (160.0, 8192))  # chunk in tokens on a card of less memory than so many GB
LARGEST_CHUNK = 16384  # on a larger card
LEAST_RUNNING, MOST_RUNNING = 2048, 4096


def with_defaults(profile: EngineProfile) -> EngineProfile:
    """Returns the profile with the chunk and the most running requests that SGLang chooses for its card; one that names
    no card keeps its limits. No more run than a chunk has tokens, because an engine's limits ask for it; only cards
    below 60 GB are bounded by that, and no workload here comes near it."""
    limits, card_gb = profile.limits, profile.card_gb
    if card_gb is None:
        return profile
    chunk = next((size for below_gb, size in CHUNKS if card_gb < below_gb), LARGEST_CHUNK)
    kv_tokens = limits.num_gpu_blocks * limits.block_size
    running = max(LEAST_RUNNING, min(int(kv_tokens / limits.max_model_len * 512), MOST_RUNNING))
    running = min(running, kv_tokens // 2, chunk)
    return profile.with_limits(max_num_batched_tokens=chunk, max_num_seqs=running)


class RetractedLast(FcfsQueue):
    """A first-come, first-served queue in which a retracted request comes again behind all others."""

    push_back_in = FcfsQueue.push


class SglangCore(EngineCore):
    """An engine core that schedules as SGLang does, within the limits of the profile (see `with_defaults`)."""

    def __init__(self, profile: EngineProfile, waiting: WaitingQueue | None = None) -> None:
        waiting = RetractedLast() if waiting is None else waiting
        super().__init__(profile, waiting=waiting, gate=lambda _, seq: self._admits(seq), separate_prefill=True)
        self._context = profile.limits.max_model_len
        self.new_token_ratio = INIT_RATIO
        self._full = False

    def step_begin(self, now_s: float = 0.0) -> StepPlan | None:
        plan = super().step_begin(now_s)
        if plan is None:
            self.new_token_ratio = INIT_RATIO
        elif plan.preempted:
            self.new_token_ratio = self._ratio_after_retraction()
        elif plan.decode_seqs:
            self._decay(1)
        return plan

    def fast_forward(self, now_s: float, until_s: float) -> FastForward:
        jump = super().fast_forward(now_s, until_s)
        self._decay(jump.steps)
        return jump

    def _decay(self, steps: int) -> None:
        self.new_token_ratio = max(MIN_RATIO, self.new_token_ratio - steps * (INIT_RATIO - MIN_RATIO) / DECAY_STEPS)

    def _ratio_after_retraction(self) -> float:
        count = len(self.running)
        generated = sum(self.generated(request_id) for request_id in self.running)
        most = sum(max_new_tokens(seq.request, self._context) for seq in self.running.values())
        return min(1.0, (generated + RETRACT_STEPS * count) / (most + 1))

    def _left(self, seq: Sequence, generated: int) -> int:
        return min(max_new_tokens(seq.request, self._context) - generated, CLIP_MAX_NEW_TOKENS)

    def _admits(self, seq: Sequence) -> bool:
        if not self._full and self._has_room(seq):
            return True
        self._full = len(self.running) > len(self._prefill)
        return False

    def _has_room(self, seq: Sequence) -> bool:
        """Tells whether memory suffices for a waiting request beside the running ones."""
        left = sum(self._left(self.running[id_], generated) for id_, generated in self.progress())
        reserved = left * self.new_token_ratio
        for other in self._prefill.values():  # admitted just now: its full output length and the rest of its prompt
            reserved += self._left(other, 0) + other.target - other.context + PAGE_TOKENS
        match = self.kv.match(seq)
        held = (match.blocks - match.free) * self.kv.block_size  # of its prompt, beside what is free
        room = self.kv.free * self.kv.block_size - reserved
        return seq.target - held + self._left(seq, seq.generated) + PAGE_TOKENS < room

    def _finish(self, seq: Sequence) -> None:
        super()._finish(seq)
        self._full = False

    def _stop_running(self, seq: Sequence) -> None:
        super()._stop_running(seq)
        self._full = False

    def _victim(self) -> Sequence:
        """Returns the running request to retract: the one with the fewest output tokens, of these the one with the
        longest prompt, of these the last."""
        return min(
            reversed(self.running.values()),
            key=lambda seq: (self.generated(seq.id), -seq.request.prompt_tokens),
        )


def max_new_tokens(request: EngineRequest, context: int) -> int:
    """Returns the most tokens that a request may generate: its client's bound, at most what the engine's `context`
    (prompt and output, in tokens) leaves."""
    room = max(1, context - request.prompt_tokens - 1)
    return room if request.max_tokens is None else min(request.max_tokens, room)


class LpmQueue(RetractedLast):
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
