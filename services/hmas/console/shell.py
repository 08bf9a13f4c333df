"""Shell of the console: hears the mesh, samples what was heard, and asks and acts for browsers."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import nats.errors
import structlog
from fastapi import HTTPException

from hmas.console.pages import PERIODS_S
from hmas.console.pages.queue import SHOWN, asked_of
from hmas.console.plan_orders import PlanAct, PlanOrder, idle_order, ordered_plans, told_plan
from hmas.console.state import MAX_QUEUES, SAMPLE_S, Asked, ConsoleState
from hmas.contracts.control import Pin, TopologyName
from hmas.contracts.pool_plan import PlanPin
from hmas.contracts.queue import QueueQuery, QueueReply
from hmas.contracts.routes import Role
from hmas.operator.jobs import jobs_of
from hmas.operator.pin import store_pin
from hmas.operator.why import timeline_of
from hmas.runtime.bucket import BucketUnavailable, ControlBucket
from hmas.runtime.bus import Bus
from hmas.wire.codec import WireError, decode, encode
from hmas.wire.subjects import QUERY_QUEUE

log = structlog.get_logger()
MAX_ASKING = 4  # timelines asked for at a time
ASK_S = 2.0  # a worker that answers later is taken not to answer
JOBS_S = 2.0
PINNED_BY = "the console"


class ConsoleShell:
    """Feeds the console's state from the bus. `clock` returns Unix s and never runs backwards."""

    def __init__(self, bus: Bus, name: str) -> None:
        self.state = ConsoleState()
        self._bus = bus
        self._bucket = ControlBucket(bus, name, makes=False)
        self._asking = asyncio.Semaphore(MAX_ASKING)
        self._offset_s = time.time() - time.monotonic()
        bus.follow(Role.CONSOLE, self._hear)

    def clock(self) -> float:
        return self._offset_s + time.monotonic()

    def _hear(self, value: Any) -> None:
        self.state.hear(self.clock(), value)

    def pools(self) -> frozenset[str]:
        return frozenset({*self.state.top.short, *self.state.top.decisions})

    async def run(self) -> None:
        """Samples the state until cancelled."""
        while True:
            self.state.connected = self._bus.connected
            self.state.sample(self.clock())
            await asyncio.sleep(SAMPLE_S)

    async def run_asking(self, watched: Callable[[str], Sequence[str]]) -> None:
        """Asks the mesh for what browsers look at, until cancelled. `watched` returns the choices of a page at which
        they look; nothing is asked while there is none."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ask_queues(watched))
            tasks.create_task(self._ask_jobs(watched))

    async def _ask_queues(self, watched: Callable[[str], Sequence[str]]) -> None:
        while True:
            looked = watched("queue") if self._bus.connected else ()
            wanted = {asked_of(self.state, choice) for choice in looked}
            await asyncio.gather(*(self._ask_queue(*pair) for pair in sorted(wanted)[:MAX_QUEUES] if pair[0]))
            await asyncio.sleep(PERIODS_S["queue"])

    async def _ask_queue(self, worker: str, topology: str) -> None:
        asked = encode(QueueQuery(worker=worker, topology=topology, limit=SHOWN))
        queue: QueueReply | None = None
        try:
            reply = await self._bus.client.request(QUERY_QUEUE, asked, timeout=ASK_S)
            queue = decode(QueueReply, reply.data)
        except (nats.errors.Error, WireError):
            pass  # the page says that the worker does not answer
        self.state.take_queue(self.clock(), worker, topology, queue)

    async def _ask_jobs(self, watched: Callable[[str], Sequence[str]]) -> None:
        while True:
            if self._bus.connected and watched("jobs"):
                try:
                    self.state.jobs = Asked(self.clock(), await jobs_of(self._bus))
                except nats.errors.Error:
                    self.state.jobs = Asked(self.clock(), None)
            await asyncio.sleep(JOBS_S)

    async def why(self, request_id: str) -> dict[str, Any] | None:
        """Returns a request's timeline, None if no gateway remembers it. Raises HTTPException 503."""
        try:
            async with self._asking:
                return await timeline_of(self._bus, request_id)
        except nats.errors.Error as error:
            raise HTTPException(503, "NATS cannot be reached") from error

    async def pin(self, pool: str, topology: TopologyName | None) -> None:
        """Pins a pool, or lifts its pin if `topology` is None. Raises HTTPException 503."""
        await self._store(Pin(pool, topology, by=PINNED_BY))
        log.info("pinned", pool=pool, topology=topology and topology.value)

    async def order_plan(self, order: PlanOrder) -> None:
        """Pins the plan in force or what ran before it, or lifts the pin. Raises HTTPException: 404 without a plan, 409
        if the order would change nothing or its sender saw another plan, 503."""
        plan = self.state.top.plan
        if plan is None:
            raise HTTPException(404, "no plan was heard of")
        if reason := idle_order(plan, order.act):
            raise HTTPException(409, reason)
        if order.act is not PlanAct.LIFT and order.seen != told_plan(plan):
            raise HTTPException(409, "the plan has changed meanwhile: look again")
        await self._store(PlanPin(plans=ordered_plans(plan, order.act), by=PINNED_BY))
        log.info("plan_ordered", act=order.act.value)

    async def _store(self, pin: Pin | PlanPin) -> None:
        try:
            await store_pin(self._bus, self._bucket, pin)
        except BucketUnavailable as error:
            raise HTTPException(503, f"the pin cannot be kept: {error}") from error
