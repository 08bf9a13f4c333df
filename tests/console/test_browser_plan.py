"""A browser looks at the plan of a mesh and acts on it: engines that another plan has replaced come back."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hmas.contracts.pool_plan import Catalogue
from hmas.runtime.catalogue_file import render_catalogue
from tests.console.browsing import PATIENCE_MS, answering, needs_browser
from tests.console.test_browser import barriers
from tests.e2e.test_planned_mesh import SMALL2, SMALL4

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
pytestmark = [*needs_browser, pytest.mark.timeout(600)]
STEPS_MS = 2 * PATIENCE_MS  # until engines have started and others have drained


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory, start_mesh: Callable[..., Any]) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("planned")
    (folder / "catalogue.yaml").write_text(render_catalogue(Catalogue((SMALL2, SMALL4))))
    (folder / "first.yaml").write_text("m/small: {engines: {small-tp4: 1}}\n")
    (folder / "second.yaml").write_text("m/small: {engines: {small-tp2: 2}}\n")
    args = ("--console-port", "0", "--plan", str(folder / "first.yaml"), "--gpus", "8xh100")
    with start_mesh(folder / "mesh", *args, "--catalogue", str(folder / "catalogue.yaml")) as running:
        running.second = folder / "second.yaml"
        yield running


@pytest.fixture(scope="module")
def url(mesh: Any) -> str:
    return answering(str(mesh.state["console_url"]))


@pytest.fixture(scope="module")
def token(mesh: Any) -> str:
    return (Path(mesh.directory) / "secrets" / "console").read_text()


def row(page: Any, name: str) -> Any:
    """The row of a type: its name, pool, cards, how many are planned, ordered, up and not serving, and the rest."""
    return page.get_by_role("region", name="engines by type").locator(f"tr[data-key='{name}'] td")


def expect_counts(page: Any, name: str, *counts: int) -> None:
    for place, count in enumerate(counts, 3):
        playwright.expect(row(page, name).nth(place)).to_have_text(str(count), timeout=STEPS_MS)


def test_a_plan_is_rolled_back_and_lifted(page: Any, url: str, mesh: Any, said: list[str]) -> None:
    page.goto(f"{url}/plan")
    button = {name: page.get_by_role("button", name=name, exact=True) for name in ("apply", "roll back", "lift")}
    expect_counts(page, "small-tp4", 1, 1, 1, 0)
    page.get_by_text("apply: an operator's plan is in force already").wait_for()
    page.get_by_text("roll back: nothing else is known to have run before this plan").wait_for()
    playwright.expect(button["roll back"]).to_be_disabled()
    assert mesh.hmas("plan", "apply", str(mesh.second)).returncode == 0
    expect_counts(page, "small-tp2", 2, 2, 2, 0)
    page.get_by_text("roll back: to what ran before: m/small: 1 small-tp4").wait_for()
    button["roll back"].click()
    page.get_by_text("acting on the plan takes the admin's token").wait_for()
    said.clear()
    page.get_by_label("admin's token").fill((Path(mesh.directory) / "secrets" / "console-admin").read_text())
    button["roll back"].click()
    page.get_by_role("cell", name="pinned by the console").first.wait_for()
    expect_counts(page, "small-tp4", 1, 1, 1, 0)
    playwright.expect(button["apply"]).to_be_disabled()
    assert barriers(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    button["lift"].click()
    page.get_by_role("cell", name="lifted by the console").wait_for()
    expect_counts(page, "small-tp2", 2, 2, 2, 0)  # the file's plan is in force again
    assert said == []


def test_the_group_that_served_a_request_is_told(page: Any, url: str, mesh: Any) -> None:
    asked = {"model": "m/small", "max_tokens": 3, "messages": [{"role": "user", "content": "Hello"}]}
    answer = httpx.post(f"{mesh.url}/v1/chat/completions", json=asked, timeout=60).raise_for_status()
    request_id = answer.headers["x-request-id"]
    (run,) = json.loads(mesh.hmas("why", request_id, "--json").stdout)["runs"]
    assert (run["group"], run["hardware"]) in (("small-tp2", "h100x2"), ("small-tp4", "h100x4"))
    page.goto(f"{url}/r/{request_id}")
    page.get_by_role("cell", name="runs 1 group", exact=True).wait_for()
