"""One answer from two real vLLM engines, stock, through the mesh: NIXL hands the KV over."""

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from hmas.mesh.ports import free_port
from tests.conftest import eventually
from tests.engines.conftest import started
from tests.engines.engine_server import MODEL
from tests.engines.environment import EngineEnvironment, Unavailable
from tests.engines.through_the_mesh import PATIENCE_S
from tests.engines.vllm_server import VllmServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]
LEASE_S = 10
ANSWER, AT_ONCE = 24, 8
VOCABULARY, LONGEST = 900, 1_800
CONFIG = {
    "kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"kv_lease_duration": LEASE_S},
}  # fmt: skip


class HandingOver(VllmServer):
    """Its own scheduler, and NIXL."""

    def __init__(self, environment: EngineEnvironment, folder: Path) -> None:
        super().__init__(environment, folder, "--kv-transfer-config", json.dumps(CONFIG), scheduler="")
        self._nixl = environment.nixl_env() | {"VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port())}

    def env(self) -> dict[str, str]:
        return self._nixl

    def prompt_tokens(self, source: str) -> float:
        return sum(self.values("vllm:prompt_tokens_by_source_total", f'source="{source}"'))


@pytest.fixture(scope="module")
def pair(
    environment: EngineEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[HandingOver, HandingOver]]:
    """The engine of the prompts and that of the answers."""
    try:
        first, second = (HandingOver(environment, tmp_path_factory.mktemp(name)) for name in ("prompts", "answers"))
    except Unavailable as reason:
        pytest.skip(f"NIXL cannot be had here: {reason}")
    with started(first, second):
        yield first, second


@pytest.fixture(scope="module")
def mesh(
    pair: tuple[HandingOver, HandingOver], tmp_path_factory: pytest.TempPathFactory, start_mesh: Callable[..., Any]
) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("mesh")
    named = [
        {"url": engine.url, "kv_transfer": "nixl-pull", "role": role}
        for engine, role in zip(pair, ("prefill", "decode"), strict=True)
    ]
    (folder / "engines.json").write_text(json.dumps(named))
    args = ("--engine", f"file+{folder / 'engines.json'}", "--model", MODEL, "--workers", "1")
    with start_mesh(folder / "mesh", *args, env={"HMAS_SPLIT": "always"}) as running:
        assert (
            httpx.post(f"{running.url}/v1/completions", json=body_of([1, 2, 3]), timeout=PATIENCE_S).status_code == 200
        )
        yield running


def is_empty(engine: VllmServer) -> bool:
    return engine.metric("vllm:kv_cache_usage_perc") == 0.0


def body_of(prompt: list[int]) -> dict[str, Any]:
    return {
        "model": MODEL, "prompt": prompt, "max_tokens": ANSWER, "temperature": 0.0, "ignore_eos": True,
        "return_token_ids": True,
    }  # fmt: skip


def prompts(draw: Random, count: int) -> list[list[int]]:
    """Of all lengths, around the size of a block, and three in ten with a shared beginning."""

    def of(tokens: int) -> list[int]:
        return [draw.randrange(10, VOCABULARY) for _ in range(tokens)]

    begin = of(700)
    found = [of(tokens) for tokens in (1, 2, 127, 128, 129, 255, 256, 257, LONGEST)]
    found += [begin + of(draw.randint(1, 600)) for _ in range(count * 3 // 10)]
    found += [of(draw.randint(1, LONGEST)) for _ in range(count - len(found))]
    draw.shuffle(found)
    return found


async def asked(url: str, bodies: list[dict[str, Any]]) -> list[list[int]]:
    """The token ids of the answers to completions, several asked for at once."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(client: httpx.AsyncClient, body: dict[str, Any]) -> list[int]:
        async with gate:
            answer = await client.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["kv_transfer_params"] is None
        found: list[int] = answer.json()["choices"][0]["token_ids"]
        return found

    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        return await asyncio.gather(*(one(client, body) for body in bodies))


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.long)])
async def test_two_engines_give_the_tokens_of_one_and_the_second_computes_no_prompt(
    pair: tuple[HandingOver, HandingOver], mesh: Any, count: int
) -> None:
    """Eight at a time. A mesh that served them whole would give the same tokens, but not these counts."""
    first, second = pair
    bodies = [body_of(prompt) for prompt in prompts(Random(count), count)]
    before = [engine.metric("vllm:generation_tokens_total") for engine in pair]
    computed, read = second.prompt_tokens("local_compute"), second.prompt_tokens("external_kv_transfer")
    split = await asked(mesh.url, bodies)
    after = [engine.metric("vllm:generation_tokens_total") for engine in pair]
    computed, read = (
        second.prompt_tokens("local_compute") - computed,
        second.prompt_tokens("external_kv_transfer") - read,
    )
    assert [later - earlier for later, earlier in zip(after, before, strict=True)] == [
        len(bodies),
        ANSWER * len(bodies),
    ]
    whole = await asked(first.url, bodies)
    tokens = sum(len(body["prompt"]) for body in bodies)
    print(
        f"{len(bodies)} prompts, {tokens} tokens: {read:.0f} read and {computed:.0f} "
        f"computed where it was answered; {len(set(map(tuple, whole)))} different answers"
    )
    assert split == whole
    assert computed <= len(bodies)
    assert read > 0
    for engine in pair:
        await eventually(partial(is_empty, engine), LEASE_S + 3)
