"""The measuring client of the hop benchmark: plain HTTP/1.1 on asyncio, which costs so little CPU that it is never the
bottleneck.

`python -m benchmarks.hop.client URL MODE N` prints one JSON object: {"sent", "finished", "tokens", "window_s",
"ttft_s": [...], "errors"}. MODE is `rate` (open loop, N requests per second), or `streams` or `plain` (closed loop, N
requests at once, streamed or not; `tokens` were counted in the steady `window_s`).
"""

import argparse
import asyncio
import json
import time
from typing import cast
from urllib.parse import urlparse

import uvloop

END = b"\r\n0\r\n\r\n"
GRACE_S = 10.0  # time for requests in flight when the load ends; an overloaded relay would need minutes


def request_bytes(host: str, model: str, key: str, tokens: int, stream: bool) -> bytes:
    body = json.dumps(
        {"model": model, "messages": [{"role": "user", "content": "why " * 64}], "max_tokens": tokens, "stream": stream}
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class RawExchange(asyncio.Protocol):
    """The client's side of one HTTP connection, which is kept open, with one request at a time."""

    received = 0  # token events of all connections

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.done: asyncio.Future[bool] | None = None
        self._reset()

    def _reset(self) -> None:
        self.first_s = 0.0
        self.tokens = 0
        self._tail = b""
        self._length: int | None = None
        self._got = 0
        self._head = b""
        self._ok = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(
            asyncio.Transport, transport
        )  # uvloop's transport has the methods, but another base class

    def send(self, data: bytes) -> asyncio.Future[bool]:
        self._reset()
        self.done = asyncio.get_running_loop().create_future()
        assert self.transport is not None
        self.transport.write(data)
        return self.done

    def data_received(self, data: bytes) -> None:
        if not self._ok:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            head, data = self._head[:end].lower(), self._head[end + 4 :]
            if b" 200 " not in head.split(b"\r\n", 1)[0] + b" ":
                self._finish(False)
                return
            self._ok = True
            at = head.find(b"content-length:")
            self._length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else None
            if not data:
                return
        self._body(data)

    def _body(self, data: bytes) -> None:
        if self._length is not None:
            self._got += len(data)
            if self._got >= self._length:
                self._finish(True)
            return
        count = data.count(b"data: {")
        if count:
            if not self.first_s and b'"content":"' in data.replace(b'"content":""', b""):
                self.first_s = time.monotonic()
            self.tokens += count
            RawExchange.received += count
        joined = self._tail + data[-8:]
        if joined.endswith(END) or data.startswith(b"0\r\n\r\n"):
            self._finish(True)
        self._tail = data[-8:]

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._finish(False)

    def _finish(self, ok: bool) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(ok)


class Client:
    def __init__(self, url: str, data: bytes) -> None:
        parts = urlparse(url)
        self.host, self.port = parts.hostname or "", parts.port or 80
        self.data = data
        self.idle: list[RawExchange] = []
        self.ttft_s: list[float] = []
        self.sent = self.finished = self.errors = self.tokens = 0

    async def one(self) -> None:
        exchange = self.idle.pop() if self.idle else None
        while exchange is not None and exchange.transport is None:
            exchange = self.idle.pop() if self.idle else None
        if exchange is None:
            _, exchange = await asyncio.get_running_loop().create_connection(RawExchange, self.host, self.port)
        started_s = time.monotonic()
        self.sent += 1
        ok = await exchange.send(self.data)
        self.tokens += exchange.tokens
        if not ok:
            self.errors += 1
            return
        self.finished += 1
        if exchange.first_s:
            self.ttft_s.append(exchange.first_s - started_s)
        self.idle.append(exchange)


async def end(client: Client, tasks: list[asyncio.Task[None]]) -> None:
    """Waits for requests in flight; those that do not end within `GRACE_S` count as errors."""
    _, pending = await asyncio.wait(tasks, timeout=GRACE_S)
    client.errors += len(pending)
    for task in pending:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


async def open_loop(client: Client, rate: float, seconds: float) -> None:
    started_s = time.monotonic()
    tasks = []
    for i in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, started_s + i / rate - time.monotonic()))
        tasks.append(asyncio.create_task(client.one()))
    await end(client, tasks)


async def closed_loop(client: Client, width: int, seconds: float) -> tuple[int, float]:
    """Keeps `width` requests in flight for `seconds`. Returns the tokens received in the steady part, after all have
    started and before the end, and its length in seconds."""
    ramp_s = seconds / 4
    end_s = time.monotonic() + seconds

    async def lane(i: int) -> None:
        await asyncio.sleep(i / width * ramp_s)
        while time.monotonic() < end_s:
            await client.one()

    lanes = [asyncio.create_task(lane(i)) for i in range(width)]
    await asyncio.sleep(ramp_s)
    before, before_s = RawExchange.received, time.monotonic()
    await asyncio.sleep(max(0.0, end_s - before_s))
    tokens, window_s = RawExchange.received - before, time.monotonic() - before_s
    await end(client, lanes)
    return tokens, window_s


async def run(args: argparse.Namespace) -> None:
    stream = args.mode != "plain"
    data = request_bytes(urlparse(args.url).netloc, args.model, args.key, args.tokens, stream)
    client = Client(args.url, data)
    started_s = time.monotonic()
    if args.mode == "rate":
        await open_loop(client, args.n, args.seconds)
        tokens, window_s = RawExchange.received, time.monotonic() - started_s
    else:
        tokens, window_s = await closed_loop(client, int(args.n), args.seconds)
    print(
        json.dumps(
            {
                "sent": client.sent, "finished": client.finished, "errors": client.errors, "tokens": tokens,
                "window_s": window_s, "ttft_s": client.ttft_s,
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("mode", choices=("rate", "streams", "plain"))
    parser.add_argument("n", type=float)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--model", default="mock")
    parser.add_argument("--key", default="none")
    uvloop.run(run(parser.parse_args()))
