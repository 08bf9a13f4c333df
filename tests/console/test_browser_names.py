"""A browser draws every page of a mesh in which everybody chose a hostile name: each is text, wherever it stands."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.browsing import PATIENCE_MS, needs_browser
from tests.console.named import hear_named
from tests.console.sped import SpedConsole

pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
pytestmark = needs_browser
PAGES = ("now", "queue", "control", "requests", "tenants", "lanes", "jobs", "whatif", "plan")
NAMES = [
    "<script>document.title = 'mine'</script>",
    "<img src=x onerror=\"document.title = 'mine'\">",
    "'\"><svg onload=\"document.title = 'mine'\">",
    "__proto__",
    "javascript:alert(1)//\u202e\n\x1b[2J",
    "x" * 512,
]


class NamedConsole(SpedConsole):
    """Its mesh has one name, which a test sets."""

    name = ""

    def _tick(self) -> float:
        self.now_s += 1
        hear_named(self.state, self.now_s, self.name)
        return float(self.now_s)


@pytest.fixture
def named() -> Iterator[NamedConsole]:
    console = NamedConsole()
    with console:
        yield console


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:20]))
def test_a_name_is_text_on_every_page(chromium: Any, named: NamedConsole, said: list[str], name: str) -> None:
    named.name = name
    opened = chromium.new_page()
    opened.set_default_timeout(PATIENCE_MS)
    opened.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("dialog", lambda dialog: said.append(dialog.message))
    try:
        for page in PAGES:
            opened.goto(f"http://127.0.0.1:{named.port}/{page}")
            begin = " ".join(name.split())[:20]
            opened.wait_for_function(
                "begin => document.getElementById('page').textContent.replace(/\\s+/g, ' ').includes(begin)", arg=begin
            )
            made = opened.evaluate("document.querySelectorAll('#page :is(script, img, svg, iframe)').length")
            assert made == 0, page
            assert "mine" not in opened.title(), page
            links = opened.evaluate("[...document.querySelectorAll('#page a')].map(a => a.getAttribute('href'))")
            assert all(link.startswith("/") for link in links), page
    finally:
        opened.close()
    assert said == []
