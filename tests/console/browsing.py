"""What the browser's tests ask of a mesh, and how."""

import asyncio
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from hmas.contracts.queue import QueueQuery, QueueReply
from hmas.mesh.client import open_bus
from hmas.operator.client import connected
from hmas.wire.codec import decode, encode
from hmas.wire.subjects import QUERY_QUEUE

CHROMIUM = shutil.which("chromium")
needs_browser = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH: apt-get install chromium"),
]
PATIENCE_MS = 60_000
START_S = 300.0
REQUESTS = 12
EVIL = "<img src=x onerror=alert(1)>"  # the name of a tenant
KEYS = {"acme": "", EVIL: ""}  # made when the mesh starts


def answering(url: str) -> str:
    """Returns the console's URL once it answers: it gives way to all else that starts with the mesh."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            httpx.get(f"{url}/health", timeout=30).raise_for_status()
            return url
        except httpx.TransportError:
            assert time.monotonic() < deadline, "the console does not answer"
            time.sleep(0.2)


def body(number: int, **fields: Any) -> dict[str, Any]:
    plain = {
        "model": "emulated", "stream": number % 2 == 0, "max_tokens": 8 + 3 * number,
        "messages": [{"role": "user", "content": "Say something. " * (number + 1)}],
    }  # fmt: skip
    return plain | fields


def headers(request_id: str, number: int) -> dict[str, str]:
    key = KEYS[EVIL if number % 3 == 0 else "acme"]
    return {"x-request-id": request_id, "authorization": f"Bearer {key}"}


def ask(url: str, request_id: str, number: int) -> int:
    """Asks for an answer, streamed or not, and returns its status once it has come."""
    answer = httpx.post(
        f"{url}/v1/chat/completions", json=body(number), headers=headers(request_id, number), timeout=60
    )
    return answer.status_code


async def _hold(url: str, count: int, until: asyncio.Event) -> None:
    async with httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=count)) as client:

        async def one(number: int) -> None:
            asked = body(number % 20, stream=True, max_tokens=4000, hmas_replay={"output_tokens": 1500 + 40 * number})
            sent = client.stream(
                "POST", f"{url}/v1/chat/completions", json=asked, headers=headers(f"busy-{number}", number)
            )
            async with sent as answer:
                await answer.aread()

        tasks = [asyncio.create_task(one(number)) for number in range(count)]
        await until.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def unanswered(url: str, count: int) -> Iterator[None]:
    """Keeps `count` long requests open at a mesh, of which its engines run as many as they have room for."""
    with ThreadPoolExecutor(1) as pool:
        loop, until = asyncio.new_event_loop(), asyncio.Event()
        held = pool.submit(loop.run_until_complete, _hold(url, count, until))
        try:
            yield
        finally:
            loop.call_soon_threadsafe(until.set)
            held.result()
            loop.close()


def order_told(data_dir: Path, worker: str, topology: str = "") -> list[str]:
    """Asks a worker for the order of its queue, in force or under another topology, and returns the requests' ids."""

    async def told() -> QueueReply:
        bus = open_bus(None, data_dir)
        async with connected(bus):
            asked = encode(QueueQuery(worker=worker, topology=topology, limit=200))
            return decode(QueueReply, (await bus.client.request(QUERY_QUEUE, asked, timeout=30)).data)

    with ThreadPoolExecutor(1) as pool:  # the browser has an event loop in this thread
        reply = pool.submit(lambda: asyncio.run(told())).result()
    return [row.request_id for row in reply.orders[-1].rows]
