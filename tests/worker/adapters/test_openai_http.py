"""The engine adapter: health, samples, what gateways tell of their runs."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import structlog

from hmas.contracts.execution import Ended
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import API_PATHS, USUAL_PATHS, EngineInfo
from hmas.contracts.worker import EngineSampled, EngineWentDown, EngineWentUp
from hmas.worker.adapters.base import EngineEvent, GrantedRun
from hmas.worker.adapters.breaker import BreakerConfig
from hmas.worker.adapters.engine_facts import EngineFacts
from hmas.worker.adapters.monitor import MonitorConfig
from hmas.worker.adapters.openai_http import OpenAiHttpAdapter, OpenAiHttpConfig
from tests.conftest import PATIENCE_S
from tests.worker.adapters.scripted_engine import Handler, Peer, ScriptedEngine

PAGE = (
    b"vllm:num_requests_running 2\nvllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc 0.5\n"
    b'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1\n'
)


def ended(outcome: Outcome = Outcome.ENGINE_ERROR, **fields: Any) -> Ended:
    return Ended(request_id="r", grant=1, outcome=outcome, **fields)


class Rig:
    """An adapter on a scripted engine, and what it posts."""

    def __init__(self, engine: ScriptedEngine, **config: Any) -> None:
        self.engine = engine
        self.events: asyncio.Queue[EngineEvent] = asyncio.Queue()
        defaults = {
            "facts": EngineFacts(name="e1", hardware="h", endpoint="http://node:1"), "url": engine.url,
            "probe_period_s": 0.05, "scrape_period_s": 0.02, "monitor": MonitorConfig(timeout_s=0.5),
            "breaker": BreakerConfig(cooldown_s=0.02, max_cooldown_s=0.05),
        }  # fmt: skip
        self.adapter = OpenAiHttpAdapter(OpenAiHttpConfig(**{**defaults, **config}), self.events.put_nowait)
        self.running: asyncio.Task[None] | None = None

    async def up(self) -> None:
        self.running = asyncio.create_task(self.adapter.run())
        await self.event(EngineWentUp)

    def run(self, prompt_tokens: int = 5, output_tokens: int = 0) -> GrantedRun:
        run = GrantedRun(prompt_tokens=prompt_tokens, urgency=1.0, output_tokens=output_tokens)
        self.adapter.add(run)
        return run

    async def event(self, kind: type[Any]) -> Any:
        """The next event of a kind."""
        while True:
            event = await asyncio.wait_for(self.events.get(), PATIENCE_S)
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


@pytest.fixture
async def slow(engine: ScriptedEngine) -> AsyncIterator[Rig]:
    """Neither samples nor probes come by themselves within a test."""
    rig = Rig(engine, probe_period_s=60.0, scrape_period_s=60.0)
    yield rig
    await rig.close()


def whole(body: bytes, status: int = 200) -> Handler:
    async def answer(peer: Peer) -> None:
        await peer.reply(body, status)

    return answer


def healthy(engine: ScriptedEngine, metrics: bytes = b"") -> None:
    engine.script["/health"] = whole(b"")
    engine.script["/v1/models"] = whole(b'{"data":[{"id":"m","max_model_len":4096}]}')
    engine.script["/metrics"] = whole(metrics, 200 if metrics else 404)


async def test_an_engine_is_announced_with_what_it_tells_of_itself_and_sampled_at_once(slow: Rig) -> None:
    healthy(slow.engine, PAGE)
    before_s = time.monotonic()
    slow.running = asyncio.create_task(slow.adapter.run())
    up = await asyncio.wait_for(slow.events.get(), PATIENCE_S)
    assert up == EngineWentUp(
        EngineInfo(
            engine="e1",
            up=True,
            dialect="vllm",
            hardware="h",
            max_model_len=4096,
            kv_capacity_tokens=1600,
            block_size=16,
            max_num_seqs=256,
            endpoint="http://node:1",
            paths=USUAL_PATHS,
        )
    )
    sample = await asyncio.wait_for(slow.events.get(), PATIENCE_S)
    assert isinstance(sample, EngineSampled)
    assert 0.0 < sample.age_s < time.monotonic() - before_s
    assert sample == EngineSampled(
        engine="e1",
        running=2,
        waiting=1,
        kv_usage=0.5,
        preemptions_total=0,
        step_s=0.0,
        prefill_tokens_per_s=0.0,
        decode_tokens_per_s=0.0,
        counted=True,
        age_s=sample.age_s,
    )


@pytest.mark.parametrize(
    ("root", "model"),
    [
        ('"Qwen/Qwen3-8B"', "Qwen/Qwen3-8B"),
        ('"/models/m"', ""),  # which the pool's name tells better
        ("7", ""),
        (f'"{"x" * 300}"', ""),
    ],
)
async def test_the_model_behind_an_alias_is_announced(slow: Rig, root: str, model: str) -> None:
    healthy(slow.engine, PAGE)
    slow.engine.script["/v1/models"] = whole(b'{"data":[{"id":"m","root":%b}]}' % root.encode())
    slow.running = asyncio.create_task(slow.adapter.run())
    assert (await slow.event(EngineWentUp)).info.model == model


async def test_an_engine_of_another_model_is_not_used_until_it_serves_the_pools(engine: ScriptedEngine) -> None:
    rig = Rig(engine, facts=EngineFacts(name="e1", pool="mine"))
    healthy(engine, PAGE)
    with structlog.testing.capture_logs() as logs:
        rig.running = asyncio.create_task(rig.adapter.run())
        async with asyncio.timeout(PATIENCE_S):
            while sum(peer.path == "/v1/models" for peer in engine.requests) < 3:
                await asyncio.sleep(0.01)
    assert rig.events.empty()
    (told,) = (line for line in logs if line["event"] == "engine_serves_another_model")
    assert (told["serves"], told["effect"]) == ("m", "it gets no request for mine")
    engine.script["/v1/models"] = whole(b'{"data":[{"id":"m"},{"id":"mine"}]}')
    assert (await rig.event(EngineWentUp)).info.dialect == "vllm"
    await rig.close()


@pytest.mark.parametrize("page", [b"sglang:num_running_reqs 1\n", b""])
async def test_an_engine_that_takes_any_model_is_used_for_all(engine: ScriptedEngine, page: bytes) -> None:
    rig = Rig(engine, facts=EngineFacts(name="e1", pool="mine"))
    healthy(engine, page)
    engine.script["/server_info"] = whole(b'{"max_total_num_tokens":4096}')
    await rig.up()
    await rig.close()


SERVED = ("/v1/chat/completions", "/v1/embeddings", "/tokenize")


async def test_an_engine_is_asked_what_it_serves_and_for_its_adapters(slow: Rig) -> None:
    healthy(slow.engine, PAGE)
    for path in API_PATHS:
        slow.engine.script[path] = whole(b"", 405 if path in SERVED else 404)
    slow.engine.script["/v1/score"] = whole(b"<html>")  # of a server that answers everything
    cards = [
        {"id": "m", "parent": None}, {"id": "tuned", "parent": "m"}, {"id": "tuned", "parent": "m"}, "odd",
        {"id": 3, "parent": "m"}, {"id": "x" * 300, "parent": "m"}, {"id": "other", "parent": ""},
    ]  # fmt: skip
    slow.engine.script["/v1/models"] = whole(orjson.dumps({"data": cards}))
    slow.running = asyncio.create_task(slow.adapter.run())
    up = await asyncio.wait_for(slow.events.get(), PATIENCE_S)
    assert isinstance(up, EngineWentUp)
    assert up.info.paths == SERVED
    assert up.info.adapters == ("tuned",)


async def test_a_sample_is_as_old_as_its_request(slow: Rig) -> None:
    healthy(slow.engine, PAGE)
    asked, go = asyncio.Event(), asyncio.Event()
    pages = 0

    async def metrics(peer: Peer) -> None:
        nonlocal pages
        pages += 1
        if pages == 2:  # after that of discovery
            asked.set()
            await go.wait()
        await peer.reply(PAGE)

    slow.engine.script["/metrics"] = metrics
    await slow.up()
    await asyncio.wait_for(asked.wait(), PATIENCE_S)
    loop = asyncio.get_running_loop()
    since_s = loop.time()
    await asyncio.sleep(0.02)
    waited_s = loop.time() - since_s
    go.set()
    assert (await slow.event(EngineSampled)).age_s >= waited_s


async def test_an_engine_without_metrics_is_sampled_by_what_gateways_tell(rig: Rig) -> None:
    healthy(rig.engine)
    await rig.up()
    assert not (await rig.event(EngineSampled)).counted
    first, second = rig.run(), rig.run(prompt_tokens=100)
    rig.run()
    rig.adapter.remove(second, None)
    while True:
        first.output_tokens += 1
        sample = await rig.event(EngineSampled)
        if sample.running == 2 and sample.step_s:
            break
    assert (sample.counted, sample.age_s, sample.waiting) == (False, 0.0, 0)
    assert 0.0 < sample.kv_usage < 1.0
    rig.adapter.remove(first, ended(Outcome.FINISHED, output_tokens=first.output_tokens, prompt_tokens=7))
    while (await rig.event(EngineSampled)).running != 1:
        pass


async def test_a_killed_engine_goes_down_and_comes_back(rig: Rig) -> None:
    healthy(rig.engine)
    await rig.up()
    port = rig.engine.port
    await rig.engine.stop()
    await rig.event(EngineWentDown)
    assert not rig.adapter.up
    await rig.engine.start(port)
    await rig.event(EngineWentUp)
    await rig.event(EngineSampled)


@pytest.mark.parametrize("end", [ended(unreached=True), ended(), ended(status=500), ended(status=200)])
async def test_what_gateways_suspect_is_probed_at_once(slow: Rig, end: Ended) -> None:
    healthy(slow.engine)
    await slow.up()
    slow.adapter.judge(ended(Outcome.FINISHED))  # not on trial any more
    slow.engine.script["/health"] = whole(b"", 503)
    slow.adapter.judge(end)
    down = await slow.event(EngineWentDown)
    assert down.reason == "the engine answered its health check with HTTP 503"


@pytest.mark.parametrize("end", [ended(), ended(status=500), ended(status=200), ended(status=502)])
async def test_failing_runs_open_the_breaker_although_the_engine_seems_well(rig: Rig, end: Ended) -> None:
    healthy(rig.engine)
    await rig.up()
    rig.adapter.judge(ended(Outcome.FINISHED))
    for _ in range(4):
        rig.adapter.judge(end)
    rig.adapter.judge(ended(Outcome.FINISHED, status=200))  # only consecutive ones count
    for _ in range(4):
        rig.adapter.judge(end)
    assert rig.adapter.up
    rig.adapter.judge(end)
    assert not rig.adapter.up
    await rig.event(EngineWentDown)
    await rig.event(EngineWentUp)


@pytest.mark.parametrize(
    "end",
    [
        ended(Outcome.ENGINE_REFUSED, status=400),
        ended(status=503, busy=True, retryable=True),
        ended(status=429, busy=True, retryable=True),
        ended(status=401, retryable=True),
        ended(unreached=True, retryable=True),
        ended(Outcome.CANCELLED),
        ended(Outcome.TIMED_OUT),
    ],
)
async def test_what_is_not_the_engines_fault_never_opens_the_breaker(rig: Rig, end: Ended) -> None:
    healthy(rig.engine)
    await rig.up()
    for _ in range(30):
        rig.adapter.judge(end)
    assert rig.adapter.up


async def test_an_engine_that_answers_late_but_generates_stays_up(engine: ScriptedEngine) -> None:
    rig = Rig(engine, monitor=MonitorConfig(timeout_s=0.02), probe_period_s=0.0, scrape_period_s=60.0)
    healthy(engine)
    await rig.up()
    run, probes, many = rig.run(), 0, asyncio.Event()

    async def late(peer: Peer) -> None:
        nonlocal probes
        probes += 1
        if probes % 2:
            run.output_tokens += generated
        else:
            rig.adapter.remove(rig.run(), ended(Outcome.FINISHED, output_tokens=generated))
        if probes == 8:
            many.set()
        await peer.gone()

    generated = 1
    engine.script["/health"] = late
    await asyncio.wait_for(many.wait(), PATIENCE_S)
    assert rig.adapter.up
    generated = 0
    await rig.event(EngineWentDown)
    await rig.close()


async def test_ranks_are_sent_in_vllms_convention_where_the_operator_says_so(engine: ScriptedEngine) -> None:
    rig = Rig(engine, priority="vllm")
    assert rig.run().priority == 1000
    assert not rig.adapter.plugin
    await rig.close()


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x"])
def test_an_unusable_url_is_refused_with_advice(url: str) -> None:
    with pytest.raises(ValueError, match="give http://HOST:PORT"):
        OpenAiHttpAdapter(OpenAiHttpConfig(facts=EngineFacts(name="e"), url=url), lambda _: None)


def test_keys_are_not_shown() -> None:
    config = OpenAiHttpConfig(facts=EngineFacts(name="e"), url="http://a", api_key="secret", admin_key="secret")
    assert "secret" not in repr(config)


ASLEEP = (
    b'\nvllm:engine_sleep_state{sleep_state="awake"} 0\nvllm:engine_sleep_state{sleep_state="weights_offloaded"} 1\n'
)
GAVE_UP = ended(message="it ended it with 'abort'", status=200, given_up=True, retryable=True)


async def test_an_engine_that_gave_answers_up_is_sampled_at_once_and_stays_up_if_it_is_asleep(slow: Rig) -> None:
    healthy(slow.engine, PAGE)
    await slow.up()
    assert (await slow.event(EngineSampled)).sleep_level is None
    slow.engine.script["/metrics"] = whole(PAGE + ASLEEP)
    for _ in range(20):
        slow.adapter.judge(GAVE_UP)
    assert (await slow.event(EngineSampled)).sleep_level == 1
    assert slow.adapter.up


async def test_an_engine_that_is_awake_and_gives_up_one_answer_after_another_goes_down(rig: Rig) -> None:
    healthy(rig.engine, PAGE)
    await rig.up()
    down = asyncio.create_task(rig.event(EngineWentDown))
    async with asyncio.timeout(PATIENCE_S):
        while not down.done():
            rig.adapter.judge(GAVE_UP)
            await asyncio.sleep(0)
    assert "one answer after another" in down.result().reason
