"""Hostile HTTP against a whole mesh. With HMAS_SOAK it is 20,000 requests, and the gateway's memory must stay flat."""

import os
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.chaos.hurt import metric
from tests.conftest import eventually
from tests.gateway.http_fuzz import Fuzzer

SOAK = "HMAS_SOAK" in os.environ
NUMBER, WARM = (20_000, 4_000) if SOAK else (1_500, 500)
GROWTH_MB = 24
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900 if SOAK else 180), pytest.mark.long]
GOOD = {"model": "emulated", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}


async def test_hostile_requests_get_errors_and_the_mesh_goes_on(mesh: Any, request: pytest.FixtureRequest) -> None:
    pid = mesh.pid("gateway")
    seed = request.node.callspec.params.get("round", 0) if hasattr(request.node, "callspec") else 0
    fuzzer = Fuzzer(urlsplit(mesh.url).port or 0, seed)
    await fuzzer.run(WARM, width=32)
    before_mb = psutil.Process(pid).memory_info().rss / 2**20
    await fuzzer.run(NUMBER - WARM, width=32)
    await eventually(lambda: metric(mesh.gateway_ops_url, "hmas_gateway_live_requests") == 0, 60)
    after_mb = psutil.Process(pid).memory_info().rss / 2**20
    told = dict(sorted(fuzzer.statuses.items()))
    print(f"{NUMBER} hostile clients: answers {told}, {before_mb:.0f} -> {after_mb:.0f} MB")
    assert not fuzzer.faults, "\n".join(fuzzer.faults)
    assert mesh.pid("gateway") == pid
    assert after_mb - before_mb < GROWTH_MB or not SOAK
    logs = "".join(path.read_text(errors="replace") for path in (mesh.directory / "logs").iterdir())
    assert "Traceback" not in logs
    assert httpx.post(f"{mesh.url}/v1/chat/completions", json=GOOD, timeout=30).status_code == 200
