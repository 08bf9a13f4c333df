"""What the QoS agent knows of one engine over the window of V_short."""

from dataclasses import dataclass

from hmas.contracts.telemetry import EngineSample
from hmas.contracts.views import EngineView
from hmas.laws.pace_fit import PaceFit
from hmas.qos.agent.config import QosConfig
from hmas.qos.agent.ring import Ring


@dataclass(slots=True, kw_only=True)
class _Bucket:
    samples: int = 0
    utilisation: float = 0.0
    tokens_per_s: float = 0.0
    at_min: int = 0
    at_max: int = 0
    preemptions: int = 0
    goodput_tokens: int = 0


class EngineTrack:
    """The samples of one engine, and the output tokens of the requests that it finished within both SLOs."""

    def __init__(self, config: QosConfig, worker: str, first: EngineSample) -> None:
        self._ring: Ring[_Bucket] = Ring(config.short_window_s, config.short_bucket_s, _Bucket)
        self._worker = worker
        self.pace = PaceFit(config.pace)
        self.last = first

    def sample(self, now_s: float, sample: EngineSample) -> None:
        bucket = self._ring.at(now_s)
        bucket.samples += 1
        bucket.utilisation += sample.utilisation
        bucket.tokens_per_s += sample.prefill_tokens_per_s + sample.decode_tokens_per_s
        bucket.at_min += sample.b_saturated < 0
        bucket.at_max += sample.b_saturated > 0
        # After a restart an engine counts from zero, so that the difference would be negative.
        bucket.preemptions += max(0, sample.preemptions_total - self.last.preemptions_total)
        self.last = sample
        self.pace.add(now_s, sample)

    def finished_in_time(self, now_s: float, tokens: int) -> None:
        self._ring.at(now_s).goodput_tokens += tokens

    def served_tokens_per_s(self, now_s: float) -> float:
        """Returns the prefill and decode tokens per second, averaged over the samples in the window."""
        live = self._ring.live(now_s)
        return sum([b.tokens_per_s for b in live]) / max(sum([b.samples for b in live]), 1)

    def view(self, now_s: float) -> EngineView:
        live, span = self._ring.live(now_s), self._ring.span_s(now_s)
        samples = at_min = at_max = goodput_tokens = preemptions = 0
        utilisation = 0.0
        for b in live:
            samples += b.samples
            at_min += b.at_min
            at_max += b.at_max
            goodput_tokens += b.goodput_tokens
            preemptions += b.preemptions
            utilisation += b.utilisation
        last = self.last
        return EngineView(
            worker=self._worker,
            engine=last.engine,
            up=last.up,
            running=last.running,
            waiting=last.waiting,
            kv_usage=last.kv_usage,
            utilisation=utilisation / max(samples, 1),
            step_s=last.step_s,
            n_run=last.n_run,
            b_token=last.b_token,
            b_saturated=-1 if 0 < samples == at_min else int(0 < samples == at_max),
            goodput_tokens_per_s=goodput_tokens / span,
            preemptions_per_s=preemptions / span,
            asleep=last.asleep,
        )
