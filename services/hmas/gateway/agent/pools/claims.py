"""Which worker has an engine by a lease, where several say so."""

from collections.abc import Iterable

from hmas.contracts.registry import EngineInfo, WorkerHeartbeat


class EngineClaims:
    """The engines that workers have by leases, by endpoint; the holder of the highest epoch has it."""

    def __init__(self) -> None:
        self._claims: dict[str, tuple[str, int]] = {}

    def hear(self, before: Iterable[EngineInfo], heartbeat: WorkerHeartbeat) -> bool:
        """Learns which engines a worker has by leases, beside what it said `before`; returns whether one of them has
        another worker now, or none."""
        name, claims, changed = heartbeat.worker, self._claims, False
        claimed = {engine.endpoint: engine.epoch for engine in heartbeat.engines if engine.up and engine.epoch}
        for engine in before:
            claim = claims.get(engine.endpoint)
            if engine.endpoint not in claimed and claim is not None and claim[0] == name:
                del claims[engine.endpoint]
                changed = True
        for endpoint, epoch in claimed.items():
            holder, held = claims.get(endpoint, ("", 0))
            if holder != name and epoch >= held:
                changed = True
            if holder == name or epoch >= held:
                claims[endpoint] = name, epoch
        return changed

    def has_lost(self, worker: str, engine: EngineInfo) -> bool:
        """Returns whether an engine that the worker had by a lease belongs to another one by now, or to nobody."""
        return bool(engine.epoch) and self._claims.get(engine.endpoint, ("", 0))[0] != worker

    def forget(self, worker: str) -> None:
        self._claims = {each: claim for each, claim in self._claims.items() if claim[0] != worker}
