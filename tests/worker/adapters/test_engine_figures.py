"""What an engine says of itself may be anything: it is not believed, and the worker goes on."""

import asyncio
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from hmas.contracts.execution import WorkerMessage
from hmas.contracts.worker import (
    CycleTicked,
    EngineSampled,
    EngineWentDown,
    EngineWentUp,
    HeartbeatDue,
    PublishHeartbeat,
    PublishTelemetry,
    ToGateway,
    WorkerEffect,
)
from hmas.laws.figures import MOST, sane, sane_int, shortened
from hmas.wire.codec import encode
from hmas.worker.adapters import scrape
from hmas.worker.adapters.monitor import EngineMonitor, MonitorConfig, _positive
from hmas.worker.adapters.openai_http import _Sampler
from hmas.worker.agent.config import WorkerConfig
from tests.conftest import PATIENCE_S, examples
from tests.worker.adapters.scripted_engine import Peer, ScriptedEngine
from tests.worker.adapters.test_openai_http import PAGE, Rig, healthy, rig, whole
from tests.worker.builders import Scripted, request
from tests.worker.builders import engine as engine_info

__all__ = ["rig"]  # a fixture

ABSURD = ["NaN", "+Inf", "-Inf", "-1", "1e300", str(2**63), "1e309", "", "abc", "9" * 5000]
FIGURES = [
    "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:num_preemptions_total",
    "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:inter_token_latency_seconds_sum",
    "vllm:inter_token_latency_seconds_count",
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0.0), (1.5, 1.5), ("2", 2.0), (MOST, MOST), (math.nan, None), (math.inf, None), (-1, None), (2**63, None),
     (10**400, None), ("nan", None), (True, None), (None, None), ([1], None), ("x", None)],
)  # fmt: skip
def test_a_figure_is_believed_if_it_can_be_true(value: object, expected: float | None) -> None:
    assert sane(value) == expected
    assert sane_int(value) == (None if expected is None else int(expected))


def test_a_text_is_cut() -> None:
    assert shortened("x" * 1000) == "x" * 1000
    assert (len(shortened("x" * 1001)), shortened("x" * 1001)[-1]) == (1000, "…")


def read(page: bytes) -> scrape.Reading | None:
    return scrape.read(scrape.read_page(page), scrape.VLLM)


def page(**figures: str) -> bytes:
    return b"".join(f"{name} {figures.get(name, '1')}\n".encode() for name in FIGURES)


@pytest.mark.parametrize("value", ABSURD)
@pytest.mark.parametrize("name", FIGURES)
def test_an_absurd_figure_is_left_out(name: str, value: str) -> None:
    reading, usual = read(page(**{name: value})), read(page())
    if name == "vllm:num_requests_running":
        assert reading is None
        return
    assert reading is not None
    assert usual is not None
    differing = [field for field in reading.__slots__ if getattr(reading, field) != getattr(usual, field)]
    assert len(differing) == 1
    assert getattr(reading, differing[0]) in (0, None)


@pytest.mark.parametrize(
    "line",
    [b"x" * 2**20, b'a="' * 2**18, b'="' * 2**18, b'x="' + b"\\" * 2**20, b"9" * 2**20],
)
def test_a_malformed_page_takes_no_time(line: bytes) -> None:
    """The time-out of the test is the check: matching took time with the square of the line."""
    cut = b"vllm:cache_config_info{" + line + b"} 1\nvllm:num_requests_running " + line + b"\n"
    scrape.labels_of(scrape.read_page(cut), scrape.CACHE_CONFIG)
    read(cut)
    many = b"vllm:num_requests_running 1\n" * 2**18
    assert scrape.whole(scrape.read_page(many), "vllm:num_requests_running") == scrape.MAX_SAMPLES


def test_of_a_page_as_many_lines_are_read_as_the_bound_allows() -> None:
    """However many series an engine makes up: what stands behind them is not read."""
    other = b'vllm:made_up{n="1"} 1\n' * scrape.MAX_LINES
    assert read(other[len(other) // scrape.MAX_LINES :] + page()) is not None
    assert read(other + page()) is None


async def test_a_page_is_read_up_to_its_bound_and_a_figure_that_was_cut_is_not_believed(engine: ScriptedEngine) -> None:
    """A figure at the very end of what is read may have lost digits."""
    rig = Rig(engine, monitor=MonitorConfig(timeout_s=PATIENCE_S))
    known, cut = b"vllm:num_requests_running 2\n", b"vllm:num_requests_waiting 4"
    filler = b"#" * (MonitorConfig().max_page_bytes - len(known + cut) - 1) + b"\n"
    for more in (b"2\n", b"2\n" + b"y" * 2**23):
        healthy(engine, known + filler + cut + more)
        await rig.adapter._monitor.discover()
        reading = await rig.adapter._monitor.reading()
        assert reading is not None
        assert (reading.running, reading.waiting) == (2, 0)
    await rig.close()


async def test_an_engine_that_counts_nonsense_is_judged_by_its_runs(rig: Rig) -> None:
    healthy(rig.engine, PAGE.replace(b"running 2", b"running NaN"))
    await rig.up()
    rig.run()
    while True:
        sample = await rig.event(EngineSampled)
        if sample.running == 1:
            break
    assert not sample.counted


@pytest.mark.parametrize("value", ABSURD)
async def test_an_engines_size_is_assumed_if_it_tells_nonsense(engine: ScriptedEngine, value: str) -> None:
    told_page = PAGE.replace(b'"100"', f'"{value}"'.encode()).replace(b'"16"', f'"{value}"'.encode())
    rig = Rig(engine)
    healthy(engine, told_page)
    engine.script["/v1/models"] = whole(b'{"data":[{"id":"m","max_model_len":%b}]}' % (value.encode() or b"null"))
    rig.running = asyncio.create_task(rig.adapter.run())
    up: EngineWentUp = await rig.event(EngineWentUp)
    assert 0 < up.info.max_model_len <= MOST
    assert 0 < up.info.kv_capacity_tokens <= MOST
    assert up.info.block_size == 1
    encode(up.info)
    await rig.close()


async def test_a_size_that_is_too_large_in_all_is_assumed_too(rig: Rig) -> None:
    healthy(rig.engine, PAGE.replace(b'"100"', b'"500000000000"').replace(b'"16"', b'"500000000000"'))
    rig.running = asyncio.create_task(rig.adapter.run())
    up: EngineWentUp = await rig.event(EngineWentUp)
    assert up.info.kv_capacity_tokens == 256 * MonitorConfig().tokens_per_sequence


async def test_an_endless_page_is_cut(engine: ScriptedEngine) -> None:
    sent = 0

    async def endless(peer: Peer) -> None:
        nonlocal sent
        await peer.begin_chunks()
        while True:
            await peer.chunk(PAGE * 1000)
            sent += 1000 * len(PAGE)

    healthy(engine)
    engine.script["/metrics"] = endless
    rig = Rig(engine)
    await rig.up()
    await rig.event(EngineSampled)
    await rig.close()
    assert sent < 200 * 2**20


async def test_an_error_in_the_watch_of_an_engine_takes_that_engine_down_and_not_the_worker(
    engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy(engine, PAGE)
    rig, other = Rig(engine, rewatch_s=0.05), Rig(engine)
    await rig.up()
    await other.up()

    async def fail(self: EngineMonitor) -> None:
        if self is rig.adapter._monitor:
            raise RuntimeError("a bug")

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(EngineMonitor, "reading", fail)
        down: EngineWentDown = await rig.event(EngineWentDown)
        assert "a bug" in down.reason
    assert "engine_watch_failed" in [line["event"] for line in logs]
    await rig.event(EngineWentUp)
    await rig.event(EngineSampled)
    assert other.adapter.up
    await rig.close()
    await other.close()


WEIRD = st.one_of(
    st.sampled_from([0.0, 1.0, 2.0**40, 2.0**39 - 1, math.nan, math.inf, -math.inf, -1.0, 1e300, 2.0**63]),
    st.floats(allow_nan=True, allow_infinity=True),
)


@settings(max_examples=examples(200))
@given(pages=st.lists(st.tuples(*[WEIRD] * len(FIGURES)), min_size=1, max_size=4), size=st.one_of(WEIRD, st.none()))
def test_whatever_an_engine_reports_can_be_published(pages: list[tuple[float, ...]], size: float | None) -> None:
    """The worker's own parts from page to wire, with an agent that regulates by what it is told."""
    config = WorkerConfig(worker="w", incarnation="w-1", address="h:1", pool="m")
    capacity = 100_000 if size is None else _positive(size) or 1
    agent, now_s = Scripted(config, engine_info(kv_capacity_tokens=capacity)), 0.0
    sampler = _Sampler("e1", 4)
    published = agent.submit(now_s, request("r1"), request("r2"))
    for figures in pages:
        now_s += 0.5
        body = b"".join(f"{name} {value}\n".encode() for name, value in zip(FIGURES, figures, strict=True))
        reading = read(body)
        if reading is not None:
            published += agent.step(now_s, sampler.sample(now_s, reading, 0))
        published += agent.step(now_s, CycleTicked())
        published += agent.step(now_s, HeartbeatDue())
    for effect in published:
        sent = sendable(effect)
        if sent is not None:
            encode(sent)


def sendable(effect: WorkerEffect) -> WorkerMessage | Any | None:
    match effect:
        case ToGateway(_, message):
            return message
        case PublishHeartbeat(heartbeat):
            return heartbeat
        case PublishTelemetry(telemetry):
            return telemetry
        case _:
            return None
