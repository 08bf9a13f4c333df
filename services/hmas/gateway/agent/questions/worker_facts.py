"""Kinds of engines and load of each worker, which a question to prediction contains. They come from heartbeats, from
load reports on the streams and from QoS's view V_short."""

from hmas.contracts.engine_kind import MAX_KINDS, UNKNOWN_KIND, EngineKind
from hmas.contracts.execution import Load
from hmas.contracts.questions import KindQuery, PredictionQuery, Question
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.request import Tags
from hmas.contracts.views import VShort


class WorkerFacts:
    """The facts by worker, kept from its first heartbeat or load report until its stream ends."""

    def __init__(self) -> None:
        self._heartbeats: dict[str, WorkerHeartbeat] = {}
        self._load: dict[str, tuple[int, int]] = {}  # running, queued
        self._kv_usage: dict[str, float] = {}
        self._kinds: dict[str, dict[EngineKind, list[str]]] = {}  # a cache by pool, cleared when a worker has changed

    def hear(self, heartbeat: WorkerHeartbeat) -> None:
        before = self._heartbeats.get(heartbeat.worker)
        if before is None or before.pool != heartbeat.pool or before.engines != heartbeat.engines:
            self._kinds.clear()
        self._heartbeats[heartbeat.worker] = heartbeat
        self._load[heartbeat.worker] = (heartbeat.running, heartbeat.queued)

    def load(self, worker: str, load: Load) -> None:
        self._load[worker] = (load.running, load.queued)

    def see(self, view: VShort) -> None:
        self._kv_usage |= {engine.worker: engine.kv_usage for engine in view.engines if engine.worker in self._load}

    def forget(self, worker: str) -> None:
        self._kinds.clear()
        self._heartbeats.pop(worker, None)
        self._load.pop(worker, None)
        self._kv_usage.pop(worker, None)

    @property
    def queueing(self) -> bool:
        """Returns whether a request waits at any worker."""
        return any(queued for _, queued in self._load.values())

    def query(self, question: Question, tags: Tags) -> PredictionQuery:
        """Asks for each kind of engine of the pool: of its worker's, and of those that only other workers have, by the
        one with the least load. Of a worker that is not known, nothing is known of the pool."""
        heartbeat = self._heartbeats.get(question.worker)
        if heartbeat is None:
            unknown = self._kind_query(UNKNOWN_KIND, question.worker)
            return PredictionQuery(question=question, tags=tags, pool=question.request.model, kinds=(unknown,))
        own = _kinds(heartbeat)
        kinds = [self._kind_query(kind, question.worker) for kind in own]
        for kind, workers in self._of_pool(heartbeat.pool).items():
            if kind not in own:
                kinds.append(self._kind_query(kind, min(workers, key=self._requests)))
        return PredictionQuery(question=question, tags=tags, pool=heartbeat.pool, kinds=tuple(kinds[:MAX_KINDS]))

    def _of_pool(self, pool: str) -> dict[EngineKind, list[str]]:
        """Returns the kinds of engines of a pool, and the workers that have some of each."""
        found = self._kinds.get(pool)
        if found is None:
            found = self._kinds[pool] = {}
            for heartbeat in self._heartbeats.values():
                if heartbeat.pool == pool:
                    for kind in _kinds(heartbeat):
                        found.setdefault(kind, []).append(heartbeat.worker)
        return found

    def _requests(self, worker: str) -> float:
        """Returns how many requests a worker has for each of its engines."""
        running, queued = self._load.get(worker, (0, 0))
        return (running + queued) / max(1, len(self._heartbeats[worker].engines))

    def _kind_query(self, kind: EngineKind, worker: str) -> KindQuery:
        heartbeat = self._heartbeats.get(worker)
        running, queued = self._load.get(worker, (0, 0))
        share = max(1, len(heartbeat.engines)) if heartbeat is not None else 1
        return KindQuery(
            kind=kind,
            worker=worker,
            running=running // share,
            waiting=queued // share,
            kv_usage=self._kv_usage.get(worker, 0.0),
        )


def _kinds(heartbeat: WorkerHeartbeat) -> tuple[EngineKind, ...]:
    """Returns the kinds of a worker's engines, each once: of those that are up, or of all if none is."""
    up = [engine for engine in heartbeat.engines if engine.up] or heartbeat.engines
    return tuple(dict.fromkeys(engine.engine_kind for engine in up)) or (UNKNOWN_KIND,)
