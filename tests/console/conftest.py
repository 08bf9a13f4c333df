"""A mesh with its console, and a browser."""

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import HMAS
from tests.console.browsing import CHROMIUM, EVIL, KEYS, PATIENCE_MS, REQUESTS, answering, ask


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory, start_mesh: Callable[..., Any]) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("console")
    file = folder / "tenants.yaml"
    file.write_text(f"tenants:\n  acme: {{}}\n  '{EVIL}': {{}}\n")
    for tenant in KEYS:
        made = subprocess.run([HMAS, "keys", "make", tenant, "--file", str(file)], capture_output=True, check=True)
        KEYS[tenant] = made.stdout.decode().strip()
    args = ("--console-port", "0", "--tenants", str(file), "--replay")
    with start_mesh(folder / "mesh", *args) as running:
        yield running


@pytest.fixture(scope="session")
def url(mesh: Any) -> str:
    return answering(str(mesh.state["console_url"]))


@pytest.fixture(scope="session")
def token(mesh: Any) -> str:
    return (Path(mesh.directory) / "secrets" / "console").read_text()


@pytest.fixture(scope="session")
def answered(mesh: Any) -> list[str]:
    """The ids of requests that the mesh has answered, half of them streamed."""
    ids = [f"seen-{number}" for number in range(REQUESTS)]
    with ThreadPoolExecutor(REQUESTS) as pool:
        assert set(pool.map(lambda number: ask(mesh.url, ids[number], number), range(REQUESTS))) == {200}
    return ids


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as runs:
        browser = runs.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--enable-precise-memory-info", "--js-flags=--expose-gc"]
        )
        yield browser
        browser.close()


@pytest.fixture
def said() -> list[str]:
    """What the browser itself complained of."""
    return []


@pytest.fixture
def page(chromium: Any, url: str, token: str, said: list[str], request: pytest.FixtureRequest) -> Iterator[Any]:
    width, scheme = getattr(request, "param", (1280, "light"))
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE_MS)
    opened.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.goto(f"{url}/#token={token}")
    opened.wait_for_selector(".tile")
    yield opened
    context.close()
