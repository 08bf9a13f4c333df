"""The plug-in inside a real vLLM server: caps, order and hostile blocks, seen from outside."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import EngineWentUp
from hmas.plugins.vllm.block import ControlBlock, StatusBlock
from hmas.plugins.vllm.block_file import status_path
from hmas.worker.adapters.steering import ControlBlockBridge, SteeringConfig
from tests.conftest import eventually
from tests.engines.engine_server import MODEL
from tests.engines.granted import rig_on
from tests.engines.scheduler_noise import hostile_write
from tests.engines.through_the_mesh import PATIENCE_S, reached
from tests.engines.vllm_server import VllmServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]
SLOTS = 64
LONG = 1900  # tokens: seconds of decoding even alone
TOKENS_A_SECOND = 600  # of one request, on an idle machine


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


@asynccontextmanager
async def bridge(vllm: VllmServer) -> AsyncIterator[ControlBlockBridge]:
    """The worker's end, renewed as a worker does; afterwards the engine has its own limits again."""
    made = ControlBlockBridge("vllm", vllm.control, SteeringConfig())
    renewing = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        made.steer(0, 0)
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


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


async def watch(vllm: VllmServer, samples: int) -> list[int]:
    """Running requests, sample by sample."""
    seen: list[int] = []
    while len(seen) < samples:
        seen.append(await asyncio.to_thread(lambda: vllm.running))
        await asyncio.sleep(0.05)
    return seen


async def test_n_run_is_seen_in_vllms_own_metrics(vllm: VllmServer, client: httpx.AsyncClient) -> None:
    async with bridge(vllm) as steering, load(client, 60, 300):
        for n_run in (32, 4, 12):
            steering.steer(n_run, 0)
            await reached(lambda cap=n_run: vllm.running == cap)  # type: ignore[misc]
            seen = await watch(vllm, 30)
            assert max(seen) == n_run, (n_run, seen)


async def test_b_token_is_seen_in_vllms_own_metrics(vllm: VllmServer, client: httpx.AsyncClient) -> None:
    """By counters over many steps, so that it does not matter how long the steps take."""

    async def tokens_per_step(b_token: int, running: int) -> float:
        steering.steer(0, b_token)
        async with load(client, 60, LONG):
            await reached(lambda: vllm.running == running)
            before = await counters()
            after = before
            while after[1] < before[1] + 300:
                await asyncio.sleep(0.05)
                after = await counters()
        return (after[0] - before[0]) / (after[1] - before[1])

    async def counters() -> tuple[float, float]:
        tokens, steps = "vllm:iteration_tokens_total_sum", "vllm:iteration_tokens_total_count"
        return await asyncio.to_thread(lambda: (vllm.metric(tokens), vllm.metric(steps)))

    async with bridge(vllm) as steering:
        wide, narrow = await tokens_per_step(1024, running=60), await tokens_per_step(8, running=8)
    assert wide > 30, (wide, narrow)
    assert narrow <= 9, (wide, narrow)  # 8 decodes, and now and then a prompt


async def test_waiting_requests_start_in_the_order_of_their_urgency(vllm: VllmServer) -> None:
    """The worker ranks them, the gateway writes the ranks into the bodies, the plug-in goes by them."""
    order = list(range(20))
    random.Random(4).shuffle(order)
    before = len(vllm.scheduled())
    async with rig_on(vllm, control_block=vllm.control) as rig:
        await rig.event(EngineWentUp)
        rig.adapter.steer(1, 0)
        first = rig.start("first", LONG, urgency=100.0)  # it holds the only slot until all others wait
        await reached(lambda: vllm.running == 1)
        for number in order:
            rig.start(f"number {number}", 12, urgency=float(number), pace_s=0.05)
        await reached(lambda: vllm.waiting == len(order))
        assert first.end is None, "all of them must wait behind it"
        rig.stop("first")
        for granted in list(rig.granted.values())[1:]:
            assert (await granted.ended()).outcome is Outcome.FINISHED
        rig.adapter.steer(0, 0)
    # Those of an earlier test, whose clients have left, may still be scheduled; they have no urgency.
    _, *others = (line["xargs"] for line in vllm.scheduled()[before:] if line["xargs"])
    assert others == [{"hmas_urgency": float(number), "hmas_tpot_ms": 50.0} for number in sorted(order)]


async def test_hostile_control_blocks_leave_vllm_alive(vllm: VllmServer, client: httpx.AsyncClient) -> None:
    draw = random.Random(11)
    async with load(client, 20, 30):
        for number in range(10_000):
            hostile_write(vllm.control, draw)
            if number % 20 == 0:
                await asyncio.sleep(0.005)
    hostile_write(vllm.control, draw, clear=True)
    assert vllm.healthy()
    async with bridge(vllm) as steering:
        steering.steer(0, 0)
        assert await complete(client, 1) == 40

        def counted() -> bool:
            status = StatusBlock.unpack(status_path(vllm.control).read_bytes())
            return status is not None and status.refused > 0

        async with load(client, 1, 30):  # a status is told at a step
            await eventually(counted, PATIENCE_S)
    status = StatusBlock.unpack(status_path(vllm.control).read_bytes())
    assert status is not None
    assert status.faults == 0


async def test_a_disconnect_frees_vllm_within_a_second(vllm: VllmServer, client: httpx.AsyncClient) -> None:
    """A second of its own time: not more tokens than it makes in one when nothing else runs on the machine."""
    generated = "vllm:generation_tokens_total"
    async with client.stream("POST", "/v1/completions", json=body("long", LONG, stream=True)) as answer:
        async for _ in answer.aiter_lines():
            break
        assert vllm.running == 1
        before = vllm.metric(generated)
    await reached(lambda: vllm.running == 0)
    assert vllm.metric(generated) - before < TOKENS_A_SECOND


async def test_caps_run_out_when_nobody_renews_them(vllm: VllmServer, client: httpx.AsyncClient) -> None:
    def in_force() -> StatusBlock:
        status = StatusBlock.unpack(status_path(vllm.control).read_bytes())
        assert status is not None
        return status

    vllm.control.write_bytes(ControlBlock(10**9, 1, 0, 10.0).pack())
    async with load(client, 1, 30):  # a file that the last bridge left is looked up again after a second of silence
        await eventually(lambda: in_force().seq == 10**9, PATIENCE_S)
    vllm.control.write_bytes(ControlBlock(10**9 + 1, 1, 0, 10.0).pack())
    async with load(client, 20, LONG):
        await eventually(lambda: in_force().seq == 10**9 + 1, PATIENCE_S)
        assert (in_force().cap, in_force().running) == (1, 1)
        await eventually(lambda: in_force().seq == 0, PATIENCE_S)
        await reached(lambda: vllm.running == 20)
        assert in_force().cap == SLOTS
