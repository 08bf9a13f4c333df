"""What the API's port answers without a key, and the pages of the ops port."""

from pathlib import Path

import httpx
import orjson
import pytest

from hmas.gateway.agent.pools.directory import ModelDirectory
from hmas.gateway.decisions import DecisionLog
from hmas.gateway.http.api import build_api, ops_routes
from hmas.gateway.openai.forms import FORMS
from hmas.gateway.tenants.keys import make_key
from hmas.gateway.tenants.store import TenantStore
from hmas.runtime.ops import ops_app
from tests.gateway.gateway_harness import PATH, client, gateway
from tests.gateway.gateway_script import heartbeat

OPEN = {"/health", "/ready", "/version"}


async def test_with_keys_the_api_answers_nothing_else_without_one(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    key = {"authorization": f"Bearer {make_key(path, 'alice').key}"}
    async with gateway(tenants_file=path) as g, client(g) as c:
        described = (await c.get("/openapi.json", headers=key)).json()["paths"]
        for each in {*described, "/openapi.json", "/metrics", "/docs", "/redoc", "/hmas/timeline"}:
            method = "POST" if each in FORMS else "GET"
            answer = await c.request(method, each.replace("{model}", "m"))
            if each in OPEN:
                assert answer.status_code == 200
                assert "alice" not in answer.text
            else:
                assert answer.status_code in (401, 404), each
                assert "hmas_" not in answer.text
        for each in ("/v1/models", "/openapi.json", "/hmas/timeline"):
            assert (await c.get(each, headers=key)).status_code == 200


@pytest.fixture
def ops() -> httpx.AsyncClient:
    directory = ModelDirectory(max_pools=4)
    directory.hear(heartbeat("w1"))
    decisions = DecisionLog(lambda: 0.0)
    api = build_api(directory, TenantStore(None), lambda: True, decisions)
    app = ops_app(lambda: True, ops_routes(api, directory, decisions))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://ops")


async def test_the_pages_of_the_ops_port(ops: httpx.AsyncClient) -> None:
    assert "hmas_gateway_requests_total" in (await ops.get("/metrics")).text
    assert (await ops.get("/health")).text == "ok"
    assert (await ops.get("/ready")).text == "ready"
    assert orjson.loads((await ops.get("/hmas/timeline")).content) == {"topology": [], "control": []}
    assert PATH in (await ops.get("/openapi.json")).json()["paths"]


async def test_the_docs_load_nothing_from_elsewhere(ops: httpx.AsyncClient) -> None:
    page = await ops.get("/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    for word in ("<script", "http:", "https:", "src=", "@import", "url("):
        assert word not in page.text
    for word in ("POST /v1/chat/completions", "GET /v1/models", "x-slo-ttft-ms", "kv_transfer_params", "408"):
        assert word in page.text
