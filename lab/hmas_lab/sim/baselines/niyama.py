"""Niyama's scheduler inside one engine (§3): dynamic chunking, hybrid priority, eager relegation, selective preemption.

Niyama's public code (microsoft/sarathi-serve, branch niyama_asplos2026) settles what the paper leaves open: only
requests whose prompt is not begun are relegated, time is estimated by the measured prefill throughput, and a request
judged on its last token alone decodes at 0.4 s per token at the slowest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hmas.engine.core.chunking import TokenDeadline
from hmas.engine.core.profile import EngineProfile
from hmas.engine.core.sequence import AddResult, EngineRequest, Sequence
from hmas.engine.core.step import StepPlan
from hmas.laws.lengths import LengthHistory
from hmas.laws.niyama import LoadAlpha
from hmas_lab.sim.baselines.niyama_queue import NiyamaQueue, NiyamaRequest
from hmas_lab.sim.baselines.sarathi import SarathiCore

MAX_CHUNK_TOKENS = 2560
BATCH_TPOT_S = 0.4
THROUGHPUT_WEIGHT = 0.005  # weight of the newest step in the moving averages of throughput and step time


@dataclass(frozen=True, slots=True)
class NiyamaConfig:
    """Which of Niyama's mechanisms are on. `alpha` is the range (low, high) in which the weight of remaining work in
    the priority moves: up while requests must be relegated, down while none are."""

    dynamic_chunking: bool = True
    relegation: bool = True
    alpha: tuple[float, float] = (0.0, 64.0)


class NiyamaCore(SarathiCore):
    """An engine core that schedules as Niyama does. Its requests must be `NiyamaRequest`s. Without dynamic chunking,
    the chunk size is the profile's token budget per step."""

    def __init__(self, profile: EngineProfile, config: NiyamaConfig) -> None:
        if config.dynamic_chunking:
            profile = profile.with_limits(max_num_batched_tokens=MAX_CHUNK_TOKENS, dynamic_chunking=True)
        self._queue = NiyamaQueue(self._work_s, relegation=config.relegation)
        super().__init__(profile, self._rank, self._queue)
        budget = profile.limits.max_num_batched_tokens
        self._step_s = profile.cost.step_s(budget, 0, 0, 0.0)  # moving average over the steps that compute prompts
        self._prefill_tokens_per_s = budget / self._step_s
        self._histories: dict[str, LengthHistory] = {}
        self._alpha = LoadAlpha(*config.alpha)
        self._queue.alpha = self._alpha.value

    @property
    def histories(self) -> Mapping[str, LengthHistory]:
        """The histories of output lengths, by the name of the application."""
        return self._histories

    def add(self, request: EngineRequest) -> AddResult:
        if isinstance(request, NiyamaRequest) and request.whole:
            last_s = BATCH_TPOT_S * self._expected(request)
            request = replace(request, pace=TokenDeadline(BATCH_TPOT_S, request.due_s - last_s))
        return super().add(request)

    def abort(self, request_id: str) -> bool:
        found = super().abort(request_id)
        self._queue.forget(request_id)
        return found

    def step_begin(self, now_s: float = 0.0) -> StepPlan | None:
        self._queue.now_s = now_s
        if self._alpha.step(now_s, self._queue.relegations):
            self._queue.alpha = self._alpha.value
        plan = super().step_begin(now_s)
        if plan is not None and plan.prefill_tokens:
            seen = plan.prefill_tokens / plan.duration_s
            self._prefill_tokens_per_s += THROUGHPUT_WEIGHT * (seen - self._prefill_tokens_per_s)
            self._step_s += THROUGHPUT_WEIGHT * (plan.duration_s - self._step_s)
        return plan

    def _rank(self, seq: Sequence) -> tuple[float, ...]:
        """Returns the rank of a request for prefill, lower first. Selective preemption: a half-computed prompt gives
        way to a more urgent one, unless it would miss its deadline without the coming step."""
        if seq.context and 0.0 <= self._queue.slack_s(seq) < self._step_s:
            return (-1.0,)
        return self._queue.key(seq)

    def _work_s(self, seq: Sequence) -> float:
        """Returns the remaining work in s: Prefill_rem, plus Decode_rem for a request that is judged on its last token
        (Niyama Eq. 4 and 5)."""
        request = seq.request
        work_s = (seq.target - seq.context) / self._prefill_tokens_per_s
        if isinstance(request, NiyamaRequest) and request.whole:
            work_s += max(0.0, self._expected(request) - seq.generated) * self._step_s
        return work_s

    def _expected(self, request: NiyamaRequest) -> float:
        history = self._histories.get(request.application)
        return history.upper if history is not None else 0.0

    def _may_change(self) -> bool:
        return len(self.waiting) > 0 or super()._may_change()  # time alone moves requests between the lanes

    def _first_token(self, seq: Sequence, finished: list[Sequence]) -> None:
        super()._first_token(seq, finished)
        self._queue.forget(seq.id)

    def _finish(self, seq: Sequence) -> None:
        request = seq.request
        if isinstance(request, NiyamaRequest):
            self._histories.setdefault(request.application, LengthHistory()).add(seq.generated)
        super()._finish(seq)
