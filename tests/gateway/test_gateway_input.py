"""What the gateway says to bad input, wrong paths and keys, and tenants over their bounds."""

import asyncio
from pathlib import Path

import pytest

from hmas.contracts.registry import WIRE_VERSION
from hmas.gateway.openai.forms import FORMS
from hmas.gateway.tenants.keys import make_key
from tests.gateway.gateway_harness import (
    CHAT,
    PATH,
    PLAIN,
    STREAMED,
    body,
    client,
    engine_info,
    error_of,
    gateway,
)


@pytest.mark.parametrize(
    ("content", "headers", "status", "param"),
    [
        (b"{", {}, 400, None),
        (b"", {}, 400, None),
        (b"[]", {}, 400, None),
        (body(messages=[]), {}, 400, "messages"),
        (body(n=33), {}, 400, "n"),
        (body(max_tokens="many"), {}, 400, "max_tokens"),
        (body(model="nobody"), {}, 404, None),
        (body(), {"x-slo-ttft-ms": "-5"}, 400, "x-slo-ttft-ms"),
        (body(), {"x-llm-d-slo-tpot-ms": "nan"}, 400, "x-llm-d-slo-tpot-ms"),
        (body(hmas_replay={"output_tokens": 3}), {}, 400, "hmas_replay"),
        (b"x" * 200_000, {}, 413, None),
        (b'{"a":' * 600 + b"1" + b"}" * 600, {}, 400, "messages"),
    ],
)
async def test_bad_input_gets_an_error_object(content: bytes, headers: dict[str, str], status: int, param: str) -> None:
    async with gateway() as g, client(g) as c:
        response = await c.post(PATH, content=content, headers=headers)
        assert response.status_code == status
        error = error_of(response)
        assert error["param"] == param
        assert response.headers["x-should-retry"] == "false"
        assert not g.workers.submits
        assert (await c.post(PATH, json=CHAT)).content == PLAIN


async def test_a_body_too_deep_to_write_again() -> None:
    async with gateway() as g, client(g) as c:
        deep = b'{"model":"m","messages":[{"role":"user"}],"x":' + b"[" * 500 + b"]" * 500 + b"}"
        response = await c.post(PATH, content=deep)
        assert response.status_code == 400
        error_of(response)
        assert g.shell.live == 0


async def test_other_paths_and_methods() -> None:
    async with gateway() as g, client(g) as c:
        refused = await c.get(PATH)
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
        for path in ("/v1/images", "/pause", "/v1/chat/completions/", "/reset_prefix_cache"):
            response = await c.post(path, json={})
            assert response.status_code == 404
            assert error_of(response)["code"] == "not_found"
        refused = await c.delete("/v1/models")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET")
        assert "allow" not in (await c.get("/v1/nothing")).headers
        assert (await c.get("/health")).status_code == 200
        assert (await c.get("/ready")).status_code == 200
        g.shell.on_connected("w1", False, 0.0)
        assert (await c.get("/ready")).status_code == 503
        assert (await c.get("/version")).json()["wire_version"] == WIRE_VERSION
        for path in ("/metrics", "/docs", "/redoc"):
            assert (await c.get(path)).status_code == 404
        page = (await c.get("/openapi.json")).json()
        assert "post" in page["paths"][PATH]
        assert "Error" in page["components"]["schemas"]


async def test_an_unknown_path_is_told_what_the_engines_serve(tmp_path: Path) -> None:
    async with gateway() as g, client(g) as c:
        before = error_of(await c.post("/v1/audio/speech", json={}))
        g.add_worker("w1", engines=(engine_info(g.engine.url, paths=(PATH, "/v1/embeddings")),))
        after = await c.post("/v1/audio/speech", json={})
        batches = (await c.get("/v1/messages/batches")).json()
    assert all(f"POST {path}" in before["message"] for path in FORMS)
    assert (batches["type"], batches["error"]["type"]) == ("error", "not_found_error")
    assert after.headers["x-hmas-reason"] == "unknown_path"
    served = f"GET /v1/models, POST {PATH}, POST /v1/embeddings"
    assert error_of(after)["message"] == f"POST /v1/audio/speech: no such path; the API has {served}"
    make_key(tmp_path / "tenants.yaml", "acme")
    async with gateway(tenants_file=tmp_path / "tenants.yaml") as g, client(g) as c:
        assert (await c.post("/v1/audio/speech", json={})).status_code == 401  # what there is, keys alone may know


async def test_no_list_of_models_before_one_is_known() -> None:
    async with gateway(workers=()) as g, client(g) as c:
        for path in ("/v1/models", "/v1/models/m"):
            early = await c.get(path)
            assert (early.status_code, early.headers["retry-after"]) == (503, "1")
            assert "x-should-retry" not in early.headers
            assert error_of(early)["reason"] == "no_engine"


async def test_models() -> None:
    async with gateway() as g, client(g) as c:
        cards = (await c.get("/v1/models")).json()["data"]
        assert [(m["id"], m["root"], m["max_model_len"]) for m in cards] == [("m", "m", 8192), ("alias", "m", 8192)]
        assert (await c.get("/v1/models/alias")).json()["root"] == "m"
        response = await c.get("/v1/models/none")
        assert (response.status_code, error_of(response)["code"]) == (404, "model_not_found")


async def test_keys_and_allowed_models(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text("tenants:\n  acme:\n    models: [m]\n    slo: {ttft_ms: 1500}\n  initech:\n    models: [z]\n")
    key, other = make_key(path, "acme").key, make_key(path, "initech").key
    async with gateway(tenants_file=path) as g, client(g) as c:
        for headers in ({}, {"authorization": "Bearer hmas-wrong"}, {"authorization": f"Basic {key}"}):
            for response in (
                await c.post(PATH, json=CHAT, headers=headers),
                await c.get("/v1/models", headers=headers),
            ):
                assert response.status_code == 401
                assert error_of(response)["code"] == "invalid_api_key"
        good = {"authorization": f"Bearer {key}"}
        assert (await c.post(PATH, json={**CHAT, "model": "alias"}, headers=good)).content == PLAIN
        assert g.workers.submits[0][1].request.tenant == "acme"
        assert g.workers.submits[0][1].request.slo.ttft_s == 1.5
        refused = await c.post(PATH, json=CHAT, headers={"authorization": f"Bearer {other}"})
        assert (refused.status_code, error_of(refused)["reason"]) == (403, "forbidden")
        assert (await c.get("/v1/models", headers={"authorization": f"Bearer {other}"})).json()["data"] == []


async def test_over_a_tenants_bound(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text("tenants:\n  acme:\n    requests_per_min: 2\n")
    headers = {"authorization": f"Bearer {make_key(path, 'acme').key}"}
    async with gateway(tenants_file=path) as g, client(g) as c:
        for _ in range(2):
            assert (await c.post(PATH, json=CHAT, headers=headers)).status_code == 200
        response = await c.post(PATH, json=STREAMED, headers=headers)
        assert response.status_code == 429
        assert 25 <= int(response.headers["retry-after"]) <= 30
        assert "x-should-retry" not in response.headers
        assert error_of(response)["reason"] == "tenant_request_rate"
        assert "estimated_wait_s" in error_of(response)


async def test_bad_requests_under_load_leave_the_good_ones_alone() -> None:
    async with gateway() as g, client(g) as c:
        bad = [b"{", body(messages=[]), b"x" * 150_000, body(model="none"), body(n=99)]
        results = await asyncio.gather(
            *(c.post(PATH, content=bad[i % len(bad)]) for i in range(100)),
            *(c.post(PATH, json=STREAMED if i % 2 else CHAT) for i in range(100)),
        )
        assert all(r.status_code in (400, 404, 413) for r in results[:100])
        assert all(r.status_code == 200 for r in results[100:])
