"""Which KV goes first over a slow link: stock NIXL beside the connector that goes by deadline, on real vLLM."""

import asyncio
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import httpx
import pytest

from tests.conftest import eventually
from tests.engines.conftest import started
from tests.engines.engine_server import MODEL
from tests.engines.environment import EngineEnvironment, Unavailable
from tests.engines.figures import note
from tests.engines.handing_over import BY_DEADLINE, FAR, LEASE_S, NEAR, NEAR_END, STOCK, HandingOver, slow_link
from tests.engines.through_the_mesh import PATIENCE_S

pytestmark = [pytest.mark.engines, pytest.mark.long, pytest.mark.timeout(1200)]
MBIT = 50
SIZE = (256, 4)  # 4 KiB of KV a token
LAX, TIGHT = 3, 4
LAX_TOKENS, TIGHT_TOKENS = 3_000, 250  # 12 and 1 MB
LAX_MS, TIGHT_MS = 60_000, 1_000
ANSWER, VOCABULARY = 8, 900
# All prompts are computed before the first is read.
PATIENT = STOCK | {"kv_connector_extra_config": {"kv_lease_duration": 120}}
FIRST = {"max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False}}
Engines = tuple[HandingOver, HandingOver, HandingOver]


@pytest.fixture(scope="module")
def engines(environment: EngineEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """The engine of the prompts, and behind the link two that answer: a stock one and one that goes by deadline."""
    model = environment.sized_model(*SIZE)

    def of(name: str, connector: dict[str, Any], host: str) -> HandingOver:
        flags = ("--max-model-len", "4096", "--no-enable-prefix-caching")
        folder: Path = tmp_path_factory.mktemp(name)
        return HandingOver(environment, folder, *flags, connector=connector, host=host, model=model)

    try:
        with slow_link(MBIT):
            made = of("prompts", PATIENT, NEAR), of("stock", STOCK, FAR), of("by-deadline", BY_DEADLINE, FAR)
            with started(*made):
                yield made
    except Unavailable as reason:
        pytest.skip(f"a slow link cannot be had here: {reason}")


def sent_bytes() -> int:
    return int(Path(f"/sys/class/net/{NEAR_END}/statistics/tx_bytes").read_text())


async def second_leg(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[float, list[int]]:
    """The seconds to the first token of a streamed answer, and its tokens."""
    began_s, first_s = time.monotonic(), 0.0
    tokens: list[int] = []
    async with client.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                first_s = first_s or time.monotonic() - began_s
                tokens += json.loads(line[6:])["choices"][0]["token_ids"] or []
    return first_s, tokens


async def handed_over(engines: Engines, reader: HandingOver, seed: int) -> tuple[list[float], list[float]]:
    """Three lax hand-overs begin, and a moment later four tight ones; the times to first token of both. The answers are
    those that the engine of the prompts gives alone."""
    draw, lends = Random(seed), engines[0]

    def body(tokens: int) -> dict[str, Any]:
        prompt = [draw.randrange(10, VOCABULARY) for _ in range(tokens)]
        return {"model": MODEL, "prompt": prompt, "max_tokens": ANSWER, "temperature": 0.0, "ignore_eos": True,
                "return_token_ids": True}  # fmt: skip

    bodies = [body(LAX_TOKENS) for _ in range(LAX)] + [body(TIGHT_TOKENS) for _ in range(TIGHT)]
    async with (
        httpx.AsyncClient(base_url=lends.url, timeout=PATIENCE_S) as first,
        httpx.AsyncClient(base_url=reader.url, timeout=PATIENCE_S) as second,
    ):
        whole = [(await first.post("/v1/completions", json=each)).json() for each in bodies]
        legs = [(await first.post("/v1/completions", json=each | FIRST)).json() for each in bodies]
        before = sent_bytes()
        seconds = []
        for number, (each, leg) in enumerate(zip(bodies, legs, strict=True)):
            due = {"hmas_due_ms": LAX_MS if number < LAX else TIGHT_MS}
            asked = second_leg(second, each | {"kv_transfer_params": leg["kv_transfer_params"] | due})
            seconds.append(asyncio.create_task(asked))
            await asyncio.sleep(0.4 if number == LAX - 1 else 0.0)
        found = await asyncio.gather(*seconds)
    print(f"{(sent_bytes() - before) / 1e6:.1f} MB over the link")
    assert [tokens for _, tokens in found] == [each["choices"][0]["token_ids"] for each in whole]
    for engine in (lends, reader):
        await eventually(partial(getattr, engine, "is_empty"), LEASE_S + 3)
    times = [took_s for took_s, _ in found]
    return times[:LAX], times[LAX:]


@pytest.mark.parametrize("seed", [1])
async def test_tight_hand_overs_overtake_lax_ones_that_began_before(engines: Engines, seed: int) -> None:
    for reader in engines[1:]:  # the first read of a pair of engines connects them
        await handed_over_once(engines[0], reader)
    stock_lax, stock_tight = await handed_over(engines, engines[1], 2 * seed)
    lax, tight = await handed_over(engines, engines[2], 2 * seed + 1)
    for name, slow, quick in (("stock", stock_lax, stock_tight), ("by deadline", lax, tight)):
        print(f"{name}, seed {seed}: tight mean {mean(quick):.2f} s, most {max(quick):.2f} s; "
              f"lax mean {mean(slow):.2f} s, last {max(slow):.2f} s")  # fmt: skip
    note("tight_ttft", mean(tight) / mean(stock_tight))
    assert max(tight) < min(stock_tight)
    assert mean(tight) < mean(stock_tight) / 3


async def handed_over_once(lends: HandingOver, reader: HandingOver) -> None:
    body = {"model": MODEL, "prompt": [11] * 200, "max_tokens": 1, "temperature": 0.0}
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        leg = (await client.post(f"{lends.url}/v1/completions", json=body | FIRST)).json()
        second = body | {"kv_transfer_params": leg["kv_transfer_params"]}
        assert (await client.post(f"{reader.url}/v1/completions", json=second)).status_code == 200
