"""The engine adapter: answers, errors of every shape, abort, health, samples."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import orjson
import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import EngineInfo
from hmas.contracts.worker import EngineSampled, EngineWentDown, EngineWentUp
from hmas.worker.adapters.base import EngineEvent, EngineJob, JobEnd
from hmas.worker.adapters.breaker import BreakerConfig
from hmas.worker.adapters.monitor import EngineFacts, MonitorConfig
from hmas.worker.adapters.openai_http import OpenAiHttpAdapter, OpenAiHttpConfig
from tests.worker.adapters.scripted_engine import Handler, Peer, ScriptedEngine

CHAT = "/v1/chat/completions"
JOB = EngineJob(
    request_id="r1", path=CHAT, body=b'{"model":"m"}', stream=True, strip_usage=True, prompt_tokens=5, urgency=1.0
)
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":9}}\n\n'
ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
DONE = b"data: [DONE]\n\n"


def token(text: str) -> bytes:
    return b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % text.encode()


class Sink:
    def __init__(self) -> None:
        self.data = b""
        self.tokens = 0
        self.ended: asyncio.Future[JobEnd] = asyncio.get_running_loop().create_future()
        self.first = asyncio.Event()

    def on_tokens(self, data: bytes, tokens: int) -> None:
        assert not self.ended.done()
        self.data += data
        self.tokens += tokens
        self.first.set()

    def on_end(self, end: JobEnd) -> None:
        self.ended.set_result(end)

    async def end(self) -> JobEnd:
        return await asyncio.wait_for(self.ended, 5)


class Rig:
    """An adapter on a scripted engine, and what it posts."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine = engine
        self.events: asyncio.Queue[EngineEvent] = asyncio.Queue()
        facts = EngineFacts(name="e1", hardware="h")
        self.config = OpenAiHttpConfig(
            facts=facts, url=engine.url, probe_period_s=0.05, scrape_period_s=0.02,
            monitor=MonitorConfig(timeout_s=0.5), breaker=BreakerConfig(cooldown_s=0.02, max_cooldown_s=0.05),
        )  # fmt: skip
        self.adapter = OpenAiHttpAdapter(self.config, self.events.put_nowait)
        self.running: asyncio.Task[None] | None = None

    def watch(self) -> None:
        self.running = asyncio.create_task(self.adapter.run())

    def start(self, job: EngineJob = JOB) -> Sink:
        sink = Sink()
        self.adapter.start(job, sink)
        return sink

    async def event(self, kind: type[EngineEvent]) -> EngineEvent:
        """The next event of a kind."""
        while True:
            event = await asyncio.wait_for(self.events.get(), 5)
            if isinstance(event, kind):
                return event

    async def close(self) -> None:
        if self.running is not None:
            self.running.cancel()
            await asyncio.gather(self.running, return_exceptions=True)
        await self.adapter.close()


@pytest.fixture
async def rig(engine: ScriptedEngine) -> AsyncIterator[Rig]:
    rig = Rig(engine)
    yield rig
    await rig.close()


def chunks(*parts: bytes, end: bool = True) -> Handler:
    async def answer(peer: Peer) -> None:
        await peer.begin_chunks()
        for part in parts:
            await peer.chunk(part)
        if not end:
            raise ConnectionError
        await peer.end_chunks()

    return answer


def whole(body: bytes, status: int = 200) -> Handler:
    async def answer(peer: Peer) -> None:
        await peer.reply(body, status)

    return answer


def healthy(engine: ScriptedEngine, metrics: bytes = b"") -> None:
    engine.script["/health"] = whole(b"")
    engine.script["/v1/models"] = whole(b'{"data":[{"id":"m","max_model_len":4096}]}')
    engine.script["/metrics"] = whole(metrics, 200 if metrics else 404)


async def test_a_stream_is_relayed_and_its_usage_told(rig: Rig) -> None:
    rig.engine.script[CHAT] = chunks(ROLE, token("a"), token("b"), USAGE, DONE)
    sink = rig.start()
    end = await sink.end()
    assert (sink.data + end.data, sink.tokens) == (ROLE + token("a") + token("b") + DONE, 2)
    assert (end.outcome, end.output_tokens, end.prompt_tokens) == (Outcome.FINISHED, 9, 7)
    request = rig.engine.requests[0]
    assert (request.body, request.headers["x-request-id"]) == (JOB.body, "r1")


async def test_a_plain_answer_is_passed_on_whole(rig: Rig) -> None:
    body = b'{"choices":[{}],"usage":{"prompt_tokens":7,"completion_tokens":9}}'
    rig.engine.script[CHAT] = whole(body)
    sink = rig.start(replace(JOB, stream=False))
    end = await sink.end()
    assert (sink.data, end) == (
        b"",
        JobEnd(outcome=Outcome.FINISHED, message="", status=200, data=body, output_tokens=9, prompt_tokens=7),
    )


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, b'{"error":{"message":"too long","type":"BadRequestError","param":"x","code":400}}', "too long"),
        (400, b'{"object":"error","message":"flat","type":"BadRequest","param":null,"code":400}', "flat"),
        (422, b'{"detail":[{"msg":"field"}]}', '[{"msg":"field"}]'),
        (404, b"<html>nothing</html>", "<html>nothing</html>"),
        (413, b"", "the engine answered HTTP 413"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_refusal_of_any_shape_becomes_an_openai_error(
    rig: Rig, status: int, body: bytes, message: str, stream: bool
) -> None:
    rig.engine.script[CHAT] = whole(body, status)
    end = await rig.start(replace(JOB, stream=stream)).end()
    assert (end.outcome, end.status, end.message, end.retryable) == (Outcome.ENGINE_REFUSED, status, message, False)
    error = orjson.loads(end.data)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["message"], error["code"]) == (message, status)


@pytest.mark.parametrize("status", [500, 502, 503, 429, 401])
async def test_the_engines_own_faults_may_be_retried_elsewhere(rig: Rig, status: int) -> None:
    rig.engine.script[CHAT] = whole(b'{"error":{"message":"full"}}', status)
    end = await rig.start().end()
    assert (end.outcome, end.retryable, end.data) == (Outcome.ENGINE_ERROR, True, b"")
    assert f"HTTP {status}: full" in end.message


@pytest.mark.parametrize(
    ("code", "outcome", "retryable"), [(503, Outcome.ENGINE_ERROR, True), (400, Outcome.ENGINE_REFUSED, False)]
)
async def test_an_error_event_after_200_counts_as_the_status_it_names(
    rig: Rig, code: int, outcome: Outcome, retryable: bool
) -> None:
    rig.engine.script[CHAT] = chunks(ROLE, b'data: {"error":{"message":"queue full","code":%d}}\n\n' % code)
    sink = rig.start()
    end = await sink.end()
    assert (end.outcome, end.retryable, sink.data) == (outcome, retryable, b"")


async def test_a_stream_that_breaks_is_retryable_only_before_its_first_token(rig: Rig) -> None:
    rig.engine.script[CHAT] = chunks(ROLE, end=False)
    sink = rig.start()
    end = await sink.end()
    assert (end.outcome, end.retryable, sink.data) == (Outcome.ENGINE_ERROR, True, b"")
    rig.engine.script[CHAT] = chunks(ROLE, token("a"), end=False)
    sink = rig.start()
    end = await sink.end()
    assert (end.outcome, end.retryable, sink.data) == (Outcome.ENGINE_ERROR, False, ROLE + token("a"))


async def test_aborting_frees_the_engine_and_says_nothing_more(rig: Rig) -> None:
    freed = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.begin_chunks()
        await peer.chunk(token("a"))
        await peer.gone()
        freed.set()

    rig.engine.script[CHAT] = answer
    sink = rig.start()
    await asyncio.wait_for(sink.first.wait(), 5)
    rig.adapter.abort("r1")
    rig.adapter.abort("r1")
    await asyncio.wait_for(freed.wait(), 5)
    assert not sink.ended.done()


async def test_the_replayed_length_and_the_rank_reach_the_engine_only_here(engine: ScriptedEngine) -> None:
    config = OpenAiHttpConfig(facts=EngineFacts(name="e"), url=engine.url, priority="sglang", api_key="secret")
    adapter = OpenAiHttpAdapter(config, lambda _: None)
    engine.script[CHAT] = chunks(token("a"), DONE)
    sink = Sink()
    adapter.start(replace(JOB, replay_output_tokens=3, urgency=2.0), sink)
    await sink.end()
    request = engine.requests[0]
    expected = {"model": "m", "priority": 5, "max_tokens": 3, "min_tokens": 3, "ignore_eos": True}
    assert orjson.loads(request.body) == expected
    assert request.headers["authorization"] == "Bearer secret"
    assert "secret" not in repr(config)
    await adapter.close()


async def test_ids_from_clients_cannot_end_a_header(rig: Rig) -> None:
    rig.engine.script[CHAT] = chunks(token("a"), DONE)
    await rig.start(replace(JOB, request_id="a\r\nX-Evil: 1\r\n\r\né")).end()
    assert rig.engine.requests[0].headers["x-request-id"] == "aX-Evil: 1"


async def test_an_engine_is_announced_with_what_it_tells_of_itself(rig: Rig) -> None:
    page = (
        b"vllm:num_requests_running 2\nvllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc 0.5\n"
        b'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1\n'
    )
    healthy(rig.engine, page)
    rig.watch()
    up = await rig.event(EngineWentUp)
    assert up == EngineWentUp(
        EngineInfo(
            engine="e1",
            up=True,
            kind="vllm",
            hardware="h",
            max_model_len=4096,
            kv_capacity_tokens=1600,
            block_size=16,
            max_num_seqs=256,
        )
    )
    sampled = await rig.event(EngineSampled)
    assert sampled == EngineSampled(
        engine="e1",
        running=2,
        waiting=1,
        kv_usage=0.5,
        preemptions_total=0,
        step_s=0.0,
        prefill_tokens_per_s=0.0,
        decode_tokens_per_s=0.0,
    )


async def test_an_engine_without_metrics_is_sampled_by_what_runs_on_it(rig: Rig) -> None:
    healthy(rig.engine)

    async def drip(peer: Peer) -> None:
        await peer.begin_chunks()
        while True:
            await peer.chunk(token("a"))
            await asyncio.sleep(0.002)

    rig.engine.script[CHAT] = drip
    rig.watch()
    await rig.event(EngineWentUp)
    sink = rig.start()
    await asyncio.wait_for(sink.first.wait(), 5)
    await rig.event(EngineSampled)
    while True:
        sample = await rig.event(EngineSampled)
        assert isinstance(sample, EngineSampled)
        if sample.step_s:
            break
    assert sample.running == 1
    assert sample.decode_tokens_per_s == pytest.approx(1.0 / sample.step_s)
    assert 0.001 < sample.step_s < 0.1


async def test_a_killed_engine_goes_down_at_once_and_comes_back(rig: Rig) -> None:
    healthy(rig.engine)
    rig.watch()
    await rig.event(EngineWentUp)

    async def hang(peer: Peer) -> None:
        await peer.gone()

    rig.engine.script[CHAT] = hang
    sink = rig.start()
    while not any(peer.path == CHAT for peer in rig.engine.requests):
        await asyncio.sleep(0.001)
    port = rig.engine.port
    await rig.engine.stop()
    end = await sink.end()
    assert end.outcome in (Outcome.ENGINE_ERROR, Outcome.NO_ENGINE)  # lost, or refused when tried once more
    assert end.retryable
    await rig.event(EngineWentDown)
    assert not rig.adapter.up
    await rig.engine.start(port)
    await rig.event(EngineWentUp)


async def test_an_engine_that_calls_itself_dead_ends_what_hangs_on_it(rig: Rig) -> None:
    healthy(rig.engine)
    rig.watch()
    await rig.event(EngineWentUp)

    async def hang(peer: Peer) -> None:
        await peer.begin_chunks()
        await peer.chunk(token("a"))
        await peer.gone()

    rig.engine.script[CHAT] = hang
    sink = rig.start()
    await asyncio.wait_for(sink.first.wait(), 5)
    rig.engine.script["/health"] = whole(b"", 503)
    assert (await sink.end()).message == "the engine is down: the engine answered its health check with HTTP 503"
    await rig.event(EngineWentDown)


async def test_failing_requests_open_the_breaker_although_the_engine_seems_well(rig: Rig) -> None:
    healthy(rig.engine)
    rig.watch()
    await rig.event(EngineWentUp)
    rig.engine.script[CHAT] = whole(b"boom", 500)
    for i in range(6):
        await rig.start(replace(JOB, request_id=f"r{i}")).end()
    await rig.event(EngineWentDown)
    await rig.event(EngineWentUp)


async def test_refusals_of_bad_requests_never_open_the_breaker(rig: Rig) -> None:
    healthy(rig.engine)
    rig.watch()
    await rig.event(EngineWentUp)
    rig.engine.script[CHAT] = whole(b"no", 400)
    for i in range(30):
        await rig.start(replace(JOB, request_id=f"r{i}")).end()
    assert rig.adapter.up


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x"])
def test_an_unusable_url_is_refused_with_advice(url: str) -> None:
    with pytest.raises(ValueError, match="give http://HOST:PORT"):
        OpenAiHttpAdapter(OpenAiHttpConfig(facts=EngineFacts(name="e"), url=url), lambda _: None)


async def test_nobody_listening_is_no_engine_from_the_first_request_on(rig: Rig) -> None:
    await rig.engine.stop()
    end = await rig.start().end()
    assert (end.outcome, end.retryable) == (Outcome.NO_ENGINE, True)
