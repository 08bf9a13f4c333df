"""Measures how many events of the simulated network a core works out in a second: flows that start and end. Times are
those of the processor. The baseline is the event heap alone, with a call that does nothing for each event."""

import random
from collections.abc import Callable
from time import process_time
from typing import Any

from hmas.sim.network.fabric import Fabric, Wiring
from hmas.sim.network.fluid import FluidNetwork
from hmas.sim.network.reads import ChunkedRead, ChunkedReads, PairLane, ReadGate
from hmas.sim.processes.heap import EventHeap

READS, LENDERS, READERS, LOAD = 20_000, 4, 4, 0.6
MEAN = 1.0  # of a read's size, in what a port moves in a second
GOAL_PER_S = 60_000.0
Read = tuple[float, int, int, float]  # when, from which port to which, and how much


def _reads(seed: int = 1) -> list[Read]:
    """Returns reads at the load, of sizes as spread as those of recorded prompts."""
    rng, at_s, found = random.Random(seed), 0.0, list[Read]()
    for _ in range(READS):
        at_s += rng.expovariate(LOAD * READERS / MEAN)
        found.append((at_s, rng.randrange(LENDERS), LENDERS + rng.randrange(READERS), rng.expovariate(1.0 / MEAN)))
    return found


class _Counted(FluidNetwork):
    """Counts the starts and ends."""

    events = 0

    def start(self, path: tuple[int, ...], size: float, done: Callable[..., object], *args: Any, **more: Any) -> Any:
        self.events += 2
        return super().start(path, size, done, *args, **more)


def _played(begin: Callable[[_Counted, EventHeap, Wiring], Callable[[Read], object]], fabric: Fabric) -> float:
    """Returns the events in a second of what `begin` makes of each read."""
    heap, wiring = EventHeap(), Wiring(fabric, LENDERS + READERS, 1.0)
    network = _Counted(heap, wiring.capacities)
    add = begin(network, heap, wiring)
    for read in _reads():
        heap.at(read[0], add, read)
    started = process_time()
    heap.run(float("inf"))
    return network.events / (process_time() - started)


def _stock(network: _Counted, heap: EventHeap, wiring: Wiring) -> Callable[[Read], object]:
    lanes: dict[tuple[int, int], PairLane] = {}

    def add(read: Read) -> None:
        _, source, target, size = read
        if (source, target) not in lanes:
            lanes[source, target] = PairLane(network, wiring.path(source, target))
        lanes[source, target].post(size, _nothing)

    return add


def _chunked(network: _Counted, heap: EventHeap, wiring: Wiring) -> Callable[[Read], object]:
    lanes: dict[tuple[int, int], PairLane] = {}
    gates = {port: ReadGate(heap, ChunkedReads(MEAN / 8.0), 1.0) for port in range(LENDERS, LENDERS + READERS)}

    def add(read: Read) -> None:
        at_s, source, target, size = read
        if (source, target) not in lanes:
            lanes[source, target] = PairLane(network, wiring.path(source, target))
        gates[target].add(ChunkedRead(0, lanes[source, target], size, at_s + 5.0 * size, _nothing))

    return add


def _by_deadline(network: _Counted, heap: EventHeap, wiring: Wiring) -> Callable[[Read], object]:
    def add(read: Read) -> None:
        at_s, source, target, size = read
        network.start(wiring.path(source, target), size, _nothing, key=(at_s + 5.0 * size, at_s))

    return add


def _heap_alone() -> float:
    heap = EventHeap()
    for at_s, *_ in _reads():
        heap.at(at_s, heap.after, 1.0, _nothing)
    started = process_time()
    heap.run(float("inf"))
    return 2 * READS / (process_time() - started)


def _nothing() -> None:
    pass


def rows() -> list[dict[str, Any]]:
    alone = _heap_alone()
    found = []
    for name, begin, fabric in (
        ("whole reads of stock engines, fair on ports", _stock, Fabric()),
        ("reads in chunks by deadline", _chunked, Fabric()),
        ("every read on the ports at once, by deadline", _by_deadline, Fabric()),
        ("whole reads, four engines a leaf, uplinks 2:1", _stock, Fabric(4, 2, 2.0)),
    ):
        speed = _played(begin, fabric)
        found.append(
            {"name": f"network: {name}", "value": speed, "unit": "events/s", "goal": f">= {GOAL_PER_S:g}",
             "met": speed >= GOAL_PER_S}
        )  # fmt: skip
        found.append({"name": "network: its cost of an event to the heap's alone", "value": alone / speed, "unit": "x"})
    return found
