"""A browser asks what another policy would have done to the last requests of a mesh."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.console.browsing import PATIENCE_MS, ask, needs_browser
from tests.console.test_browser import barriers

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
pytestmark = [*needs_browser, pytest.mark.timeout(500)]
REQUESTS = 140
TRUSTED_POINTS = 5
SIMULATED_MS = 130_000  # more than the console gives it


@pytest.fixture(scope="module")
def past(mesh: Any) -> None:
    """More requests than a rehearsal needs to judge."""
    with ThreadPoolExecutor(10) as pool:
        assert set(pool.map(lambda number: ask(mesh.url, f"past-{number}", number % 20), range(REQUESTS))) == {200}


def simulate(page: Any) -> bool:
    """Starts what the page asks, and returns whether its answer is to be believed."""
    page.get_by_role("button", name="simulate").click()
    page.get_by_text("simulating for").wait_for()
    page.get_by_text(re.compile("^(Simulated at|It failed)")).wait_for(timeout=SIMULATED_MS)
    assert page.get_by_text("It failed").count() == 0, page.locator("main").inner_text()
    return bool(page.get_by_text("Do not believe").count() == 0)


def shares(page: Any) -> dict[str, int]:
    """Returns the percentages on time of all requests by the row's name."""
    rows = page.locator("table").nth(0).locator("tbody tr").all_inner_texts()
    cells = [row.split("\t") for row in rows]
    return {row[0]: int(row[3].removesuffix(" %")) for row in cells}


@pytest.mark.parametrize("page", [(1280, "light"), (390, "dark")], indirect=True)
def test_what_is_in_force_is_simulated_as_it_was(past: None, page: Any, url: str, mesh: Any, said: list[str]) -> None:
    page.goto(f"{url}/whatif?choice=pool%3Demulated")
    token = page.get_by_label("admin's token")
    page.get_by_text("Not simulated yet.").or_(page.get_by_text("Simulated at")).wait_for()
    token.fill((Path(mesh.directory) / "secrets" / "console-admin").read_text())
    believed = simulate(page)
    told = shares(page)
    assert set(told) <= {"observed", "in force, simulated"}
    if believed:
        assert abs(told["observed"] - told["in force, simulated"]) <= TRUSTED_POINTS + 1  # rounded twice
        assert page.get_by_text("Nothing was changed").count() == 1
    assert page.get_by_role("button", name="switch").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    assert barriers(page) == []
    assert said == []


def test_another_topology_is_compared_and_pinned(past: None, page: Any, url: str, mesh: Any, said: list[str]) -> None:
    page.goto(f"{url}/whatif")
    token = page.get_by_label("admin's token")
    token.fill("a guess")
    page.get_by_label("topology").select_option("edf")
    page.wait_for_url(re.compile("topology%3Dedf"))
    assert token.input_value() == "a guess"  # what was typed stays
    page.get_by_role("button", name="simulate").click()
    page.get_by_text("a what-if takes the admin's token").wait_for()
    said.clear()
    token.fill((Path(mesh.directory) / "secrets" / "console-admin").read_text())
    believed = simulate(page)
    switch = page.get_by_role("button", name="switch: pin edf")
    assert switch.count() == believed
    if believed:
        assert "candidate" in shares(page)
        assert "to" in page.locator("table").nth(1).locator("tbody tr").first.inner_text()
        switch.click()
        page.get_by_text("pinned to edf").wait_for()
    address = page.url
    page.goto(f"{url}/control")
    if believed:
        page.get_by_role("cell", name="pinned by the console").wait_for()
        page.locator("form.act select").nth(1).select_option("")
        page.locator("form.act input").fill((Path(mesh.directory) / "secrets" / "console-admin").read_text())
        page.locator("form.act button").click()
        page.get_by_text("pin lifted").wait_for()
    page.goto(address)
    page.get_by_text("Simulated at").wait_for(timeout=PATIENCE_MS)  # the address shows the answer again
    playwright.expect(page.get_by_label("topology")).to_have_value("edf")
    assert barriers(page) == []
    assert said == []
