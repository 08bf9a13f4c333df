"""A mesh that served some requests, and what all its processes show Prometheus."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import OPS_HEADERS
from tests.deploy.queries import Catalogue

SETTLE_S = 8.0  # every view, decision and tuple has been published once


@pytest.fixture(scope="session")
def catalogue(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Catalogue]:
    with start_mesh(tmp_path_factory.mktemp("mesh")) as mesh:
        ask = {"model": "emulated", "prompt": "Tell me of the sea", "max_tokens": 20}
        for stream in (True, False):
            httpx.post(f"{mesh.url}/v1/completions", json={**ask, "stream": stream}, timeout=60).raise_for_status()
        time.sleep(SETTLE_S)
        shown = Catalogue()
        for url in (*mesh.state["ops_urls"].values(), *mesh.state["engine_urls"]):
            shown.add(httpx.get(f"{url}/metrics", headers=OPS_HEADERS.get(url), timeout=30).text)
        yield shown


@pytest.fixture(scope="session")
def root() -> Path:
    return Path(__file__).resolve().parents[2]
