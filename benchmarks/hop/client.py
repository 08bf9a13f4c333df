"""The measuring client of the hop benchmark: `hmas.runtime.http1`, which costs so little CPU that it is never the
bottleneck.

`python -m benchmarks.hop.client URL MODE N` prints one JSON object: {"sent", "finished", "tokens", "window_s",
"ttft_s": [...], "errors"}. MODE is `rate` (open loop, N requests per second), or `streams` or `plain` (closed loop, N
requests at once, streamed or not; `tokens` were counted in the steady `window_s`).
"""

import argparse
import asyncio
import json
import ssl
import time
from urllib.parse import urlparse

import uvloop

from hmas.runtime.http1 import HttpPool, PoolConfig

POOL = PoolConfig(max_connections=2**16, max_idle=2**16, connect_timeout_s=10.0)
GRACE_S = 10.0  # time for requests in flight when the load ends; an overloaded relay would need minutes


def request_bytes(host: str, model: str, key: str, words: int, tokens: int, stream: bool) -> tuple[bytes, bytes]:
    """Returns head and body of the request, a chat of `words` words of four bytes."""
    messages = [{"role": "user", "content": "why " * words}]
    body = json.dumps({"model": model, "messages": messages, "max_tokens": tokens, "stream": stream}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode(), body


class CountedReply:
    """One answer: counts its tokens and times the first. `ended` becomes whether it came whole, with status 200."""

    received = 0  # token events of all answers

    def __init__(self) -> None:
        self.ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.first_s = 0.0
        self.tokens = 0
        self._status = 0

    def on_head(self, status: int) -> None:
        self._status = status

    def on_body(self, data: bytes) -> None:
        count = data.count(b"data: {")
        if not count:
            return
        if not self.first_s and b'"content":"' in data.replace(b'"content":""', b""):
            self.first_s = time.monotonic()
        self.tokens += count
        CountedReply.received += count

    def on_complete(self) -> None:
        if not self.ended.done():
            self.ended.set_result(self._status == 200)

    def on_failure(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(False)


class Client:
    """Sends one request again and again and sums up the answers."""

    def __init__(self, url: str, ca: str | None, request: tuple[bytes, bytes]) -> None:
        parts = urlparse(url)
        tls = ssl.create_default_context(cafile=ca) if parts.scheme == "https" else None
        self._pool = HttpPool(parts.hostname or "", parts.port or 80, tls, POOL)
        self._request = request
        self.ttft_s: list[float] = []
        self.sent = self.finished = self.errors = self.tokens = 0

    async def one(self) -> None:
        started_s = time.monotonic()
        self.sent += 1
        reply = CountedReply()
        self._pool.send(*self._request, reply)
        ok = await reply.ended
        self.tokens += reply.tokens
        if not ok:
            self.errors += 1
            return
        self.finished += 1
        if reply.first_s:
            self.ttft_s.append(reply.first_s - started_s)


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
    before, before_s = CountedReply.received, time.monotonic()
    await asyncio.sleep(max(0.0, end_s - before_s))
    tokens, window_s = CountedReply.received - before, time.monotonic() - before_s
    await end(client, lanes)
    return tokens, window_s


async def run(args: argparse.Namespace) -> None:
    stream = args.mode != "plain"
    request = request_bytes(urlparse(args.url).netloc, args.model, args.key, args.words, args.tokens, stream)
    client = Client(args.url, args.ca, request)
    started_s = time.monotonic()
    if args.mode == "rate":
        await open_loop(client, args.n, args.seconds)
        tokens, window_s = CountedReply.received, time.monotonic() - started_s
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
    parser.add_argument("--words", type=int, default=64, help="of the prompt, of four bytes each")
    parser.add_argument("--model", default="mock")
    parser.add_argument("--key", default="none")
    parser.add_argument("--ca", help="PEM file of the authority that a https URL's certificate is from")
    uvloop.run(run(parser.parse_args()))
