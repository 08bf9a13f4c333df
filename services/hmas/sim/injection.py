"""Carries out the faults of a run at their instants."""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Protocol

from hmas.sim.faults import Fault, FaultKind
from hmas.sim.processes.endpoint import SimEndpoint
from hmas.sim.processes.heap import EventHeap
from hmas.sim.processes.process import SimProcess
from hmas.sim.processes.stream import SimStream

Act = Callable[[], object]


class FaultyMesh(Protocol):
    """The mesh as faults see it; its processes are other objects after a restart."""

    heap: EventHeap

    @property
    def gateways(self) -> Mapping[str, SimProcess]: ...

    @property
    def workers(self) -> Mapping[str, SimProcess]: ...

    @property
    def endpoints(self) -> Mapping[str, SimEndpoint]: ...

    @property
    def streams(self) -> Mapping[tuple[str, str], SimStream]: ...

    def restart(self, name: str) -> None: ...


def inject(mesh: FaultyMesh, faults: Iterable[Fault]) -> None:
    """Schedules the begin and the end of every fault. Raises ValueError if one has no target."""
    for fault in faults:
        found = _acts(mesh, fault)
        names = [name for name in found if fnmatchcase(name, fault.target)]
        if not names:
            raise ValueError(f"the fault {fault.kind} finds no target {fault.target!r}: choose from {', '.join(found)}")
        for name in names:
            begin, end = found[name]
            mesh.heap.at(fault.at_s, begin)
            if fault.until_s is not None:
                mesh.heap.at(fault.until_s, end)


def _acts(mesh: FaultyMesh, fault: Fault) -> Mapping[str, tuple[Act, Act]]:
    """Returns what begins and what ends the fault, for every target that it may have."""
    processes = [*mesh.gateways, *mesh.workers]
    streams = {f"{g}-{w}": stream for (g, w), stream in mesh.streams.items()}
    match fault.kind:
        case FaultKind.KILL | FaultKind.RESTART:
            return {name: (partial(_kill, mesh, name), partial(mesh.restart, name)) for name in processes}
        case FaultKind.FREEZE:
            return {
                name: (partial(_freeze, mesh, name), partial(_thaw, mesh, name))
                for name in (*processes, *mesh.endpoints)
            }
        case FaultKind.HANG:
            return {e.name: (e.hang, e.thaw) for e in mesh.endpoints.values()}
        case FaultKind.SLEEP:
            return {e.name: (e.sleep, e.thaw) for e in mesh.endpoints.values()}
        case FaultKind.SLOW:
            engines = {e.name: e.engine for e in mesh.endpoints.values()}
            return {n: (partial(e.slow, fault.factor), partial(e.slow, 1.0)) for n, e in engines.items()}
        case FaultKind.PART:
            parted = {
                f"{g}-{e.name}": (partial(e.part, g), partial(e.parted.discard, g))
                for g in mesh.gateways
                for e in mesh.endpoints.values()
            }
            return parted | {name: (stream.part, stream.heal) for name, stream in streams.items()}
        case FaultKind.BREAK:
            return {name: (stream.break_off, _nothing) for name, stream in streams.items()}
        case FaultKind.DELAY:
            return {n: (partial(_delay, s, fault.delay_s), partial(_delay, s, 0.0)) for n, s in streams.items()}


def _process(mesh: FaultyMesh, name: str) -> SimProcess:
    return mesh.gateways.get(name) or mesh.workers[name]


def _kill(mesh: FaultyMesh, name: str) -> None:
    _process(mesh, name).kill()


def _freeze(mesh: FaultyMesh, name: str) -> None:
    (mesh.endpoints.get(name) or _process(mesh, name)).freeze()


def _thaw(mesh: FaultyMesh, name: str) -> None:
    (mesh.endpoints.get(name) or _process(mesh, name)).thaw()


def _delay(stream: SimStream, delay_s: float) -> None:
    stream.delay_s = delay_s


def _nothing() -> None:
    pass
