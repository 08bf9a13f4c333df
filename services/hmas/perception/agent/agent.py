"""Phi_perc: batches prompts for a backend, and makes tags of what comes back or of the prior (H-MAS §3.2)."""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import assert_never

from hmas.contracts.cognition import AnswerCall, BatchFailed, BatchReturned, CallReceived, RunBatch
from hmas.contracts.control_agents import GatewayReported, TimerTicked
from hmas.contracts.request import Slo, Tags, TagSource, TaskType
from hmas.laws.slo import default_slo
from hmas.perception.agent.backend import Estimate, PromptView
from hmas.perception.agent.prior import VERSION as PRIOR_VERSION
from hmas.perception.agent.prior import HistoricalPrior, HistoricalPriorConfig


@dataclass(frozen=True, slots=True)
class PerceiveItem:
    """One request of a call. `slo` is what is known so far; `slo_stated` tells whether it may be refined."""

    request_id: str
    prompt: PromptView
    slo: Slo
    slo_stated: bool
    importance: float


PerceptionEvent = (
    CallReceived[PerceiveItem] | BatchReturned[Estimate | None] | BatchFailed | GatewayReported | TimerTicked
)
PerceptionEffect = RunBatch[PromptView] | AnswerCall[Tags]


@dataclass(frozen=True, slots=True)
class PerceptionConfig:
    """`version` and `source` are the backend's."""

    version: str
    source: TagSource
    max_batch: int = 32
    max_queued: int = 1024  # prompts; above it a call is answered from the prior at once
    min_confidence: float = 0.25  # below it the type is `unknown`; the length stays
    prior: HistoricalPriorConfig = field(default_factory=HistoricalPriorConfig)


@dataclass(slots=True)
class _Call:
    number: int
    items: tuple[PerceiveItem, ...]
    deadline_s: float
    tags: list[Tags | None]
    missing: int


class PerceptionAgent:
    """The backend is never idle while prompts wait, and a waiting call is answered by its deadline at the latest.

    `fallbacks` counts prompts that the prior answered, by reason: no_estimate, invalid, failed, late, queue_full.
    `TimerTicked` every few milliseconds while a call is open.
    """

    def __init__(self, config: PerceptionConfig) -> None:
        self._config = config
        self._prior = HistoricalPrior(config.prior)
        self._calls: dict[int, _Call] = {}
        self._queue: deque[tuple[int, int]] = deque()  # (call, index)
        self._running: list[tuple[int, int]] = []
        self._batch = 0
        self.fallbacks: Counter[str] = Counter()

    def step(self, now_s: float, event: PerceptionEvent) -> list[PerceptionEffect]:
        match event:
            case CallReceived():
                return self._called(now_s, event)
            case BatchReturned(batch, estimates):
                return self._returned(now_s, batch, estimates, "no_estimate")
            case BatchFailed(batch, _):
                return self._returned(now_s, batch, (), "failed")
            case GatewayReported(telemetry):
                for settled in telemetry.settled:
                    self._prior.settle(now_s, settled)
                return []
            case TimerTicked():
                return self._expire(now_s)
            case _:
                assert_never(event)

    def _called(self, now_s: float, event: CallReceived[PerceiveItem]) -> list[PerceptionEffect]:
        if len(self._queue) + len(event.items) > self._config.max_queued:
            tags = tuple(self._fallback(now_s, item, "queue_full") for item in event.items)
            return [AnswerCall(event.call, tags)]
        count = len(event.items)
        call = _Call(event.call, event.items, now_s + event.budget_s, [None] * count, count)
        if not count:
            return [AnswerCall(event.call, ())]
        self._calls[event.call] = call
        self._queue.extend((event.call, index) for index in range(count))
        return self._next_batch()

    def _next_batch(self) -> list[PerceptionEffect]:
        """Nothing is held back for a fuller batch: while one runs, the next fills by itself."""
        if self._running:
            return []
        while self._queue and len(self._running) < self._config.max_batch:
            call, index = self._queue.popleft()
            if call in self._calls:
                self._running.append((call, index))
        if not self._running:
            return []
        self._batch += 1
        return [RunBatch(self._batch, tuple(self._calls[c].items[i].prompt for c, i in self._running))]

    def _returned(
        self, now_s: float, batch: int, estimates: Sequence[Estimate | None], reason: str
    ) -> list[PerceptionEffect]:
        if batch != self._batch or not self._running:
            return []
        rows, self._running = self._running, []
        if estimates and len(estimates) != len(rows):
            estimates, reason = (), "invalid"
        effects: list[PerceptionEffect] = []
        for position, (number, index) in enumerate(rows):
            call = self._calls.get(number)
            if call is None:
                continue  # answered at its deadline
            estimate = estimates[position] if estimates else None
            call.tags[index] = self._tags(now_s, call.items[index], estimate, reason)
            call.missing -= 1
            if call.missing == 0:
                effects.append(self._answer(call))
        return [*effects, *self._next_batch()]

    def _expire(self, now_s: float) -> list[PerceptionEffect]:
        effects: list[PerceptionEffect] = []
        for call in [c for c in self._calls.values() if now_s >= c.deadline_s]:
            for index, tags in enumerate(call.tags):
                if tags is None:
                    call.tags[index] = self._fallback(now_s, call.items[index], "late")
            effects.append(self._answer(call))
        if effects:
            self._queue = deque(entry for entry in self._queue if entry[0] in self._calls)
        return effects

    def _answer(self, call: _Call) -> AnswerCall[Tags]:
        del self._calls[call.number]
        return AnswerCall(call.number, tuple(tags for tags in call.tags if tags is not None))

    # --- tags ---------------------------------------------------------------------------------------------------

    def _tags(self, now_s: float, item: PerceiveItem, estimate: Estimate | None, reason: str) -> Tags:
        if estimate is None:
            return self._fallback(now_s, item, reason)
        if not _valid(estimate):
            return self._fallback(now_s, item, "invalid")
        sure = estimate.confidence >= self._config.min_confidence
        task = estimate.task if sure else TaskType.UNKNOWN
        return Tags(
            task,
            _slo(item, task),
            _capped(estimate.output_tokens, item.prompt.max_tokens),
            _capped(estimate.output_tokens_p90, item.prompt.max_tokens),
            estimate.confidence,
            self._config.source,
            self._config.version,
        )

    def _fallback(self, now_s: float, item: PerceiveItem, reason: str) -> Tags:
        """The request stays `unknown`; only its cost is that of the most frequent bucket."""
        self.fallbacks[reason] += 1
        prior = self._prior.estimate(now_s, item.prompt.tenant, item.prompt.prompt_tokens)
        return Tags(
            TaskType.UNKNOWN,
            _slo(item, TaskType.UNKNOWN),
            _capped(prior.output_tokens, item.prompt.max_tokens),
            _capped(prior.output_tokens_p90, item.prompt.max_tokens),
            0.0,
            TagSource.PRIOR,
            PRIOR_VERSION,
        )


def _valid(e: Estimate) -> bool:
    finite = isfinite(e.output_tokens) and isfinite(e.output_tokens_p90)
    return finite and 0.0 < e.output_tokens <= e.output_tokens_p90 and 0.0 <= e.confidence <= 1.0


def _slo(item: PerceiveItem, task: TaskType) -> Slo:
    """Header or tenant first, else Table 6 by type and importance; a TTLT stated alone stays."""
    if item.slo_stated:
        return item.slo
    return replace(default_slo(task, item.importance, whole=item.slo.whole), ttlt_s=item.slo.ttlt_s)


def _capped(tokens: float, max_tokens: int | None) -> float:
    return tokens if max_tokens is None else min(tokens, float(max(max_tokens, 1)))
