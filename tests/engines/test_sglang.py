"""Our adapter against a real SGLang server on a CPU: unofficial surroundings (`sglang_environment`), its own scheduler,
metrics and HTTP interface."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson
import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import EngineSampled, EngineWentUp
from hmas.worker.adapters.base import EngineEvent, EngineJob, JobEnd
from hmas.worker.adapters.monitor import EngineFacts, MonitorConfig
from hmas.worker.adapters.openai_http import OpenAiHttpAdapter, OpenAiHttpConfig
from tests.engines.engine_server import MODEL
from tests.engines.sglang_server import QUEUED, SLOTS, SglangServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]
PATIENCE_S = 240.0  # for what takes a second on an idle machine
LONG = 12_000  # tokens: more than a minute of decoding
TOKENS_A_SECOND = 400  # of one request, on an idle machine


class Sink:
    """One job's answer."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self.tokens = 0
        self.data = b""
        self.end: JobEnd | None = None
        self._on_end = on_end

    def on_tokens(self, data: bytes, tokens: int) -> None:
        self.tokens += tokens
        self.data += data

    def on_end(self, end: JobEnd) -> None:
        self.end = end
        self._on_end()


class Rig:
    """The adapter, what it posts, and the jobs it was given, by name."""

    def __init__(self, url: str, max_num_seqs: int | None = None) -> None:
        self.events: asyncio.Queue[EngineEvent] = asyncio.Queue()
        config = OpenAiHttpConfig(
            facts=EngineFacts(name="sglang", max_num_seqs=max_num_seqs), url=url, monitor=MonitorConfig(timeout_s=30.0)
        )
        self.adapter = OpenAiHttpAdapter(config, self.events.put_nowait)
        self.sinks: dict[str, Sink] = {}
        self.ended: list[str] = []  # in their order

    async def event(self, kind: type[Any]) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            while not isinstance(event := await self.events.get(), kind):
                pass
        return event

    def start(self, name: str, tokens: int, *, urgency: float = 0.0, then: Callable[[], None] | None = None) -> Sink:
        def on_end() -> None:
            self.ended.append(name)
            if then is not None:
                then()

        body = orjson.dumps(
            {"model": MODEL, "prompt": name, "max_tokens": tokens, "ignore_eos": True, "stream": True,
             "stream_options": {"include_usage": True}}
        )  # fmt: skip
        job = EngineJob(
            request_id=name,
            path="/v1/completions",
            body=body,
            stream=True,
            strip_usage=True,
            prompt_tokens=2,
            urgency=urgency,
        )
        sink = self.sinks[name] = Sink(on_end)
        self.adapter.start(job, sink)
        return sink

    def abort_all(self) -> None:
        for name in self.sinks:
            self.adapter.abort(name)


@asynccontextmanager
async def rig_on(engine: SglangServer, max_num_seqs: int | None = None) -> AsyncIterator[Rig]:
    rig = Rig(engine.url, max_num_seqs)
    running = asyncio.create_task(rig.adapter.run())
    try:
        yield rig
    finally:
        rig.abort_all()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await rig.adapter.close()
    await reached(lambda: engine.running == engine.waiting == 0)


@pytest.fixture
async def rig(sglang: SglangServer) -> AsyncIterator[Rig]:
    async with rig_on(sglang) as made:
        await made.event(EngineWentUp)
        yield made


async def reached(condition: Callable[[], bool]) -> None:
    """Asks metrics off the loop, until the condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.05)


async def test_it_tells_its_bounds_itself(sglang: SglangServer) -> None:
    async with rig_on(sglang, max_num_seqs=1000) as rig:  # what an operator says in error
        info = (await rig.event(EngineWentUp)).info
    assert (info.kind, info.max_num_seqs, info.kv_capacity_tokens, info.block_size) == ("sglang", SLOTS, 65_536, 1)
    assert info.max_model_len == 16_384


async def test_a_stream_is_counted_and_read_to_its_end(rig: Rig) -> None:
    sink = rig.start("once", 40)
    await reached(lambda: sink.end is not None)
    assert sink.end is not None
    assert (sink.end.outcome, sink.end.output_tokens) == (Outcome.FINISHED, 40)
    assert 20 < sink.tokens <= 40  # it may put several tokens into one chunk
    assert b'"usage":{' not in sink.data + sink.end.data


async def test_its_own_figures_are_read(rig: Rig, sglang: SglangServer) -> None:
    """Each request counts once, though SGLang tells its queues by priority too."""
    before = sglang.metric("sglang:generation_tokens_total")
    sglang.cap = 4
    for number in range(6):
        rig.start(f"number {number}", LONG, urgency=float(number % 3))
    while (sample := await rig.event(EngineSampled)).running < 4 or sample.waiting < 2:
        pass
    assert (sample.running, sample.waiting) == (4, 2)
    while (sample := await rig.event(EngineSampled)).kv_usage == 0.0 or sample.step_s == 0.0:
        pass
    assert 0.0 < sample.kv_usage < 0.5
    rig.abort_all()
    assert sglang.metric("sglang:generation_tokens_total") >= before
    sglang.cap = SLOTS


async def test_n_run_becomes_its_running_requests(rig: Rig, sglang: SglangServer) -> None:
    """32, then 4, then 12, by its own count, while more than that ask; at the end it has its own bound again."""
    arrivals = iter(range(10_000))
    loading = True

    def arrive() -> None:
        if loading:
            rig.start(f"arrival {next(arrivals)}", 60, then=arrive)

    for _ in range(SLOTS + 8):
        arrive()
    await reached(lambda: sglang.running == SLOTS)
    for n_run in (4, 12):
        rig.adapter.steer(n_run, 1024)
        await reached(lambda n=n_run: sglang.cap == n)  # type: ignore[misc]
        await reached(lambda n=n_run: sglang.running == n)  # type: ignore[misc]
        seen = [await asyncio.to_thread(lambda: sglang.running) for _ in range(10)]
        assert max(seen) <= n_run
        assert sglang.waiting > 0
    rig.adapter.steer(1000, 1024)
    await reached(lambda: sglang.cap == SLOTS)
    rig.adapter.steer(5, 1024)
    await reached(lambda: sglang.cap == 5)
    loading = False
    rig.abort_all()
    await rig.adapter.close()
    assert sglang.cap == SLOTS


async def test_the_more_urgent_is_served_first_and_nobody_is_thrown_out(rig: Rig, sglang: SglangServer) -> None:
    """One slot, so that they end in the order in which they were taken. Its metrics grow with each priority it saw."""
    sglang.cap = 1
    first = rig.start("first", LONG, urgency=100.0)
    await reached(lambda: first.tokens > 0)
    urgencies = [5.0, 1.0, 4.0, 7.0, 2.0, 6.0]
    for count, urgency in enumerate(urgencies, 1):
        rig.start(f"{urgency}", 10, urgency=urgency)
        await reached(lambda n=count: sglang.waiting == n)  # type: ignore[misc]
    assert not any(rig.sinks[f"{urgency}"].tokens for urgency in urgencies)
    rig.adapter.abort("first")
    await reached(lambda: len(rig.ended) == len(urgencies))
    assert rig.ended == [f"{urgency}" for urgency in sorted(urgencies)]
    page = httpx.get(f"{sglang.url}/metrics", timeout=30).text
    labels = {line.split('priority="')[1].split('"')[0] for line in page.splitlines() if 'priority="' in line}
    assert labels <= {"", *map(str, range(11)), str(-(2**63))}  # the last: its own health check
    sglang.cap = SLOTS


async def test_an_abort_frees_it_within_a_second(rig: Rig, sglang: SglangServer) -> None:
    """A second of its own time: not more tokens than it makes in one when nothing else runs on the machine."""
    sink = rig.start("long", LONG)
    await reached(lambda: sink.tokens > 0)
    assert sglang.running == 1
    before = sglang.metric("sglang:realtime_tokens_total")
    rig.adapter.abort("long")
    await reached(lambda: sglang.running == 0)
    assert sglang.metric("sglang:realtime_tokens_total") - before < TOKENS_A_SECOND


async def test_a_full_queue_is_told_and_may_be_retried_elsewhere(rig: Rig, sglang: SglangServer) -> None:
    """As an event after a 200: the stream has begun when its scheduler refuses."""
    sglang.cap = 1
    rig.start("running", LONG)
    await reached(lambda: sglang.running == 1)
    for number in range(QUEUED):
        rig.start(f"queued {number}", 10)
    await reached(lambda: sglang.waiting == QUEUED)
    sink = rig.start("one too many", 10)
    await reached(lambda: sink.end is not None)
    assert sink.end is not None
    assert (sink.end.outcome, sink.end.status, sink.end.retryable) == (Outcome.ENGINE_ERROR, 503, True)
    assert "The request queue is full." in sink.end.message
    assert sink.tokens == 0
    body = {"model": MODEL, "prompt": "one more", "stream": True}
    plain = await asyncio.to_thread(httpx.post, f"{sglang.url}/v1/completions", json=body, timeout=30)
    assert plain.status_code == 200
    assert "The request queue is full." in plain.text
    sglang.cap = SLOTS


async def test_a_request_too_long_is_the_clients_error(rig: Rig) -> None:
    sink = rig.start("long", 99_999)
    await reached(lambda: sink.end is not None)
    assert sink.end is not None
    assert (sink.end.outcome, sink.end.status) == (Outcome.ENGINE_REFUSED, 400)
    assert "maximum context length" in orjson.loads(sink.end.data)["error"]["message"]
