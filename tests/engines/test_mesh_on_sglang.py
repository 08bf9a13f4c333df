"""The whole mesh in front of a real SGLang on a CPU, as the README starts both; `sglang_environment` tells what is
unofficial about it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.engines.engine_server import MODEL
from tests.engines.sglang_server import SLOTS, SglangServer
from tests.engines.through_the_mesh import (
    PATIENCE_S,
    dies_and_returns,
    key_args,
    reached,
    relays_the_engines_own_refusal,
    stream,
    worker_metric,
)

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]
N_RUN = 16  # of the mesh, fewer than the engine runs at once
LONG = 12_000  # tokens: more than a minute of decoding
TOKENS_A_SECOND = 400  # of one request, on an idle machine


@pytest.fixture(scope="module")
def mesh(
    sglang: SglangServer, tmp_path_factory: pytest.TempPathFactory, start_mesh: Callable[..., Any]
) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("mesh")
    options = ("--engine", sglang.url, "--max-num-seqs", str(N_RUN), *key_args(sglang, folder))
    with start_mesh(folder, *options) as running:
        yield running


@asynccontextmanager
async def client_of(mesh: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{mesh.url}/v1", api_key="unused", max_retries=0, timeout=PATIENCE_S) as c:
        yield c


@pytest.fixture
async def client(mesh: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client_of(mesh) as c:
        yield c


async def test_a_chat_streams_through_the_mesh(client: openai.AsyncOpenAI) -> None:
    chunks = await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Say hello."}], max_tokens=20, stream=True,
        stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
    )  # fmt: skip
    received = [chunk async for chunk in chunks]
    assert received[-1].usage is not None
    assert received[-1].usage.completion_tokens == 20
    assert sum(bool(c.choices) for c in received) > 5


async def test_many_stream_at_once(client: openai.AsyncOpenAI, sglang: SglangServer) -> None:
    """More than it may run: the rest waits in the worker, nobody is refused, and it never holds more than N_run."""

    async def count(number: int) -> int:
        return sum([1 async for _ in stream(client, f"number {number}", 100)])

    held: list[int] = []

    async def watch() -> None:
        while True:
            held.append(await asyncio.to_thread(lambda: sglang.running + sglang.waiting))

    watching = asyncio.create_task(watch())
    answers = await asyncio.gather(*(count(number) for number in range(3 * N_RUN)))
    watching.cancel()
    assert min(answers) > 5
    assert max(held) == N_RUN
    assert sglang.metric("sglang:num_retracted_requests_total") == 0


async def test_its_refusal_is_the_clients_error(client: openai.AsyncOpenAI) -> None:
    await relays_the_engines_own_refusal(client)


async def test_a_disconnect_frees_the_engine_within_a_second(sglang: SglangServer, client: openai.AsyncOpenAI) -> None:
    """A second of its own time: not more tokens than it makes in one when nothing else runs on the machine."""
    answer = stream(client, "long", LONG)
    await anext(answer)
    assert await asyncio.to_thread(lambda: sglang.running) == 1
    before = sglang.metric("sglang:realtime_tokens_total")
    await answer.aclose()
    await client.close()
    await reached(lambda: sglang.running == 0)
    assert sglang.metric("sglang:realtime_tokens_total") - before < TOKENS_A_SECOND


async def test_order_follows_the_topology(sglang: SglangServer, tmp_path: Path, start_mesh: Callable[..., Any]) -> None:
    """Told that it runs one at a time, the mesh caps it to one: they end in the order in which it took them."""
    options = ("--engine", sglang.url, "--max-num-seqs", "1", *key_args(sglang, tmp_path))
    with start_mesh(tmp_path, *options) as mesh:
        await reached(lambda: sglang.cap == 1)
        async with client_of(mesh) as client:
            assert await _order(mesh, sglang, client, "edf") == [1, 2, 4, 5, 6, 7]
            assert await _order(mesh, sglang, client, "fcfs") == [5, 1, 4, 7, 2, 6]
    await reached(lambda: sglang.cap == SLOTS)  # its own bound again, when the mesh is gone


async def _order(mesh: Any, sglang: SglangServer, client: openai.AsyncOpenAI, topology: str) -> list[int]:
    """The numbers of six requests, by which they are due, in the order of their ends; they arrived one by one."""
    pinned = await asyncio.to_thread(mesh.hmas, "pin", topology)
    assert pinned.returncode == 0, pinned.stderr
    await reached(lambda: worker_metric(mesh, f'hmas_worker_topology{{topology="{topology}"}}') == 1)
    ended: list[int] = []

    async def serve(due: int, tokens: int) -> None:
        async for _ in stream(client, f"due {due}", tokens, ttlt_s=600 + 100 * due):
            pass
        ended.append(due)

    def queued() -> int:
        return int(worker_metric(mesh, "hmas_worker_queued_requests")) + sglang.waiting

    blocker = asyncio.create_task(serve(0, LONG))
    await reached(lambda: sglang.running == 1)
    tasks = []
    for number, due in enumerate((5, 1, 4, 7, 2, 6), 1):
        tasks.append(asyncio.create_task(serve(due, 20)))
        await reached(lambda n=number: queued() == n)  # type: ignore[misc]
    assert not blocker.done(), "all of them must wait behind it"
    blocker.cancel()
    await asyncio.gather(*tasks)
    return ended


async def test_the_engine_dies_in_mid_stream_and_service_returns(
    sglang: SglangServer, client: openai.AsyncOpenAI
) -> None:
    await dies_and_returns(sglang, client, LONG)
