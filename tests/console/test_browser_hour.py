"""An hour of a mesh's messages in half a minute: neither the console nor the browser grows with it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.browsing import PATIENCE_MS, needs_browser
from tests.console.sped import FILLED_S, HOUR_S, SpedConsole, sped_console

pytestmark = needs_browser
MOST_OBJECTS = 5000  # of Python, in the console
MOST_HEAP_BYTES = 4 * 2**20
MOST_NODES = 200


@pytest.fixture
def sped(monkeypatch: pytest.MonkeyPatch) -> Iterator[SpedConsole]:
    with sped_console(monkeypatch) as console:
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
