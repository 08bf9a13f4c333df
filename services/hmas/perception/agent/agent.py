"""Phi_perc: batches prompts for a backend, and makes tags of what comes back or of the prior (H-MAS §3.2)."""

from collections import Counter
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import assert_never

from hmas.contracts.cognition import AnswerCall, BatchFailed, BatchReturned, CallReceived, RunBatch
from hmas.contracts.control_agents import GatewayReported, TimerTicked
from hmas.contracts.request import Slo, Tags, TagSource, TaskType
from hmas.laws.batching import BatchLimits, BatchQueue
from hmas.laws.slo import default_slo
from hmas.perception.agent.backend import Estimate, PromptView
from hmas.perception.agent.prior import VERSION as PRIOR_VERSION
from hmas.perception.agent.prior import HistoricalPrior, HistoricalPriorConfig


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PerceptionConfig:
    """`version` and `source` are the backend's."""

    version: str
    source: TagSource
    max_batch: int = 32
    max_queued: int = 1024  # prompts; above it a call is answered from the prior at once
    min_confidence: float = 0.25  # below it the type is `unknown`; the length stays
    prior: HistoricalPriorConfig = field(default_factory=HistoricalPriorConfig)


class PerceptionAgent:
    """The backend is never idle while prompts wait, and a waiting call is answered by its deadline at the latest.

    `fallbacks` counts prompts that the prior answered, by reason: no_estimate, invalid, failed, late, queue_full.
    `TimerTicked` every few milliseconds while a call is open.
    """

    def __init__(self, config: PerceptionConfig) -> None:
        self._config = config
        self._prior = HistoricalPrior(config.prior)
        self._batches: BatchQueue[PerceiveItem, PromptView, Estimate | None, Tags] = BatchQueue(
            BatchLimits(config.max_batch, config.max_queued, split=True),
            row=lambda item: item.prompt,
            accept=self._tags,
            fall_back=self._fallback,
        )
        self.fallbacks: Counter[str] = Counter()

    def step(self, now_s: float, event: PerceptionEvent) -> list[PerceptionEffect]:
        match event:
            case GatewayReported(telemetry):
                for settled in telemetry.settled:
                    self._prior.settle(now_s, settled)
                return []
            case CallReceived() | BatchReturned() | BatchFailed() | TimerTicked():
                return self._batches.step(now_s, event)
            case _:
                assert_never(event)

    def _tags(self, now_s: float, item: PerceiveItem, estimate: Estimate | None) -> Tags:
        if estimate is None:
            return self._fallback(now_s, item, "no_estimate")
        if not _valid(estimate):
            return self._fallback(now_s, item, "invalid")
        sure = estimate.confidence >= self._config.min_confidence
        task = estimate.task if sure else TaskType.UNKNOWN
        return Tags(
            task=task,
            slo=_slo(item, task),
            output_tokens=_capped(estimate.output_tokens, item.prompt.max_tokens),
            output_tokens_p90=_capped(estimate.output_tokens_p90, item.prompt.max_tokens),
            confidence=estimate.confidence,
            source=self._config.source,
            version=self._config.version,
        )

    def _fallback(self, now_s: float, item: PerceiveItem, reason: str) -> Tags:
        """The request stays `unknown`; only its cost is that of the most frequent bucket."""
        self.fallbacks[reason] += 1
        prior = self._prior.estimate(now_s, item.prompt.tenant, item.prompt.prompt_tokens)
        return Tags(
            task=TaskType.UNKNOWN,
            slo=_slo(item, TaskType.UNKNOWN),
            output_tokens=_capped(prior.output_tokens, item.prompt.max_tokens),
            output_tokens_p90=_capped(prior.output_tokens_p90, item.prompt.max_tokens),
            confidence=0.0,
            source=TagSource.PRIOR,
            version=PRIOR_VERSION,
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
