"""A browser asks what another policy would have done to the last requests of a mesh, which has served nothing else:
what other tests cancel or pin is no past that a simulation could be held to."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from hmas.sim.past.rehearsal import MIN_REQUESTS
from tests.console.browsing import PATIENCE_MS, answering, body, needs_browser
from tests.console.test_browser import barriers

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
pytestmark = [*needs_browser, pytest.mark.timeout(500)]
FEW, REQUESTS = 20, 180
HOPELESS = 4  # each fourth request states an SLO that nothing keeps
TRUSTED_POINTS = 5
SIMULATED_MS = 130_000  # more than the console gives it


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory, start_mesh: Callable[..., Any]) -> Iterator[Any]:
    args = ("--console-port", "0", "--replay")
    with start_mesh(tmp_path_factory.mktemp("whatif") / "mesh", *args) as running:
        yield running


@pytest.fixture(scope="module")
def url(mesh: Any) -> str:
    return answering(str(mesh.state["console_url"]))


@pytest.fixture(scope="module")
def token(mesh: Any) -> str:
    return (Path(mesh.directory) / "secrets" / "console").read_text()


def send(mesh: Any, numbers: range) -> None:
    """Sends requests, ten at a time, of which each `HOPELESS`th cannot be on time."""

    def one(number: int) -> int:
        headers = {} if number % HOPELESS else {"x-slo-ttft-ms": "1", "x-slo-tpot-ms": "1"}
        answer = httpx.post(f"{mesh.url}/v1/chat/completions", json=body(number % 20), headers=headers, timeout=60)
        return answer.status_code

    with ThreadPoolExecutor(10) as pool:
        assert set(pool.map(one, numbers)) == {200}


@pytest.fixture(scope="module")
def few(mesh: Any) -> None:
    send(mesh, range(FEW))


@pytest.fixture(scope="module")
def past(mesh: Any) -> None:
    """More requests than a rehearsal needs to judge."""
    send(mesh, range(FEW, FEW + REQUESTS))


def simulate(page: Any, capsys: pytest.CaptureFixture[str]) -> bool:
    """Starts what the page asks, prints what it answers, and returns whether that is to be believed."""
    page.get_by_role("button", name="simulate").click()
    page.get_by_text("simulating for").wait_for()
    page.get_by_text(re.compile("^(Simulated at|It failed)")).wait_for(timeout=SIMULATED_MS)
    assert page.get_by_text("It failed").count() == 0, page.locator("main").inner_text()
    doubt = page.get_by_text("Do not believe")
    with capsys.disabled():
        rows = page.locator("table").nth(0).locator("tbody tr").all_inner_texts()
        print("", *(row.replace("\t", " | ") for row in rows), sep="\n")
        print(doubt.inner_text() if doubt.count() else "within tolerance")
    return bool(doubt.count() == 0)


def shares(page: Any) -> dict[str, int]:
    """Returns the percentages on time of all requests by the row's name."""
    rows = page.locator("table").nth(0).locator("tbody tr").all_inner_texts()
    cells = [row.split("\t") for row in rows]
    return {row[0]: int(row[1].removesuffix(" %")) for row in cells}


def give_token(page: Any, mesh: Any) -> None:
    page.get_by_label("admin's token").fill((Path(mesh.directory) / "secrets" / "console-admin").read_text())


def test_of_a_few_requests_it_abstains(
    few: None, page: Any, url: str, mesh: Any, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    page.goto(f"{url}/whatif?choice=pool%3Demulated%26topology%3Dsjf")
    page.get_by_text("Not simulated yet.").wait_for()
    give_token(page, mesh)
    assert not simulate(page, capsys)
    page.get_by_text(f"fewer than {MIN_REQUESTS} tell nothing").wait_for()
    assert page.get_by_role("button", name="switch").count() == 0
    assert said == []


@pytest.mark.parametrize("page", [(1280, "light"), (390, "dark")], indirect=True)
def test_what_is_in_force_is_simulated_as_it_was(
    past: None, page: Any, url: str, mesh: Any, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    page.goto(f"{url}/whatif?choice=pool%3Demulated")
    page.get_by_text("Not simulated yet.").or_(page.get_by_text("Simulated at")).wait_for()
    give_token(page, mesh)
    assert simulate(page, capsys), "it abstains"
    told = shares(page)
    assert set(told) == {"observed", "in force, simulated"}
    assert 60 < told["observed"] < 90  # of four requests, one cannot be on time
    assert abs(told["observed"] - told["in force, simulated"]) <= TRUSTED_POINTS + 1  # rounded twice
    assert page.get_by_text("Nothing was changed").count() == 1
    assert page.get_by_role("button", name="switch").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    assert barriers(page) == []
    assert said == []


def test_another_topology_is_compared_and_pinned(
    past: None, page: Any, url: str, mesh: Any, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    page.goto(f"{url}/whatif")
    token = page.get_by_label("admin's token")
    token.fill("a guess")
    page.get_by_label("topology").select_option("edf")
    page.wait_for_url(re.compile("topology%3Dedf"))
    assert token.input_value() == "a guess"  # what was typed stays
    page.get_by_role("button", name="simulate").click()
    page.get_by_text("a what-if takes the admin's token").wait_for()
    said.clear()
    give_token(page, mesh)
    assert simulate(page, capsys), "it abstains"
    assert "candidate" in shares(page)
    assert "to" in page.locator("table").nth(1).locator("tbody tr").first.inner_text()
    page.get_by_role("button", name="switch: pin edf").click()
    page.get_by_text("pinned to edf").wait_for()
    address = page.url
    page.goto(f"{url}/control")
    page.get_by_role("cell", name="pinned by the console").wait_for()
    flags = page.locator("table").nth(1).locator("tbody tr").all_inner_texts()
    assert flags[0].split("\t")[2:5] == ["pinned", "edf", "pin"]  # as meta audits it
    page.locator("form.act select").nth(1).select_option("")
    page.locator("form.act input").fill((Path(mesh.directory) / "secrets" / "console-admin").read_text())
    page.locator("form.act button").click()
    page.get_by_text("pin lifted").wait_for()
    page.goto(address)
    page.get_by_text("Simulated at").wait_for(timeout=PATIENCE_MS)  # the address shows the answer again
    playwright.expect(page.get_by_label("topology")).to_have_value("edf")
    assert barriers(page) == []
    assert said == []
