"""Which engines of which instance types there are, as heartbeats tell."""

from collections import Counter
from collections.abc import Iterator, Mapping

from hmas.contracts.cadences import WORKER_LOST_AFTER_S
from hmas.contracts.pool_plan import Catalogue
from hmas.contracts.registry import EngineInfo, WorkerHeartbeat
from hmas.laws.layout import engine_path
from hmas.laws.plan_steps import InstanceCounts, counted, type_named_by


class EngineCensus:
    """The last heartbeat of each worker that is not silent, also of one that drains. Engines whose model and hardware
    are in no type of the catalogue are left out: they are nobody's to plan."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._beats: dict[str, tuple[float, WorkerHeartbeat]] = {}
        # The pool of each type that was seen or planned; until then, the one named after its model.
        self._homes = {each.name: each.model for each in catalogue.types}
        self.began_s: float | None = None  # when the first heartbeat came

    def hear(self, now_s: float, heartbeat: WorkerHeartbeat) -> None:
        self.began_s = now_s if self.began_s is None else self.began_s
        self._beats[heartbeat.worker] = now_s, heartbeat
        self._beats = {w: each for w, each in self._beats.items() if now_s - each[0] <= WORKER_LOST_AFTER_S}

    def house(self, homes: Mapping[str, str]) -> None:
        """Takes note of the pools that types are planned for."""
        self._homes |= homes

    def engines(self, now_s: float) -> Iterator[tuple[str, str, EngineInfo, str, bool]]:
        """Yields pool, path, facts, type and whether it serves, of each engine of the catalogue."""
        for heard_s, beat in self._beats.values():
            if now_s - heard_s > WORKER_LOST_AFTER_S:
                continue
            for each in beat.engines:
                found = type_named_by(self._catalogue, each.engine_kind, beat.pool)
                if found is not None:
                    serves = each.up and not beat.draining
                    yield beat.pool, engine_path(beat.worker, each.engine), each, found.name, serves

    def counts(self, now_s: float, ordered: Mapping[str, int]) -> dict[str, InstanceCounts]:
        """Returns the counts of each type that is there or ordered. What was never ordered should run as it does."""
        up, away = Counter[str](), Counter[str]()
        for pool, _, _, name, serves in self.engines(now_s):
            self._homes[name] = pool
            (up if serves else away)[name] += 1
        return {
            name: counted(self._homes[name], ordered.get(name, up[name] + away[name]), up[name], away[name])
            for name in sorted({*up, *away, *ordered})
        }
