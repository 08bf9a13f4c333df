"""The simulated SGLang against a real one on a CPU: what is prefilled and retracted, after how many decode steps."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.engines.conftest import started
from tests.engines.engine_server import MODEL
from tests.engines.sglang_environment import SglangEnvironment
from tests.engines.sglang_server import SLOTS, SglangServer
from tests.engines.through_the_mesh import reached
from tests.sim.sglang_burst import BURST, EACH, KV_TOKENS, PROMPT, Event, Prefill, Retraction, simulated_events

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]
BLOCKER = 1500
PREFILL = re.compile(r"Prefill batch, #new-seq: (\d+), #new-token: (\d+),")
RETRACTED = re.compile(r"#retracted_reqs: (\d+),.* #new_token_ratio: [\d.]+ -> ([\d.]+)")


def real_events(log: str) -> Iterator[Event]:
    steps = 0
    for line in log.splitlines():
        if "Decode batch, " in line:
            steps += 1
        elif found := PREFILL.search(line):
            yield Prefill(steps, int(found[1]), int(found[2]))
        elif found := RETRACTED.search(line):
            yield Retraction(steps, int(found[1]), float(found[2]))


async def test_a_burst_that_overfills_its_memory(
    real_sglang: SglangEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One request runs in the only slot until the others wait, so that all of these can be taken at the same step."""
    server = SglangServer(real_sglang, tmp_path_factory.mktemp("fcfs"), kv_tokens=KV_TOKENS, by_priority=False)
    with started(server):
        server.cap = 1
        begun = server.log.stat().st_size
        async with httpx.AsyncClient(
            base_url=server.url, headers={"Authorization": f"Bearer {server.api_key}"}, timeout=300
        ) as client:

            async def complete(tokens: int, *prompts: list[int]) -> None:
                body: dict[str, Any] = {"model": MODEL, "prompt": prompts, "max_tokens": tokens, "min_tokens": tokens}
                answer = await client.post("/v1/completions", json=body | {"temperature": 0})
                assert answer.json()["usage"]["completion_tokens"] == tokens * len(prompts), answer.text

            blocker = asyncio.create_task(complete(BLOCKER, [5] * PROMPT))
            await reached(lambda: server.running == 1)
            others = asyncio.create_task(complete(EACH, *([6 + number] * PROMPT for number in range(BURST))))
            await reached(lambda: server.waiting == BURST)
            server.cap = SLOTS  # it asks for room again when somebody leaves, and not before
            assert not blocker.done()
            await asyncio.gather(blocker, others)
    with server.log.open("rb") as log:
        log.seek(begun)
        real = list(real_events(log.read().decode(errors="replace")))
    assert real == list(simulated_events(BLOCKER))
    assert sum(isinstance(event, Retraction) for event in real) > 5
