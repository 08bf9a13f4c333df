"""The console over HTTP: who may read, who may act, under which names; and browsers that do not read."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from hmas.console import stream
from hmas.console.guard import cookie_of
from hmas.console.pages import PERIODS_S
from hmas.console.patch import diff, merge
from hmas.console.plan_orders import PlanAct, PlanOrder
from hmas.console.question import WhatIfQuestion
from hmas.console.server import STATIC, console_app
from hmas.console.settings import ConsoleSettings
from hmas.console.state import ConsoleState
from hmas.console.stream import BrowserStreams, PageFeed
from hmas.contracts.control import TopologyName
from hmas.runtime.extras import CannotStart
from tests.console.heard import heartbeat, telemetry

COOKIE, PROOF = cookie_of("reader-token")
PAGES = (
    "/",
    "/now",
    "/control",
    "/requests",
    "/tenants",
    "/lanes",
    "/queue",
    "/jobs",
    "/whatif",
    "/plan",
    "/r/some%2Fid",
)


class Desk:
    """An application without a mesh: what was pinned through it, and its client."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.state = ConsoleState()
        self.pinned: list[tuple[str, TopologyName | None]] = []
        self.asked: list[WhatIfQuestion] = []
        self.planned: list[PlanOrder] = []
        self.streams = BrowserStreams(PageFeed(self.state, lambda: 1.0))
        self.app = console_app(
            settings, self.streams, pools=lambda: frozenset({"m"}), why=self.why, pin=self.pin, plan=self.plan,
            whatif=self.asked.append,
        )  # fmt: skip
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://127.0.0.1:8090")

    async def why(self, request_id: str) -> dict[str, Any] | None:
        return {"request_id": request_id, "outcome": "in flight"} if request_id == "known" else None

    async def pin(self, pool: str, topology: TopologyName | None) -> None:
        self.pinned.append((pool, topology))

    async def plan(self, order: PlanOrder) -> None:
        self.planned.append(order)


def token(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text(f"{name}-token\n")
    return path


@pytest.fixture
def guarded(tmp_path: Path) -> Desk:
    return Desk(
        ConsoleSettings(
            console_host="0.0.0.0", console_names="console.example", console_token_file=token(tmp_path, "reader"),
            console_admin_token_file=token(tmp_path, "admin"),
        )
    )  # fmt: skip


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}-token"}


ORDER = {"pool": "m", "topology": "edf"}


async def test_on_the_loopback_everybody_reads_and_nobody_acts() -> None:
    desk = Desk(ConsoleSettings())
    for path in PAGES:
        assert (await desk.client.get(path)).status_code == 200, path
    assert (await desk.client.get("/api/requests/known")).json()["outcome"] == "in flight"
    assert (await desk.client.get("/api/requests/other")).status_code == 404
    assert (await desk.client.get("/api/about")).json()["can_act"] is False
    assert (await desk.client.post("/api/pin", json=ORDER)).status_code == 403
    for path in ("/docs", "/openapi.json", "/redoc", "/static/../server.py", "/static/%2e%2e/server.py"):
        assert (await desk.client.get(path)).status_code == 404, path


def test_other_machines_need_a_token_for_reading(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="HMAS_CONSOLE_TOKEN_FILE"):
        Desk(ConsoleSettings(console_host="0.0.0.0"))
    same = token(tmp_path, "same")
    with pytest.raises(CannotStart, match="the same token"):
        Desk(ConsoleSettings(console_token_file=same, console_admin_token_file=same))
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(CannotStart, match="is empty"):
        Desk(ConsoleSettings(console_token_file=tmp_path / "empty"))
    (tmp_path / "long").write_text("x" * 301)
    with pytest.raises(CannotStart, match="at most 300"):
        Desk(ConsoleSettings(console_token_file=tmp_path / "long"))


async def test_reading_takes_the_readers_token(guarded: Desk) -> None:
    client = guarded.client
    for path in ("/api/requests/known", "/api/stream?page=now"):
        for headers in ({}, bearer("admin"), {"cookie": f"{COOKIE}=reader-token"}, {"cookie": f"{COOKIE}=\u00fc"}):
            raw = [(name.encode(), value.encode()) for name, value in headers.items()]
            assert (await client.get(path, headers=raw)).status_code == 401
    assert (await client.get("/api/requests/known", headers=bearer("reader"))).status_code == 200
    assert (await client.post("/api/login", json={"token": "guess"})).status_code == 401
    answer = await client.post("/api/login", json={"token": "reader-token"})
    assert answer.status_code == 204
    assert {"HttpOnly", "SameSite=strict"} <= set(answer.headers["set-cookie"].split("; "))
    assert "reader-token" not in answer.headers["set-cookie"]
    assert client.cookies[COOKIE] == PROOF
    assert (await client.get("/api/requests/known")).status_code == 200


async def test_acting_takes_the_admins_token(guarded: Desk) -> None:
    client = guarded.client
    for headers in ({}, bearer("reader"), {"cookie": f"{COOKIE}={PROOF}"}):
        assert (await client.post("/api/pin", json=ORDER, headers=headers)).status_code == 401
    assert guarded.pinned == []
    assert (await client.post("/api/pin", json=ORDER, headers=bearer("admin"))).status_code == 204
    lifted = await client.post("/api/pin", json={"pool": "m", "topology": None}, headers=bearer("admin"))
    assert lifted.status_code == 204
    assert guarded.pinned == [("m", TopologyName.EDF), ("m", None)]
    for order, status in (({"pool": "other", "topology": "edf"}, 404), ({"pool": "m", "topology": "best"}, 422)):
        assert (await client.post("/api/pin", json=order, headers=bearer("admin"))).status_code == status
    long = {"pool": "m" * 5000, "topology": None}
    assert (await client.post("/api/pin", json=long, headers=bearer("admin"))).status_code == 413
    assert len(guarded.pinned) == 2


async def test_acting_on_the_plan_takes_the_admins_token(guarded: Desk) -> None:
    client, order = guarded.client, {"act": "roll_back", "seen": "abc"}
    for headers in ({}, bearer("reader"), {"cookie": f"{COOKIE}={PROOF}"}):
        answer = await client.post("/api/plan", json=order, headers=headers)
        assert (answer.status_code, answer.json()["detail"][:18]) == (401, "acting on the plan")
    nobody = Desk(ConsoleSettings())
    assert (await nobody.client.post("/api/plan", json=order)).status_code == 403
    for change in ({"act": "grow"}, {"seen": "x" * 65}, {"seen": None}):
        assert (await client.post("/api/plan", json=order | change, headers=bearer("admin"))).status_code == 422
    assert guarded.planned == nobody.planned == []
    assert (await client.post("/api/plan", json=order, headers=bearer("admin"))).status_code == 204
    assert guarded.planned == [PlanOrder(act=PlanAct.ROLL_BACK, seen="abc")]


async def test_a_what_if_takes_the_admins_token(guarded: Desk) -> None:
    client, order = guarded.client, {"pool": "m", "minutes": "15", "topology": "edf"}
    for headers in ({}, bearer("reader"), {"cookie": f"{COOKIE}={PROOF}"}):
        assert (await client.post("/api/whatif", json=order, headers=headers)).status_code == 401
    assert (await Desk(ConsoleSettings()).client.post("/api/whatif", json=order)).status_code == 403
    for change, status in (({"pool": "other"}, 404), ({"minutes": "7"}, 422), ({"topology": "best"}, 422)):
        answer = await client.post("/api/whatif", json=order | change, headers=bearer("admin"))
        assert answer.status_code == status
    assert guarded.asked == []
    assert (await client.post("/api/whatif", json=order, headers=bearer("admin"))).status_code == 202
    assert guarded.asked == [WhatIfQuestion(pool="m", minutes="15", topology=TopologyName.EDF)]


@pytest.mark.parametrize("host", ["127.0.0.1:8090", "localhost", "[::1]:8090", "Console.example:443"])
async def test_the_console_answers_to_its_names(guarded: Desk, host: str) -> None:
    assert (await guarded.client.get("/", headers={"host": host})).status_code == 200


FOREIGN = [
    "evil.example", "127.0.0.1.evil.example:8090", "localhost@evil", "", "[::1", "::1", "[::1].evil", "[::1]evil",
    "[::1].evil:8090", "[::1]:8090.evil", "localhost:8090.evil", "localhost:evil", "[::1]]", "evil[::1]",
]  # fmt: skip


@pytest.mark.parametrize("host", FOREIGN)
async def test_the_console_answers_to_no_other_name(guarded: Desk, host: str) -> None:
    for path in ("/", "/api/about", "/health"):
        assert (await guarded.client.get(path, headers={"host": host})).status_code == 421


FAULTY = [
    b'{"token": NaN, "pool": NaN}', rb'{"token": "\ud800", "pool": "\ud800", "topology": "\ud800"}',
    b'{"token": 1e999, "pool": 1e999}', rb'{"\ud800": 1}', b'{"token": {"a": -Infinity}, "pool": [NaN]}', b"[NaN]",
    b"NaN", b"[" * 4_000, b"1" * 4_000, b"\xff", b"",
]  # fmt: skip


@pytest.mark.parametrize("path", ["/api/login", "/api/pin", "/api/plan", "/api/whatif"])
@pytest.mark.parametrize("body", FAULTY, ids=lambda body: body[:30].decode("latin-1"))
async def test_a_faulty_order_is_refused_in_words_and_not_repeated(guarded: Desk, path: str, body: bytes) -> None:
    answer = await guarded.client.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 401, 422), answer.text
    assert answer.json()["detail"]
    assert len(answer.content) < 1_000
    assert b"input" not in answer.content.lower().replace(b"input should", b"")


async def test_every_answer_keeps_to_itself(guarded: Desk) -> None:
    answers = [await guarded.client.get(path) for path in (*PAGES, "/static/app.js", "/missing", "/api/requests/x")]
    answers.append(await guarded.client.get("/", headers={"host": "evil"}))
    for answer in answers:
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert answers[len(PAGES)].headers["content-type"].startswith("text/javascript")


def test_pages_load_nothing_from_elsewhere_and_make_text_alone() -> None:
    files = [path for path in STATIC.rglob("*") if path.is_file()]
    assert len(files) >= 10
    for path in files:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.[a-z]", text), path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|\son[a-z]+=|style=", text), (
            path
        )
    assert sum(1 for _ in (STATIC / "draw.js").open()) <= 300


class Browser:
    """Reads the frames of a stream, at most `takes` of them, and then nothing any more."""

    def __init__(self, takes: float) -> None:
        self.frames: list[dict[str, Any]] = []
        self.left = asyncio.Event()
        self.stuck = asyncio.Event()
        self._takes = takes

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] != "http.response.body":
            return
        if len(self.frames) >= self._takes:
            self.stuck.set()
            await asyncio.Event().wait()
        self.frames.append(json.loads(message["body"].removeprefix(b"data: ")))

    async def watch(self, streams: BrowserStreams) -> None:
        await streams.serve("now", "", {}, self.receive, self.send)


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> tuple[ConsoleState, Callable[[], float]]:
    """A state that changes at every look, and its clock; frames follow one another without a pause."""
    monkeypatch.setitem(PERIODS_S, "now", 1e-6)
    state, looks = ConsoleState(), iter(range(10**9))

    def clock() -> float:
        now_s = next(looks) / 10
        state.hear(now_s, heartbeat(f"w{next(looks) % 20}"))
        state.hear(now_s, telemetry(f"w{next(looks) % 20}"))
        return now_s

    return state, clock


async def test_a_browser_holds_what_the_page_shows(
    brisk: tuple[ConsoleState, Callable[[], float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, clock = brisk
    feed, views = PageFeed(state, clock), list[dict[str, Any]]()
    view = feed.view

    def noted(page: str, choice: str) -> tuple[float, dict[str, Any]]:
        made = view(page, choice)
        views.append(made[1])
        return made

    monkeypatch.setattr(feed, "view", noted)
    browser, streams = Browser(50), BrowserStreams(feed)
    watching = asyncio.create_task(browser.watch(streams))
    await browser.stuck.wait()
    held: dict[str, Any] = {}
    for frame in browser.frames:
        held = merge(held, frame["patch"])
    assert held == views[-2]  # the last one is on its way
    assert len(held["engines"]) > 5
    browser.left.set()
    await watching
    assert streams.open == 0


def test_a_difference_is_made_once_for_all_browsers_that_keep_up(monkeypatch: pytest.MonkeyPatch) -> None:
    feed, made = PageFeed(ConsoleState(), lambda: 0.0), 0

    def counted(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
        nonlocal made
        made += 1
        return diff(old, new)

    monkeypatch.setattr(stream, "diff", counted)
    first, second, third = {"a": 1}, {"a": 2}, {"a": 3}
    assert [feed.patch("now", "", first, second) for _ in range(5)] == [{"a": 2}] * 5
    assert made == 1
    assert feed.patch("now", "", first, third) == {"a": 3}  # a slow browser's own
    assert feed.patch("now", "", dict(first), third) == {"a": 3}
    assert made == 3


async def test_a_browser_that_reads_nothing_makes_no_more_frames_and_is_let_go(
    brisk: tuple[ConsoleState, Callable[[], float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, clock = brisk
    feed = PageFeed(state, clock)
    made = 0
    view = feed.view

    def counted(page: str, choice: str) -> tuple[float, dict[str, Any]]:
        nonlocal made
        made += 1
        return view(page, choice)

    monkeypatch.setattr(feed, "view", counted)
    monkeypatch.setattr(stream, "UNREAD_S", 0.3)
    browser, streams = Browser(3), BrowserStreams(feed)
    await browser.watch(streams)  # it ends by itself
    assert len(browser.frames) == 3
    assert made == 4
    assert streams.open == 0


async def test_there_are_only_so_many_streams(
    brisk: tuple[ConsoleState, Callable[[], float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, clock = brisk
    monkeypatch.setattr(stream, "MAX_BROWSERS", 2)
    streams = BrowserStreams(PageFeed(state, clock))
    browsers = [Browser(1), Browser(1)]
    watching = [asyncio.create_task(browser.watch(streams)) for browser in browsers]
    for browser in browsers:
        await browser.stuck.wait()
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await streams.serve("now", "", {"type": "http"}, browsers[0].receive, send)
    assert sent[0]["status"] == 503
    for browser in browsers:
        browser.left.set()
    await asyncio.gather(*watching)
    assert streams.open == 0


async def test_an_unknown_page_has_no_stream() -> None:
    desk = Desk(ConsoleSettings())
    assert (await desk.client.get("/api/stream?page=else")).status_code == 404
