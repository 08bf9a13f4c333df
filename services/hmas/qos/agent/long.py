"""The long window of a pool, from which V_long is made."""

from dataclasses import dataclass, field

from hmas.contracts.outcome import Outcome
from hmas.contracts.telemetry import GatewayTelemetry, RequestSettled, WorkerTelemetry
from hmas.contracts.views import PaceView, VLong, VShort
from hmas.laws.scoring import ESG_INPUT_WEIGHT, ESG_OUTPUT_WEIGHT, Verdict, jain_index
from hmas.qos.agent.arrivals import ArrivalProcess
from hmas.qos.agent.config import QosConfig
from hmas.qos.agent.demands import Demands, count_demand, demand_views
from hmas.qos.agent.ring import Ring
from hmas.qos.agent.shares import OTHER, ShareCounts, Shares, merged_shares, share_views
from hmas.qos.agent.statistics import (
    HISTOGRAM_BUCKETS,
    LatencySketch,
    Moments,
    histogram_bucket,
    merged_moments,
    merged_sketch,
    relative_slope,
)

_VIOLATION_FLOOR = 0.01  # the slope of a lower violation rate is taken relative to this rate, or noise would dominate


@dataclass(slots=True, kw_only=True)
class _Bucket:
    tenants: Shares
    tasks: Shares
    offered: int = 0
    stated: int = 0
    judged: int = 0
    ok: int = 0
    bad: int = 0
    ttft_bad: int = 0
    tpot_bad: int = 0
    gain: float = 0.0
    prompt: Moments = field(default_factory=Moments)
    output: Moments = field(default_factory=Moments)
    work: Moments = field(default_factory=Moments)
    utilisation: Moments = field(default_factory=Moments)
    mismatch: Moments = field(default_factory=Moments)
    mismatches: LatencySketch = field(default_factory=LatencySketch)
    ttft: LatencySketch = field(default_factory=LatencySketch)
    tpot: LatencySketch = field(default_factory=LatencySketch)
    demands: Demands = field(default_factory=dict)
    prompts: list[int] = field(default_factory=lambda: [0] * HISTOGRAM_BUCKETS)
    outputs: list[int] = field(default_factory=lambda: [0] * HISTOGRAM_BUCKETS)


class LongWindow:
    def __init__(self, config: QosConfig, pool: str) -> None:
        self._config = config
        self._pool = pool
        names = config.max_names
        self._ring: Ring[_Bucket] = Ring(
            config.long_window_s, config.long_bucket_s, lambda: _Bucket(tenants=Shares(names), tasks=Shares(names))
        )
        self._arrivals = ArrivalProcess(config.long_window_s, config.long_bucket_s, config.arrival_reorder_s)
        self._queued = 0

    def offered(self, now_s: float, telemetry: GatewayTelemetry) -> None:
        bucket = self._ring.at(now_s)
        for offer in telemetry.offered:
            bucket.offered += 1
            bucket.stated += offer.slo_stated
            bucket.prompt.add(offer.prompt_tokens)
            bucket.prompts[histogram_bucket(offer.prompt_tokens)] += 1
            tenant = bucket.tenants.of(offer.tenant)
            tenant.offered += 1
            tenant.weight = offer.weight
            self._arrivals.offer(now_s, now_s - offer.age_s)

    def worker(self, now_s: float, telemetry: WorkerTelemetry) -> None:
        bucket = self._ring.at(now_s)
        for queued in telemetry.queued:
            count_demand(bucket.demands, queued, self._config.max_demands)

    def settled(self, now_s: float, settled: RequestSettled, verdict: Verdict) -> None:
        bucket = self._ring.at(now_s)
        if not verdict.judged:
            return
        bucket.judged += 1
        bucket.ok += verdict.ok
        bucket.bad += not verdict.ok
        bucket.ttft_bad += not verdict.ttft_ok
        bucket.tpot_bad += not verdict.tpot_ok
        bucket.gain += verdict.gain
        bucket.work.add(settled.prompt_tokens + 2.0 * settled.predicted_output_tokens)
        if settled.ttft_s is not None:
            bucket.ttft.add(settled.ttft_s)
        if settled.tpot_s and settled.output_tokens > 1:  # 0 where the answer was not streamed
            bucket.tpot.add(settled.tpot_s)
        if settled.outcome is Outcome.FINISHED and settled.output_tokens:  # otherwise nobody counted them
            bucket.output.add(settled.output_tokens)
            bucket.outputs[histogram_bucket(settled.output_tokens)] += 1
        service = ESG_INPUT_WEIGHT * settled.prompt_tokens + ESG_OUTPUT_WEIGHT * settled.output_tokens
        tokens = int(service) if settled.output_tokens else 0
        bucket.tenants.of(settled.tenant).settle(verdict, tokens)
        task = bucket.tasks.of(settled.task.value)
        task.offered += 1  # the task type is unknown at arrival, so the settled requests stand for a type's demand
        task.settle(verdict, tokens)

    def sampled(self, now_s: float, view: VShort) -> None:
        """Adds a V_short, once for each. The mismatch (H-MAS Eq. 7) of an idle pool, which neither serves nor holds a
        request, is left out."""
        self._arrivals.settle(now_s)
        self._queued = view.queued
        bucket = self._ring.at(now_s)
        bucket.utilisation.add(view.utilisation)
        if view.served_tokens_per_s > 0.0 or view.queued > 0:
            bucket.mismatch.add(view.mismatch)
            bucket.mismatches.add(view.mismatch)

    def view(self, now_s: float, epoch: int, seq: int, paces: tuple[PaceView, ...] = ()) -> VLong:
        self._ring.at(now_s)  # makes a bucket, so that there is at least one
        live, span = self._ring.live(now_s), self._ring.span_s(now_s)
        prompt = merged_moments(b.prompt for b in live)
        output = merged_moments(b.output for b in live)
        offered = sum(b.offered for b in live)
        ok = sum(b.ok for b in live)
        tenants = merged_shares(b.tenants for b in live)
        rates = self._smoothed_rates(now_s)
        trends = self._trends(now_s)
        return VLong(
            pool=self._pool,
            window_s=span,
            arrival_rps=offered / span,
            arrival_cv=self._arrivals.cv(now_s),
            burstiness=self._arrivals.burstiness(now_s),
            prompt_mean=prompt.mean,
            prompt_cv=prompt.cv,
            output_mean=output.mean,
            output_cv=output.cv,
            predicted_total_cv=merged_moments(b.work for b in live).cv,
            prompt_histogram=tuple(map(sum, zip(*(b.prompts for b in live), strict=True))),
            output_histogram=tuple(map(sum, zip(*(b.outputs for b in live), strict=True))),
            tasks=share_views(merged_shares(b.tasks for b in live), self._config.max_names),
            tenants=share_views(tenants, self._config.max_names),
            jain_index=_jain(tenants),
            goodput=ok / span,
            goodput_rate=min(1.0, ok / offered) if offered else 0.0,
            esg_rate=sum(b.gain for b in live) / span,
            violation_rate=rates[0],
            ttft_violation_rate=rates[1],
            tpot_violation_rate=rates[2],
            ttft=merged_sketch(b.ttft for b in live).tail(),
            tpot=merged_sketch(b.tpot for b in live).tail(),
            queued=self._queued,
            mismatch_mean=merged_moments(b.mismatch for b in live).mean,
            mismatch_p95=merged_sketch(b.mismatches for b in live).quantile(0.95),
            utilisation=merged_moments(b.utilisation for b in live).mean,
            trend_arrival=trends[0],
            trend_violation=trends[1],
            trend_prompt=trends[2],
            epoch=epoch,
            seq=seq,
            demands=demand_views((b.demands for b in live), self._config.max_demands, span),
            paces=paces,
            stated_share=sum(b.stated for b in live) / offered if offered else 0.0,
        )

    def _smoothed_rates(self, now_s: float) -> tuple[float, float, float]:
        """Returns the violation rates of any SLO, TTFT and TPOT; a bucket's weight halves with every half-life."""
        total = bad = ttft = tpot = 0.0
        for ago, bucket in self._ring.indexed(now_s):
            weight = 0.5 ** (ago * self._config.long_bucket_s / self._config.smoothing_half_life_s)
            total += weight * bucket.judged
            bad += weight * bucket.bad
            ttft += weight * bucket.ttft_bad
            tpot += weight * bucket.tpot_bad
        return (bad / total, ttft / total, tpot / total) if total > 0.0 else (0.0, 0.0, 0.0)

    def _trends(self, now_s: float) -> tuple[float, float, float]:
        """Returns the slopes over the mean, per minute, of arrivals, violation rate and prompt length; the bucket that
        is still being filled is left out."""
        minutes = self._config.long_bucket_s / 60.0
        closed = [(-ago * minutes, b) for ago, b in self._ring.indexed(now_s) if ago > 0]
        arrivals = [(x, float(b.offered)) for x, b in closed]
        violations = [(x, b.bad / b.judged) for x, b in closed if b.judged]
        prompts = [(x, b.prompt.mean) for x, b in closed if b.prompt.count]
        return (
            relative_slope(arrivals, 1.0),
            relative_slope(violations, _VIOLATION_FLOOR),
            relative_slope(prompts, 1.0),
        )


def _jain(tenants: dict[str, ShareCounts]) -> float:
    """Returns Jain's index of service tokens over weight, among the tenants that asked for anything; `other` stands for
    many tenants and is left out."""
    return jain_index([s.tokens / s.weight for n, s in tenants.items() if n != OTHER and s.offered + s.settled > 0])
