"""A console whose clock runs ahead: an hour of a mesh's messages in half a minute."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import uvicorn

from hmas.console import stream
from hmas.console.pages import PERIODS_S
from hmas.console.server import console_app
from hmas.console.settings import ConsoleSettings
from hmas.console.state import SAMPLE_S, Asked, ConsoleState
from hmas.console.stream import BrowserStreams, PageFeed
from hmas.contracts.control import TopologyName
from hmas.runtime.ops import HttpServer
from tests.console.heard import (
    AUDIT,
    CONTROL,
    DISPATCHED,
    FINISHED,
    JOB,
    SETTLED,
    decision,
    heartbeat,
    offered,
    queue_told,
    queued,
    settled,
    telemetry,
    v_short,
)

HOUR_S = 3600
FILLED_S = 1200  # what is kept for ten minutes has filled twice
STEP_S = 3


class SpedConsole:
    """A console whose clock moves on by some seconds with each look at a page, and which hears then what a mesh says in
    them."""

    def __init__(self) -> None:
        self.state = ConsoleState()
        self.now_s = 0
        self.objects: dict[int, int] = {}
        self.port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    def __enter__(self) -> "SpedConsole":
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *raised: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._loop.close()

    async def _serve(self) -> None:
        feed = PageFeed(self.state, self._tick)
        app = console_app(
            ConsoleSettings(), BrowserStreams(feed), pools=frozenset, why=lambda _: asyncio.sleep(0, None),
            pin=lambda *_: asyncio.sleep(0, None), plan=lambda _: asyncio.sleep(0, None), whatif=lambda _: None,
        )  # fmt: skip
        server = HttpServer(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, access_log=False))
        self.port = await server.start()
        self._ready.set()
        await self._ended.wait()
        await server.stop()

    def _tick(self) -> float:
        for _ in range(min(STEP_S, HOUR_S - self.now_s)):
            self.now_s += 1
            self._hear(self.now_s)
            if self.now_s in (FILLED_S, HOUR_S):
                gc.collect()
                self.objects[self.now_s] = len(gc.get_objects())
        return float(self.now_s)

    def _hear(self, now_s: int) -> None:
        state = self.state
        for worker in ("w1", "w2"):
            state.hear(now_s, heartbeat(worker))
            state.hear(now_s, replace(CONTROL, worker=worker))
            ids = [f"{worker}-{now_s}-{number}" for number in range(3)]
            state.hear(now_s, telemetry(worker, dispatched=tuple(replace(DISPATCHED, request_id=i) for i in ids)))
            ended = tuple(replace(FINISHED, request_id=i, tenant=f"t{now_s % 30}") for i in ids)
            state.hear(now_s, telemetry(worker, finished=ended))
            lost = (f"{i}-lost" for i in ids)  # neither their first token nor their end is heard of
            state.hear(
                now_s,
                replace(
                    settled(*(replace(SETTLED, request_id=i) for i in ids)),
                    offered=tuple(offered(name, SETTLED.slo) for name in (*ids, *lost)),
                ),
            )
        state.hear(now_s, v_short(arrival_rps=6.0 + now_s % 7, missed=(now_s % 10) / 10))
        if now_s % 30 == 0:
            state.hear(now_s, decision(TopologyName.EDF if now_s % 60 else TopologyName.FCFS, reason=f"at {now_s}"))
            state.hear(now_s, replace(AUDIT, decision=f"at {now_s}"))
        rows = tuple(queued(f"r{now_s + n}", float(n % 9 - 3), relegated=n % 4 == 0) for n in range(60))
        told = queue_told()
        state.take_queue(now_s, "w1", "", replace(told, orders=(replace(told.orders[0], rows=rows),)))
        state.jobs = Asked(
            now_s, [replace(JOB, job=str(now_s + n), template=f"t{n}", running=n % 2) for n in range(40)]
        )
        if now_s % SAMPLE_S == 0:
            state.sample(now_s)


@contextmanager
def sped_console(monkeypatch: pytest.MonkeyPatch, kind: type[SpedConsole] = SpedConsole) -> Iterator[SpedConsole]:
    """Runs a console whose streams have hardly a pause between two frames."""
    monkeypatch.setattr(stream, "PERIOD_S", 0.001)
    for page in list(PERIODS_S):
        monkeypatch.setitem(PERIODS_S, page, 0.001)
    with kind() as console:
        yield console
