"""Hand-overs of KV between simulated engines. Stock engines read one prompt after the other from each other engine, in
the order in which they asked, and pairs that share a port share it fairly. Others cut reads into chunks that go by
deadline (`hmas.sim.network.reads`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Protocol

from hmas.sim.network.fabric import Fabric, Wiring
from hmas.sim.network.fluid import FluidNetwork
from hmas.sim.network.reads import ChunkedRead, ChunkedReads, PairLane, ReadGate
from hmas.sim.processes.heap import EventHeap
from hmas.sim.setup import PoolSetup

LEASE_S = 33.0  # for which stock vLLM keeps a prompt that nobody reads


class KvHolder(Protocol):
    """An engine as hand-overs see it."""

    name: str

    def landed(self, request_id: str) -> None: ...

    def give_back(self, request_id: str) -> None: ...


@dataclass(slots=True)
class _Offer:
    """A prompt that `lender` keeps under the id `lent`, whose reader has its first token due at `due_s`."""

    lender: KvHolder
    lent: str
    due_s: float
    read: ChunkedRead | None = None  # once it waits at its reader's gate


class KvLinks:
    """The network between `engines`, each of whose ports moves KV of `tokens_per_s` in a second in each direction.
    Without `chunked` all engines are stock ones."""

    def __init__(
        self,
        heap: EventHeap,
        engines: Sequence[str],
        tokens_per_s: float,
        chunked: ChunkedReads | None = None,
        fabric: Fabric = Fabric(),  # noqa: B008 (it is frozen)
    ) -> None:
        self._heap = heap
        self._ports = {name: port for port, name in enumerate(engines)}
        self._wiring = Wiring(fabric, len(engines), tokens_per_s)
        self._network = FluidNetwork(heap, self._wiring.capacities)
        self._lanes: dict[tuple[str, str], PairLane] = {}  # by lender and reader
        self._gates = {} if chunked is None else {name: ReadGate(heap, chunked, tokens_per_s) for name in engines}
        self._offers: dict[tuple[str, str], _Offer] = {}  # by reader and request
        self._reads = 0

    def offer(self, reader: KvHolder, request_id: str, lender: KvHolder, lent: str, due_in_s: float = inf) -> None:
        """Notes where the prompt of a request is that `reader` is to answer, and when its first token is due."""
        self._offers[reader.name, request_id] = _Offer(lender, lent, self._heap.now_s + due_in_s)

    def lend(self, lender: KvHolder, lent: str) -> None:
        """Begins the lease of a prompt."""
        self._heap.after(LEASE_S, lender.give_back, lent)

    def read(self, reader: KvHolder, request_id: str, tokens: int) -> None:
        """Reads a prompt, or the part of it that the reader lacks, into memory that it has taken."""
        offer = self._offers[reader.name, request_id]
        lane = self._lane(offer.lender.name, reader.name)
        landed = partial(self._landed, reader, request_id)
        if not self._gates:
            lane.post(float(tokens), landed)
            return
        self._reads += 1
        offer.read = ChunkedRead(self._reads, lane, float(tokens), offer.due_s, landed)
        self._gates[reader.name].add(offer.read)

    def _lane(self, lender: str, reader: str) -> PairLane:
        lane = self._lanes.get((lender, reader))
        if lane is None:
            path = self._wiring.path(self._ports[lender], self._ports[reader])
            lane = self._lanes[lender, reader] = PairLane(self._network, path)
        return lane

    def _landed(self, reader: KvHolder, request_id: str) -> None:
        if (reader.name, request_id) in self._offers:
            self.close(reader, request_id)
            reader.landed(request_id)

    def close(self, reader: KvHolder, request_id: str) -> None:
        """Gives the prompt back, if it was not: it was read, or its reader has no use for it any more."""
        offer = self._offers.pop((reader.name, request_id), None)
        if offer is not None:
            if offer.read is not None:
                self._gates[reader.name].drop(offer.read)
            offer.lender.give_back(offer.lent)


def links_of(heap: EventHeap, engines: Sequence[str], pool: PoolSetup) -> KvLinks | None:
    """Returns the network between the engines of a pool, or None where they hand nothing over."""
    if not pool.kv_tokens_per_s:
        return None
    return KvLinks(heap, engines, pool.kv_tokens_per_s, pool.kv_chunked, pool.kv_fabric)
