"""A network in which bytes move like fluids: exact in time, with an event only where a rate may change."""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any

from hmas.sim.network.filling import by_key, max_min
from hmas.sim.processes.heap import EventHeap


class Flow:
    """Bytes on their way over the links of `path`. `left` of them had yet to come at `since_s`, and `rate` of them come
    in a second since then. `end_s` is when all will have come at that rate."""

    __slots__ = ("cohort", "end_s", "key", "left", "number", "path", "rate", "since_s")

    def __init__(self, number: int, path: tuple[int, ...], size: float, key: tuple[float, ...], now_s: float) -> None:
        self.number, self.path, self.key, self.left = number, path, key, size
        self.rate, self.since_s = 0.0, now_s
        self.end_s = inf if size else now_s
        self.cohort: list[Flow] = []  # whose rates were worked out at the same time, and whose first end is scheduled


class FluidNetwork:
    """Links of some capacity in bytes per second, and the flows on them: those with the least key first, max-min fair
    among equals (`filling.py`). A change is worked out for the flows that share links with what changed, directly or
    through others; all else goes on as it was."""

    def __init__(self, heap: EventHeap, capacities: Sequence[float]) -> None:
        self._heap, self._capacities = heap, tuple(capacities)
        self._on: list[dict[Flow, None]] = [{} for _ in self._capacities]
        self._done: dict[Flow, tuple[Callable[..., object], tuple[Any, ...]]] = {}
        self._changed: dict[int, None] | None = None  # links, while flows end
        self._numbers, self._keyed = 0, False

    @property
    def flows(self) -> list[Flow]:
        """Those that have not ended, in the order of their starts."""
        return list(self._done)

    def start(
        self, path: tuple[int, ...], size: float, done: Callable[..., object], *args: Any, key: tuple[float, ...] = ()
    ) -> Flow:
        """Starts a flow of `size` bytes, and calls `done(*args)` when all have come. Raises ValueError for a path
        without links or with one twice, and for less than 0 bytes."""
        if not path or len(set(path)) < len(path) or size < 0.0:
            raise ValueError(f"there can be no flow of {size} bytes over the links {path}: name each link once")
        self._numbers += 1
        flow = Flow(self._numbers, path, size, key, self._heap.now_s)
        self._done[flow] = done, args
        for link in path:
            self._on[link][flow] = None
        self._keyed = self._keyed or key != ()
        self._change(path)
        return flow

    def rekey(self, flow: Flow, key: tuple[float, ...]) -> None:
        """Gives a flow another key from now on."""
        if key != flow.key and flow in self._done:
            flow.key, self._keyed = key, True
            self._change(flow.path)

    def left(self, flow: Flow) -> float:
        """Returns how many bytes of a flow have yet to come."""
        if flow not in self._done:
            return 0.0
        return max(0.0, flow.left - flow.rate * (self._heap.now_s - flow.since_s))

    def _change(self, links: tuple[int, ...]) -> None:
        if self._changed is None:
            self._refill(links)
        else:
            self._changed.update(dict.fromkeys(links))

    def _refill(self, links: Iterable[int]) -> None:
        """Works out anew the rates of all flows that reach one of `links`."""
        now_s, cohort, first_s = self._heap.now_s, list[Flow](), inf
        for flow, rate in self._rates(self._reached(links)):
            if rate != flow.rate:
                flow.left = left = max(0.0, flow.left - flow.rate * (now_s - flow.since_s))
                flow.rate, flow.since_s = rate, now_s
                flow.end_s = now_s + left / rate if rate else inf if left else now_s
            flow.cohort = cohort
            cohort.append(flow)
            if flow.end_s < first_s:
                first_s = flow.end_s
        if first_s < inf:
            self._heap.at(first_s, self._first_ends, cohort)

    def _reached(self, links: Iterable[int]) -> dict[int, dict[Flow, None]]:
        """Returns some links and those that flows connect with them, each with its flows."""
        on, stack = self._on, list(links)
        found = {link: on[link] for link in stack}
        seen = set[tuple[int, ...]]()
        while stack:
            for flow in on[stack.pop()]:
                if flow.path not in seen:
                    seen.add(flow.path)
                    for link in flow.path:
                        if link not in found:
                            found[link] = on[link]
                            stack.append(link)
        return found

    def _rates(self, reached: dict[int, dict[Flow, None]]) -> Iterable[tuple[Flow, float]]:
        if self._keyed:
            flows = sorted({flow: None for on in reached.values() for flow in on}, key=_rank)
            return by_key(flows, self._capacities)
        return max_min(reached, {link: self._capacities[link] for link in reached}).items()

    def _first_ends(self, cohort: list[Flow]) -> None:
        """Ends those of a cohort that are due, and has the next of it looked at in its time."""
        now_s, changed = self._heap.now_s, dict[int, None]()
        self._changed = changed
        for flow in cohort:
            if flow.end_s <= now_s and flow.cohort is cohort:
                flow.cohort, flow.left, flow.rate = [], 0.0, 0.0
                done, args = self._done.pop(flow)
                for link in flow.path:
                    del self._on[link][flow]
                    changed[link] = None
                done(*args)
        self._changed = None
        if changed:
            self._refill(changed)
        next_s = min([flow.end_s for flow in cohort if flow.cohort is cohort], default=inf)
        if next_s < inf:
            self._heap.at(next_s, self._first_ends, cohort)


def _rank(flow: Flow) -> tuple[tuple[float, ...], int]:
    return flow.key, flow.number
