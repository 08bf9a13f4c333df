"""The console under what a mesh and its readers may do to it: hostile names, 100,000 tenants, hundreds of streams and
of what-ifs."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import uvicorn

from hmas.console.pages import PAGES
from hmas.console.pages.now import MAX_TENANTS
from hmas.console.patch import diff, merge
from hmas.console.question import WhatIfBook
from hmas.console.rehearsals import WhatIfRunner
from hmas.console.server import console_app
from hmas.console.settings import ConsoleSettings
from hmas.console.state import MAX_REASONS, ConsoleState
from hmas.console.stream import MAX_BROWSERS, BrowserStreams, PageFeed
from hmas.contracts.outcome import Outcome
from hmas.runtime.connections import FOR_OPERATORS, guarded
from hmas.runtime.ops import HttpServer
from hmas.wire.limits import MAX_FEW, MAX_NAME_CHARS
from tests.console.heard import SETTLED, offered, settled, v_long, v_short
from tests.console.named import hear_named

TENANTS = 100_000
PAGE_BYTES = 2**20
NAMES = [
    "<script>alert(1)</script>",
    "__proto__",
    "constructor",
    "\x00\x1b[2J\n\r\u2028",
    "</script><!--",
    "x" * MAX_NAME_CHARS,
]
READER, ADMIN = {"authorization": "Bearer reader-token"}, {"authorization": "Bearer admin-token"}
STRANGERS = 300
AT_ONCE = 100  # fewer than the connections of the port
CUT_OFF = 0


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:20]))
def test_a_page_carries_a_hostile_name_as_it_is(page: str, name: str) -> None:
    """What a browser makes of it is seen by `tests/console/test_browser_names.py`."""
    state = ConsoleState()
    empty = PAGES[page](state, 0.0, "")
    for now_s in (1.0, 3.0):
        hear_named(state, now_s, name)
    view = PAGES[page](state, 3.5, name)
    sent = json.dumps(diff(empty, view), allow_nan=False)
    assert "null" not in sent
    assert json.dumps(name)[1:-1] in sent
    assert merge(empty, json.loads(sent)) == view
    assert len(sent) < PAGE_BYTES


@pytest.fixture(scope="module")
def crowded() -> ConsoleState:
    """After a hundred thousand tenants, who all wait and are all refused."""
    state, pad = ConsoleState(), "x" * (MAX_NAME_CHARS - 8)
    hear_named(state, 1.0, "m")
    for first in range(0, TENANTS, MAX_FEW):
        names = [f"{number:06}{pad}" for number in range(first, min(first + MAX_FEW, TENANTS))]
        rows = tuple(replace(SETTLED, request_id=n, tenant=n, outcome=Outcome.SLO_UNREACHABLE) for n in names)
        waiting = tuple(replace(offered(n, SETTLED.slo, age_s=99.0), tenant=n) for n in names)
        state.hear(2.0, replace(settled(*rows), offered=waiting))
        state.hear(2.0, v_long(*names))
    state.hear(2.0, v_short(arrival_rps=6.0, missed=0.5))
    state.sample(2.0)
    return state


def test_of_a_hundred_thousand_tenants_few_reasons_are_kept(crowded: ConsoleState) -> None:
    assert len(crowded.reasons.counts) <= MAX_REASONS
    assert len(crowded.promises.counts) <= MAX_REASONS


@pytest.mark.parametrize("page", PAGES)
def test_a_hundred_thousand_tenants_make_no_page_larger(crowded: ConsoleState, page: str) -> None:
    view = PAGES[page](crowded, 2.5, "m")
    assert len(json.dumps(view)) < PAGE_BYTES
    for rows_of in ("tenants", "reasons", "promises"):
        assert len(view.get(rows_of, ())) <= MAX_TENANTS


@asynccontextmanager
async def served(folder: Path, book: WhatIfBook, *command: str) -> AsyncIterator[httpx.AsyncClient]:
    """A console at a port with the bounds of its service, and a client."""
    for name in ("reader", "admin"):
        (folder / name).write_text(f"{name}-token\n")
    settings = ConsoleSettings(console_token_file=folder / "reader", console_admin_token_file=folder / "admin")
    state = ConsoleState(whatif=book)
    hear_named(state, 1.0, "m")
    clock = asyncio.get_running_loop().time
    whatifs = WhatIfRunner(book, clock, (), command)
    app = console_app(
        settings, BrowserStreams(PageFeed(state, clock)), pools=lambda: frozenset({"m"}),
        why=lambda _: asyncio.sleep(0, {"outcome": "finished"}), pin=lambda *_: asyncio.sleep(0),
        plan=lambda _: asyncio.sleep(0), whatif=whatifs.start,
    )  # fmt: skip
    options = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_config=None, access_log=False, http=guarded(FOR_OPERATORS), ws="none",
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = HttpServer(options)
    url = f"http://127.0.0.1:{await server.start()}"
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=30, limits=limits) as client:
        try:
            yield client
        finally:
            await server.stop()
            await whatifs.close()


async def test_strangers_and_hundreds_of_streams_keep_no_reader_out(tmp_path: Path) -> None:
    ask = "/api/stream?page=now"
    async with served(tmp_path, WhatIfBook()) as client, AsyncExitStack() as held:

        async def stream(headers: dict[str, str]) -> tuple[int, AsyncExitStack]:
            stack = AsyncExitStack()
            held.push_async_callback(stack.aclose)
            try:
                answer = await stack.enter_async_context(client.stream("GET", ask, headers=headers))
            except httpx.TransportError:
                return CUT_OFF, stack
            return answer.status_code, stack

        refused = await asyncio.gather(*(stream({}) for _ in range(STRANGERS)))
        assert {status for status, _ in refused} <= {401, CUT_OFF}  # room is made where there are too many at once
        own: list[AsyncExitStack] = []
        async with asyncio.timeout(60):
            while len(own) < MAX_BROWSERS:  # a browser tries again, too
                status, stack = await stream(READER)
                own += [stack] if status == 200 else []
        assert {(await stream(READER))[0] for _ in range(20)} == {503}  # with words, and not by silence
        for path in ("/health", "/api/about", "/", "/api/requests/r1"):
            assert (await client.get(path, headers=READER)).status_code == 200
        assert (await client.post("/api/pin", json={"pool": "m", "topology": "edf"}, headers=ADMIN)).status_code == 204
        await own[0].aclose()
        async with asyncio.timeout(30):
            while (await stream(READER))[0] != 200:
                await asyncio.sleep(0.05)


async def test_of_hundreds_of_what_ifs_one_runs(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    source = f"import time; open({str(begun)!r}, 'a').write('x'); time.sleep(3600)"
    book = WhatIfBook()
    async with served(tmp_path, book, sys.executable, "-c", source) as client:
        questions = [{"pool": "m", "slo": f"ttft_ms={number}"} for number in range(STRANGERS)]
        statuses: list[int] = []
        for first in range(0, STRANGERS, AT_ONCE):
            now = questions[first : first + AT_ONCE]
            asked = [client.post("/api/whatif", json=question, headers=ADMIN) for question in now]
            answers = await asyncio.gather(*asked, *(client.post("/api/whatif", json=question) for question in now))
            statuses += [answer.status_code for answer in answers]
        assert statuses.count(202) == 1
        assert statuses.count(429) == STRANGERS - 1
        assert statuses.count(401) == STRANGERS
        assert book.running is not None
        assert (await client.get("/api/requests/r1", headers=READER)).status_code == 200
        async with asyncio.timeout(60):
            while not begun.exists() or not begun.read_text():
                await asyncio.sleep(0.05)
        assert begun.read_text() == "x"
