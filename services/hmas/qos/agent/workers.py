"""What the QoS agent knows of one worker: its queue, its engines, and since when its requests wait."""

from hmas.contracts.outcome import Outcome
from hmas.contracts.telemetry import EngineSample, RequestFinished, WorkerTelemetry
from hmas.qos.agent.config import QosConfig
from hmas.qos.agent.engines import EngineTrack


class WorkerTrack:
    def __init__(self, config: QosConfig, worker: str) -> None:
        self._config = config
        self._worker = worker
        self._queued_at: dict[str, float] = {}  # oldest first, because requests are reported as they queue
        self._late: dict[str, None] = {}  # running requests that missed their TTFT, oldest first
        self.engines: dict[str, EngineTrack] = {}
        self.seen_s = 0.0
        self.queued = 0
        self.queued_tokens = 0
        self.queued_asleep = 0

    def report(self, now_s: float, telemetry: WorkerTelemetry) -> None:
        self.seen_s = now_s
        self.queued, self.queued_tokens = telemetry.queued_count, telemetry.queued_tokens
        self.queued_asleep = telemetry.queued_asleep
        self._sample(now_s, telemetry.engines)
        self._follow_queue(now_s, telemetry)
        for token in telemetry.first_tokens:
            if token.ttft_s > token.ttft_slo_s:
                self._late[token.request_id] = None
        for finished in telemetry.finished:
            self._finish(now_s, finished)
        while len(self._late) > self._config.max_late:
            del self._late[next(iter(self._late))]

    def settled(self, request_id: str) -> None:
        """Forgets that a request waits, because it has ended in any way."""
        self._queued_at.pop(request_id, None)

    def oldest_wait_s(self, now_s: float) -> float:
        return now_s - next(iter(self._queued_at.values())) if self._queued_at else 0.0

    def _sample(self, now_s: float, samples: tuple[EngineSample, ...]) -> None:
        present = {sample.engine for sample in samples}
        self.engines = {name: track for name, track in self.engines.items() if name in present}
        for sample in samples:
            track = self.engines.get(sample.engine)
            if track is None:
                track = self.engines[sample.engine] = EngineTrack(self._config, self._worker, sample)
            track.sample(now_s, sample)

    def _follow_queue(self, now_s: float, telemetry: WorkerTelemetry) -> None:
        for queued in telemetry.queued:
            if queued.waits and len(self._queued_at) < self._config.max_waiting:
                self._queued_at.setdefault(queued.request_id, now_s - queued.age_s)
        for dispatched in telemetry.dispatched:
            self._queued_at.pop(dispatched.request_id, None)
        if telemetry.queued_count == 0:
            self._queued_at.clear()  # requests that left unreported (by a recall, or a lost message) are gone too

    def _finish(self, now_s: float, finished: RequestFinished) -> None:
        late = self._late.pop(finished.request_id, self) is None
        self._queued_at.pop(finished.request_id, None)
        track = self.engines.get(finished.engine)
        paced = finished.has_tpot or finished.output_tokens <= 1  # otherwise nobody knows: it was not streamed
        in_time = finished.outcome is Outcome.FINISHED and not late and finished.tpot_s <= finished.tpot_slo_s
        if track is not None and paced and in_time:
            track.finished_in_time(now_s, finished.output_tokens)
