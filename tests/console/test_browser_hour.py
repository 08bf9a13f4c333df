"""An hour of a mesh's messages in half a minute: neither the console nor the browser grows with it."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

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
from tests.console.browsing import PATIENCE_MS, needs_browser
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

pytestmark = needs_browser
HOUR_S = 3600
FILLED_S = 1200  # what is kept for ten minutes has filled twice
STEP_S = 3
MOST_OBJECTS = 5000  # of Python, in the console
MOST_HEAP_BYTES = 4 * 2**20
MOST_NODES = 200


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

    async def _serve(self) -> None:
        feed = PageFeed(self.state, self._tick)
        app = console_app(
            ConsoleSettings(), BrowserStreams(feed), pools=frozenset, why=lambda _: asyncio.sleep(0, None),
            pin=lambda *_: asyncio.sleep(0, None), whatif=lambda _: None,
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
        state.heed(now_s, "w1", "", replace(told, orders=(replace(told.orders[0], rows=rows),)))
        state.jobs = Asked(
            now_s, [replace(JOB, job=str(now_s + n), template=f"t{n}", running=n % 2) for n in range(40)]
        )
        if now_s % SAMPLE_S == 0:
            state.sample(now_s)


@pytest.fixture
def sped(monkeypatch: pytest.MonkeyPatch) -> Iterator[SpedConsole]:
    monkeypatch.setattr(stream, "PERIOD_S", 0.001)
    for page in list(PERIODS_S):
        monkeypatch.setitem(PERIODS_S, page, 0.001)
    with SpedConsole() as console:
        yield console


def measure(session: Any) -> dict[str, float]:
    """Returns the browser's figures. One collection of garbage frees the nodes of a table that was just replaced, or
    the objects that hold them; the next ones free the rest."""
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    return {row["name"]: row["value"] for row in session.send("Performance.getMetrics")["metrics"]}


@pytest.mark.parametrize("name", ["now", "queue", "control"])
def test_an_hour_of_a_page_leaves_nothing_behind(chromium: Any, sped: SpedConsole, name: str) -> None:
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(4 * PATIENCE_MS)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    page.goto(f"http://127.0.0.1:{sped.port}/{name}")
    page.wait_for_selector("tbody tr:visible")
    wait(page, sped, FILLED_S)
    filled = measure(session)
    wait(page, sped, HOUR_S)
    page.wait_for_timeout(200)
    after = measure(session)
    context.close()
    assert after["JSHeapUsedSize"] - filled["JSHeapUsedSize"] < MOST_HEAP_BYTES
    assert after["Nodes"] - filled["Nodes"] < MOST_NODES
    assert sped.objects[HOUR_S] - sped.objects[FILLED_S] < MOST_OBJECTS
    print({key: (filled[key], after[key]) for key in ("JSHeapUsedSize", "Nodes")}, sped.objects)
    assert said == []


def wait(page: Any, sped: SpedConsole, until_s: int) -> None:
    while sped.now_s < until_s:
        page.wait_for_timeout(100)
