"""A small OpenAI-compatible server for the runner's tests: streams, refuses, breaks off, hangs, as the body says."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Seen:
    """One request as the server got it; header names in lower case."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class FakeEngine:
    """`behaviour` comes in the body field of that name; without one it streams `max_tokens` tokens at once."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    broken_off: int = 0
    gap_s: float = 0.0
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.seen.append(Seen(request.path, {k.lower(): v for k, v in request.headers.items()}, body))
        match body.get("behaviour"):
            case "refuse":
                error = {"error": {"message": "pool is full", "type": "rate_limit_error", "code": "pool_queue_full"}}
                return web.json_response(error, status=429, headers={"x-hmas-reason": "pool_queue_full"})
            case "plain-error":
                return web.Response(status=500, text="Internal Server Error")
            case "hang":
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    self.broken_off += 1
                    raise
            case "drop":
                assert request.transport is not None
                request.transport.close()
                return web.Response()
        return await self._stream(request, body)

    async def _stream(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        count = body.get("hmas_replay", {}).get("output_tokens") or body["max_tokens"]
        for i in range(count):
            await asyncio.sleep(self.gap_s)
            finish = "length" if i == count - 1 else None
            choice = {"index": 0, "delta": {"content": "x "}, "finish_reason": finish}
            await self._event(response, {"choices": [choice]})
            if body.get("behaviour") == "error-mid-stream" and i == 1:
                await self._event(response, {"error": {"message": "gone", "type": "api_error", "code": "engine_error"}})
                return response
        await self._event(response, {"choices": [], "usage": {"completion_tokens": count}})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _event(self, response: web.StreamResponse, payload: object) -> None:
        await response.write(f"data: {json.dumps(payload)}\n\n".encode())


@asynccontextmanager
async def fake_engine() -> AsyncIterator[FakeEngine]:
    """Serves on a free loopback port."""
    engine = FakeEngine()
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/chat/completions", engine.answer)
    app.router.add_post("/v1/completions", engine.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    engine.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield engine
    finally:
        await runner.cleanup()
