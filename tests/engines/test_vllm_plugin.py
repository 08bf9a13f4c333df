"""The plug-in inside a real vLLM server: caps, order and hostile blocks, seen from outside."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import pytest

from services.worker.adapters.steering import ControlBlockBridge
from services.worker.engines.vllm_scheduler.block import ControlBlock, StatusBlock
from services.worker.engines.vllm_scheduler.block_file import status_path
from tests.engines.scheduler_noise import hostile_write
from tests.engines.vllm_server import MODEL, VllmServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(240)]


def body(prompt: str, tokens: int, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, **more}


async def complete(client: httpx.AsyncClient, number: int, tokens: int = 40, **more: Any) -> int:
    answer = await client.post("/v1/completions", json=body(f"request {number} says", tokens, **more))
    assert answer.status_code == 200, answer.text
    return int(answer.json()["usage"]["completion_tokens"])


@pytest.fixture
async def client(vllm: VllmServer) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=300)
    async with httpx.AsyncClient(base_url=vllm.url, timeout=120, limits=limits) as c:
        yield c


@contextmanager
def bridge(vllm: VllmServer) -> Iterator[ControlBlockBridge]:
    """The worker's end; afterwards the engine has its own limits again."""
    made = ControlBlockBridge("vllm", vllm.control)
    yield made
    made.steer(0, 0)


@asynccontextmanager
async def load(client: httpx.AsyncClient, requests: int, tokens: int) -> AsyncIterator[None]:
    """Keeps `requests` of them in the engine."""

    async def serve(number: int) -> None:
        while True:
            await complete(client, number, tokens)

    tasks = [asyncio.create_task(serve(number)) for number in range(requests)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def settled(vllm: VllmServer, steering: ControlBlockBridge, n_run: int, b_token: int) -> list[int]:
    """Running requests over two seconds, once those that ran before the caps are gone."""
    cap = min(c for c in (n_run, b_token, 64) if c)
    async with asyncio.timeout(40):
        while (await watch(vllm, steering, n_run, b_token, 0.2))[-1] > cap:
            pass
    return await watch(vllm, steering, n_run, b_token, 2.0)


async def watch(vllm: VllmServer, steering: ControlBlockBridge, n_run: int, b_token: int, seconds: float) -> list[int]:
    """Running requests every tenth of a second."""
    seen: list[int] = []
    while len(seen) < seconds * 10:
        steering.steer(n_run, b_token)
        await asyncio.sleep(0.1)
        seen.append(await asyncio.to_thread(lambda: vllm.running))
    return seen


async def test_n_run_is_seen_in_vllms_own_metrics(vllm: VllmServer, client: httpx.AsyncClient) -> None:
    with bridge(vllm) as steering:
        async with load(client, 60, 300):
            for n_run in (32, 4, 12):
                seen = await settled(vllm, steering, n_run, 0)
                assert max(seen) == n_run, (n_run, seen)


async def test_b_token_is_seen_in_vllms_own_metrics(vllm: VllmServer, client: httpx.AsyncClient) -> None:
    async def tokens_per_step(b_token: int) -> float:
        await settled(vllm, steering, 0, b_token)
        names = ("vllm:iteration_tokens_total_sum", "vllm:iteration_tokens_total_count")
        before = [await asyncio.to_thread(vllm.metric, name) for name in names]
        await settled(vllm, steering, 0, b_token)
        after = [await asyncio.to_thread(vllm.metric, name) for name in names]
        return (after[0] - before[0]) / (after[1] - before[1])

    with bridge(vllm) as steering:
        async with load(client, 60, 300):
            wide, narrow = await tokens_per_step(1024), await tokens_per_step(8)
    assert wide > 30, (wide, narrow)
    assert narrow <= 9, (wide, narrow)  # 8 decodes, and now and then a prompt


async def test_waiting_requests_start_in_the_order_of_their_urgency(
    vllm: VllmServer, client: httpx.AsyncClient
) -> None:
    started: list[int] = []

    async def stream(number: int, urgency: float) -> None:
        request = body(f"{number}", 12, stream=True, vllm_xargs={"hmas_urgency": urgency})
        async with client.stream("POST", "/v1/completions", json=request) as answer:
            async for _ in answer.aiter_lines():
                if number not in started:
                    started.append(number)

    with bridge(vllm) as steering:
        steering.steer(1, 0)
        await asyncio.sleep(0.2)
        blocker = asyncio.create_task(complete(client, 0, 700))
        await asyncio.sleep(0.2)
        order = list(range(1, 21))
        random.Random(4).shuffle(order)
        tasks = []
        for number in order:
            tasks.append(asyncio.create_task(stream(number, urgency=float(number))))
            await asyncio.sleep(0.01)
        assert not blocker.done(), "all of them must wait behind it"
        await asyncio.gather(blocker, *tasks)
    assert started == sorted(started)


async def test_hostile_control_blocks_leave_vllm_alive(vllm: VllmServer, client: httpx.AsyncClient) -> None:
    draw = random.Random(11)
    async with load(client, 20, 30):
        for number in range(10_000):
            hostile_write(vllm.control, draw)
            if number % 20 == 0:
                await asyncio.sleep(0.005)
    hostile_write(vllm.control, draw, clear=True)
    assert vllm.healthy()
    bridge_ = ControlBlockBridge("vllm", vllm.control)
    bridge_.steer(0, 0)
    assert await complete(client, 1) == 40
    await asyncio.sleep(1.5)
    await complete(client, 2)
    status = StatusBlock.unpack(status_path(vllm.control).read_bytes())
    assert status is not None
    assert (status.faults, status.refused > 0) == (0, True)


async def test_a_disconnect_frees_vllm_within_a_second(vllm: VllmServer, client: httpx.AsyncClient) -> None:
    async with client.stream("POST", "/v1/completions", json=body("long", 1500, stream=True)) as answer:
        async for _ in answer.aiter_lines():
            break
        assert vllm.running == 1
    left_s = time.monotonic()
    while vllm.running:
        assert time.monotonic() - left_s < 1.0
        await asyncio.sleep(0.02)


async def test_caps_run_out_when_nobody_renews_them(vllm: VllmServer, client: httpx.AsyncClient) -> None:
    async def most_running(seconds: float) -> int:
        seen = []
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            seen.append(await asyncio.to_thread(lambda: vllm.running))
            await asyncio.sleep(0.02)
        return max(seen)

    vllm.control.write_bytes(ControlBlock(10**9, 1, 0, 3.0).pack())
    await asyncio.sleep(0.1)
    async with load(client, 20, 300):
        assert await most_running(1.5) == 1
        await asyncio.sleep(2.0)
        assert await most_running(1.5) > 8
