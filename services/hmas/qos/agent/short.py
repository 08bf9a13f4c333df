"""The short window of a pool, from which V_short is made."""

from dataclasses import dataclass, field

from hmas.contracts.telemetry import GatewayTelemetry, WorkerTelemetry
from hmas.contracts.views import EngineView, VShort
from hmas.laws.scoring import Verdict, mismatch
from hmas.qos.agent.config import QosConfig
from hmas.qos.agent.ring import Ring
from hmas.qos.agent.statistics import LatencySketch, merged_sketch
from hmas.qos.agent.workers import WorkerTrack


@dataclass(slots=True, kw_only=True)
class _Bucket:
    offered: int = 0
    offered_prompt_tokens: int = 0
    queued: int = 0
    predicted_tokens: float = 0.0
    settled: int = 0
    judged: int = 0
    bad: int = 0
    ttft_bad: int = 0
    tpot_bad: int = 0
    kept: int = 0
    kept_bad: int = 0
    ttft: LatencySketch = field(default_factory=LatencySketch)
    tpot: LatencySketch = field(default_factory=LatencySketch)


class ShortWindow:
    """The last seconds of a pool. TTFT and TPOT come from the workers, at the first token and at the end, because a
    settlement comes only after the whole answer; violation rates come from settlements, as the clients saw them.
    """

    def __init__(self, config: QosConfig, pool: str) -> None:
        self._config = config
        self._pool = pool
        self._ring: Ring[_Bucket] = Ring(config.short_window_s, config.short_bucket_s, _Bucket)
        self._predicted_mean = 0.0  # mean of the predicted output tokens of a request, as last known

    def worker(self, now_s: float, telemetry: WorkerTelemetry) -> None:
        bucket = self._ring.at(now_s)
        bucket.queued += len(telemetry.queued)
        bucket.predicted_tokens += sum(q.predicted_output_tokens for q in telemetry.queued)
        for token in telemetry.first_tokens:
            bucket.ttft.add(token.ttft_s)
        for finished in telemetry.finished:
            if finished.has_tpot:
                bucket.tpot.add(finished.tpot_s)

    def gateway(self, now_s: float, telemetry: GatewayTelemetry) -> None:
        bucket = self._ring.at(now_s)
        bucket.offered += len(telemetry.offered)
        bucket.offered_prompt_tokens += sum(o.prompt_tokens for o in telemetry.offered)

    def settled(self, now_s: float, verdict: Verdict, *, relegated: bool) -> None:
        bucket = self._ring.at(now_s)
        bucket.settled += 1
        if verdict.judged:
            bucket.judged += 1
            bucket.bad += not verdict.ok
            bucket.ttft_bad += not verdict.ttft_ok
            bucket.tpot_bad += not verdict.tpot_ok
            bucket.kept += not relegated
            bucket.kept_bad += not relegated and not verdict.ok

    def arriving_tokens_per_s(self, now_s: float) -> float:
        """Returns lambda_tok: the prompt tokens offered in the window, and the predicted output tokens of these
        requests, per second."""
        live, span = self._ring.live(now_s), self._ring.span_s(now_s)
        queued = sum(b.queued for b in live)
        if queued:
            self._predicted_mean = sum(b.predicted_tokens for b in live) / queued
        outputs = self._predicted_mean * sum(b.offered for b in live)
        return (sum(b.offered_prompt_tokens for b in live) + outputs) / span

    def view(self, now_s: float, workers: list[WorkerTrack], epoch: int, seq: int) -> VShort:
        live, span = self._ring.live(now_s), self._ring.span_s(now_s)
        judged = max(sum(b.judged for b in live), 1)
        kept = sum(b.kept for b in live)
        tracks = [track for worker in workers for track in worker.engines.values()]
        engines = tuple(track.view(now_s) for track in tracks)
        arriving = self.arriving_tokens_per_s(now_s)
        served = sum(track.served_tokens_per_s(now_s) for track in tracks)
        up = [e for e in engines if e.up and not e.asleep]
        return VShort(
            pool=self._pool,
            window_s=self._config.short_window_s,
            queued=sum(w.queued for w in workers),
            queued_tokens=sum(w.queued_tokens for w in workers),
            running=sum(e.running for e in engines),
            kv_usage=_kv_usage(workers),
            utilisation=sum(e.utilisation for e in up) / max(len(up), 1),
            ttft=merged_sketch(b.ttft for b in live).tail(),
            tpot=merged_sketch(b.tpot for b in live).tail(),
            violation_rate=sum(b.bad for b in live) / judged,
            ttft_violation_rate=sum(b.ttft_bad for b in live) / judged,
            tpot_violation_rate=sum(b.tpot_bad for b in live) / judged,
            arrival_rps=sum(b.offered for b in live) / span,
            settled_rps=sum(b.settled for b in live) / span,
            kept_rps=kept / span,
            kept_violation_rate=sum(b.kept_bad for b in live) / max(kept, 1),
            arriving_tokens_per_s=arriving,
            served_tokens_per_s=served,
            mismatch=mismatch(arriving, served, self._config.mismatch_epsilon),
            oldest_wait_s=max((w.oldest_wait_s(now_s) for w in workers), default=0.0),
            engines=_ordered(engines),
            epoch=epoch,
            seq=seq,
            valid_for_s=self._config.short_valid_for_s,
            queued_asleep=sum(w.queued_asleep for w in workers),
        )


def _kv_usage(workers: list[WorkerTrack]) -> float:
    """Returns the used share of the KV memory of the pool's working engines; those that do not report their capacity
    all weigh 1."""
    last = [track.last for worker in workers for track in worker.engines.values()]
    samples = [sample for sample in last if sample.up and not sample.asleep]
    capacity = sum(max(s.kv_capacity_tokens, 1) for s in samples)
    return sum(s.kv_usage * max(s.kv_capacity_tokens, 1) for s in samples) / max(capacity, 1)


def _ordered(engines: tuple[EngineView, ...]) -> tuple[EngineView, ...]:
    return tuple(sorted(engines, key=lambda e: (e.worker, e.engine)))
