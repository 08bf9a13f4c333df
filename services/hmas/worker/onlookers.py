"""Answers those who look at the worker's queue, at a bounded price: nobody who is served waits for it."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from hmas.contracts.control import TopologyName
from hmas.contracts.queue import MAX_ROWS, QueueOrder, QueueQuery, QueueReply
from hmas.wire.codec import WireError, decode, encode
from hmas.worker.agent.queue_view import QueueView, in_force, under

FRESH_S = 0.5  # a look at the queue serves all who ask within this time
REST = 25.0  # the queue is copied again after this many times as long as the last copy took, at the earliest


class Onlookers:
    """Answers `QueueQuery` for the worker `name`. `look` copies the queue on the event loop; the orders are made from
    the copy in a thread, one at a time."""

    def __init__(self, name: str, look: Callable[[], QueueView], clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._look, self._clock = name, look, clock
        self._lock = asyncio.Lock()
        self._seen: QueueView | None = None
        self._seen_s = 0.0
        self._stale_s = float("-inf")  # when the queue may be looked at again
        self._report: QueueReply | None = None
        self._others: dict[str, QueueOrder] = {}  # of the same instant

    async def answer(self, data: bytes) -> bytes | None:
        """Returns the reply to a `QueueQuery`. None leaves the answer to the worker that is asked, or drops a message
        that is none."""
        try:
            asked = decode(QueueQuery, data)
        except WireError:
            return None
        if asked.worker != self._name:
            return None
        async with self._lock:
            told = await self._tell(asked.topology)
            age_s = self._clock() - self._seen_s
        limit = max(0, min(asked.limit, MAX_ROWS))
        orders = [replace(order, rows=order.rows[:limit]) for order in told.orders]
        return encode(replace(told, age_s=age_s, orders=tuple(orders)))

    async def _tell(self, other: str) -> QueueReply:
        if self._report is None or self._seen is None or self._clock() >= self._stale_s:
            began_s = self._clock()
            seen = self._look()
            self._seen, self._seen_s = seen, self._clock()
            self._stale_s = self._seen_s + max(FRESH_S, REST * (self._seen_s - began_s))
            self._others = {}
            self._report = await asyncio.to_thread(queue_report, self._name, seen)
        if other not in self._seen.topologies or other == self._report.topology or not self._report.ordered:
            return self._report
        if other not in self._others:
            self._others[other] = await asyncio.to_thread(under, self._seen, TopologyName(other), MAX_ROWS)
        return replace(self._report, orders=(*self._report.orders, self._others[other]))


def queue_report(worker: str, seen: QueueView) -> QueueReply:
    """Returns what a worker tells of its queue, in the order in force alone."""
    rows = in_force(seen)
    first = tuple(islice(rows, MAX_ROWS))
    every = [*first, *rows]
    return QueueReply(
        worker=worker, topology=seen.topology.value, waiting=seen.waiting, parked=seen.parked,
        relegated=sum(row.relegated for row in every),
        late=sum(row.slack_s is not None and row.slack_s < 0.0 for row in every), running=seen.running, age_s=0.0,
        ordered=bool(seen.lanes), orders=(QueueOrder(seen.topology.value, first),) if seen.lanes else (),
    )  # fmt: skip
