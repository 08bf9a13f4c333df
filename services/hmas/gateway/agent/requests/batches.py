"""The gateway's telemetry, batched per pool: which requests were offered, and how each ended for its client."""

from dataclasses import dataclass, field, replace

from hmas.contracts.gateway import PublishGatewayTelemetry
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.contracts.telemetry import GatewayTelemetry, RequestOffered, RequestSettled
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.requests.ledger import LedgerEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a request ended: what its ledger entry does not hold. `tpot_s`, `retry_after_s` in seconds.

    `counted`: whether anybody counted the output tokens. `prompt_tokens` is the engine's count, None if there is none;
    `retry_after_s` None: no time was named.
    """

    outcome: Outcome
    message: str
    output_tokens: int = 0
    counted: bool = True
    prompt_tokens: int | None = None
    tpot_s: float = 0.0
    retry_after_s: float | None = None


def judged_slo(entry: LedgerEntry) -> Slo:
    """Returns the SLO that the request is judged by: the one that client or tenant stated, otherwise that of the task
    type in its tags. `whole` (only the last token counts) always comes from the request."""
    stated = entry.request.slo
    if entry.request.slo_stated or entry.annotation is None:
        return stated
    return replace(entry.annotation.tags.slo, whole=stated.whole)


@dataclass(slots=True)
class _Batch:
    """The events of one pool since `since_s`. They are converted to telemetry when the batch closes, which is safe
    because a settled ledger entry no longer changes."""

    since_s: float
    offered: list[LedgerEntry] = field(default_factory=list)
    settled: list[tuple[float, LedgerEntry, Ending]] = field(default_factory=list)


class Batches:
    """The open telemetry batch of each pool. A batch is closed `telemetry_s` seconds after its first event, or when it
    holds `telemetry_events` events."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._open: dict[str, _Batch] = {}
        self._full: list[PublishGatewayTelemetry] = []

    def offer(self, now_s: float, entry: LedgerEntry) -> None:
        batch = self._batch(now_s, entry.pool)
        batch.offered.append(entry)
        self._close_if_full(now_s, entry.pool, batch)

    def settle(self, now_s: float, entry: LedgerEntry, ending: Ending) -> None:
        batch = self._batch(now_s, entry.pool)
        batch.settled.append((now_s, entry, ending))
        self._close_if_full(now_s, entry.pool, batch)

    def full(self) -> list[PublishGatewayTelemetry]:
        """Returns the closed batches as effects and forgets them."""
        if not self._full:
            return []
        taken, self._full = self._full, []
        return taken

    def due(self, now_s: float) -> list[PublishGatewayTelemetry]:
        """Closes the batches older than `telemetry_s`; returns all closed batches and forgets them."""
        for pool in [p for p, b in self._open.items() if now_s - b.since_s >= self._config.telemetry_s]:
            self._close(now_s, pool)
        return self.full()

    def flush(self, now_s: float) -> list[PublishGatewayTelemetry]:
        """Closes every batch, returns them all and forgets them."""
        for pool in list(self._open):
            self._close(now_s, pool)
        return self.full()

    def _batch(self, now_s: float, pool: str) -> _Batch:
        batch = self._open.get(pool)
        if batch is None:
            batch = self._open[pool] = _Batch(now_s)
        return batch

    def _close_if_full(self, now_s: float, pool: str, batch: _Batch) -> None:
        if len(batch.offered) + len(batch.settled) >= self._config.telemetry_events:
            self._close(now_s, pool)

    def _close(self, now_s: float, pool: str) -> None:
        batch = self._open.pop(pool)
        offered = tuple(_offered(now_s, entry) for entry in batch.offered)
        prior = self._config.prior.output_tokens
        settled = tuple(_settled(now_s - at_s, at_s, entry, ending, prior) for at_s, entry, ending in batch.settled)
        telemetry = GatewayTelemetry(self._config.gateway, pool, offered, settled)
        self._full.append(PublishGatewayTelemetry(telemetry))


def _offered(now_s: float, entry: LedgerEntry) -> RequestOffered:
    r = entry.request
    return RequestOffered(
        request_id=r.id,
        tenant=r.tenant,
        prompt_tokens=r.prompt_tokens,
        age_s=now_s - r.arrival_s,
        weight=r.weight,
        model=r.model,
        job=entry.job,
        max_tokens=r.max_tokens,
        stream=r.stream,
        slo=r.slo,
        slo_stated=r.slo_stated,
        priority=r.priority,
        importance=r.importance,
        relegate=r.relegate,
    )


def _settled(
    age_s: float, at_s: float, entry: LedgerEntry, ending: Ending, prior_output_tokens: float
) -> RequestSettled:
    request, tags = entry.request, entry.annotation.tags if entry.annotation else None
    finished, withdrawn = ending.outcome is Outcome.FINISHED, ending.outcome is Outcome.CANCELLED
    first_s, slo = entry.first_token_s, judged_slo(entry)
    predicted = tags.output_tokens if tags else prior_output_tokens
    if not ending.counted and (finished or withdrawn):
        # judged by what is known: how long it waited here, and a stated TTLT
        first_s, slo = entry.granted_s, replace(slo, whole=False)
    if first_s is None and finished and request.stream:
        first_s = at_s  # the whole answer arrived in one message with its end
    return RequestSettled(
        request_id=request.id,
        tenant=request.tenant,
        task=tags.task if tags else TaskType.UNKNOWN,
        outcome=ending.outcome,
        slo=slo,
        prompt_tokens=request.prompt_tokens if ending.prompt_tokens is None else ending.prompt_tokens,
        output_tokens=ending.output_tokens,
        predicted_output_tokens=0.0 if request.prefill_only else predicted,
        ttft_s=None if first_s is None else first_s - request.arrival_s,
        tpot_s=ending.tpot_s if finished else None,
        last_token_s=at_s - request.arrival_s if finished else None,
        relegated=entry.relegated,
        age_s=age_s,
        predicted_output_tokens_p90=tags.output_tokens_p90 if tags else 0.0,
        confidence=tags.confidence if tags else 0.0,
        tagged_by=tags.source if tags else None,
        promised=entry.promised,
        withdrawn_s=at_s - request.arrival_s if withdrawn else None,
    )
