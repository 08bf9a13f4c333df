"""The whole mesh in front of a real vLLM with the plug-in."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from hmas.plugins.vllm.block import StatusBlock
from hmas.plugins.vllm.block_file import status_path
from tests.engines.conftest import started
from tests.engines.engine_server import MODEL
from tests.engines.environment import EngineEnvironment
from tests.engines.through_the_mesh import (
    PATIENCE_S,
    dies_and_returns,
    key_args,
    reached,
    relays_the_engines_own_refusal,
    stream,
    worker_metric,
)
from tests.engines.vllm_server import VllmServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]
N_RUN = 8  # of a mesh in front of an engine that would run 64
SLOTS = 1  # of the engine: whoever is next starts alone, so that the order is exact
CONTEXT, LONG = 16_384, 15_000  # a request that ends by itself long after the others have arrived
TOKENS_A_SECOND = 600  # of one request, on an idle machine


@pytest.fixture(scope="module")
def engine(environment: EngineEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    server = VllmServer(
        environment, tmp_path_factory.mktemp("vllm-mesh"), "--max-num-seqs", str(SLOTS), "--max-model-len",
        str(CONTEXT), api_key="vllm-key",
    )  # fmt: skip
    with started(server):
        yield server


@pytest.fixture(scope="module")
def mesh(engine: VllmServer, tmp_path_factory: pytest.TempPathFactory, start_mesh: Callable[..., Any]) -> Iterator[Any]:
    env = {"HMAS_CONTROL_BLOCK_DIR": str(engine.control.parent)}
    folder = tmp_path_factory.mktemp("mesh")
    args = ("--engine", engine.url, "--max-num-seqs", str(SLOTS), *key_args(engine, folder))
    with start_mesh(folder, *args, env=env) as running:
        yield running


@asynccontextmanager
async def client_of(mesh: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{mesh.url}/v1", api_key="unused", max_retries=0, timeout=PATIENCE_S) as c:
        yield c


@pytest.fixture
async def client(mesh: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client_of(mesh) as c:
        yield c


def queued(mesh: Any, engine: VllmServer) -> int:
    """Requests that wait at the worker or inside the engine."""
    return int(worker_metric(mesh, "hmas_worker_queued_requests")) + engine.waiting


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


async def test_its_refusal_is_the_clients_error(client: openai.AsyncOpenAI) -> None:
    await relays_the_engines_own_refusal(client)


async def test_the_workers_caps_are_in_force_inside_the_engine(engine: VllmServer, client: openai.AsyncOpenAI) -> None:
    await client.completions.create(model=MODEL, prompt="Once", max_tokens=9)
    status = StatusBlock.unpack(status_path(engine.control).read_bytes())
    assert status is not None
    assert status.seq > 0
    assert 1 <= status.cap <= SLOTS
    assert status.faults == 0
    assert "hmas_urgency" in engine.scheduled()[-1]["xargs"]  # which the gateway wrote into the body


async def test_the_engine_never_holds_more_than_n_run(
    vllm: VllmServer, tmp_path: Path, start_mesh: Callable[..., Any]
) -> None:
    """By its own count at each request's first step, of an engine that would run many more and is not capped itself."""
    before = len(vllm.scheduled())
    args = ("--engine", vllm.url, "--max-num-seqs", str(N_RUN))
    with start_mesh(tmp_path, *args) as mesh:
        async with client_of(mesh) as client:

            async def serve(number: int) -> None:
                for turn in range(5):
                    async for _ in stream(client, f"number {number}, turn {turn}", 10 + number):
                        pass

            await asyncio.gather(*(serve(number) for number in range(5 * N_RUN)))
    present = [line["present"] for line in vllm.scheduled()[before:]]
    assert len(present) == 25 * N_RUN
    assert max(present) == N_RUN


async def test_a_disconnect_frees_the_engine_within_a_second(engine: VllmServer, client: openai.AsyncOpenAI) -> None:
    """A second of its own time: not more tokens than it makes in one when nothing else runs on the machine."""
    generated = "vllm:generation_tokens_total"
    answer = stream(client, "long", LONG)
    await anext(answer)
    assert await asyncio.to_thread(lambda: engine.running) == 1
    before = engine.metric(generated)
    await answer.aclose()
    await client.close()
    await reached(lambda: engine.running == 0)
    assert engine.metric(generated) - before < TOKENS_A_SECOND


@pytest.mark.parametrize("topology", ["edf", "fcfs"])
async def test_order_follows_the_topology(
    mesh: Any, engine: VllmServer, client: openai.AsyncOpenAI, topology: str
) -> None:
    """The order in which the engine itself first ran them, after arrivals that were seen one by one."""
    pinned = await asyncio.to_thread(mesh.hmas, "pin", topology)
    assert pinned.returncode == 0, pinned.stderr
    await reached(lambda: worker_metric(mesh, f'hmas_worker_topology{{topology="{topology}"}}') == 1)

    async def serve(words: int, due: int, tokens: int) -> None:
        async for _ in stream(client, " ".join(["the"] * words), tokens, ttlt_s=600 + 100 * due):
            pass

    before = len(engine.scheduled())
    blocker = asyncio.create_task(serve(1, 0, LONG))
    await reached(lambda: engine.running == SLOTS)
    # The engine knows a request of the mesh by the length of its prompt.
    due = {100 + n: (n * 7) % 12 for n in range(12)}
    tasks = []
    for number, (words, place) in enumerate(due.items(), 1):
        tasks.append(asyncio.create_task(serve(words, place, 20)))
        await reached(lambda count=number: queued(mesh, engine) == count)  # type: ignore[misc]
    assert not blocker.done(), "all of them must wait behind it"
    blocker.cancel()
    await asyncio.gather(*tasks)
    started = [line["prompt"] for line in engine.scheduled()[before:] if line["prompt"] >= 100]
    wanted = sorted(due, key=lambda words: due[words]) if topology == "edf" else list(due)
    assert [tokens - min(started) + 100 for tokens in started] == wanted


async def test_the_engine_dies_in_mid_stream_and_service_returns(
    mesh: Any, engine: VllmServer, client: openai.AsyncOpenAI
) -> None:
    await dies_and_returns(engine, client, LONG)
