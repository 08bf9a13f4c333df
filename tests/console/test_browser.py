"""A browser looks at the console of a mesh of emulated engines. It needs Debian's `chromium` and the packages
`playwright` and `axe-playwright-python`, and is skipped without them."""

import itertools
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.console.browsing import PATIENCE_MS, REQUESTS, answering, ask, needs_browser

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
pytestmark = needs_browser
RED_GOAL_S = 2.0
RED_MS = 2e3 * RED_GOAL_S  # where others use the processors, it takes longer than on a machine of its own
PAGES = ("now", "queue", "control", "requests", "tenants", "lanes", "jobs", "whatif", "plan")
WATCHERS = 20
MOST_GROWTH_BYTES = 20 * 2**20


@pytest.mark.parametrize("page", [(1280, "light"), (390, "dark"), (390, "light"), (1280, "dark")], indirect=True)
def test_every_page_draws_and_complains_of_nothing(
    page: Any, url: str, mesh: Any, answered: list[str], said: list[str]
) -> None:
    for name in (*PAGES, f"r/{answered[0]}"):
        page.goto(f"{url}/{name}")
        if name == "lanes":
            ask(mesh.url, "fresh", 1)  # they show the last minute alone
        if name == "queue":
            page.get_by_text("is in force").wait_for()
        elif name == "whatif":
            page.get_by_text(re.compile("^(Not simulated yet|Simulated at)")).wait_for()
        else:
            page.wait_for_selector("tbody tr:visible")
        for number in range(page.locator("summary").count()):
            page.locator("summary").nth(number).press("Enter")
            page.locator("details").nth(number).locator("tbody tr").first.wait_for()
        drawn = page.evaluate(
            "[...document.querySelectorAll('figure canvas')].filter(c => c.width && c.getContext('2d')"
            ".getImageData(0, 0, c.width, c.height).data.some(v => v)).length"
        )
        assert drawn == page.locator("figure canvas").count(), name
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"], name
        assert page.locator("canvas[role=img]").count() == page.locator("canvas[role=img][aria-label]").count()
        assert barriers(page) == [], name
    assert said == []


def barriers(page: Any) -> list[str]:
    """What axe finds on a page that is serious or worse: the rule, and the first element that breaks it."""
    found = axe.Axe().run(page).response["violations"]
    serious = [rule for rule in found if rule["impact"] in ("serious", "critical")]
    return [f"{rule['id']}: {rule['nodes'][0]['html'][:200]}" for rule in serious]


def test_axe_is_not_blind(page: Any) -> None:
    page.evaluate(
        "document.querySelector('main').append(document.createElement('img'), document.createElement('select'))"
    )
    assert {rule.split(":")[0] for rule in barriers(page)} == {"image-alt", "select-name"}


def test_keys_and_addresses_lead_to_pages(page: Any, url: str, answered: list[str], said: list[str]) -> None:
    page.goto(url)
    page.wait_for_selector(".tile")
    for number, name in enumerate(PAGES, 1):
        page.keyboard.press(str(number))
        page.wait_for_url(f"{url}/{name}")
    page.keyboard.press("/")
    page.keyboard.type(answered[1])
    page.keyboard.press("Enter")
    page.wait_for_url(f"{url}/r/{answered[1]}")
    page.go_back()
    page.wait_for_url(f"{url}/{PAGES[-1]}")
    page.goto(f"{url}/lanes?choice=worker-2")
    playwright.expect(page.locator("select")).to_have_value("worker-2")
    assert said == []


def costed(page: Any, url: str, mesh_url: str) -> str:
    """Returns the id of a request whose predicted cost came before its dispatch, which waits for none."""
    deadline = time.monotonic() + PATIENCE_MS / 1e3
    for number in itertools.count():
        request_id = f"costed-{number}"
        assert ask(mesh_url, request_id, REQUESTS) == 200
        bars = page.request.get(f"{url}/api/requests/{request_id}").json()["bars"]
        if any(bar["what"] == "predicted" for bar in bars):
            return request_id
        assert time.monotonic() < deadline, "no prediction came in time"
    raise AssertionError


def test_a_request_is_shown_by_its_id(page: Any, url: str, mesh: Any, said: list[str]) -> None:
    shown = costed(page, url, mesh.url)
    page.goto(f"{url}/r/{shown}")
    page.wait_for_selector("section tbody tr")
    bars = [row.split("\t")[0] for row in page.locator("section table").nth(0).locator("tbody tr").all_inner_texts()]
    assert bars == ["waits", "prefill", "decode", "predicted"]
    assert shown in page.locator("section table").nth(1).inner_text()
    why = page.request.get(f"{url}/api/requests/{shown}").json()["why"]
    assert why.startswith("It")
    playwright.expect(page.locator("section [role=status]")).to_have_text(why)
    assert said == []


def test_what_others_name_is_text(page: Any, url: str) -> None:
    page.goto(f"{url}/r/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    page.get_by_text("no gateway remembers").wait_for()
    assert page.locator("section h2").inner_text() == "Request <img src=x onerror=alert(1)>"
    assert page.locator("img").count() == 0


def test_a_pin_shows_as_a_flag(page: Any, url: str, mesh: Any, answered: list[str], said: list[str]) -> None:
    page.goto(f"{url}/control")
    page.wait_for_selector("form.act option[value=edf]", state="attached")
    form = page.locator("form.act")
    form.locator("select").nth(1).select_option("edf")
    form.locator("input").fill("a guess")
    form.locator("button").click()
    form.get_by_text("pinning takes the admin's token").wait_for()
    assert said == ["Failed to load resource: the server responded with a status of 401 (Unauthorized)"]
    said.clear()
    form.locator("input").fill((Path(mesh.directory) / "secrets" / "console-admin").read_text())
    form.locator("button").click()
    page.get_by_role("cell", name="pinned by the console").wait_for()
    page.get_by_role("cell", name="by the console", exact=True).wait_for()
    flags = page.locator("table").nth(1).locator("tbody tr").all_inner_texts()
    assert flags[0].split("\t")[2:5] == ["pinned", "edf", "pin"]
    form.locator("select").nth(1).select_option("")
    form.locator("button").click()
    page.get_by_role("cell", name="unpinned").wait_for()
    assert said == []


def test_a_killed_worker_turns_red_and_comes_back(
    page: Any, url: str, mesh: Any, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    page.goto(url)
    playwright.expect(page.locator(".tile:is(.ok, .warn)")).to_have_count(2)
    mesh.kill("worker-1")
    killed_s = time.monotonic()
    page.wait_for_selector(".tile.bad:has-text('worker-1'):has-text('worker silent')", timeout=RED_MS)
    with capsys.disabled():
        print(f"\na killed worker is red after {time.monotonic() - killed_s:.2f} s (goal: {RED_GOAL_S:g} s)")
    assert page.locator(".tile.bad").count() == 1
    page.wait_for_selector(".tile.ok:has-text('worker-1')", timeout=2 * PATIENCE_MS)
    assert said == []


def test_a_stranger_is_asked_for_the_token(chromium: Any, url: str, token: str) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{url}/control")
    page.locator("#token").fill("a guess")
    page.keyboard.press("Enter")
    page.get_by_text("this is not the readers' token").wait_for()
    page.locator("#token").fill(token)
    page.keyboard.press("Enter")
    page.wait_for_selector("tbody tr")
    assert token not in page.url
    context.close()


def unread(url: str, token: str) -> socket.socket:
    """A stream of the page Now that nobody reads."""
    at = urlsplit(url)
    watcher = socket.create_connection((at.hostname, at.port))
    head = f"GET /api/stream?page=now HTTP/1.1\r\nHost: {at.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
    watcher.sendall(head.encode())
    assert watcher.recv(12) == b"HTTP/1.1 200"
    return watcher


def test_browsers_that_read_nothing_cost_little_and_a_dead_console_costs_no_answer(
    mesh: Any, url: str, token: str
) -> None:
    process = psutil.Process(mesh.pid("console"))
    before = process.memory_info().rss
    watchers = [unread(url, token) for _ in range(WATCHERS)]
    with ThreadPoolExecutor(20) as pool:
        first = list(pool.map(lambda number: ask(mesh.url, f"first-{number}", number), range(20)))
        grown = process.memory_info().rss
        then = [pool.submit(ask, mesh.url, f"then-{number}", number) for number in range(10, 30)]
        mesh.kill("console")
        assert [*first, *(each.result() for each in then)] == [200] * 40
    assert grown - before < MOST_GROWTH_BYTES
    for watcher in watchers:
        watcher.close()


def test_the_console_is_started_again(url: str) -> None:
    assert httpx.get(f"{answering(url)}/api/about", timeout=30).json()["can_act"] is True
