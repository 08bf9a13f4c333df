"""Lets engines join and leave the workers of a run, as workers take and leave those that a source of engines names."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from hmas.sim.engine_changes import ChangeKind, EngineChange
from hmas.sim.processes.endpoint import SimEndpoint
from hmas.sim.processes.heap import EventHeap
from hmas.sim.processes.worker_shell import SimWorker


class ChangingMesh(Protocol):
    """The mesh as changes of its engines see it; `pool_of` names the pool of each engine."""

    heap: EventHeap

    @property
    def pool_of(self) -> Mapping[str, str]: ...

    @property
    def endpoints(self) -> Mapping[str, SimEndpoint]: ...

    @property
    def workers(self) -> Mapping[str, SimWorker]: ...


def turn_over(mesh: ChangingMesh, changes: Iterable[EngineChange]) -> None:
    """Schedules every change. Raises ValueError if the setup has no such engine."""
    for change in changes:
        if change.engine not in mesh.endpoints:
            raise ValueError(
                f"the {change.kind} finds no engine {change.engine!r}: choose from {', '.join(mesh.endpoints)}"
            )
        mesh.heap.at(change.at_s, _join if change.kind is ChangeKind.JOIN else _drain, mesh, change.engine)


def _join(mesh: ChangingMesh, engine: str) -> None:
    """Gives the engine to the worker of its pool that has the fewest, of those that live."""
    workers = [worker for worker in mesh.workers.values() if worker.config.pool == mesh.pool_of[engine]]
    taker = min(workers, key=lambda worker: (not worker.alive, len(worker.endpoints)))
    taker.take(mesh.endpoints[engine])


def _drain(mesh: ChangingMesh, engine: str) -> None:
    for worker in mesh.workers.values():
        if engine in worker.endpoints:
            worker.leave(engine)
