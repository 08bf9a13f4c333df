"""The endpoint under measurement, played by a server that sends exactly these bytes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hmas.mesh.calibrate.client import Endpoint, EndpointFailed

USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}


def event(body: object) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


TOKENS = [event({"choices": [{"text": word}]}) for word in ("one", "two")]


@asynccontextmanager
async def endpoint(*pieces: bytes, status: str = "200 OK", timeout_s: float = 5.0) -> AsyncIterator[Endpoint]:
    """Its server answers every request with the pieces, written one after another, and closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nConnection: close\r\n\r\n".encode())
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Endpoint(f"http://127.0.0.1:{port}/v1", "", "m", timeout_s) as client:
            yield client


async def test_tokens_are_stamped_as_they_come_and_counted_by_the_endpoint() -> None:
    cut = len(TOKENS[1]) // 2  # the second event comes in two pieces
    async with endpoint(TOKENS[0], TOKENS[1][:cut], TOKENS[1][cut:], event(USAGE), b"data: [DONE]\n\n") as client:
        times = await client.stream(3, 2, "seed")
    assert (times.prompt_tokens, times.output_tokens, len(times.token_s)) == (7, 2, 2)
    assert times.sent_s < times.token_s[0] < times.token_s[1]


@pytest.mark.parametrize(
    ("pieces", "status", "message"),
    [
        (TOKENS, "200 OK", "reports no token counts"),
        ([b"data: {\n"], "200 OK", "does not stream OpenAI completions"),
        ([event({"error": "out of memory"})], "200 OK", "ended a stream with an error, check its log: out of memory"),
        ([b"no such model"], "404 Not Found", "refused a request with HTTP 404: no such model"),
    ],
)
async def test_what_is_no_measurement_says_why(pieces: list[bytes], status: str, message: str) -> None:
    async with endpoint(*pieces, status=status) as client:
        with pytest.raises(EndpointFailed, match=message):
            await client.stream(3, 2, "seed")


async def test_the_first_model_is_taken_where_none_is_named() -> None:
    async with endpoint(b'{"data": [{"id": "first"}, {"id": "second"}]}') as client:
        with pytest.raises(EndpointFailed, match="does not serve the model 'm'"):
            await client.card()
        client.model = ""
        assert (await client.card(), client.model) == ({"id": "first"}, "first")


async def test_a_server_that_is_not_there_or_silent_is_named() -> None:
    async with Endpoint("http://127.0.0.1:9", "", "m", 5.0) as client:
        with pytest.raises(EndpointFailed, match="start the server, or correct the URL"):
            await client.card()
        assert await client.metrics() == b""
    async with endpoint(*TOKENS * 100, timeout_s=0.1) as client:
        with pytest.raises(EndpointFailed, match=r"no end within 0\.1 s"):
            await client.stream(3, 2, "seed")
    with pytest.raises(EndpointFailed, match="must have the form"):
        Endpoint("nonsense", "", "m", 5.0)
