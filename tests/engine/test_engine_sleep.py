"""The emulated engine put to sleep over real HTTP, as vLLM in its development mode."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn

from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core.output_length import OutputLength
from hmas.engine.core.profile import EngineLimits, EngineProfile
from hmas.engine.server import EngineServer
from hmas.worker.adapters import scrape
from tests.conftest import PATIENCE_S

FAST = EngineProfile(
    "fast",
    StepCostModel(c0_s=0.002, c_p_s=0.0, c_d_s=0.0, c_k_s=0.0),
    EngineLimits(max_num_seqs=4, max_num_batched_tokens=512, num_gpu_blocks=512, max_model_len=4096),
)
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
LONG = 600  # tokens, of which there are many left when the first few have come


class Asleep:
    """A server that may be put to sleep, and a client of it."""

    def __init__(self, app: EngineServer, client: httpx.AsyncClient) -> None:
        self.app, self.client = app, client

    async def post(self, path: str) -> Any:
        answer = await self.client.post(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def is_sleeping(self) -> bool:
        told: bool = (await self.client.get("/is_sleeping")).json()["is_sleeping"]
        return told

    async def level(self) -> int | None:
        """As a worker reads it of the metrics."""
        return scrape.sleep_level(scrape.read_page((await self.client.get("/metrics")).content))

    async def waiting_request(self) -> "asyncio.Task[httpx.Response]":
        """A request that has come, and waits inside the engine."""
        before = self.app.core.stats().num_requests_waiting
        late = asyncio.create_task(self.client.post(COMPLETIONS, json={"prompt": [1], "max_tokens": 2}))
        while self.app.core.stats().num_requests_waiting == before:
            await asyncio.sleep(0)
        return late

    @asynccontextmanager
    async def stream(self, tokens: int = LONG, begun: int = 3) -> AsyncIterator[AsyncIterator[Any]]:
        """A stream of which so many tokens have come; the rest of its chunks."""
        body = {"prompt": [1] * 40, "stream": True, "max_tokens": tokens, "ignore_eos": True}
        async with self.client.stream("POST", COMPLETIONS, json=body) as response:
            lines = (line[6:] async for line in response.aiter_lines() if line)
            chunks = (json.loads(line) async for line in lines if line != "[DONE]")
            for _ in range(begun):
                await anext(chunks)
            yield chunks


def reason(chunk: Any) -> Any:
    return chunk["choices"][0]["finish_reason"]


@asynccontextmanager
async def served(*, dev_mode: bool = True) -> AsyncIterator[Asleep]:
    app = EngineServer(FAST, "m", OutputLength(median=5, sigma=0.5), dev_mode=dev_mode)
    config = uvicorn.Config(app, port=0, http="httptools", ws="none", log_level="critical")
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
        yield Asleep(app, client)
    await server.shutdown()


@pytest.fixture
async def engine() -> AsyncIterator[Asleep]:
    async with served() as made:
        yield made


async def test_without_the_development_mode_there_are_no_such_paths() -> None:
    async with served(dev_mode=False) as made:
        for method, path in (("POST", "/sleep"), ("POST", "/wake_up"), ("GET", "/is_sleeping")):
            assert (await made.client.request(method, path)).status_code == 404
        assert await made.level() is None


@pytest.mark.parametrize("level", [0, 1, 2])
async def test_it_tells_of_its_sleep_and_is_well_meanwhile(engine: Asleep, level: int) -> None:
    assert (await engine.is_sleeping(), await engine.level()) == (False, None)
    assert await engine.post(f"/sleep?level={level}") == {"status": "sleeping", "level": level}
    assert (await engine.is_sleeping(), await engine.level()) == (True, level)
    assert (await engine.client.get("/health")).status_code == 200
    assert await engine.post("/wake_up") == {"status": "awake", "tags": None}
    assert (await engine.is_sleeping(), await engine.level()) == (False, None)


async def test_the_defaults_are_vllms(engine: Asleep) -> None:
    async with engine.stream() as chunks:
        assert (await engine.post("/sleep"))["level"] == 1
        assert reason([chunk async for chunk in chunks][-1]) == "abort"


@pytest.mark.parametrize("query", ["level=3", "level=-1", "level=x", "mode=slowly", "mode="])
async def test_what_vllm_does_not_know_is_refused(engine: Asleep, query: str) -> None:
    assert (await engine.client.post(f"/sleep?{query}")).status_code == 422
    assert not await engine.is_sleeping()


async def test_abort_ends_streams_and_whole_answers_with_what_there_is(engine: Asleep) -> None:
    body = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": LONG, "ignore_eos": True}
    whole = asyncio.create_task(engine.client.post(CHAT, json=body))
    async with engine.stream() as chunks:
        while len(engine.app.core.running) < 2:
            await asyncio.sleep(0)
        await engine.post("/sleep?level=0&mode=abort")
        rest = [chunk async for chunk in chunks]
    assert [reason(chunk) for chunk in rest] == [None] * (len(rest) - 1) + ["abort"]
    assert rest[-1]["choices"][0]["text"] == ""
    (choice,) = (await whole).json()["choices"]
    assert choice["finish_reason"] == "abort"
    assert len(choice["message"]["content"].split()) < LONG
    assert engine.app.core.stats().num_requests_running == 0
    assert engine.app.telemetry._success["abort"] == 2


@pytest.mark.parametrize("level", [0, 1, 2])
async def test_keep_interrupts_a_stream_and_it_goes_on_to_its_end(engine: Asleep, level: int) -> None:
    async with engine.stream() as chunks:
        await engine.post(f"/sleep?level={level}&mode=keep")
        before = engine.app.core.stats()
        assert before.num_preemptions == (level > 0)
        late = await engine.waiting_request()
        assert engine.app.core.stats().generation_tokens == before.generation_tokens
        await engine.post("/wake_up")
        assert (await late).status_code == 200
        rest = [chunk async for chunk in chunks]
    assert reason(rest[-1]) == "length"
    assert sum(bool(chunk["choices"][0]["text"]) for chunk in rest) == LONG - 3


async def test_wait_answers_once_what_runs_has_ended_and_lets_nothing_begin(engine: Asleep) -> None:
    async with engine.stream(tokens=200) as chunks:
        falling = asyncio.create_task(engine.post("/sleep?level=1&mode=wait"))
        while not await engine.is_sleeping():
            pass
        assert await engine.level() == 0, "it is falling asleep"
        late = asyncio.create_task(engine.client.post(COMPLETIONS, json={"prompt": [1], "max_tokens": 2}))
        rest = [chunk async for chunk in chunks]
        assert reason(rest[-1]) == "length"
        await falling
        assert await engine.level() == 1
        assert not late.done()
        await engine.post("/wake_up")
        assert reason((await late).json()) in ("stop", "length")


async def test_a_request_that_comes_meanwhile_waits_until_it_wakes(engine: Asleep) -> None:
    await engine.post("/sleep?level=0")
    late = await engine.waiting_request()
    await engine.post("/wake_up")
    assert (await late).status_code == 200


@pytest.mark.parametrize(("level", "kept"), [(0, True), (1, False), (2, False)])
async def test_its_prefix_cache_is_dropped_from_level_1_on(engine: Asleep, level: int, kept: bool) -> None:
    body = {"prompt": list(range(400)), "max_tokens": 2, "ignore_eos": True}
    for _ in range(2):
        await engine.client.post(COMPLETIONS, json=body)
    before = engine.app.core.stats().prefix_cache_hits
    assert before > 0
    await engine.post(f"/sleep?level={level}")
    await engine.post("/wake_up")
    await engine.client.post(COMPLETIONS, json=body)
    assert (engine.app.core.stats().prefix_cache_hits > before) is kept
    engine.app.core.kv.check()


async def test_it_wakes_when_all_of_its_memory_is_back(engine: Asleep) -> None:
    await engine.post("/sleep?level=2")
    assert await engine.post("/wake_up?tags=weights") == {"status": "sleeping", "tags": ["weights"]}
    assert (await engine.is_sleeping(), await engine.level()) == (True, 2)
    assert (await engine.post("/wake_up?tags=kv_cache"))["status"] == "awake"
    assert (await engine.is_sleeping(), await engine.level()) == (False, None)


async def test_one_that_is_woken_before_it_slept_stays_awake(engine: Asleep) -> None:
    async with engine.stream(tokens=200) as chunks:
        falling = asyncio.create_task(engine.post("/sleep?level=1&mode=wait"))
        while not await engine.is_sleeping():
            pass
        await engine.post("/wake_up")
        assert reason([chunk async for chunk in chunks][-1]) == "length"
        await falling
    assert (await engine.is_sleeping(), await engine.level()) == (False, None)
