"""The queue in the order in which it would be served, for those who look on.

Most topologies know who is next, and not who comes after that: their order depends on what is served meanwhile. So the
active topology is copied with all that it remembers, and the copy is served out. What it answers is the order if
nothing else came and nothing were judged anew. How another topology would order the same requests, that topology
itself says, which starts without a past, as after a switch.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from math import inf
from typing import NamedTuple

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.queue import MAX_WHY_CHARS, QueuedRow, QueueOrder
from hmas.worker.agent.engines.service_view import ServiceView
from hmas.worker.agent.entry.entry import EntryState, QueueEntry
from hmas.worker.agent.order.topologies import MakeTopology, Topology
from hmas.worker.agent.state import WorkerState

MAX_COPIED = 4000  # requests; copying them takes the worker's loop some 40 ms


class LaneView(NamedTuple):
    """One lane at an instant: a copy of its order, with copies of its entries in order of arrival, what it sees of the
    engines, and the speed at which these serve it, in predicted seconds of work per second; 0: none is up."""

    number: int
    order: Topology
    entries: list[QueueEntry]
    view: ServiceView
    speed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """A worker's queue at the instant `now_s`. `lanes` are empty if more than `MAX_COPIED` requests are queued."""

    now_s: float
    topology: TopologyName
    hints: Hints
    topologies: Mapping[str, MakeTopology]
    waiting: int
    parked: int
    running: int
    lanes: tuple[LaneView, ...]


def queue_view(state: WorkerState) -> QueueView:
    """Copies what the order of the queue depends on, and changes nothing; O(n) in the queued requests."""
    queue = state.queue
    memo: dict[int, object] = {}
    lanes: list[LaneView] = []
    if queue.ready <= MAX_COPIED:
        entries = queue.queued()
        caps = {lane: sum(engine.cap for engine in engines) for lane, engines in state.lanes.items()}
        all_caps = sum(caps.values())
        speed = state.meter.speed(state.cold_speed()) / all_caps if all_caps else 0.0
        for lane in queue.lanes:
            members = [entry for entry in entries if entry.lane == lane]
            lanes.append(
                LaneView(
                    lane,
                    deepcopy(queue.order(lane), memo),
                    deepcopy(members, memo),
                    state.service_view(lane),
                    speed * caps.get(lane, 0),
                )
            )
    return QueueView(
        now_s=state.now_s, topology=queue.topology, hints=queue.hints, topologies=queue.topologies,
        waiting=queue.waiting, parked=queue.parked,
        running=sum(entry.state is EntryState.RUNNING for entry in queue.entries()), lanes=tuple(lanes),
    )  # fmt: skip


def in_force(seen: QueueView) -> Iterator[QueuedRow]:
    """Yields the queued requests in the order in which they would be served. The copies in `seen` are served out."""
    return _merged(_lane_rows(seen, lane, lane.order) for lane in seen.lanes)


def under(seen: QueueView, topology: TopologyName, limit: int) -> QueueOrder:
    """Returns the first `limit` of the same requests as another topology would order them; `seen` stays as it is."""
    lanes = []
    for lane in seen.lanes:
        entries = deepcopy(lane.entries)
        for entry in entries:
            entry.relegated = False
        order = seen.topologies[topology](seen.hints)
        order.rebuild(entries)
        lanes.append(_lane_rows(seen, lane, order))
    return QueueOrder(topology.value, tuple(islice(_merged(lanes), limit)))


def _merged(lanes: Iterable[Iterator[QueuedRow]]) -> Iterator[QueuedRow]:
    return merge(*lanes, key=lambda row: inf if row.start_s is None else row.start_s)


def _lane_rows(seen: QueueView, lane: LaneView, order: Topology) -> Iterator[QueuedRow]:
    """Yields the requests of a lane in the order of `order`, which is served out. What it holds back beyond the present
    comes last, and nobody can tell when it starts."""
    work_s = 0.0
    if order.paced:
        order.observe(lane.view)

    def row(entry: QueueEntry, start_s: float | None) -> QueuedRow:
        return QueuedRow(
            request_id=entry.request.id, tenant=entry.request.tenant, lane=lane.number,
            prompt_tokens=entry.request.prompt_tokens, predicted_output_tokens=entry.predicted_tokens,
            waited_s=seen.now_s - entry.enqueued_s, service_s=entry.total_s, start_s=start_s,
            slack_s=None if start_s is None else entry.spare_s(seen.now_s) - start_s, relegated=entry.relegated,
            known=entry.annotation is not None, why=_why(order, entry, seen.now_s),
        )  # fmt: skip

    while (entry := order.pop()) is not None:
        yield row(entry, work_s / lane.speed if lane.speed > 0.0 else None)
        work_s += entry.total_s
    for entry in sorted(order, key=lambda each: each.seq):
        yield row(entry, None)


def _why(order: Topology, entry: QueueEntry, now_s: float) -> str:
    """Returns what put a request that was just taken out of the order in its place, in words."""
    if entry.relegated:
        return "set aside: it cannot be on time beside the rest"
    return order.why(entry, now_s)[:MAX_WHY_CHARS]
