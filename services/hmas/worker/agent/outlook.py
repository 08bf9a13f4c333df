"""The queue in the order in which it would be served, for those who look on.

Most topologies know who is next, and not who comes after that: their order depends on what is served meanwhile. So the
active topology is copied with all that it remembers, and the copy is served out. What it answers is the order if
nothing else came and nothing were judged anew. How another topology would order the same requests, that topology
itself says, which starts without a past, as after a switch.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from math import inf
from typing import NamedTuple

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.queue import MAX_WHY_CHARS, QueuedRow, QueueOrder
from hmas.worker.agent.config import RandomSource
from hmas.worker.agent.entry import EntryState, QueueEntry
from hmas.worker.agent.service_view import ServiceView
from hmas.worker.agent.state import AgentState
from hmas.worker.agent.topologies import TOPOLOGIES, Topology

MAX_COPIED = 4000  # requests; copying them takes the worker's loop some 40 ms


class LaneOutlook(NamedTuple):
    """One lane at an instant: a copy of its order, with copies of its entries in order of arrival, what it sees of the
    engines, and the speed at which these serve it, in predicted seconds of work per second; 0: none is up."""

    number: int
    order: Topology
    entries: list[QueueEntry]
    view: ServiceView
    speed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """A worker's queue at the instant `now_s`. `lanes` are empty if more than `MAX_COPIED` requests are queued."""

    now_s: float
    topology: TopologyName
    hints: Hints
    rng: RandomSource
    waiting: int
    parked: int
    running: int
    lanes: tuple[LaneOutlook, ...]


def outlook(state: AgentState) -> Outlook:
    """Copies what the order of the queue depends on, and changes nothing; O(n) in the queued requests."""
    queue = state.queue
    memo: dict[int, object] = {}
    lanes: list[LaneOutlook] = []
    if queue.ready <= MAX_COPIED:
        entries = queue.queued()
        caps = {lane: sum(engine.cap for engine in engines) for lane, engines in state.lanes.items()}
        all_caps = sum(caps.values())
        speed = state.meter.speed(state.cold_speed()) / all_caps if all_caps else 0.0
        for lane in queue.lanes:
            members = [entry for entry in entries if entry.lane == lane]
            lanes.append(
                LaneOutlook(
                    lane,
                    deepcopy(queue.order(lane), memo),
                    deepcopy(members, memo),
                    state.service_view(lane),
                    speed * caps.get(lane, 0),
                )
            )
    return Outlook(
        now_s=state.now_s, topology=queue.topology, hints=queue.hints, rng=deepcopy(queue.rng), waiting=queue.waiting,
        parked=queue.parked, running=sum(entry.state is EntryState.RUNNING for entry in queue.entries()),
        lanes=tuple(lanes),
    )  # fmt: skip


def in_force(seen: Outlook) -> Iterator[QueuedRow]:
    """Yields the queued requests in the order in which they would be served. The copies in `seen` are served out."""
    return _merged(_lane_rows(seen, seen.topology, lane, lane.order) for lane in seen.lanes)


def under(seen: Outlook, topology: TopologyName, limit: int) -> QueueOrder:
    """Returns the first `limit` of the same requests as another topology would order them; `seen` stays as it is."""
    rng, lanes = deepcopy(seen.rng), []
    for lane in seen.lanes:
        entries = deepcopy(lane.entries)
        for entry in entries:
            entry.relegated = False
        order = TOPOLOGIES[topology](seen.hints, rng)
        order.rebuild(entries)
        lanes.append(_lane_rows(seen, topology, lane, order))
    return QueueOrder(topology.value, tuple(islice(_merged(lanes), limit)))


def _merged(lanes: Iterable[Iterator[QueuedRow]]) -> Iterator[QueuedRow]:
    return merge(*lanes, key=lambda row: inf if row.start_s is None else row.start_s)


def _lane_rows(seen: Outlook, topology: TopologyName, lane: LaneOutlook, order: Topology) -> Iterator[QueuedRow]:
    """Yields the requests of a lane in the order of `order`, which is served out. What it holds back beyond the present
    comes last, and nobody can tell when it starts."""
    work_s = 0.0
    if order.paced:
        order.observe(lane.view)

    def row(entry: QueueEntry, start_s: float | None) -> QueuedRow:
        spare_s = entry.ttft_deadline_s - entry.prefill_s - seen.now_s
        return QueuedRow(
            request_id=entry.request.id, tenant=entry.request.tenant, lane=lane.number,
            prompt_tokens=entry.request.prompt_tokens, predicted_output_tokens=entry.predicted_tokens,
            waited_s=seen.now_s - entry.enqueued_s, service_s=entry.total_s, start_s=start_s,
            slack_s=None if start_s is None else spare_s - start_s, relegated=entry.relegated,
            known=entry.annotation is not None, why=why(topology, entry, seen.now_s)[:MAX_WHY_CHARS],
        )  # fmt: skip

    while (entry := order.pop()) is not None:
        yield row(entry, work_s / lane.speed if lane.speed > 0.0 else None)
        work_s += entry.total_s
    for entry in sorted(order, key=lambda each: each.seq):
        yield row(entry, None)


def why(topology: TopologyName, entry: QueueEntry, now_s: float) -> str:
    """Returns what put a request that was just taken out of the order in its place, in words."""
    if entry.relegated:
        return "set aside: it cannot be on time beside the rest"
    spare_s = entry.ttft_deadline_s - entry.prefill_s - now_s
    match topology:
        case TopologyName.FCFS:
            return f"arrived {now_s - entry.request.arrival_s:.1f} s ago"
        case TopologyName.EDF:
            return f"whole answer due in {entry.deadline_s - now_s:.1f} s"
        case TopologyName.LLF:
            return f"laxity {entry.slack_s - now_s:.1f} s"
        case TopologyName.TWO_LANE:
            return f"laxity {entry.slack_s - now_s:.1f} s in the lane for {entry.total_s:.1f} s of work"
        case TopologyName.SJF | TopologyName.SRTF:
            return f"needs {entry.remaining_s:.1f} s"
        case TopologyName.PRIORITY:
            return f"priority {entry.request.priority}, arrived {now_s - entry.request.arrival_s:.1f} s ago"
        case TopologyName.LOTTERY:
            return "its tenant's ticket was drawn"
        case TopologyName.MAX_ON_TIME if entry.promised:
            return "came back at the time it was told"
        case TopologyName.MAX_ON_TIME:
            return f"on time if it starts within {spare_s:.1f} s"
        case TopologyName.HYBRID:
            return f"{'less important' if entry.request.priority > 0 else 'important'}, to start within {spare_s:.1f} s"
        case TopologyName.WFQ | TopologyName.STRIDE | TopologyName.CFS | TopologyName.RR | TopologyName.MLFQ:
            return f"its tenant's turn: virtual time {entry.urgency:.4g}"
        case _:
            return f"by its rank {entry.urgency:.4g}"
