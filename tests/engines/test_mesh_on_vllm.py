"""The whole mesh in front of a real vLLM with the plug-in."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import openai
import pytest

from services.worker.engines.vllm_scheduler.block import StatusBlock
from services.worker.engines.vllm_scheduler.block_file import status_path
from tests.conftest import eventually
from tests.engines.environment import EngineEnvironment
from tests.engines.vllm_server import MODEL, VllmServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(240)]
SLOTS = 2  # of the engine, so that requests queue inside it


@pytest.fixture(scope="module")
def engine(environment: EngineEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    server = VllmServer(environment, tmp_path_factory.mktemp("vllm-mesh"), "--max-num-seqs", str(SLOTS))
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def mesh(engine: VllmServer, tmp_path_factory: pytest.TempPathFactory, start_mesh: Callable[..., Any]) -> Iterator[Any]:
    env = {"HMAS_CONTROL_BLOCK_DIR": str(engine.control.parent)}
    with start_mesh(tmp_path_factory.mktemp("mesh"), "--engine", engine.url, "--model", MODEL, env=env) as running:
        yield running


@pytest.fixture
async def client(mesh: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{mesh.url}/v1", api_key="unused", max_retries=0, timeout=90) as c:
        yield c


async def stream(client: openai.AsyncOpenAI, prompt: str, tokens: int, **more: Any) -> AsyncIterator[str]:
    chunks = await client.completions.create(
        model=MODEL, prompt=prompt, max_tokens=tokens, stream=True, extra_body={"ignore_eos": True, **more}
    )
    async for chunk in chunks:
        yield chunk.choices[0].text


async def test_a_chat_streams_through_the_mesh(client: openai.AsyncOpenAI) -> None:
    chunks = await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Say hello."}], max_tokens=20, stream=True,
        stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
    )  # fmt: skip
    received = [chunk async for chunk in chunks]
    assert received[-1].usage is not None
    assert received[-1].usage.completion_tokens == 20
    assert sum(bool(c.choices) for c in received) > 5  # vLLM may put several tokens into one chunk


async def test_a_completion_is_answered_whole(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model=MODEL, prompt="Once", max_tokens=9, extra_body={"ignore_eos": True})
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 9


async def test_the_workers_caps_are_in_force_inside_the_engine(engine: VllmServer, client: openai.AsyncOpenAI) -> None:
    await client.completions.create(model=MODEL, prompt="Once", max_tokens=9)
    status = StatusBlock.unpack(status_path(engine.control).read_bytes())
    assert status is not None
    assert status.seq > 0
    assert 1 <= status.cap <= SLOTS
    assert status.faults == 0


async def test_a_disconnect_frees_the_engine_within_a_second(engine: VllmServer, client: openai.AsyncOpenAI) -> None:
    answer = stream(client, "long", 1800)
    await anext(answer)
    assert await asyncio.to_thread(lambda: engine.running) == 1
    await answer.aclose()
    await client.close()
    left_s = time.monotonic()
    while await asyncio.to_thread(lambda: engine.running):
        assert time.monotonic() - left_s < 1.0
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("topology", ["priority", "fcfs"])
async def test_order_follows_the_topology(
    mesh: Any, engine: VllmServer, client: openai.AsyncOpenAI, topology: str
) -> None:
    pinned = await asyncio.to_thread(mesh.hmas, "pin", topology)
    assert pinned.returncode == 0, pinned.stderr
    await asyncio.sleep(1.0)  # the decision reaches the worker
    started: list[int] = []

    async def serve(number: int, priority: int, tokens: int = 40) -> None:
        async for _ in stream(client, f"number {number}", tokens, priority=priority):
            if number not in started:
                started.append(number)

    # Both slots are taken while the others arrive.
    blockers = [asyncio.create_task(serve(-number, -1000, tokens=1200)) for number in range(1, SLOTS + 1)]
    await eventually(lambda: len(started) == SLOTS)
    priorities = {n: (n * 7) % 12 for n in range(12)}
    tasks = []
    for number, priority in priorities.items():
        tasks.append(asyncio.create_task(serve(number, priority)))
        await asyncio.sleep(0.04)  # more than what a new connection takes
    assert len(started) == SLOTS, "all of them must wait"
    await asyncio.gather(*blockers, *tasks)
    order = [n for n in started if n >= 0]
    wanted = sorted(priorities, key=lambda n: priorities[n]) if topology == "priority" else list(priorities)
    displaced = [abs(order.index(n) - wanted.index(n)) for n in wanted]
    assert max(displaced) <= SLOTS, (order, wanted)  # two run at once: which of them speaks first is chance


async def test_the_engine_dies_in_mid_stream_and_service_returns(
    mesh: Any, engine: VllmServer, client: openai.AsyncOpenAI
) -> None:
    answer = stream(client, "long", 1800)
    await anext(answer)
    engine.kill()
    with pytest.raises(openai.APIError) as broken:
        async for _ in answer:
            pass
    assert "engine" in str(broken.value).lower()
    away = asyncio.create_task(client.completions.create(model=MODEL, prompt="while it is away", max_tokens=5))
    await asyncio.to_thread(engine.start)
    (outcome,) = await asyncio.gather(away, return_exceptions=True)
    if not isinstance(outcome, openai.types.Completion):  # refused while nothing served, but clearly
        assert isinstance(outcome, openai.APIStatusError)
        assert outcome.status_code in (502, 503), outcome
        assert "engine" in str(outcome)
    async with asyncio.timeout(10):  # service returns by itself
        while not await _served(client):
            await asyncio.sleep(0.2)


async def _served(client: openai.AsyncOpenAI) -> bool:
    try:
        answer = await client.completions.create(model=MODEL, prompt="again", max_tokens=5)
    except openai.InternalServerError:
        return False
    return bool(answer.choices)
