"""Every form of the API through a gateway with scripted engines: what passes, what is refused, and in whose words."""

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from hmas.contracts.execution import Ended
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import USUAL_PATHS
from hmas.gateway.http.server import for_web_pages
from tests.gateway.engines.test_named_sse import MESSAGE, RESPONSE, START, STOP, named, token
from tests.gateway.gateway_harness import CHAT, Gateway, answer, broken, client, engine_info, failing, gateway, stream
from tests.worker.adapters.scripted_engine import Peer

MESSAGES = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}
RESPONSES = {"model": "m", "input": "Hello"}
EMBEDDINGS = {"model": "m", "input": ["Hello", "there"]}
USAGE = {"prompt_tokens": 4, "total_tokens": 4}
NAMED_USAGE = {"input_tokens": 4, "output_tokens": 2}


def answering(document: object) -> Callable[[Peer], Any]:
    async def reply(peer: Peer) -> None:
        await peer.reply(orjson.dumps(document))

    return reply


@pytest.mark.parametrize(
    ("path", "body", "answer", "tokens"),
    [
        ("/v1/embeddings", EMBEDDINGS, {"data": [], "usage": USAGE}, (4, 0)),
        ("/v1/rerank", {"model": "m", "query": "a", "documents": ["b"]}, {"results": [], "usage": USAGE}, (4, 0)),
        ("/v1/rerank", {"model": "m", "query": "a", "documents": ["b"]}, [{"score": 1.0}], (2, 0)),
        ("/v1/score", {"model": "m", "text_1": "a", "text_2": "b"}, {"data": [], "usage": USAGE}, (4, 0)),
        ("/tokenize", {"model": "m", "prompt": "Hello"}, {"tokens": [1, 2], "count": 2}, (1, 0)),
        ("/v1/messages/count_tokens", MESSAGES, {"input_tokens": 7}, (1, 0)),
        ("/v1/messages", MESSAGES, {"content": [], "stop_reason": "end_turn", "usage": NAMED_USAGE}, (4, 2)),
        ("/v1/responses", RESPONSES, {"output": [], "status": "completed", "usage": NAMED_USAGE}, (4, 2)),
    ],
)
async def test_a_whole_answer_passes_and_is_counted(path: str, body: Any, answer: Any, tokens: tuple[int, int]) -> None:
    async with gateway(behave=answering(answer)) as g, client(g) as c:
        got = await c.post(path, json=body)
        assert (got.status_code, got.json()) == (200, answer)
        asked = await g.asked()
        assert asked.path == path
        await g.until(lambda: any(t.settled for t in g.published))
        (settled,) = [s for t in g.published for s in t.settled]
        assert (settled.prompt_tokens, settled.output_tokens) == tokens
        (submit,) = g.workers.submits
        assert submit[1].request.prefill_only is (tokens[1] == 0)
        assert submit[1].request.slo.whole


@pytest.mark.parametrize(
    ("path", "body", "events"), [("/v1/messages", MESSAGES, MESSAGE), ("/v1/responses", RESPONSES, RESPONSE)]
)
async def test_a_stream_of_named_events_passes(path: str, body: Any, events: list[bytes]) -> None:
    async def answer(peer: Peer) -> None:
        await stream(peer, *events)

    async with gateway(behave=answer) as g, client(g) as c:
        got = await c.post(f"{path}?beta=true", json={**body, "stream": True})
        assert (got.status_code, got.content) == (200, b"".join(events))
        await g.until(lambda: any(t.settled for t in g.published))
        (settled,) = [s for t in g.published for s in t.settled]
        assert settled.output_tokens == 2
        assert settled.ttft_s is not None


async def test_an_answer_of_another_form_is_no_answer() -> None:
    async with gateway(behave=answering({"choices": []})) as g, client(g) as c:
        got = await c.post("/v1/embeddings", json=EMBEDDINGS)
        assert got.status_code == 502
        assert "data" in got.json()["error"]["message"]


def serving(g: Gateway, *paths: str, adapters: tuple[str, ...] = ()) -> None:
    g.add_worker("w1", engines=(engine_info(g.engine.url, paths=paths, adapters=adapters),))


async def test_what_the_engines_do_not_serve_is_a_404_that_names_what_they_do() -> None:
    async with gateway() as g, client(g) as c:
        serving(g, *USUAL_PATHS)
        got = await c.post("/v1/embeddings", json=EMBEDDINGS)
        assert (got.status_code, got.headers["x-hmas-reason"]) == (404, "unknown_path")
        assert all(path in got.json()["error"]["message"] for path in USUAL_PATHS)
        other = await c.post("/v1/messages", json=MESSAGES)
        assert (other.status_code, other.json()["error"]["type"]) == (404, "not_found_error")
        assert (await c.post("/v1/chat/completions", json=CHAT)).status_code == 200
        assert not g.engine.requests[1:]


async def test_only_what_all_engines_of_a_worker_serve_is_served() -> None:
    async with gateway() as g, client(g) as c:
        one = engine_info(g.engine.url, paths=(*USUAL_PATHS, "/v1/messages"))
        g.add_worker(
            "w1", engines=(one, replace(one, engine="e2", paths=USUAL_PATHS), replace(one, engine="e3", paths=()))
        )
        assert (await c.post("/v1/messages", json=MESSAGES)).status_code == 404


async def test_errors_come_in_the_words_of_the_api() -> None:
    refusing = failing(400, b'{"type":"error","error":{"type":"invalid_request_error","message":"too hot"}}')
    async with gateway(behave=refusing) as g, client(g) as c:
        mine = (await c.post("/v1/messages", json={"model": "m"})).json()
        theirs = (await c.post("/v1/messages", json=MESSAGES)).json()
        unknown = await c.post("/v1/messages", json={**MESSAGES, "model": "none"})
    assert (mine["type"], mine["error"]["type"], mine["error"]["param"]) == (
        "error",
        "invalid_request_error",
        "messages",
    )
    assert (theirs["type"], theirs["error"]["message"]) == ("error", "too hot")
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "not_found_error")


async def test_a_stream_that_breaks_ends_with_the_error_of_its_api() -> None:
    async with gateway(behave=broken(START, token())) as g, client(g) as c:
        got = await c.post("/v1/messages", json={**MESSAGES, "stream": True})
    assert got.content.startswith(START + token())
    event = got.content.removeprefix(START + token())
    assert event.startswith(b'event: error\ndata: {"type":"error"')
    assert b"[DONE]" not in event


async def test_an_adapter_is_a_model_of_its_pool_and_keeps_its_name() -> None:
    async with gateway() as g, client(g) as c:
        serving(g, *USUAL_PATHS, adapters=("tuned",))
        cards = {card["id"]: card for card in (await c.get("/v1/models")).json()["data"]}
        assert (cards["tuned"]["root"], cards["tuned"]["parent"], cards["m"]["parent"]) == ("m", "m", None)
        for model, told in (("tuned", "tuned"), ("m", "m"), ("alias", "m")):
            assert (await c.post("/v1/chat/completions", json={**CHAT, "model": model})).status_code == 200
            assert orjson.loads(g.engine.requests[-1].body)["model"] == told
        serving(g, *USUAL_PATHS)
        assert (await c.post("/v1/chat/completions", json={**CHAT, "model": "tuned"})).status_code == 404


async def test_the_service_tier_is_told() -> None:
    async with gateway() as g, client(g) as c:
        flex = await c.post("/v1/chat/completions", json={**CHAT, "service_tier": "flex"})
        plain = await c.post("/v1/chat/completions", json={**CHAT, "service_tier": "auto"})
        assert (flex.headers.get("x-hmas-service-tier"), plain.headers.get("x-hmas-service-tier")) == ("flex", None)
        slos = [submit.request.slo.ttft_s for _, submit in g.workers.submits]
        assert slos[0] > 4 * slos[1]


async def test_clients_of_anthropic_send_their_key_in_another_header(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    digest = sha256(b"hmas-one").hexdigest()
    path.write_text(f"tenants:\n  acme:\n    keys: [{{id: k1, sha256: '{digest}'}}]\n")
    answer = {"content": [], "stop_reason": "end_turn", "usage": {"input_tokens": 4, "output_tokens": 2}}
    async with gateway(behave=answering(answer), tenants_file=path) as g, client(g) as c:
        good = await c.post("/v1/messages", json=MESSAGES, headers={"x-api-key": "hmas-one"})
        bad = await c.post("/v1/messages", json=MESSAGES, headers={"x-api-key": "hmas-two"})
    assert good.status_code == 200
    assert (bad.status_code, bad.json()["error"]["type"]) == (401, "authentication_error")


PAGE = "https://chat.example"


async def test_web_pages_of_named_origins_may_use_the_api() -> None:
    async with gateway() as g:
        transport = httpx.ASGITransport(for_web_pages(g.app, (PAGE,)))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as c:
            asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
            before = await c.options("/v1/messages", headers={"origin": PAGE, **asked})
            assert before.status_code == 200
            assert before.headers["access-control-allow-origin"] == PAGE
            assert "authorization" in before.headers["access-control-allow-headers"]
            other = await c.options("/v1/messages", headers={"origin": "https://evil.example", **asked})
            assert (other.status_code, other.headers.get("access-control-allow-origin")) == (400, None)
            got = await c.post("/v1/chat/completions", json=CHAT, headers={"origin": PAGE})
            assert got.headers["access-control-allow-origin"] == PAGE
            assert "retry-after" in got.headers["access-control-expose-headers"]
            assert "access-control-allow-origin" not in (await c.post("/v1/chat/completions", json=CHAT)).headers
    assert for_web_pages(g.app, ()) is g.app


# --- several answers ---


async def numbered(peer: Peer) -> None:
    """Tells the seed, so that the answers differ."""
    seed, streamed = orjson.loads(peer.body)["seed"], orjson.loads(peer.body).get("stream")
    counts = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    if not streamed:
        choice = {"index": 0, "message": {"content": f"s{seed}"}, "finish_reason": "stop"}
        await peer.reply(orjson.dumps({"id": f"c{seed}", "choices": [choice], "usage": counts}))
        return
    chunks: list[Any] = [
        {"id": f"c{seed}", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}
        for text, reason in ((f"s{seed}", None), ("b", "stop"))
    ]
    events = [b"data: " + orjson.dumps(each) + b"\n\n" for each in [*chunks, {"choices": [], "usage": counts}]]
    await stream(peer, *events, b"data: [DONE]\n\n")


SEVERAL = {**CHAT, "n": 3, "seed": 10}


async def test_several_answers_come_as_one() -> None:
    async with gateway(behave=numbered) as g, client(g) as c:
        got = (await c.post("/v1/chat/completions", json=SEVERAL)).json()
        assert [(x["index"], x["message"]["content"]) for x in got["choices"]] == [(0, "s10"), (1, "s11"), (2, "s12")]
        assert got["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
        assert got["id"] == "c10"
        assert len(g.workers.submits) == 3
        await g.until(lambda: sum(len(t.settled) for t in g.published) == 3)


@pytest.mark.parametrize("usage", [True, False])
async def test_several_answers_stream_as_one(usage: bool) -> None:
    async with gateway(behave=numbered) as g, client(g) as c:
        body = {**SEVERAL, "stream": True, "stream_options": {"include_usage": usage}}
        got = await c.post("/v1/chat/completions", json=body)
        assert g.shell.live == 0
    *events, done, empty = got.content.split(b"\n\n")
    assert (done, empty) == (b"data: [DONE]", b"")
    chunks = [orjson.loads(event.removeprefix(b"data: ")) for event in events]
    last = chunks.pop() if usage else {"usage": None}
    assert last["usage"] == ({"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11} if usage else None)
    texts = dict.fromkeys(range(3), "")
    for chunk in chunks:
        assert chunk["id"] == chunks[0]["id"]
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["delta"]["content"]
    assert texts == {0: "s10b", 1: "s11b", 2: "s12b"}


async def test_several_prompts_come_in_their_order() -> None:
    body = {"model": "m", "prompt": ["a", "b"], "n": 2, "seed": 4}

    async def echo(peer: Peer) -> None:
        asked = orjson.loads(peer.body)
        choice = {"index": 0, "text": f"{asked['prompt']}{asked['seed']}", "finish_reason": "length"}
        counts = {"prompt_tokens": 5, "completion_tokens": 1}
        await peer.reply(orjson.dumps({"choices": [choice], "usage": counts}))

    async with gateway(behave=echo) as g, client(g) as c:
        got = (await c.post("/v1/completions", json=body)).json()
    assert [(x["index"], x["text"]) for x in got["choices"]] == [(0, "a4"), (1, "a5"), (2, "b4"), (3, "b5")]
    assert got["usage"] == {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}


@pytest.mark.parametrize("streamed", [True, False])
async def test_one_answer_that_fails_ends_the_others(streamed: bool) -> None:
    async def fail_one(peer: Peer) -> None:
        if orjson.loads(peer.body)["seed"] == 11:
            await peer.reply(b'{"error":{"message":"no"}}', 400)
        else:
            await peer.gone()

    async with gateway(behave=fail_one) as g, client(g) as c:
        got = await c.post("/v1/chat/completions", json={**SEVERAL, "stream": streamed})
        assert (got.status_code, got.json()["error"]["message"]) == (400, "no")
        await g.until(lambda: g.shell.live == 0)


async def test_a_refused_answer_refuses_them_all(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    digest = sha256(b"hmas-one").hexdigest()
    path.write_text(f"tenants:\n  acme:\n    max_in_flight: 2\n    keys: [{{id: k1, sha256: '{digest}'}}]\n")
    async with gateway(behave=numbered, tenants_file=path) as g, client(g) as c:
        got = await c.post("/v1/chat/completions", json=SEVERAL, headers={"x-api-key": "hmas-one"})
        assert (got.status_code, got.headers["x-hmas-reason"]) == (429, "tenant_in_flight")
        await g.until(lambda: g.shell.live == 0)


async def test_a_client_that_leaves_leaves_all_answers() -> None:
    async def silent(peer: Peer) -> None:
        await peer.gone()

    async with gateway(behave=silent) as g:
        async with client(g) as c:
            with pytest.raises(httpx.ReadTimeout):
                await c.post("/v1/chat/completions", json=SEVERAL, timeout=0.3)
        await g.until(lambda: g.shell.live == 0)


# --- answers that an engine gives up ---

ABORTED: dict[str, tuple[Any, list[bytes]]] = {
    "/v1/chat/completions": (
        CHAT,
        [
            b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n',
            b'data: {"choices":[{"delta":{},"finish_reason":"abort"}]}\n\ndata: [DONE]\n\n',
        ],
    ),
    "/v1/messages": (MESSAGES, [START + token(), named("message_delta", delta={"stop_reason": "error"}) + STOP]),
    "/v1/responses": (RESPONSES, [RESPONSE[1], named("response.completed", response={"status": "cancelled"})]),
}


@pytest.mark.parametrize("path", ABORTED)
async def test_an_answer_that_is_given_up_ends_with_an_error_in_the_words_of_its_api(path: str) -> None:
    body, (begun, given_up) = ABORTED[path]

    async def give_up(peer: Peer) -> None:
        await stream(peer, begun, given_up)

    async with gateway(behave=give_up) as g, client(g) as c:
        got = await c.post(path, json={**body, "stream": True}, headers={"x-request-id": "mine"})
        assert got.content.startswith(begun)
        told = got.content.removeprefix(begun)
        error = told.partition(b"data: ")[2].partition(b"\n\n")[0]
        assert "gave the answer up" in orjson.loads(error)["error"]["message"]
        if path != "/v1/chat/completions":
            assert told.startswith(b"event: error\n")
        await g.until(lambda: any(t.settled for t in g.published))
        (settled,) = [s for t in g.published for s in t.settled]
        assert (settled.outcome, settled.output_tokens) == (Outcome.ENGINE_ERROR, 1)
        why = orjson.loads(g.records.journal.timeline("mine") or b"")
        assert (why["outcome"], [run["outcome"] for run in why["runs"]]) == ("engine_error", ["engine_error"])
        assert [run["hardware"] for run in why["runs"]] == ["A100"]  # as the worker's heartbeat tells it


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_that_is_given_up_before_its_first_token_runs_elsewhere(streamed: bool) -> None:
    tries = 0

    async def first_gives_up(peer: Peer) -> None:
        nonlocal tries
        tries += 1
        if tries > 1:
            await answer(peer)
        elif streamed:
            await stream(peer, ABORTED["/v1/chat/completions"][1][1])
        else:
            await peer.reply(b'{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"abort"}]}')

    async with gateway(behave=first_gives_up, workers=("w1", "w2")) as g, client(g) as c:
        got = await c.post("/v1/chat/completions", json={**CHAT, "stream": streamed})
        assert (got.status_code, tries) == (200, 2)
        assert b"abort" not in got.content
        assert [ended.outcome for ended in g.workers.of(Ended)] == [Outcome.ENGINE_ERROR, Outcome.FINISHED]
