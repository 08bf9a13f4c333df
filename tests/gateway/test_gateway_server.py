"""The shell against real sockets: answers, errors in place of them, keep-alive, disconnects, what is remembered."""

import asyncio
from typing import Any

import orjson
import pytest

from hmas.contracts.gateway import (
    GatewayDraining,
    LoadReported,
    QuestionAsked,
    QuestionWithdrawn,
    RequestAnnotated,
    ViewReceived,
    WorkerVanished,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.http.server import HttpServerConfig
from hmas.wire.v1 import execution_pb2 as pb
from tests.gateway.gateway_harness import (
    CHAT,
    DONE,
    PATH,
    PLAIN,
    STREAMED,
    FakeWorkers,
    answer,
    asking,
    body,
    client,
    error_of,
    event,
    gateway,
    silence,
)
from tests.gateway.gateway_script import annotation, heartbeat, timeline, view


async def test_a_plain_answer_is_passed_on_as_it_is() -> None:
    async with gateway() as g, client(g) as c:
        response = await c.post(PATH, json={**CHAT, "tools": [{"type": "function"}]}, headers={"x-request-id": "mine"})
        assert (response.status_code, response.content) == (200, PLAIN)
        assert response.headers["content-type"] == "application/json"
        assert response.headers["x-request-id"] == "mine"
        ((worker, submit),) = g.workers.submits
        assert (worker, submit.path, submit.model, submit.attempt) == ("w1", PATH, "m", 1)
        assert submit.request_id != "mine"
        assert orjson.loads(submit.body) == {**CHAT, "tools": [{"type": "function"}]}
        assert [q.text for q in g.questions.asked] == ["Hello"]


async def test_a_streamed_answer_is_relayed_byte_by_byte() -> None:
    async with gateway() as g, client(g) as c:
        response = await c.post(PATH, json=STREAMED)
        assert response.content == event(0) + event(1) + event(2) + DONE
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        ((_, submit),) = g.workers.submits
        assert submit.strip_usage
        assert g.shell.live == 0


async def test_text_completions_and_aliases() -> None:
    async with gateway() as g, client(g) as c:
        response = await c.post("/v1/completions", json={"model": "alias", "prompt": [1, 2, 3]})
        assert response.content == PLAIN
        ((_, submit),) = g.workers.submits
        assert (submit.model, orjson.loads(submit.body)["model"], submit.prompt_tokens) == ("m", "m", 3)


async def test_cognition_hears_of_workers_and_of_requests_that_ended() -> None:
    async with gateway() as g, client(g) as c:
        assert (await c.post(PATH, json=CHAT)).content == PLAIN
        g.shell.on_load("w1", pb.Load(running=2, queued=3))
        g.shell.on_view(view(settled_rps=1.0))
        g.shell.on_vanished("w1", "killed")
        ((_, submit),) = g.workers.submits
        (question,) = g.questions.asked
        assert g.questions.heard == [
            HeartbeatReceived(heartbeat("w1")),
            QuestionAsked(question),
            QuestionWithdrawn(submit.request_id),
            LoadReported(worker="w1", queued=3, queued_tokens=0, running=2, backlog_s=0.0, draining=False),
            ViewReceived(view(settled_rps=1.0)),
            WorkerVanished("w1", "killed"),
        ]


async def test_an_annotation_goes_to_the_worker() -> None:
    async with gateway(behave=silence) as g, client(g) as c:
        task = asyncio.create_task(c.post(PATH, json=CHAT))
        await g.until(lambda: bool(g.workers.submits))
        worker, submit = g.workers.submits[0]
        g.shell.on_annotated(RequestAnnotated(submit.request_id, annotation()))
        assert [(w, m.request_id, m.attempt) for w, m in g.workers.annotates] == [("w1", submit.request_id, 1)]
        g.workers.finish(worker, submit, PLAIN)
        assert (await task).content == PLAIN


def refuse(outcome: Outcome, data: bytes = b"", status: int = 0) -> Any:
    def behave(workers: FakeWorkers, worker: str, submit: pb.Submit) -> None:
        workers.finish(worker, submit, data, outcome, message="because", status=status, retry_after_s=7.2)

    return behave


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("outcome", "data", "status", "expected", "message"),
    [
        (Outcome.NEVER_FITS, b"", 0, 400, "because"),
        (Outcome.POOL_QUEUE_FULL, b"", 0, 429, "because"),
        (Outcome.ENGINE_ERROR, b"", 500, 502, "because"),
        (Outcome.NO_ENGINE, b"", 0, 503, "because"),
        (Outcome.ENGINE_REFUSED, b'{"object":"error","message":"flat","code":422}', 422, 422, "flat"),
    ],
)
async def test_a_workers_refusal_before_the_first_byte_has_a_real_status(
    stream: bool, outcome: Outcome, data: bytes, status: int, expected: int, message: str
) -> None:
    async with gateway(behave=refuse(outcome, data, status)) as g, client(g) as c:
        response = await c.post(PATH, json={**CHAT, "stream": stream})
        assert response.status_code == expected
        error = error_of(response)
        assert (error["message"], error["reason"]) == (message, outcome.value)
        assert ("retry-after" in response.headers) is (expected in (429, 502, 503))


async def test_an_error_after_the_first_byte_is_an_event() -> None:
    def behave(workers: FakeWorkers, worker: str, submit: pb.Submit) -> None:
        workers.tokens(worker, submit, event(0))
        workers.finish(worker, submit, b"", Outcome.ENGINE_ERROR, message="it broke")

    async with gateway(workers=("w1", "w2"), behave=behave) as g, client(g) as c:
        response = await c.post(PATH, json=STREAMED)
        assert response.status_code == 200
        first, error, done, _ = response.content.split(b"\n\n")
        assert (first, done) == (b'data: {"n":0}', b"data: [DONE]")
        assert orjson.loads(error.removeprefix(b"data: "))["error"]["message"] == "it broke"
        assert len(g.workers.submits) == 1


async def test_a_lost_attempt_is_sent_to_the_other_worker_unseen_by_the_client() -> None:
    def behave(workers: FakeWorkers, worker: str, submit: pb.Submit) -> None:
        if worker == "w1":
            workers.shell.on_vanished("w1", "killed")
            workers.tokens("w1", submit, b"data: late\n\n")  # of the old attempt
        else:
            answer(workers, worker, submit)

    async with gateway(workers=("w1", "w2"), behave=behave) as g, client(g) as c:
        for request in (CHAT, STREAMED):
            g.shell.on_connected("w1", True)
            response = await c.post(PATH, json=request)
            assert response.content == (PLAIN if request is CHAT else event(0) + event(1) + event(2) + DONE)
        first, second = g.workers.submits[:2]
        assert (first[0], second[0]) == ("w1", "w2")
        assert (first[1].body, second[1].attempt) == (second[1].body, 2)
        assert len(g.questions.asked) == 2


async def test_a_lost_plain_answer_leaves_no_half_of_it() -> None:
    def behave(workers: FakeWorkers, worker: str, submit: pb.Submit) -> None:
        if worker == "w1":
            workers.tokens(worker, submit, b'{"half":')
            workers.finish(worker, submit, b"", Outcome.ENGINE_ERROR)
        else:
            workers.tokens(worker, submit, b'{"whole"')
            workers.finish(worker, submit, b":1}")

    async with gateway(workers=("w1", "w2"), behave=behave) as g, client(g) as c:
        assert (await c.post(PATH, json=CHAT)).json() == {"whole": 1}


async def test_no_worker_answers_503_after_the_patience() -> None:
    async with gateway(workers=(), agent=GatewayConfig(gateway="g", patience_s=0.05)) as g, client(g) as c:
        response = await c.post(PATH, json=STREAMED)
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert error_of(response)["reason"] == "no_engine"


async def test_a_queueing_stream_gets_comments_and_then_errors_as_events() -> None:
    config = HttpServerConfig(comment_after_s=0.02, comment_every_s=0.02)
    async with gateway(behave=silence, server=config) as g, client(g) as c:
        async with c.stream("POST", PATH, json=STREAMED) as response:
            assert response.status_code == 200
            chunks = response.aiter_raw()
            assert await anext(chunks) == b": keep-alive\n\n"
            assert await anext(chunks) == b": keep-alive\n\n"
            worker, submit = g.workers.submits[0]
            g.workers.finish(worker, submit, b"", Outcome.NO_ENGINE, message="all gone")
            rest = b"".join([chunk async for chunk in chunks])
        assert b'"message":"all gone"' in rest
        assert rest.endswith(DONE)


async def test_comments_end_with_the_first_token() -> None:
    config = HttpServerConfig(comment_after_s=0.02, comment_every_s=0.02)
    async with gateway(behave=silence, server=config) as g, client(g) as c, c.stream("POST", PATH, json=STREAMED) as r:
        chunks = r.aiter_raw()
        await anext(chunks)
        worker, submit = g.workers.submits[0]
        g.workers.tokens(worker, submit, event(0))
        while (chunk := await anext(chunks)) != event(0):
            assert chunk == b": keep-alive\n\n"
        await asyncio.sleep(0.1)
        g.workers.finish(worker, submit, DONE)
        assert b"".join([chunk async for chunk in chunks]) == DONE


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels_at_once(stream: bool) -> None:
    async with gateway(behave=silence) as g:
        reader, writer, worker, submit = await asking(g, stream=stream)
        if stream:
            g.workers.tokens(worker, submit, event(0))
            await reader.readuntil(b'{"n":0}')
        writer.close()
        await g.until(lambda: bool(g.workers.cancels))
        assert g.workers.cancels == [("w1", submit.request_id, 1)]
        await g.until(lambda: g.shell.live == 0)
        g.workers.tokens(worker, submit, event(1))
        g.workers.finish(worker, submit, DONE)


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
        await g.until(lambda: bool(g.workers.submits))
        gone.set()
        await call
        assert len(g.workers.cancels) == 1
        assert not sent


async def test_why_tells_a_requests_timeline() -> None:
    async with gateway(workers=("w1", "w2"), behave=silence) as g, client(g) as c:
        task = asyncio.create_task(c.post(PATH, json=STREAMED, headers={"x-request-id": "mine"}))
        await g.until(lambda: bool(g.workers.submits))
        worker, submit = g.workers.submits[0]
        g.shell.on_annotated(RequestAnnotated(submit.request_id, annotation()))
        live = orjson.loads(g.shell.timeline("mine") or b"")
        assert (live["outcome"], live["attempts"][0]["ended_s"]) == ("in flight", None)
        g.shell.on_handback(worker, pb.Handback(request_id=submit.request_id, attempt=1))
        worker, submit = g.workers.submits[1]
        g.workers.tokens(worker, submit, event(0))
        told = timeline()
        finished = pb.Finished(
            request_id=submit.request_id, attempt=2, outcome="finished", output_tokens=5,
            timeline=pb.Timeline(worker=worker, engine="e1", topology=told.topology, queued_s=0.25),
        )  # fmt: skip
        g.shell.on_finished(worker, finished)
        await task
        for request_id in ("mine", submit.request_id):
            why = orjson.loads(g.shell.timeline(request_id) or b"")
            assert [(a["worker"], a["outcome"]) for a in why["attempts"]] == [("w1", "handed_back"), ("w2", "finished")]
            assert (why["outcome"], why["output_tokens"], why["worker"]["queued_s"]) == ("finished", 5, 0.25)
            assert (why["tags"]["task"], why["predicted_cost"]["total_s"]) == ("QA", pytest.approx(1.1))
        assert g.shell.timeline("nobody") is None


async def test_an_outcome_of_a_newer_worker_is_an_error_not_a_hang() -> None:
    def behave(workers: FakeWorkers, worker: str, submit: pb.Submit) -> None:
        message = pb.Finished(request_id=submit.request_id, attempt=submit.attempt, outcome="exploded")
        workers.shell.on_finished(worker, message)

    async with gateway(behave=behave) as g, client(g) as c:
        assert (await c.post(PATH, json=CHAT)).status_code == 500


async def test_settlements_are_published() -> None:
    async with gateway() as g, client(g) as c:
        await c.post(PATH, json=STREAMED, headers={"x-slo-ttft-ms": "1234"})
        await g.until(lambda: any(t.settled for t in g.published))
        (settled,) = [s for t in g.published for s in t.settled]
        assert (settled.outcome, settled.slo.ttft_s, settled.output_tokens) == (Outcome.FINISHED, 1.234, 3)
        assert settled.ttft_s is not None
        assert 0 <= settled.ttft_s < 5


async def test_a_draining_gateway_lets_go_of_connections_that_clients_keep() -> None:
    async with gateway(behave=silence) as g:
        reader, writer, worker, submit = await asking(g)
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", g.port)
        idle_writer.write(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n")
        assert (await idle_reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        g.host.post(GatewayDraining())
        g.http.retire()
        async with asyncio.timeout(5):
            await idle_reader.read()  # to its end
            async with client(g) as c:
                refused = await c.post(PATH, json=CHAT)
            assert error_of(refused)["reason"] == "draining"
            assert refused.headers["connection"] == "close"
            answer(g.workers, worker, submit)
            assert b"[DONE]" in await reader.read()  # served, then closed
        writer.close()
        idle_writer.close()


async def test_bytes_keep_their_order_whether_the_client_reads_fast_or_slowly() -> None:
    """Chunks go straight to the connection, wait while it is full, and go straight again."""
    async with gateway(behave=silence) as g:
        reader, writer, worker, submit = await asking(g)
        sent = [b"%08d" % n * 4000 for n in range(300)]
        got = bytearray()

        async def read() -> None:
            await reader.readuntil(b"\r\n\r\n")
            while size := int(await reader.readline(), 16):
                got.extend(await reader.readexactly(size))
                await reader.readexactly(2)

        reading: asyncio.Task[None] | None = None
        for n, chunk in enumerate(sent):
            g.workers.tokens(worker, submit, chunk)
            if n % 60 == 59:
                await asyncio.sleep(0)
            if n == 200:  # by now the connection is full
                reading = asyncio.create_task(read())
                await g.until(lambda: len(got) > 100 * 32_000)
        g.workers.finish(worker, submit, DONE)
        assert reading is not None
        async with asyncio.timeout(10):
            await reading
        assert bytes(got) == b"".join(sent) + DONE
        writer.close()


async def test_an_empty_frame_does_not_end_the_answer() -> None:
    def behave(workers: FakeWorkers, worker: str, submit: pb.Submit) -> None:
        workers.tokens(worker, submit, event(0))
        asyncio.get_running_loop().call_later(0.02, workers.tokens, worker, submit, b"")
        asyncio.get_running_loop().call_later(0.03, workers.tokens, worker, submit, event(1))
        asyncio.get_running_loop().call_later(0.04, workers.finish, worker, submit, DONE)

    async with gateway(behave=behave) as g, client(g) as c:
        assert (await c.post(PATH, json=STREAMED)).content == event(0) + event(1) + DONE
