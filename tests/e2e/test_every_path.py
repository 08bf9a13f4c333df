"""What holds for one path of the API holds for all: keys, SLOs within a tenant's bounds, tags, limits, and usage. A
path that generates nothing is a prompt without an answer to every agent."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from hmas.gateway.tenants.keys import make_key
from tests.chaos.hurt import metric
from tests.conftest import eventually

pytestmark = pytest.mark.e2e
WORDS = "how is the weather in the town by the sea"
SAID = [{"role": "user", "content": WORDS}]
PATHS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": SAID, "max_tokens": 3},
    "/v1/completions": {"prompt": WORDS, "max_tokens": 3},
    "/v1/responses": {"input": WORDS, "max_output_tokens": 3},
    "/v1/messages": {"messages": SAID, "max_tokens": 3},
    "/v1/embeddings": {"input": WORDS},
    "/v1/rerank": {"query": WORDS, "documents": ["it rains", "cats sleep"]},
    "/v1/score": {"text_1": WORDS, "text_2": ["it rains"]},
}
POOLING = ("/v1/embeddings", "/v1/rerank", "/v1/score")
NAMES = [path.removeprefix("/v1/").replace("/", "-") for path in PATHS]


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[tuple[Any, dict[str, str]]]:
    """A mesh, and keys of one tenant for each path, which may ask twice in a minute."""
    folder = tmp_path_factory.mktemp("paths")
    file = folder / "tenants.yaml"
    terms = "{requests_per_min: 2, slo_min: {ttft_ms: 500}}"
    file.write_text("tenants:\n" + "".join(f"  {name}: {terms}\n" for name in NAMES) + "  free: {}\n")
    keys = {path: make_key(file, name).key for path, name in zip(PATHS, NAMES, strict=True)} | {
        "": make_key(file, "free").key
    }
    with start_mesh(folder / "mesh", "--tenants", str(file), "--emulated", "1") as mesh:
        yield mesh, keys


def why(mesh: Any, answer: httpx.Response) -> Any:
    return json.loads(mesh.hmas("why", answer.headers["x-request-id"], "--json", timeout=120).stdout)


@pytest.mark.parametrize("path", PATHS)
async def test_terms_and_limits(path: str, limited: tuple[Any, dict[str, str]]) -> None:
    mesh, keys = limited
    tenant = NAMES[list(PATHS).index(path)]
    body = {"model": "emulated", **PATHS[path]}
    async with httpx.AsyncClient(base_url=mesh.url, timeout=60) as client:
        assert (await client.post(path, json=body)).status_code == 401
        headers = {"x-api-key": keys[path], "x-slo-ttft-ms": "100"}
        answers = [await client.post(path, json=body, headers=headers) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429], answers[0].text
    assert answers[0].headers["x-hmas-slo-clamped"] == "ttft_ms=500"
    assert answers[2].headers["x-hmas-reason"] == "tenant_request_rate"
    assert int(answers[2].headers["retry-after"]) >= 1
    told = why(mesh, answers[0])
    assert (told["slo"]["ttft_s"], told["slo"]["stated"], len(told["runs"])) == (0.5, True, 1)
    nothing = path in POOLING
    assert (told["max_tokens"] == 0, told["output_tokens"] == 0) == (nothing, nothing)
    page = mesh.gateway_ops_url

    def used(kind: str) -> float:
        return metric(page, "hmas_gateway_usage_tokens_total", tenant=tenant, kind=kind)

    await eventually(lambda: used("prompt") > 0)
    assert (used("output") == 0) is nothing
    assert metric(page, "hmas_gateway_usage_requests_total", tenant=tenant) == 3  # a refused one, too


@pytest.mark.long
@pytest.mark.parametrize("path", PATHS)
def test_tags(path: str, limited: tuple[Any, dict[str, str]]) -> None:
    """No request waits for them: where the machine is busy, those of a later one come in time."""
    mesh, keys = limited
    body = {"model": "emulated", **PATHS[path]}
    for _ in range(10):
        answer = httpx.post(f"{mesh.url}{path}", json=body, headers={"x-api-key": keys[""]}, timeout=60)
        tags = why(mesh, answer).get("tags")
        if tags:
            break
    assert tags["task"]
    assert tags["source"]
