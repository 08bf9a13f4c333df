"""`run_load` against a real HTTP server on a free port."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo
from hmas_loadgen.plan import Api, Lengths, LoadPlan, Target
from hmas_loadgen.record import RequestRecord, RunProgress
from hmas_loadgen.result import INTERRUPTED, LoadResult
from hmas_loadgen.runner.run import run_load
from hmas_loadgen.traces.row import Trace, TraceRow
from tests.conftest import PATIENCE_S
from tests.loadgen.runner.openai_server import FakeEngine, fake_engine

SLO = Slo(60.0, 20.0)  # kept however busy the machine is


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with fake_engine() as server:
        yield server


def trace(count: int, gap_s: float = 0.002, tokens: int = 5) -> Trace:
    return Trace(
        name="t",
        rows=tuple(TraceRow(arrival_s=i * gap_s, input_tokens=20, output_tokens=tokens, slo=SLO) for i in range(count)),
    )


def plan(engine: FakeEngine, rows: Trace, target: dict[str, Any] | None = None, **fields: Any) -> LoadPlan:
    chosen: dict[str, Any] = {"base_urls": (engine.url,), "model": "m", "lengths": Lengths.REPLAY_FIELD}
    return LoadPlan(name="p", trace=rows, target=Target(**(chosen | (target or {}))), **fields)


def of_the_run(result: LoadResult) -> list[str]:
    """Returns why a run is invalid, without what only a busy machine makes true."""
    return [reason for reason in result.reasons if not reason.startswith("generator too slow: ")]


async def test_every_request_is_sent_once_on_schedule_and_scored(engine: FakeEngine) -> None:
    streamed: list[RequestRecord] = []
    snapshots: list[RunProgress] = []
    result = await run_load(plan(engine, trace(300)), snapshots.append, on_record=streamed.append)
    assert len(engine.seen) == 300
    assert [r.index for r in result.records] == list(range(300))
    assert sorted(r.index for r in streamed) == list(range(300))
    assert {(r.outcome, r.output_tokens, len(r.token_times_s)) for r in result.records} == {(Outcome.FINISHED, 5, 5)}
    for record in result.records:
        assert record.scheduled_s <= record.sent_s <= record.first_token_s <= record.last_token_s <= record.end_s  # type: ignore[operator]
    score = result.score()
    assert (score.offered, score.completed, score.goodput_rate) == (300, 300, 1.0)
    assert snapshots
    assert snapshots[-1].planned == 300


async def test_shed_requests_count_as_offered_and_errors_are_grouped(engine: FakeEngine) -> None:
    result = await run_load(plan(engine, trace(4), {"body": {"behaviour": "refuse"}}))
    assert {r.outcome for r in result.records} == {Outcome.POOL_QUEUE_FULL}
    assert result.errors() == {"429 pool_queue_full": 4}
    assert result.records[0].message == "pool is full"
    assert (result.score().offered, result.score().goodput_rate) == (4, 0.0)
    plain = await run_load(plan(engine, trace(2), {"body": {"behaviour": "plain-error"}}))
    assert plain.errors() == {"500": 2}
    assert plain.records[0].outcome is Outcome.ENGINE_ERROR


async def test_nothing_is_retried(engine: FakeEngine) -> None:
    await run_load(plan(engine, trace(3), {"body": {"behaviour": "refuse"}}))
    await run_load(plan(engine, trace(3), {"body": {"behaviour": "drop"}}))
    assert len(engine.seen) == 6


async def test_an_error_in_mid_stream_is_no_success(engine: FakeEngine) -> None:
    result = await run_load(plan(engine, trace(1), {"body": {"behaviour": "error-mid-stream"}}))
    record = result.records[0]
    assert (record.outcome, record.error, record.message) == (Outcome.ENGINE_ERROR, "stream engine_error", "gone")
    assert record.output_tokens == 2


async def test_dropped_connections_and_no_server(engine: FakeEngine) -> None:
    dropped = await run_load(plan(engine, trace(2), {"body": {"behaviour": "drop"}}))
    assert dropped.errors() == {"connection failed": 2}
    gone = await run_load(plan(engine, trace(1), {"base_urls": ("http://127.0.0.1:1",)}))
    assert gone.records[0].error == "connection failed"
    assert "could not connect to 127.0.0.1:1" in gone.records[0].message


async def test_a_client_time_out_closes_the_connection(engine: FakeEngine) -> None:
    result = await run_load(plan(engine, trace(1), {"body": {"behaviour": "hang"}}, timeout_s=0.05))
    assert result.records[0].outcome is Outcome.TIMED_OUT
    async with asyncio.timeout(PATIENCE_S):
        while not engine.broken_off:
            await asyncio.sleep(0.005)


async def test_what_is_unfinished_after_the_drain_time_is_cut_off(engine: FakeEngine) -> None:
    result = await run_load(plan(engine, trace(3), {"body": {"behaviour": "hang"}}, drain_s=0.05))
    assert [(r.outcome, r.error) for r in result.records] == [(Outcome.CANCELLED, "cut off")] * 3
    assert not of_the_run(result)
    assert result.score().goodput_rate == 0.0


async def test_the_loop_stays_open_while_the_server_hangs(engine: FakeEngine) -> None:
    """No request waits for another: all are out although none is answered."""
    chosen = plan(engine, trace(50), {"body": {"behaviour": "hang"}}, drain_s=30.0)
    running = asyncio.create_task(run_load(chosen))
    async with asyncio.timeout(PATIENCE_S):
        while len(engine.seen) < 50:
            await asyncio.sleep(0.005)
    engine.release.set()
    assert (await running).score().completed == 50


async def test_stop_cuts_off_and_the_rest_is_sent_on_resume(engine: FakeEngine) -> None:
    chosen = plan(engine, trace(200, gap_s=0.01))
    stop = asyncio.Event()

    def stop_after_20(record: RequestRecord) -> None:
        if record.index >= 20:
            stop.set()

    first = await run_load(chosen, on_record=stop_after_20, stop=stop)
    assert not first.valid
    assert INTERRUPTED in first.reasons
    done = [r for r in first.records if r.outcome is Outcome.FINISHED]
    assert 20 <= len(done) < 200
    sent_before = len(engine.seen)
    second = await run_load(chosen, earlier=done)
    assert [r.index for r in second.records] == list(range(200))
    assert [r.scheduled_s for r in second.records] == [row.arrival_s for row in chosen.trace.rows]
    assert len(engine.seen) - sent_before == 200 - len(done)
    assert second.score().completed == 200


async def test_resume_of_the_last_request_only(engine: FakeEngine) -> None:
    chosen = plan(engine, trace(20))
    whole = await run_load(chosen)
    again = await run_load(chosen, earlier=whole.records[:-1])
    assert [r.scheduled_s for r in again.records] == [row.arrival_s for row in chosen.trace.rows]
    assert again.score().completed == 20


async def test_several_urls_share_by_least_outstanding(engine: FakeEngine) -> None:
    async with fake_engine() as other:
        chosen = plan(engine, trace(40), {"base_urls": (engine.url, other.url), "body": {"behaviour": "hang"}})
        running = asyncio.create_task(run_load(chosen))
        async with asyncio.timeout(PATIENCE_S):
            while len(engine.seen) + len(other.seen) < 40:
                await asyncio.sleep(0.005)
        engine.release.set()
        other.release.set()
        result = await running
    assert len(engine.seen) == len(other.seen) == 20
    assert {r.base_url for r in result.records} == {engine.url, other.url}


async def test_the_in_flight_bound_makes_the_run_invalid(engine: FakeEngine) -> None:
    chosen = plan(engine, trace(5), {"body": {"behaviour": "hang"}}, max_in_flight=2, drain_s=1.0)
    result = await run_load(chosen)
    assert len(engine.seen) == 2
    assert of_the_run(result) == ["3 requests were not sent: client in-flight bound"]
    assert result.score().offered == 5


async def test_warm_up_is_sent_and_not_scored(engine: FakeEngine) -> None:
    result = await run_load(plan(engine, trace(100, gap_s=0.001), warmup_s=0.05, window_s=0.1))
    assert len(engine.seen) == 100
    assert result.score().offered == 50
    assert result.scored_s == pytest.approx(0.05)


async def test_keys_ids_and_apis_arrive(engine: FakeEngine) -> None:
    rows = Trace(
        name="t",
        rows=(
            TraceRow(arrival_s=0.0, input_tokens=9, output_tokens=1, tenant="acme"),
            TraceRow(arrival_s=0.0, input_tokens=9, output_tokens=1),
        ),
    )
    target = {"tenant_keys": {"acme": "sk-a"}, "api_key": "sk-b", "api": Api.COMPLETIONS, "send_slo": True}
    result = await run_load(plan(engine, rows, target))
    assert {seen.path for seen in engine.seen} == {"/v1/completions"}
    assert {seen.headers["authorization"] for seen in engine.seen} == {"Bearer sk-a", "Bearer sk-b"}
    assert {seen.headers["x-request-id"] for seen in engine.seen} == {r.request_id for r in result.records}


async def test_several_processes_make_one_run(engine: FakeEngine) -> None:
    chosen = replace(plan(engine, trace(60, gap_s=0.005)), processes=2)
    snapshots: list[RunProgress] = []
    result = await run_load(chosen, snapshots.append)
    assert [r.index for r in result.records] == list(range(60))
    assert result.score().completed == 60
    assert len({r.request_id for r in result.records}) == 60
    assert len({seen.headers["x-request-id"] for seen in engine.seen}) == 60
    assert snapshots[-1].sent == 60


async def test_a_lagging_generator_says_so(engine: FakeEngine) -> None:
    """A blocked event loop is the generator's own fault, and the run is invalid."""
    import time

    def block(_: RequestRecord) -> None:
        time.sleep(0.03)

    result = await run_load(plan(engine, trace(60, gap_s=0.001, tokens=1)), on_record=block)
    assert not result.valid
    assert result.reasons[0].startswith("generator too slow: median lag ")
    assert result.reasons[0].endswith(" ms exceeds 10 ms")
