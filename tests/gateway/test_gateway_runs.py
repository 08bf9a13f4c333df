"""Grants carried out: what reaches the engine, what the worker hears, bypass, traces, and clients that leave."""

import asyncio
import gc
import math
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import REGISTRY

from hmas.contracts.execution import Adopt, Declined, Ended, EngineShare, FirstToken, Progress, Started, Stop, Withdraw
from hmas.contracts.outcome import Outcome
from hmas.gateway.exchange import Exchange
from hmas.gateway.http.server import HttpServerConfig
from hmas.gateway.tenants.keys import make_key
from hmas.runtime.tracing import Tracing
from tests.gateway.gateway_harness import (
    CHAT,
    DONE,
    PATH,
    PLAIN,
    STREAMED,
    Gateway,
    asking,
    broken,
    client,
    engine_info,
    error_of,
    event,
    failing,
    gateway,
    last,
    silence,
    stream,
    usage,
)
from tests.gateway.gateway_script import heartbeat, load
from tests.worker.adapters.scripted_engine import Peer


def _has(requests: list[Peer], number: int) -> bool:
    return len(requests) == number


def sample(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0


def exchange(g: Gateway) -> Exchange:
    (it,) = g.shell._exchanges.values()
    return it


# --- what reaches the engine ---


@pytest.mark.parametrize(
    ("changes", "added"),
    [
        ({}, {}),
        ({"priority": -5}, {"priority": -5}),
        ({"priority": 0}, {"priority": 0}),
        ({"plugin": True, "pace_s": 0.05}, {"vllm_xargs": {"mine": 1, "hmas_urgency": 1.0, "hmas_tpot_ms": 50.0}}),
        ({"plugin": True, "urgency": math.inf}, {"vllm_xargs": {"mine": 1}}),
    ],
)
async def test_a_grants_terms_are_written_into_the_body(
    changes: dict[str, object], added: dict[str, Any], tmp_path: Path
) -> None:
    sent = {**CHAT, "vllm_xargs": {"mine": 1, "hmas_tpot_ms": 1}, "priority": 7}
    path = tmp_path / "tenants.yaml"
    path.write_text("tenants: {acme: {allowed_body_fields: [vllm_xargs]}}")
    key = {"authorization": f"Bearer {make_key(path, 'acme').key}"}
    async with gateway(tenants_file=path) as g, client(g) as c:
        g.workers.changes = changes
        assert (await c.post(PATH, json=sent, headers=key)).content == PLAIN
        expected = {**CHAT, "vllm_xargs": {"mine": 1}, **added}  # the client's own priority is not the engine's
        assert orjson.loads(g.engine.requests[0].body) == expected


async def test_a_replayed_length_is_known_to_the_engine_alone() -> None:
    async with gateway(server=HttpServerConfig(replay_field=True)) as g, client(g) as c:
        assert (await c.post(PATH, json={**CHAT, "hmas_replay": {"output_tokens": 1234567890}})).content == PLAIN
        body = orjson.loads(g.engine.requests[0].body)
        assert (body["max_tokens"], body["min_tokens"], body["ignore_eos"]) == (1234567890, 1234567890, True)
        assert "1234567890" not in repr(g.workers.submits)


async def test_a_pool_that_becomes_known_later_is_named_to_the_engine() -> None:
    async with gateway(workers=()) as g, client(g) as c:
        task = asyncio.create_task(c.post(PATH, json={**CHAT, "model": "alias"}))
        await g.until(lambda: g.shell.live == 1)
        g.add_worker("late")
        assert (await task).content == PLAIN
        assert orjson.loads(g.engines["late"].requests[0].body)["model"] == "m"


# --- what the worker hears ---


async def test_the_worker_hears_of_each_step_of_a_run() -> None:
    async with gateway(behave=silence) as g:
        reader, writer = await asking(g)
        peer = await g.asked()
        g.shell.relay.report_progress()
        await peer.begin_chunks()
        await peer.chunk(event(0))
        await reader.readuntil(event(0)[-20:])
        assert exchange(g).call is None  # the request cannot run anywhere else any more
        await peer.chunk(event(1) + last(2))
        await reader.readuntil(last(2)[-20:])
        g.shell.relay.report_progress()
        await peer.chunk(usage(5, prompt=7, cached=4))
        await peer.chunk(DONE)
        await peer.end_chunks()
        await g.until(lambda: g.shell.live == 0)
        ((_, submit), (_, started), (_, first), (_, progress), (_, ended)) = g.workers.sent[1:]
        request_id = submit.request.id  # type: ignore[union-attr]
        assert (started, first) == (Started(request_id, 1), FirstToken(request_id, 1))
        assert progress == Progress((request_id,), (3,))
        assert ended == Ended(
            request_id=request_id, grant=1, outcome=Outcome.FINISHED, status=200, output_tokens=5, prompt_tokens=7,
            cached_tokens=4,
        )  # fmt: skip
        g.shell.relay.report_progress()
        assert len(g.workers.sent) == 6
        await g.until(lambda: any(t.settled for t in g.published))
        (settled,) = [s for t in g.published for s in t.settled]
        assert settled.tpot_s is not None
        assert settled.ttft_s is not None
        assert settled.tpot_s > 0
        writer.close()


async def test_an_engine_that_cannot_be_reached_says_nothing_about_the_engine() -> None:
    async with gateway() as g, client(g) as c:
        await g.engine.stop()
        response = await c.post(PATH, json=CHAT)
        assert (response.status_code, error_of(response)["reason"]) == (502, "engine_error")
        (ended,) = g.workers.of(Ended)
        assert (ended.outcome, ended.retryable, ended.unreached) == (Outcome.ENGINE_ERROR, True, True)
        assert ended.message.startswith("could not connect to the engine")


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_engine_that_the_configuration_does_not_allow_gets_nothing(streamed: bool) -> None:
    async with gateway(endpoints="http://gpu-*:8000") as g, client(g) as c:
        response = await c.post(PATH, json={**CHAT, "stream": streamed})
        assert response.status_code == 502
        (ended,) = g.workers.of(Ended)
        assert (ended.outcome, ended.retryable, ended.unreached) == (Outcome.ENGINE_ERROR, True, True)
        assert "HMAS_ENGINE_ENDPOINTS" in ended.message
        assert g.engine.connections == 0


@pytest.mark.parametrize(
    ("behave", "busy", "status"),
    [(failing(429), True, 429), (failing(503), True, 503), (failing(500), False, 500), (broken(), False, 200)],
)
async def test_what_an_engine_failed_before_its_first_token_is_given_back(behave: Any, busy: bool, status: int) -> None:
    async with gateway(behave=behave) as g, client(g) as c:
        assert (await c.post(PATH, json=STREAMED)).status_code == 502
        (ended,) = g.workers.of(Ended)
        assert (ended.retryable, ended.busy, ended.unreached, ended.status) == (True, busy, False, status)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("status", "seen", "retryable", "busy"),
    [
        (400, 400, False, False), (404, 404, False, False), (413, 413, False, False), (422, 422, False, False),
        (401, 502, True, False), (403, 502, True, False), (429, 502, True, True), (503, 502, True, True),
        (500, 502, True, False),
    ],
)  # fmt: skip
async def test_an_engines_status_ends_as_documented(
    status: int, seen: int, retryable: bool, busy: bool, streamed: bool
) -> None:
    """docs/engines.md has the table; no other engine can take these."""
    async with gateway(behave=failing(status)) as g, client(g) as c:
        response = await c.post(PATH, json=STREAMED if streamed else CHAT)
        assert response.status_code == seen
        assert error_of(response)["message"]
        (ended,) = g.workers.of(Ended)
        assert (ended.status, ended.retryable, ended.busy) == (status, retryable, busy)


async def test_a_run_that_the_worker_stops_frees_the_engine_and_waits_again() -> None:
    async with gateway(behave=silence, grants=False) as g, client(g) as c:
        task = asyncio.create_task(c.post(PATH, json=STREAMED))
        await g.until(lambda: bool(g.workers.submits))
        worker, submit = g.workers.submits[0]
        granted = g.workers.grant(worker, submit)
        peer = await g.asked()
        g.workers.refuses = False
        g.shell.on_message(worker, Stop(submit.request.id, granted.grant, "the engine is down"))
        await g.until(peer.writer.is_closing)
        (ended,) = g.workers.of(Ended)
        assert (ended.retryable, ended.message) == (True, "the engine is down")
        g.engine.script[PATH] = lambda peer: stream(peer, last(0), DONE)
        g.workers.grant(worker, submit)
        assert (await task).content == last(0) + DONE
        g.shell.on_message(worker, Stop(submit.request.id, 2, "too late"))
        assert g.workers.of(Declined) == [Declined(submit.request.id, 2)]


async def test_a_begun_answer_outlives_its_worker_and_is_adopted_again() -> None:
    async with gateway(behave=silence) as g:
        reader, writer = await asking(g)
        peer = await g.asked()
        await peer.begin_chunks()
        await peer.chunk(event(0))
        await g.until(lambda: bool(g.workers.of(FirstToken)))
        g.shell.on_connected("w1", False, 5.0)
        await peer.chunk(last(1))
        await reader.readuntil(last(1)[-20:])
        g.shell.on_connected("w1", True, 0.0)
        (adopted,) = g.workers.of(Adopt)
        assert (adopted.engine, adopted.grant, adopted.attempt) == ("e1", 1, 1)
        await peer.chunk(DONE)
        await peer.end_chunks()
        assert (await reader.readuntil(DONE)).endswith(DONE)
        assert [ended.outcome for ended in g.workers.of(Ended)] == [Outcome.FINISHED]
        writer.close()


# --- bypass ---


def fall_silent(g: Gateway) -> None:
    g.workers.say("w1", load(EngineShare("e1", 8)))
    g.shell.on_connected("w1", False, 10.0)


@pytest.mark.parametrize("request_body", [CHAT, STREAMED])
async def test_while_its_worker_is_silent_the_gateway_uses_an_engine_and_says_so(request_body: dict[str, Any]) -> None:
    async with gateway() as g, client(g) as c:
        fall_silent(g)
        before = sample("hmas_gateway_bypass_runs_total")
        response = await c.post(PATH, json=request_body, headers={"x-request-id": "mine"})
        assert (response.status_code, response.headers["x-hmas-mode"]) == (200, "bypass")
        assert sample("hmas_gateway_bypass_runs_total") == before + 1
        assert g.workers.submits == []
        assert "priority" not in orjson.loads(g.engine.requests[0].body)
        told = orjson.loads(g.records.journal.timeline("mine") or b"")
        assert told["attempts"] == []
        ((run,),) = [told["runs"]]
        assert (run["worker"], run["engine"], run["bypass"], run["grant"]) == ("w1", "e1", True, None)
        assert len(g.questions.asked) == 1
        g.shell.on_connected("w1", True, 0.0)
        response = await c.post(PATH, json=request_body)
        assert "x-hmas-mode" not in response.headers


async def test_a_stream_that_has_begun_is_told_of_bypass_in_a_comment() -> None:
    config = HttpServerConfig(comment_after_s=0.02, comment_every_s=60.0)
    async with gateway(behave=silence, grants=False, server=config) as g:
        reader, writer = await asking(g)
        assert b"x-hmas-mode" not in await reader.readuntil(b": keep-alive\n\n")
        fall_silent(g)
        peer = await g.asked()
        assert sample("hmas_gateway_bypass_engines") == 1
        await peer.begin_chunks()
        for each in (event(0), last(1), DONE):
            await peer.chunk(each)
        await peer.end_chunks()
        relayed = await reader.readuntil(DONE)
        assert b": x-hmas-mode: bypass\n\n" + event(0) in relayed
        assert relayed.count(b"x-hmas-mode") == 1
        await g.until(lambda: g.shell.live == 0)
        assert sample("hmas_gateway_bypass_engines") == 1  # its worker is still silent
        g.shell.on_connected("w1", True, 0.0)
        assert sample("hmas_gateway_bypass_engines") == 0
        writer.close()


async def test_an_engine_of_another_hosts_silent_worker_is_not_looked_for_on_this_host() -> None:
    async with gateway(workers=()) as g, client(g) as c:
        g.workers.local = False
        g.add_worker("late", address="10.0.0.7:9000")
        response = await c.post(PATH, json=CHAT)
        assert "advertise_url" in error_of(response)["message"]
        assert g.engines["late"].connections == 0


# --- traces ---

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_a_request_makes_three_spans_and_the_engine_continues_the_last() -> None:
    spans = InMemorySpanExporter()
    tracing = Tracing("gateway", "g", 1.0, SimpleSpanProcessor(spans))
    async with gateway(workers=("w1", "w2"), tracing=tracing) as g, client(g) as c:
        g.engine.script[PATH] = failing(500)
        await c.post(PATH, json=STREAMED, headers={"traceparent": PARENT})
        await g.until(lambda: len(spans.get_finished_spans()) == 5)
        queued, failed, again, run, server = spans.get_finished_spans()
        assert [s.name for s in (queued, failed, again, run, server)] == [
            "queue",
            "engine",
            "queue",
            "engine",
            "gateway",
        ]
        assert all(parent_of(each) == server.context.span_id for each in (queued, failed, again, run))
        assert parent_of(server) == int(PARENT.split("-")[2], 16)
        assert (failed.status.is_ok, run.status.status_code.name) == (False, "UNSET")
        assert [each.name for each in run.events] == ["first_token"]
        traceparent = g.engines["w2"].requests[0].headers["traceparent"]
        assert traceparent == f"00-{run.context.trace_id:032x}-{run.context.span_id:016x}-01"
        assert run.context.trace_id == int(PARENT.split("-")[1], 16)


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


async def test_without_tracing_the_engine_gets_the_clients_context() -> None:
    async with gateway() as g, client(g) as c:
        await c.post(PATH, json=CHAT, headers={"traceparent": PARENT})
        await c.post(PATH, json=CHAT, headers={"traceparent": "nonsense"})
        first, second = g.engine.requests
        assert first.headers["traceparent"] == PARENT
        assert "traceparent" not in second.headers


# --- clients that leave ---


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_client_that_leaves_the_queue_is_withdrawn(streamed: bool) -> None:
    async with gateway(grants=False) as g:
        _, writer = await asking(g, stream=streamed)
        await g.until(lambda: bool(g.workers.submits))
        worker, submit = g.workers.submits[0]
        writer.close()
        await g.until(lambda: g.shell.live == 0)
        assert g.workers.of(Withdraw) == [Withdraw(submit.request.id, 1)]
        granted = g.workers.grant(worker, submit)  # it crossed the withdrawal
        assert g.workers.of(Declined) == [Declined(submit.request.id, granted.grant)]
        assert g.engine.connections == 0


async def test_a_client_that_leaves_before_the_engine_is_connected_sends_it_nothing() -> None:
    async with gateway(grants=False) as g:
        _, writer = await asking(g)
        await g.until(lambda: bool(g.workers.submits))
        g.workers.grant(*g.workers.submits[0])
        g.shell.leave(exchange(g))  # in the same turn of the loop
        assert [ended.outcome for ended in g.workers.of(Ended)] == [Outcome.CANCELLED]
        await g.until(lambda: g.engine.connections == 1)
        async with client(g) as c:
            g.workers.grants = True
            await c.post(PATH, json=CHAT)
        assert [peer.headers["x-request-id"] for peer in g.engine.requests] == [g.workers.submits[1][1].request.id]
        writer.close()


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("begun", [True, False])
async def test_a_client_that_leaves_frees_the_engine(streamed: bool, begun: bool) -> None:
    async with gateway(behave=silence) as g:
        reader, writer = await asking(g, stream=streamed)
        peer = await g.asked()
        if begun and streamed:
            await peer.begin_chunks()
            await peer.chunk(event(0))
            await reader.readuntil(event(0)[-20:])
        elif begun:
            await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        writer.close()
        await g.until(peer.writer.is_closing)  # because the gateway closed the connection
        await g.until(lambda: g.shell.live == 0)
        tokens = int(begun and streamed)
        assert [(end.outcome, end.output_tokens) for end in g.workers.of(Ended)] == [(Outcome.CANCELLED, tokens)]


async def test_a_thousand_clients_that_leave_at_once_leave_nothing_behind() -> None:
    """A quarter waits for a grant, a quarter for a first token, a half is in mid-stream."""
    freed = 0

    async def behave(peer: Peer) -> None:
        nonlocal freed
        if len(g.engine.requests) % 3:
            await peer.begin_chunks()
            await peer.chunk(event(0))
        await peer.gone()
        freed += 1

    async with gateway(behave=behave, grants=False, kept=0) as g:
        g.shell.on_heartbeat(heartbeat("w1", engines=(engine_info(g.engine.url),), max_queued=2000))
        tasks = len(asyncio.all_tasks())
        clients = [await asking(g) for _ in range(1000)]
        await g.until(lambda: len(g.workers.submits) == 1000)
        for granted in range(0, 750, 50):  # the engine's socket has a short backlog
            for worker, submit in g.workers.submits[granted : granted + 50]:
                g.workers.grant(worker, submit)
            await g.until(partial(_has, g.engine.requests, granted + 50))
        await g.until(lambda: len(g.workers.of(FirstToken)) == 500)
        assert g.shell.live == 1000
        for _, writer in clients:
            writer.transport.abort()
        await g.until(lambda: g.shell.live == 0)
        await g.until(lambda: freed == 750)
        await g.until(lambda: len(asyncio.all_tasks()) <= tasks)
        pool = g.directory.find("w1", "e1").pool
        assert not pool._open
        assert not pool._connecting
        assert not pool._waiting
        assert not g.shell.relay._runs
        assert len(g.workers.of(Withdraw)) == 250
        assert [ended.outcome for ended in g.workers.of(Ended)] == [Outcome.CANCELLED] * 750
        clients.clear()
        gc.collect()
        kept = [e for e in gc.get_objects() if isinstance(e, Exchange) and e.overflow == g.shell.give_up]
        assert not kept
        g.engine.script[PATH] = lambda peer: peer.reply(PLAIN)
        g.workers.grants = True
        async with client(g) as c:
            assert (await c.post(PATH, json=CHAT)).content == PLAIN


async def test_an_engine_that_moves_is_found_again() -> None:
    async with gateway() as g, client(g) as c:
        await g.engine.stop()
        g.shell.on_heartbeat(heartbeat("w1", engines=(engine_info(g.engines["late"].url),)))
        assert (await c.post(PATH, json=CHAT)).content == PLAIN
        assert len(g.engines["late"].requests) == 1
