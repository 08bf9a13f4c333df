"""Model, hardware and load of each worker, which a question to prediction contains. They come from heartbeats, from
load reports on the streams and from QoS's view V_short."""

from hmas.contracts.execution import Load
from hmas.contracts.gateway import PredictionQuery, Question
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.request import Tags
from hmas.contracts.views import VShort


class WorkerFacts:
    """The facts by worker, kept from its first heartbeat or load report until its stream ends."""

    def __init__(self) -> None:
        self._heartbeats: dict[str, WorkerHeartbeat] = {}
        self._load: dict[str, tuple[int, int]] = {}  # running, queued
        self._kv_usage: dict[str, float] = {}

    def hear(self, heartbeat: WorkerHeartbeat) -> None:
        self._heartbeats[heartbeat.worker] = heartbeat
        self._load[heartbeat.worker] = (heartbeat.running, heartbeat.queued)

    def load(self, worker: str, load: Load) -> None:
        self._load[worker] = (load.running, load.queued)

    def see(self, view: VShort) -> None:
        self._kv_usage |= {engine.worker: engine.kv_usage for engine in view.engines if engine.worker in self._load}

    def forget(self, worker: str) -> None:
        self._heartbeats.pop(worker, None)
        self._load.pop(worker, None)
        self._kv_usage.pop(worker, None)

    @property
    def queueing(self) -> bool:
        """Returns whether a request waits at any worker."""
        return any(queued for _, queued in self._load.values())

    def query(self, question: Question, tags: Tags) -> PredictionQuery:
        heartbeat = self._heartbeats.get(question.worker)
        engines = heartbeat.engines if heartbeat is not None else ()
        pool = heartbeat.pool if heartbeat is not None else question.request.model
        running, queued = self._load.get(question.worker, (0, 0))
        share = max(1, len(engines))
        return PredictionQuery(
            question=question,
            tags=tags,
            model=(engines[0].model if engines else "") or pool,
            hardware=engines[0].hardware if engines else "",
            running=running // share,
            waiting=queued // share,
            kv_usage=self._kv_usage.get(question.worker, 0.0),
        )
