"""What bad input gets: an OpenAI error object, the right status, and good requests untouched."""

import asyncio
import contextlib
import json
import select
import socket
import time
from typing import Any
from urllib.parse import urlparse

import httpx
import openai
import pytest

pytestmark = pytest.mark.e2e
LONGEST_BODY = 20 * 2**20
GOOD = {"model": "emulated", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}


def without(**changes: Any) -> dict[str, Any]:
    return {**GOOD, **changes}


CASES: list[tuple[str, dict[str, Any] | bytes, dict[str, str], int, str]] = [
    ("malformed JSON", b'{"model": "emulated", ', {}, 400, "JSON"),
    ("not an object", b"[1, 2]", {}, 400, "object"),
    ("unknown model", without(model="no-such-model"), {}, 404, "no-such-model"),
    ("no model", {"messages": GOOD["messages"]}, {}, 400, "model"),
    ("empty messages", without(messages=[]), {}, 400, "messages"),
    ("messages of the wrong type", without(messages="hi"), {}, 400, "messages"),
    ("a message that is no object", without(messages=["hi"]), {}, 400, "messages"),
    ("wrong type of max_tokens", without(max_tokens="many"), {}, 400, "max_tokens"),
    ("wrong type of stream", without(stream="yes"), {}, 400, "stream"),
    ("n too large", without(n=99), {}, 400, "n"),
    ("negative SLO", GOOD, {"x-slo-ttft-ms": "-5"}, 400, "x-slo-ttft-ms"),
    ("SLO that is no number", GOOD, {"x-llm-d-slo-tpot-ms": "soon"}, 400, "x-llm-d-slo-tpot-ms"),
    ("prompt that never fits", without(messages=[{"role": "user", "content": "abc " * 60_000}]), {}, 400, "60"),
]


def check_error(answer: httpx.Response, status: int, word: str) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    assert word in error["message"] or word == error["param"]
    assert answer.headers["x-hmas-reason"]
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize(("body", "headers", "status", "word"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_each_bad_request(
    mesh: Any, body: dict[str, Any] | bytes, headers: dict[str, str], status: int, word: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = httpx.post(
        f"{mesh.url}/v1/chat/completions",
        content=content,
        headers={"content-type": "application/json", **headers},
        timeout=30,  # a young gateway waits a while for a model's first worker before it calls the model unknown
    )
    check_error(answer, status, word)


def test_a_huge_body_is_refused_before_it_is_read(mesh: Any) -> None:
    parts = urlparse(mesh.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as s:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 52428800\r\n\r\n")
        reply = s.recv(65536)
    assert b" 413 " in reply.split(b"\r\n")[0]
    assert b'"error"' in reply


def test_a_huge_chunked_body_is_cut_at_the_bound(mesh: Any) -> None:
    parts = urlparse(mesh.url)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 2**16 + b"\r\n"
    sent = 0
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as s:
        s.sendall(head)
        with contextlib.suppress(ConnectionError):  # closed while we still send; what it answered is still to be read
            while sent < LONGEST_BODY and not select.select([s], [], [], 0)[0]:
                s.sendall(chunk)
                sent += 2**16
        reply = s.recv(65536)
    assert b" 413 " in reply.split(b"\r\n")[0]
    assert b'"error"' in reply
    assert sent < LONGEST_BODY, "the body was read to its end"


def test_wrong_method_and_path(mesh: Any) -> None:
    assert httpx.get(f"{mesh.url}/v1/chat/completions").status_code == 405
    answer = httpx.post(f"{mesh.url}/v1/nothing", json=GOOD, timeout=30)
    check_error(answer, 404, "nothing")


async def test_two_hundred_bad_requests_under_load_leave_the_good_ones_untouched(mesh: Any) -> None:
    """Good streams run beside every bad case, and beside connections that never finish their request."""
    parts = urlparse(mesh.url)
    loris = []
    for partial in (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n", b"GET"):
        for _ in range(10):
            s = socket.create_connection((parts.hostname or "", parts.port or 0))
            s.sendall(partial)
            loris.append(s)
    body_loris = socket.create_connection((parts.hostname or "", parts.port or 0))
    body_loris.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")

    async with (
        httpx.AsyncClient(base_url=mesh.url, timeout=30, limits=httpx.Limits(max_connections=64)) as bad_client,
        openai.AsyncOpenAI(base_url=f"{mesh.url}/v1", api_key="unused", max_retries=0, timeout=60) as good_client,
    ):

        async def good(i: int) -> str:
            stream = await good_client.chat.completions.create(
                model="emulated", messages=[{"role": "user", "content": f"q{i}"}], max_tokens=8, stream=True
            )
            chunks = [c async for c in stream]
            return chunks[-1].choices[0].finish_reason or ""

        async def bad(i: int) -> int:
            _, body, headers, status, _ = CASES[i % len(CASES)]
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            answer = await bad_client.post("/v1/chat/completions", content=content, headers=headers)
            return answer.status_code - status

        ends, statuses = await asyncio.gather(
            asyncio.gather(*(good(i) for i in range(40))), asyncio.gather(*(bad(i) for i in range(200)))
        )
    assert set(ends) <= {"stop", "length"}
    assert set(statuses) == {0}
    await asyncio.to_thread(_closed_by_the_server, body_loris)
    for s in loris:
        s.close()


def _closed_by_the_server(s: socket.socket) -> None:
    """A body that trickles in is given up: 408 and a closed connection, within the read time-out."""
    s.settimeout(40)
    deadline = time.monotonic() + 40
    got = b""
    while time.monotonic() < deadline:
        data = s.recv(65536)
        if not data:
            break
        got += data
    s.close()
    assert b" 408 " in got.split(b"\r\n")[0]
