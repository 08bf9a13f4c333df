"""What waits before the network: the reads by which one engine takes a prompt's KV over from another."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from hmas.laws.transfer_order import HAND_OVER, ORDERS
from hmas.sim.network.fluid import FluidNetwork
from hmas.sim.processes.heap import EventHeap


@dataclass(frozen=True, slots=True)
class ChunkedReads:
    """That engines cut their reads into chunks of `chunk_tokens`, as `hmas.plugins.vllm_kv` does. Each has `window` of
    them on their way at a time, and posts next the chunk of the read that is first in the `order` (one of
    `hmas.laws.transfer_order`), which knows what a port moves only with `knows_rate`. Raises ValueError for an order
    that is not there, and for chunks that cannot be."""

    chunk_tokens: float = inf
    window: int = 2
    order: str = "edf-late"
    knows_rate: bool = False

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"{self.order!r} is no order of transfers: choose one of {', '.join(ORDERS)}")
        if self.chunk_tokens <= 0.0 or self.window < 1:
            raise ValueError(f"{self}: chunk_tokens must be above 0, and window at least 1")


class PairLane:
    """What one engine reads from another, in the order in which it was posted (NIXL over TCP, as measured on vLLM)."""

    def __init__(self, network: FluidNetwork, path: tuple[int, ...]) -> None:
        self._network, self._path = network, path
        self._waiting: deque[tuple[float, Callable[..., object], tuple[Any, ...]]] = deque()
        self._busy = False

    def post(self, size: float, landed: Callable[..., object], *args: Any) -> None:
        """Has `size` tokens come after all that was posted before, and calls `landed(*args)` then."""
        self._waiting.append((size, landed, args))
        if not self._busy:
            self._next()

    def _next(self) -> None:
        self._busy = bool(self._waiting)
        if self._busy:
            size, landed, args = self._waiting.popleft()
            self._network.start(self._path, size, self._landed, landed, args)

    def _landed(self, landed: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._next()
        landed(*args)


class ChunkedRead:
    """A read of `size` tokens at a gate, which come over `lane`; `landed` is called when all have."""

    __slots__ = ("arrived", "due_s", "flying", "landed", "lane", "number", "posted", "size")
    stage = HAND_OVER

    def __init__(self, number: int, lane: PairLane, size: float, due_s: float, landed: Callable[[], object]) -> None:
        self.number, self.lane, self.size, self.due_s, self.landed = number, lane, size, due_s, landed
        self.posted = self.arrived = 0.0  # tokens
        self.flying = 0  # chunks

    @property
    def left(self) -> float:
        return self.size - self.arrived


class ReadGate:
    """The gate of one engine, which posts the chunks of all its reads. `tokens_per_s` is what its port moves."""

    def __init__(self, heap: EventHeap, setup: ChunkedReads, tokens_per_s: float) -> None:
        self._heap, self._setup = heap, setup
        self._order = ORDERS[setup.order]
        self._rate = tokens_per_s if setup.knows_rate else inf
        self._waiting: list[ChunkedRead] = []  # those with chunks that are not posted
        self._flying = 0

    def add(self, read: ChunkedRead) -> None:
        self._waiting.append(read)
        self._post()

    def drop(self, read: ChunkedRead) -> None:
        """Posts nothing more of a read; what is on its way of it comes all the same."""
        if read in self._waiting:
            self._waiting.remove(read)

    def _post(self) -> None:
        chunk = self._setup.chunk_tokens
        while self._flying < self._setup.window:
            # The last chunk tells that all have come, so it is posted when the others have.
            ready = [each for each in self._waiting if not each.flying or each.size - each.posted > chunk]
            if not ready:
                return
            read = ready[0]
            if len(ready) > 1:
                keys = self._order(ready, self._heap.now_s, self._rate)
                read = ready[keys.index(min(keys))]
            tokens = min(chunk, read.size - read.posted)
            read.posted += tokens
            read.flying += 1
            self._flying += 1
            if read.posted >= read.size:
                self._waiting.remove(read)
            read.lane.post(tokens, self._landed, read, tokens)

    def _landed(self, read: ChunkedRead, tokens: float) -> None:
        read.arrived += tokens
        read.flying -= 1
        self._flying -= 1
        if read.posted >= read.size and not read.flying:
            read.landed()
        self._post()
