"""The HTTP side against real sockets: answers, errors in place of them, keep-alive, disconnects, what is remembered."""

import asyncio
import time
from dataclasses import asdict
from typing import Any

import orjson
import pytest

from hmas.contracts.execution import Annotate, Ended, Refusal
from hmas.contracts.gateway import FromWorker, GatewayDraining, RequestAnnotated, StreamChanged, ViewReceived
from hmas.contracts.outcome import Outcome
from hmas.contracts.questions import QuestionAsked, QuestionWithdrawn
from hmas.contracts.registry import HeartbeatReceived
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.http.server import HttpServerConfig
from tests.conftest import PATIENCE_S
from tests.gateway.gateway_harness import (
    CHAT,
    DONE,
    PATH,
    PLAIN,
    STREAMED,
    Gateway,
    answer,
    asking,
    body,
    broken,
    client,
    engine_info,
    error_of,
    event,
    failing,
    gateway,
    last,
    silence,
    usage,
)
from tests.gateway.gateway_script import annotation, heartbeat, load, view
from tests.worker.adapters.scripted_engine import Peer


async def test_a_plain_answer_is_passed_on_as_it_is() -> None:
    async with gateway() as g, client(g) as c:
        response = await c.post(PATH, json={**CHAT, "tools": [{"type": "function"}]}, headers={"x-request-id": "mine"})
        assert (response.status_code, response.content) == (200, PLAIN)
        assert response.headers["content-type"] == "application/json"
        assert response.headers["x-request-id"] == "mine"
        assert "x-hmas-mode" not in response.headers
        ((worker, submit),) = g.workers.submits
        assert (worker, submit.request.model, submit.attempt) == ("w1", "m", 1)
        assert submit.request.id != "mine"
        (asked,) = g.engine.requests
        assert (asked.path, asked.headers["x-request-id"]) == (PATH, submit.request.id)
        assert orjson.loads(asked.body) == {**CHAT, "tools": [{"type": "function"}]}
        assert [(q.text, q.worker) for q in g.questions.asked] == [("Hello", "w1")]


async def test_a_streamed_answer_is_relayed_byte_by_byte() -> None:
    async with gateway() as g, client(g) as c:
        response = await c.post(PATH, json=STREAMED)
        assert response.content == event(0) + event(1) + last(2) + DONE  # without the usage, which nobody asked for
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert orjson.loads(g.engine.requests[0].body)["stream_options"] == {"include_usage": True}
        assert g.shell.live == 0


async def test_text_completions_and_aliases() -> None:
    async with gateway() as g, client(g) as c:
        response = await c.post("/v1/completions", json={"model": "alias", "prompt": [1, 2, 3]})
        assert response.content == PLAIN
        (asked,) = g.engine.requests
        assert (asked.path, orjson.loads(asked.body)["model"]) == ("/v1/completions", "m")
        assert g.workers.submits[0][1].request.prompt_tokens == 3


async def test_cognition_hears_of_workers_and_of_requests_that_ended() -> None:
    async with gateway() as g, client(g) as c:
        assert (await c.post(PATH, json=CHAT)).content == PLAIN
        g.workers.say("w1", load(running=2))
        g.shell.on_view(view(settled_rps=1.0))
        g.shell.on_connected("w1", False, 0.0)
        ((_, submit),) = g.workers.submits
        (question,) = g.questions.asked
        assert g.questions.heard == [
            HeartbeatReceived(heartbeat("w1", engines=(engine_info(g.engine.url),))),
            StreamChanged("w1", True),
            QuestionAsked(question),
            QuestionWithdrawn(submit.request.id),
            FromWorker("w1", load(running=2)),
            ViewReceived(view(settled_rps=1.0)),
            StreamChanged("w1", False),
        ]


async def test_an_annotation_goes_to_the_worker_and_asks_no_more() -> None:
    async with gateway(grants=False) as g, client(g) as c:
        task = asyncio.create_task(c.post(PATH, json=CHAT))
        await g.until(lambda: bool(g.workers.submits))
        worker, submit = g.workers.submits[0]
        g.shell.on_annotated(RequestAnnotated(submit.request.id, annotation()))
        assert g.workers.of(Annotate) == [Annotate(submit.request.id, 1, annotation())]
        g.workers.grant(worker, submit)
        assert (await task).content == PLAIN
        assert QuestionWithdrawn(submit.request.id) not in g.questions.heard


async def test_a_request_is_asked_about_once_however_often_it_is_sent() -> None:
    async with gateway(workers=(), grants=False) as g, client(g) as c:
        refused = await c.post(PATH, content=b"{}")
        assert refused.status_code == 400
        task = asyncio.create_task(c.post(PATH, json=CHAT))
        await g.until(lambda: bool(g.questions.asked))
        g.add_worker("late")
        g.shell.on_connected("late", False, 0.0)
        g.shell.on_connected("late", True, 0.0)
        worker, submit = g.workers.submits[-1]
        g.workers.grant(worker, submit)
        assert (await task).content == PLAIN
        assert len(g.workers.submits) == 2
        assert len(g.questions.asked) == 1


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("outcome", "expected"),
    [(Outcome.NEVER_FITS, 400), (Outcome.POOL_QUEUE_FULL, 429), (Outcome.ENGINE_ERROR, 502), (Outcome.NO_ENGINE, 503)],
)
async def test_a_workers_refusal_has_a_real_status(streamed: bool, outcome: Outcome, expected: int) -> None:
    async with gateway(grants=False) as g, client(g) as c:
        task = asyncio.create_task(c.post(PATH, json={**CHAT, "stream": streamed}))
        await g.until(lambda: bool(g.workers.submits))
        worker, submit = g.workers.submits[0]
        refusal = Refusal(
            request_id=submit.request.id, attempt=1, outcome=outcome, message="because", retry_after_s=7.2
        )
        g.workers.say(worker, refusal)
        response = await task
        assert response.status_code == expected
        error = error_of(response)
        assert (error["message"], error["reason"]) == ("because", outcome.value)
        assert ("retry-after" in response.headers) is (expected in (429, 502, 503))


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_engines_refusal_is_passed_on_with_its_status(streamed: bool) -> None:
    refused = failing(422, b'{"object":"error","message":"flat","code":422}')
    async with gateway(behave=refused) as g, client(g) as c:
        response = await c.post(PATH, json={**CHAT, "stream": streamed})
        assert response.status_code == 422
        assert (error_of(response)["message"], error_of(response)["reason"]) == ("flat", "engine_refused")
        (ended,) = g.workers.of(Ended)
        assert (ended.outcome, ended.status, ended.retryable) == (Outcome.ENGINE_REFUSED, 422, False)


async def test_an_error_after_the_first_token_is_an_event() -> None:
    async with gateway(workers=("w1", "w2"), behave=broken(event(0))) as g, client(g) as c:
        response = await c.post(PATH, json=STREAMED)
        assert response.status_code == 200
        first, error, done, _ = response.content.split(b"\n\n")
        assert (first + b"\n\n", done) == (event(0), b"data: [DONE]")
        assert "lost before the answer was complete" in orjson.loads(error.removeprefix(b"data: "))["error"]["message"]
        assert len(g.workers.submits) == 1


@pytest.mark.parametrize("request_body", [CHAT, STREAMED])
async def test_a_run_that_fails_before_its_first_token_is_tried_elsewhere_unseen(request_body: dict[str, Any]) -> None:
    """The worker refuses what its only engine failed, and the other worker serves it. Half an answer is not seen."""

    async def half(peer: Peer) -> None:
        await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        raise ConnectionError

    async with gateway(workers=("w1", "w2")) as g, client(g) as c:
        g.engine.script[PATH] = half
        response = await c.post(PATH, json=request_body)
        assert response.content == (PLAIN if request_body is CHAT else event(0) + event(1) + last(2) + DONE)
        assert [(worker, submit.attempt) for worker, submit in g.workers.submits] == [("w1", 1), ("w2", 2)]
        assert [ended.retryable for ended in g.workers.of(Ended)] == [True, False]
        assert g.engine.requests[0].body == g.engines["w2"].requests[0].body


async def test_no_worker_answers_503_after_the_patience() -> None:
    async with gateway(workers=(), agent=GatewayConfig(gateway="g", patience_s=0.05)) as g, client(g) as c:
        response = await c.post(PATH, json=STREAMED)
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert error_of(response)["reason"] == "no_engine"


async def test_a_queueing_stream_gets_comments_and_then_errors_as_events() -> None:
    config = HttpServerConfig(comment_after_s=0.02, comment_every_s=0.02)
    async with gateway(grants=False, server=config) as g, client(g) as c:
        async with c.stream("POST", PATH, json=STREAMED) as response:
            assert response.status_code == 200
            chunks = response.aiter_raw()
            assert await anext(chunks) == b": keep-alive\n\n"
            assert await anext(chunks) == b": keep-alive\n\n"
            worker, submit = g.workers.submits[0]
            refusal = Refusal(request_id=submit.request.id, attempt=1, outcome=Outcome.NO_ENGINE, message="all gone")
            g.workers.say(worker, refusal)
            rest = b"".join([chunk async for chunk in chunks])
        assert b'"message":"all gone"' in rest
        assert rest.endswith(DONE)


async def test_comments_end_with_the_first_token() -> None:
    config = HttpServerConfig(comment_after_s=0.02, comment_every_s=0.02)
    async with gateway(behave=silence, server=config) as g, client(g) as c, c.stream("POST", PATH, json=STREAMED) as r:
        chunks = r.aiter_raw()
        await anext(chunks)
        peer = await g.asked()
        await peer.begin_chunks()
        await peer.chunk(event(0))
        while (chunk := await anext(chunks)) != event(0):
            assert chunk == b": keep-alive\n\n"
        await asyncio.sleep(0.1)
        await peer.chunk(last(1) + DONE)
        await peer.end_chunks()
        assert b"".join([chunk async for chunk in chunks]) == last(1) + DONE


async def test_without_our_protocol_a_disconnect_is_still_seen() -> None:
    """As on another ASGI server."""
    async with gateway(behave=silence) as g:
        gone = asyncio.Event()
        messages = iter([{"type": "http.request", "body": body(), "more_body": False}])
        sent: list[Any] = []

        async def receive() -> Any:
            for message in messages:
                return message
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "path": PATH, "method": "POST", "headers": []}
        call = asyncio.create_task(g.app(scope, receive, send))
        await g.asked()
        gone.set()
        await call
        assert [ended.outcome for ended in g.workers.of(Ended)] == [Outcome.CANCELLED]
        assert not sent


async def test_why_tells_a_requests_timeline() -> None:
    async with gateway(workers=("w1", "w2"), grants=False) as g, client(g) as c:
        task = asyncio.create_task(c.post(PATH, json=STREAMED, headers={"x-request-id": "mine"}))
        await g.until(lambda: bool(g.workers.submits))
        worker, submit = g.workers.submits[0]
        g.shell.on_annotated(RequestAnnotated(submit.request.id, annotation()))
        live = why(g, "mine")
        assert (live["outcome"], live["runs"]) == ("in flight", [])
        g.engine.script[PATH] = failing(500)
        granted = g.workers.grant(worker, submit)
        await g.until(lambda: len(g.workers.submits) == 2)
        g.workers.grant(*g.workers.submits[1])
        await task
        for request_id in ("mine", submit.request.id):
            told = why(g, request_id)
            assert [(a["attempt"], a["worker"]) for a in told["attempts"]] == [(1, "w1"), (2, "w2")]
            first, second = told["runs"]
            assert (first["worker"], first["engine"], first["grant"], first["bypass"]) == ("w1", "e1", 1, False)
            assert (first["outcome"], first["first_token_s"]) == ("engine_error", None)
            assert first["timeline"] == asdict(granted.timeline)
            assert (second["worker"], second["grant"], second["outcome"]) == ("w2", 2, "finished")
            assert first["ended_s"] <= second["started_s"] <= second["first_token_s"] <= second["ended_s"]
            assert second["first_token_s"] == told["ttft_s"]
            assert (told["outcome"], told["output_tokens"]) == ("finished", 3)
            assert (told["tags"]["task"], told["predicted_cost"]["total_s"]) == ("QA", pytest.approx(1.1))
        assert g.records.journal.timeline("nobody") is None


def why(g: Gateway, request_id: str) -> dict[str, Any]:
    told: dict[str, Any] = orjson.loads(g.records.journal.timeline(request_id) or b"")
    return told


async def test_settlements_are_published() -> None:
    async with gateway() as g, client(g) as c:
        before_s = time.monotonic()
        await c.post(PATH, json=STREAMED, headers={"x-slo-ttft-ms": "1234"})
        took_s = time.monotonic() - before_s
        await g.until(lambda: any(t.settled for t in g.published))
        (settled,) = [s for t in g.published for s in t.settled]
        assert (settled.outcome, settled.slo.ttft_s, settled.output_tokens) == (Outcome.FINISHED, 1.234, 3)
        assert settled.ttft_s is not None
        assert 0 < settled.ttft_s < took_s


async def test_a_draining_gateway_lets_go_of_connections_that_clients_keep() -> None:
    async with gateway(behave=silence) as g:
        reader, writer = await asking(g)
        peer = await g.asked()
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", g.port)
        idle_writer.write(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n")
        assert (await idle_reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        g.host.post(GatewayDraining())
        g.http.retire()
        async with asyncio.timeout(PATIENCE_S):
            await idle_reader.read()  # to its end
            async with client(g) as c:
                refused = await c.post(PATH, json=CHAT)
            assert error_of(refused)["reason"] == "draining"
            assert refused.headers["connection"] == "close"
            await answer(peer)
            assert b"[DONE]" in await reader.read()  # served, then closed
        writer.close()
        idle_writer.close()


async def test_bytes_keep_their_order_whether_the_client_reads_fast_or_slowly() -> None:
    """Chunks go straight to the connection, wait while it is full, and go straight again."""
    async with gateway(behave=silence) as g:
        reader, writer = await asking(g)
        peer = await g.asked()
        sent = [event(n).replace(b'"}}', b"x" * 32_000 + b'"}}') for n in range(300)]
        got = bytearray()

        async def read() -> None:
            await reader.readuntil(b"\r\n\r\n")
            while size := int(await reader.readline(), 16):
                got.extend(await reader.readexactly(size))
                await reader.readexactly(2)

        async with asyncio.timeout(PATIENCE_S):
            await peer.begin_chunks()
            for chunk in sent[:200]:
                await peer.chunk(chunk)
            (exchange,) = g.shell._exchanges.values()
            await g.until(lambda: bool(exchange.chunks))  # by now the connection is full
            reading = asyncio.create_task(read())
            await g.until(lambda: len(got) > 100 * 32_000)
            for chunk in sent[200:]:
                await peer.chunk(chunk)
            await peer.chunk(last(400) + DONE)
            await peer.end_chunks()
            await reading
        assert bytes(got) == b"".join(sent) + last(400) + DONE
        writer.close()


async def test_events_that_are_left_out_do_not_end_the_answer() -> None:
    """An empty chunk would."""

    async def behave(peer: Peer) -> None:
        await peer.begin_chunks()
        for each in (event(0), usage(1), last(1), DONE):
            await peer.chunk(each)
            await asyncio.sleep(0.01)
        await peer.end_chunks()

    async with gateway(behave=behave) as g, client(g) as c:
        assert (await c.post(PATH, json=STREAMED)).content == event(0) + last(1) + DONE


@pytest.mark.parametrize("kind", ["comment", "event"])
async def test_a_client_that_asks_is_told_its_place_in_the_queue(kind: str) -> None:
    config = HttpServerConfig(comment_after_s=0.02, comment_every_s=60.0)
    headers = {"x-hmas-queue-status": kind}
    begin = {"comment": b": queue_status ", "event": b"event: queue_status\ndata: "}[kind]
    async with (
        gateway(grants=False, server=config) as g,
        client(g) as c,
        c.stream("POST", PATH, json=STREAMED),
        c.stream("POST", PATH, json=STREAMED, headers=headers) as second,
    ):
        chunks = second.aiter_raw()
        told = orjson.loads((await anext(chunks)).removeprefix(begin))
        assert (told["place"], told["queued"]) == (2, 2)
        assert told["expected_wait_s"] >= 0
        g.workers.grant(*g.workers.submits[0])
        while told["place"] == 2:
            told = orjson.loads((await anext(chunks)).removeprefix(begin))
        assert told["place"] == 1
        g.workers.grant(*g.workers.submits[1])
        rest = b"".join([chunk async for chunk in chunks])
        assert b"queue_status" not in rest.partition(event(0))[2]
        assert rest.endswith(DONE)


async def test_an_unknown_wish_for_the_place_is_refused() -> None:
    async with gateway() as g, client(g) as c:
        response = await c.post(PATH, json=STREAMED, headers={"x-hmas-queue-status": "loud"})
        assert (response.status_code, error_of(response)["param"]) == (400, "x-hmas-queue-status")
