"""A browser looks at the queue of a worker that has more to do than its engine can."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.browsing import EVIL, PATIENCE_MS, needs_browser, order_told, unanswered

pytestmark = needs_browser
BUSY = 100  # requests, more than the engines run at a time
ORDER = "() => document.querySelector('figure canvas').dataset.order.split(' ')"
ROWS = "() => [...document.querySelectorAll('tbody tr')].map(row => row.dataset.key)"


@pytest.fixture(scope="module")
def busy(mesh: Any, answered: list[str]) -> Iterator[None]:
    """More long requests are open than the engines run at a time."""
    with unanswered(mesh.url, BUSY):
        yield


@pytest.mark.parametrize("topology", ["", "sjf", "wfq"])
def test_the_bars_stand_in_the_order_that_the_worker_tells(
    busy: None, page: Any, url: str, mesh: Any, said: list[str], topology: str
) -> None:
    page.goto(f"{url}/queue")
    page.wait_for_selector("tbody tr")
    page.locator("select").nth(0).select_option("worker-2")
    page.wait_for_url(re.compile("choice=.*worker-2"))
    if topology:
        page.locator("select").nth(1).select_option(topology)
        page.wait_for_url(re.compile(f"choice={topology}"))
        page.get_by_text(f"as {topology} would order them").wait_for()
    page.wait_for_selector("tbody tr")
    deadline = time.monotonic() + PATIENCE_MS / 1e3
    while time.monotonic() < deadline:
        page.wait_for_timeout(700)
        drawn, rows = page.evaluate(ORDER), page.evaluate(ROWS)
        told = order_told(mesh.directory, "worker-2", topology)
        if len(told) > 5 and told == drawn == page.evaluate(ORDER):  # nothing came or went meanwhile
            assert rows == drawn
            assert said == []
            return
    assert (drawn, len(told) > 5) == (told, True)


def test_other_orders_are_of_the_same_requests(busy: None, page: Any, url: str) -> None:
    page.goto(f"{url}/queue?choice=sjf+worker-1")
    page.wait_for_selector("tbody tr")
    cells = [row.split("\t") for row in page.locator("tbody tr").all_inner_texts()]
    assert [int(row[0]) for row in cells] == list(range(1, len(cells) + 1))
    assert sorted(int(row[1]) for row in cells) == list(range(1, len(cells) + 1))  # their places in force
    services = [float(row[7].removesuffix(" s")) for row in cells]
    assert services == sorted(services)
    assert page.locator("select").nth(1).input_value() == "sjf"


def test_names_of_tenants_are_text_wherever_they_stand(busy: None, page: Any, url: str, answered: list[str]) -> None:
    page.on("dialog", lambda dialog: pytest.fail("a name was run"))
    for name in ("now", "queue", "tenants", "jobs", "requests"):
        page.goto(f"{url}/{name}")
        page.get_by_role("cell", name=EVIL, exact=True).first.wait_for()
        assert page.locator("img").count() == 0, name
