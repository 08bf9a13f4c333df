"""What our HTTP/1.1 client spends on a streamed chunk and on a plain answer, bare and as the load generator uses it (it
stamps chunks), as a ratio to aiohttp's client in the same run."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from statistics import median

import aiohttp
import orjson
import uvloop

from benchmarks.hop.client import request_bytes
from hmas.runtime.http1 import HttpPool, PoolConfig
from hmas_loadgen.runner.http import HttpClient, Origin

PATH, MODEL = "/v1/chat/completions", "mock"
TOKENS, STREAMS, GAP_MS = 128, 32, 2.0
ROUNDS = 5
Ask = Callable[[], Awaitable[None]]


class Answered:
    """Waits for the end of one answer, as a reply and as the load generator's sink."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.chunks = 0

    def on_head(self, status: int) -> None: ...

    def on_body(self, data: bytes) -> None:
        self.chunks += 1

    def on_complete(self) -> None:
        self.done.set_result(None)

    def on_failure(self, reason: str) -> None:
        self.done.set_exception(OSError(reason))

    def head(self, status: int) -> None: ...

    def body(self, at_s: float, chunk: bytes) -> None:
        self.chunks += 1


def rows() -> list[dict[str, object]]:
    with _engine() as url:
        found = uvloop.run(_measured(url))
    unit = "x aiohttp"
    return [
        {"name": f"HTTP client, {name}: CPU per {what}", "value": median(values), "unit": unit}
        for (name, what), values in found.items()
    ]


async def _measured(url: str) -> dict[tuple[str, str], list[float]]:
    """Ratios by client and kind of answer, one a round; the clients take turns within each."""
    found: dict[tuple[str, str], list[float]] = {}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for _ in range(ROUNDS):
            for stream, what in ((True, "streamed chunk"), (False, "plain answer")):
                asks = _clients(url, session, stream)
                spent = {name: await _cpu_s(ask) for name, ask in asks.items()}
                for name in asks:
                    if name != "aiohttp":
                        found.setdefault((name, what), []).append(spent[name] / spent["aiohttp"])
    return found


async def _cpu_s(ask: Ask) -> float:
    await asyncio.gather(*(ask() for _ in range(STREAMS)))  # connections stand before the clock starts
    started_s = time.process_time()
    await asyncio.gather(*(ask() for _ in range(STREAMS)))
    return time.process_time() - started_s


def _clients(url: str, session: aiohttp.ClientSession, stream: bool) -> dict[str, Ask]:
    origin = Origin.of(url)
    host, port = origin.host, origin.port
    head, body = request_bytes(host, MODEL, "", 64, TOKENS, stream)
    pool = HttpPool(host, port, None, PoolConfig())
    generator = HttpClient()
    headers = {"content-type": "application/json"}

    async def bare() -> None:
        answered = Answered()
        pool.send(head, body, answered)
        await answered.done

    async def load() -> None:
        await generator.post(origin, PATH, headers, body, Answered())

    async def baseline() -> None:
        async with session.post(f"{url}{PATH}", data=body, headers=headers) as answer:
            async for _ in answer.content.iter_any():
                pass

    return {"aiohttp": baseline, "bare": bare, "load generator's": load}


@contextmanager
def _engine() -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.mock_engine", "--gap-ms", f"{GAP_MS}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


if __name__ == "__main__":
    sys.stdout.write(orjson.dumps(rows(), option=orjson.OPT_INDENT_2).decode())
