"""Requests that two emulated engines answer: one computes the prompt, the other reads its KV and generates."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chaos.hurt import metric
from tests.conftest import eventually
from tests.engine_farm import EngineFarm, farm_in, is_healthy
from tests.worker.discovery.test_sources import api_server, labelled, page

pytestmark = pytest.mark.e2e
CONFIG = json.dumps({"kv_connector": "NixlConnector", "kv_role": "kv_both"})
CHAT = {"model": "emulated", "messages": [{"role": "user", "content": "tell " * 200}], "max_tokens": 12}
ROUNDS = 8


@contextmanager
def two_engines(folder: Path) -> Iterator[tuple[EngineFarm, str, str]]:
    """Starts two engines that hand KV over, and names them in the farm's file: one for prompts, one for answers."""
    with farm_in(folder) as farm:
        first, second = farm.start(2, more=("--kv-transfer-config", CONFIG))
        roles = {first: "prefill", second: "decode"}
        named = [{"url": url, "kv_transfer": "nixl-pull", "role": role} for url, role in roles.items()]
        farm.file.write_text(json.dumps(named))
        yield farm, first, second


def started(folder: Path, farm: EngineFarm, start_mesh: Any) -> Any:
    args = ("--engine", f"file+{farm.file}", "--model", "emulated", "--workers", "1")
    return start_mesh(folder, *args, env={"HMAS_SPLIT": "always"})


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EngineFarm, str, str]]:
    with two_engines(tmp_path_factory.mktemp("pair")) as found:
        yield found


@pytest.fixture(scope="module")
def split_mesh(pair: Any, tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    with started(tmp_path_factory.mktemp("split") / "mesh", pair[0], start_mesh) as running:
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


async def test_why_names_both_engines_and_the_parts_of_the_first_token(pair: Any, split_mesh: Any) -> None:
    body = CHAT | {"stream": True}
    async with httpx.AsyncClient(base_url=split_mesh.url, timeout=60.0) as client:
        sent_s = time.monotonic()
        async with client.stream("POST", "/v1/chat/completions", json=body, headers={"X-Request-Id": "two"}) as answer:
            seen_s = [time.monotonic() - sent_s async for _ in answer.aiter_bytes()]
            assert answer.status_code == 200
    found = json.loads(split_mesh.hmas("why", "two", "--json").stdout)
    [run] = found["runs"]
    assert [f"http://{run[name]}" for name in ("prefill_engine", "engine")] == list(pair[1:])
    assert run["started_s"] < run["computed_s"] < run["went_on_s"] < run["first_token_s"] == found["ttft_s"] < seen_s[0]
    parts = run["ttft_parts"]
    assert min(parts.values()) > 0.0
    assert abs(sum(parts.values()) - found["ttft_s"]) < 0.002
    told = " ".join(split_mesh.hmas("why", "two").stdout.split())
    assert f"prefill on {run['prefill_engine']}" in told
    assert "split, because HMAS_SPLIT and the engines' roles leave no choice" in told
    print(told)
    print(f"{parts}, which are {found['ttft_s']} s; the client saw its first byte after {seen_s[0]:.4f} s")


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


@pytest.mark.long
async def test_a_frozen_engine_holds_up_no_request_for_long(tmp_path: Path, start_mesh: Any) -> None:
    """It is frozen while it computes prompts: they are given up there, and the other engine serves them whole."""
    with two_engines(tmp_path) as (farm, first, _), started(tmp_path / "mesh", farm, start_mesh) as mesh:
        async with httpx.AsyncClient(base_url=mesh.url, timeout=60.0) as client:
            await client.post("/v1/chat/completions", json=CHAT)
            before = metric(first, "vllm:generation_tokens_total")
            os.kill(farm.pid(first), signal.SIGSTOP)
            started_s = time.monotonic()
            try:
                posts = (client.post("/v1/chat/completions", json=CHAT | {"stream": True}) for _ in range(4))
                answers = await asyncio.gather(*posts)
                took_s = time.monotonic() - started_s
            finally:
                os.kill(farm.pid(first), signal.SIGCONT)
    print(f"four prompts at a frozen engine were served within {took_s:.1f} s")
    assert before > 0.0
    assert [answer.status_code for answer in answers] == [200] * 4
    assert all("[DONE]" in answer.text for answer in answers)


async def tokens_of(engines: list[str], url: str) -> list[float]:
    """How many tokens each engine generated for one request of a mesh, once it has both."""
    await eventually(lambda: all(map(is_healthy, engines)), 60)
    async with httpx.AsyncClient(base_url=url, timeout=60.0) as client:
        before = [metric(each, "vllm:generation_tokens_total") for each in engines]
        answer = await client.post("/v1/chat/completions", json=CHAT | {"ignore_eos": True})
    assert answer.status_code == 200, answer.text
    after = [metric(each, "vllm:generation_tokens_total") for each in engines]
    return [later - earlier for earlier, later in zip(before, after, strict=True)]


@pytest.mark.long
async def test_hmas_up_starts_engines_for_prompts_and_engines_for_answers(tmp_path: Path, start_mesh: Any) -> None:
    args = ("--prefill", "emulated", "--decode", "emulated")
    with start_mesh(tmp_path / "mesh", *args, env={"HMAS_SPLIT": "always"}) as mesh:
        assert await tokens_of(mesh.state["engine_urls"], mesh.url) == [1, 12]


@pytest.mark.long
async def test_engines_are_paired_by_their_labels_on_kubernetes(tmp_path: Path, start_mesh: Any) -> None:
    with farm_in(tmp_path) as farm, api_server() as api:
        urls = farm.start(2, more=("--kv-transfer-config", CONFIG))
        slices = [
            {**labelled(role, role, "127.0.0.1"), "ports": [{"name": "", "port": int(url.rsplit(":", 1)[1])}]}
            for url, role in zip(urls, ("decode", "prefill"), strict=True)
        ]
        api.lists = [page(*slices, version="5")]
        args = ("--engine", "kubernetes+http:///app=vllm", "--model", "emulated", "--workers", "1")
        env = {"HMAS_KUBERNETES_API": api.url, "HMAS_KV_TRANSFER": "nixl-pull", "HMAS_SPLIT": "always"}
        with start_mesh(tmp_path / "mesh", *args, env=env) as mesh:
            assert await tokens_of(urls, mesh.url) == [12, 1]
