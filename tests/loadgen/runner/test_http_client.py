"""The HTTP client's corners, against scripted raw sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from hmas_loadgen.runner.http import ConnectionFailed, HttpClient, Origin


class Sink:
    def __init__(self) -> None:
        self.status = 0
        self.content = b""

    def head(self, status: int) -> None:
        self.status = status

    def body(self, at_s: float, chunk: bytes) -> None:
        self.content += chunk


@asynccontextmanager
async def scripted(
    *answers: bytes, close: bool = False
) -> AsyncIterator[tuple[Origin, list[bytes], Callable[[], int]]]:
    """Answers the n-th request of each connection with `answers[n]`."""
    requests: list[bytes] = []
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        try:
            for answer in answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                requests.append(head + await reader.readexactly(length))
                for byte in range(0, len(answer), 7):  # borders anywhere
                    writer.write(answer[byte : byte + 7])
                    await writer.drain()
            if not close:
                await reader.read()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield Origin.of(f"http://127.0.0.1:{port}/base/"), requests, lambda: connections
    finally:
        server.close()


async def post(client: HttpClient, origin: Origin) -> Sink:
    sink = Sink()
    await client.post(origin, "/v1/x", {"X-Y": "z"}, b"body", sink)
    return sink


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
SIZED = b"HTTP/1.1 429 Too Many\r\nContent-Length: 2\r\n\r\nno"


async def test_a_connection_is_used_again() -> None:
    client = HttpClient()
    async with scripted(CHUNKED, SIZED) as (origin, requests, connections):
        first, second = await post(client, origin), await post(client, origin)
        assert (first.status, first.content) == (200, b"abcde")
        assert (second.status, second.content) == (429, b"no")
        assert connections() == 1
        assert requests[0].startswith(b"POST /base/v1/x HTTP/1.1\r\n")
        assert requests[0].endswith(b"X-Y: z\r\n\r\nbody")
        client.close()


async def test_connection_close_is_obeyed() -> None:
    client = HttpClient()
    async with scripted(SIZED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")) as (origin, _, connections):
        await post(client, origin)
        await post(client, origin)
        assert connections() == 2
        client.close()


async def test_a_body_may_end_with_the_connection() -> None:
    client = HttpClient()
    async with scripted(b"HTTP/1.1 200 OK\r\n\r\nabc", close=True) as (origin, _, _connections):
        assert (await post(client, origin)).content == b"abc"


async def test_a_hint_before_the_answer_is_passed_over() -> None:
    client = HttpClient()
    async with scripted(b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED) as (origin, _, _connections):
        assert (await post(client, origin)).status == 429
        client.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", r"the connection to 127.0.0.1:\d+ was lost"),
        (b"", r"the connection to 127.0.0.1:\d+ was lost"),
    ],
)
async def test_what_is_not_a_whole_answer_fails(answer: bytes, reason: str) -> None:
    client = HttpClient()
    async with scripted(answer, close=True) as (origin, _, _connections):
        with pytest.raises(ConnectionFailed, match=reason):
            await post(client, origin)


async def test_a_connection_that_the_server_closes_under_a_request_is_not_tried_again() -> None:
    client = HttpClient()
    async with scripted(SIZED, b"", close=True) as (origin, requests, connections):
        await post(client, origin)
        with pytest.raises(ConnectionFailed):
            await post(client, origin)
        assert (len(requests), connections()) == (2, 1)


def test_origins() -> None:
    assert Origin.of("https://api.example.com/v9") == Origin("api.example.com", 443, True, "/v9")
    assert Origin.of("http://[::1]:8000").authority == "[::1]:8000"
    with pytest.raises(ValueError, match="must have the form"):
        Origin.of("http://")
