"""Our adapter and our gateway's runs against a real SGLang server on a CPU: unofficial surroundings
(`sglang_environment`), its own scheduler, metrics and HTTP interface."""

import asyncio
from collections.abc import AsyncIterator

import orjson
import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import EngineSampled, EngineWentUp
from tests.engines.engine_server import MODEL
from tests.engines.granted import Rig, rig_on
from tests.engines.sglang_server import QUEUED, SLOTS, SglangServer
from tests.engines.through_the_mesh import reached

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]
LONG = 12_000  # tokens: more than a minute of decoding
TOKENS_A_SECOND = 400  # of one request, on an idle machine


@pytest.fixture
async def rig(sglang: SglangServer) -> AsyncIterator[Rig]:
    async with rig_on(sglang) as made:
        await made.event(EngineWentUp)
        yield made


async def test_it_tells_its_bounds_itself(sglang: SglangServer) -> None:
    async with rig_on(sglang, max_num_seqs=1000) as rig:  # what an operator says in error
        info = (await rig.event(EngineWentUp)).info
    assert (info.dialect, info.max_num_seqs, info.kv_capacity_tokens, info.block_size) == ("sglang", SLOTS, 65_536, 1)
    assert info.max_model_len == 16_384


async def test_a_stream_is_counted_and_read_to_its_end(rig: Rig) -> None:
    granted = rig.start("once", 40)
    end = await granted.ended()
    assert (end.outcome, end.usage.output_tokens) == (Outcome.FINISHED, 40)
    assert 20 < granted.tokens <= 40  # it may put several tokens into one chunk
    assert b'"usage":{' not in granted.data + end.data


async def test_it_answers_nobody_without_its_key(sglang: SglangServer) -> None:
    """A gateway's wrong key is the mesh's fault, not the client's; a worker's leaves the engine without its limits."""
    async with rig_on(sglang, worker_key="", gateway_key="wrong") as rig:
        info = (await rig.event(EngineWentUp)).info
        assert info.max_num_seqs != SLOTS
        end = await rig.start("no key", 5).ended()
    assert (end.outcome, end.status, end.retryable) == (Outcome.ENGINE_ERROR, 401, True)


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
    rig.stop_all()
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
    rig.stop_all()
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
    assert not any(rig.granted[f"{urgency}"].tokens for urgency in urgencies)
    rig.stop("first")
    await reached(lambda: len(rig.order) == len(urgencies))
    assert rig.order == [f"{urgency}" for urgency in sorted(urgencies)]
    page = sglang.ask("/metrics").text
    labels = {line.split('priority="')[1].split('"')[0] for line in page.splitlines() if 'priority="' in line}
    assert labels <= {"", *map(str, range(11)), str(-(2**63))}  # the last: its own health check
    sglang.cap = SLOTS


async def test_an_abort_frees_it_within_a_second(rig: Rig, sglang: SglangServer) -> None:
    """A second of its own time: not more tokens than it makes in one when nothing else runs on the machine."""
    granted = rig.start("long", LONG)
    await reached(lambda: granted.tokens > 0)
    assert sglang.running == 1
    before = sglang.metric("sglang:realtime_tokens_total")
    rig.stop("long")
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
    granted = rig.start("one too many", 10)
    end = await granted.ended()
    assert (end.outcome, end.status, end.retryable, end.busy) == (Outcome.ENGINE_ERROR, 503, True, True)
    assert "The request queue is full." in end.message
    assert granted.tokens == 0
    body = {"model": MODEL, "prompt": "one more", "stream": True}
    plain = await asyncio.to_thread(sglang.ask, "/v1/completions", body)
    assert plain.status_code == 200
    assert "The request queue is full." in plain.text
    sglang.cap = SLOTS


async def test_a_request_too_long_is_the_clients_error(rig: Rig) -> None:
    granted = rig.start("long", 99_999)
    end = await granted.ended()
    assert (end.outcome, end.status) == (Outcome.ENGINE_REFUSED, 400)
    assert "maximum context length" in orjson.loads(end.data)["error"]["message"]
