"""The perception agent, Phi_perc (H-MAS §3.2): it batches prompts for a backend, and makes tags from the backend's
estimates or from the prior."""

from collections import Counter
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import assert_never

from hmas.contracts.cognition import AnswerCall, BatchFailed, BatchReturned, CallReceived, RunBatch
from hmas.contracts.control_agents import GatewayReported, TimerTicked
from hmas.contracts.request import Slo, Tags, TagSource, TaskType
from hmas.laws.batching import BatchLimits, BatchQueue
from hmas.laws.cpu_share import CpuShare
from hmas.laws.slo import default_slo
from hmas.perception.agent.backend import Estimate, PromptView
from hmas.perception.agent.prior import VERSION as PRIOR_VERSION
from hmas.perception.agent.prior import HistoricalPrior, HistoricalPriorConfig

MAX_BATCH = 16  # prompts, which the model that ships reads within the time that a call has
CPU_SHARE = 0.3  # of one core


@dataclass(frozen=True, slots=True, kw_only=True)
class PerceiveItem:
    """One request of a call. `slo` is its SLO as known so far; if `slo_stated` is false, the task type refines it."""

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
    """The configuration of the perception agent. `version` and `source` are those of the backend's tags."""

    version: str
    source: TagSource
    max_batch: int = MAX_BATCH
    max_queued: int = 1024  # prompts; a call that would exceed it is answered from the prior at once
    cpu_share: float = CPU_SHARE  # of one core; the prior answers at once what would exceed it
    min_confidence: float = 0.25  # with less confidence the task type is `unknown`; the length is kept
    prior: HistoricalPriorConfig = field(default_factory=HistoricalPriorConfig)


class PerceptionAgent:
    """Tags prompts by a backend, and from the prior where the backend gives no valid estimate in time. The backend is
    never idle while prompts wait, and a call is answered by its deadline at the latest.

    `fallbacks` counts prompts that the prior answered, by reason: no_estimate, invalid, failed, late, queue_full,
    cpu_share. The agent needs a `TimerTicked` every few milliseconds while a call is open.
    """

    def __init__(self, config: PerceptionConfig) -> None:
        self._config = config
        self._prior = HistoricalPrior(config.prior)
        self._batches: BatchQueue[PerceiveItem, PromptView, Estimate | None, Tags] = BatchQueue(
            BatchLimits(config.max_batch, config.max_queued, split=True),
            row=lambda item: item.prompt,
            accept=self._tags,
            fall_back=self._fallback,
            share=CpuShare(config.cpu_share),
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
        """Returns the tags of a request from the prior: its type is `unknown`, and its length is that of the most
        frequent task type among similar requests."""
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
    """Returns the SLO that client or tenant stated, otherwise the default of the task type and importance (H-MAS Table
    6); a TTLT that was stated alone is kept."""
    if item.slo_stated:
        return item.slo
    return replace(default_slo(task, item.importance, whole=item.slo.whole), ttlt_s=item.slo.ttlt_s)


def _capped(tokens: float, max_tokens: int | None) -> float:
    return tokens if max_tokens is None else min(tokens, float(max(max_tokens, 1)))
