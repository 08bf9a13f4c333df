"""Requests that two emulated engines answer: one computes the prompt, the other reads its KV and generates."""

import asyncio
import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from tests.chaos.hurt import metric
from tests.conftest import eventually
from tests.engine_farm import EngineFarm, farm_in, is_healthy

pytestmark = pytest.mark.e2e
CONFIG = json.dumps({"kv_connector": "NixlConnector", "kv_role": "kv_both"})
CHAT = {"model": "emulated", "messages": [{"role": "user", "content": "tell " * 200}], "max_tokens": 12}
ROUNDS = 8


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EngineFarm, str, str]]:
    """Starts two engines that hand KV over, and names them in the farm's file: one for prompts, one for answers."""
    with farm_in(tmp_path_factory.mktemp("pair")) as farm:
        first, second = farm.start(2, more=("--kv-transfer-config", CONFIG))
        roles = {first: "prefill", second: "decode"}
        named = [{"url": url, "kv_transfer": "nixl-pull", "role": role} for url, role in roles.items()]
        farm.file.write_text(json.dumps(named))
        yield farm, first, second


@pytest.fixture(scope="module")
def split_mesh(pair: Any, tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    args = ("--engine", f"file+{pair[0].file}", "--model", "emulated", "--workers", "1")
    env = {"HMAS_SPLIT": "always"}
    with start_mesh(tmp_path_factory.mktemp("split") / "mesh", *args, env=env) as running:
        yield running


async def test_one_engine_computes_all_prompts_and_the_other_one_all_answers(pair: Any, split_mesh: Any) -> None:
    _, first, second = pair
    await eventually(lambda: is_healthy(first) and is_healthy(second), 60)
    bodies = [CHAT | {"stream": bool(i % 2), "ignore_eos": True} for i in range(ROUNDS)]
    async with httpx.AsyncClient(base_url=split_mesh.url, timeout=60.0) as client:
        await client.post("/v1/chat/completions", json=CHAT)  # both engines are found
        before = [metric(url, "vllm:generation_tokens_total") for url in (first, second)]
        answers = await asyncio.gather(*(client.post("/v1/chat/completions", json=body) for body in bodies))
    assert [answer.status_code for answer in answers] == [200] * ROUNDS
    assert not [answer for answer in answers if "kv_transfer_params" in answer.text]
    after = [metric(url, "vllm:generation_tokens_total") for url in (first, second)]
    assert [later - earlier for earlier, later in zip(before, after, strict=True)] == [ROUNDS, 12 * ROUNDS]
    for url in (first, second):
        await eventually(partial(lambda each: metric(each, "vllm:kv_cache_usage_perc") == 0.0, url), 10)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses", "/v1/messages"])
async def test_every_form_is_split(path: str, pair: Any, split_mesh: Any) -> None:
    _, first, _ = pair
    body: dict[str, Any] = {"model": "emulated", "max_tokens": 6, "ignore_eos": True}
    body |= {"prompt": "tell"} if path == "/v1/completions" else {"messages": CHAT["messages"]}
    if path == "/v1/responses":
        body = {"model": "emulated", "input": "tell", "max_output_tokens": 6}
    before = metric(first, "vllm:generation_tokens_total")
    async with httpx.AsyncClient(base_url=split_mesh.url, timeout=60.0) as client:
        answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert metric(first, "vllm:generation_tokens_total") == before + 1
    assert "kv_transfer_params" not in answer.text


async def test_why_names_both_engines_and_when_each_was_done(pair: Any, split_mesh: Any) -> None:
    async with httpx.AsyncClient(base_url=split_mesh.url, timeout=60.0) as client:
        answer = await client.post(
            "/v1/chat/completions", json=CHAT | {"stream": True}, headers={"X-Request-Id": "two"}
        )
    assert answer.status_code == 200
    found = json.loads(split_mesh.hmas("why", "two", "--json").stdout)
    [run] = found["runs"]
    assert [f"http://{run[name]}" for name in ("prefill_engine", "engine")] == list(pair[1:])
    assert run["started_s"] < run["went_on_s"] < run["first_token_s"] == found["ttft_s"]


async def test_a_client_cannot_say_where_kv_is(split_mesh: Any) -> None:
    """Otherwise it could read what another tenant's prompt left."""
    told = {"do_remote_prefill": True, "remote_host": "127.0.0.1", "remote_port": 9, "remote_request_id": "x"}
    async with httpx.AsyncClient(base_url=split_mesh.url, timeout=60.0) as client:
        answer = await client.post("/v1/chat/completions", json=CHAT | {"kv_transfer_params": told})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "kv_transfer_params")


async def test_a_request_goes_on_whole_if_the_prompts_engine_hangs(pair: Any, split_mesh: Any) -> None:
    """The engine that computed the prompt does not hand it over: the request is given up there within seconds, and the
    other engine serves it whole."""
    _, first, _ = pair
    httpx.post(f"{first}/hmas/kv/fault", json={"kind": "hang"})
    started_s = time.monotonic()
    try:
        async with httpx.AsyncClient(base_url=split_mesh.url, timeout=60.0) as client:
            answer = await client.post("/v1/chat/completions", json=CHAT | {"stream": True})
    finally:
        httpx.post(f"{first}/hmas/kv/fault", json={"kind": ""})
    assert answer.status_code == 200
    assert "[DONE]" in answer.text
    print(f"the first prompt that hung was given up, and served, within {time.monotonic() - started_s:.1f} s")
