"""A fast stand-in for an engine: it sends tokens at fixed gaps, schedules nothing, and uses as little CPU per token as
Python allows.

The hop benchmark pins it to one core with the client, so that the other core runs only what is measured. Answers have
the form of the emulated engine's. A request's `max_tokens` is the number of tokens (default 64), and its header
`x-mock-gap-ms`, or `--gap-ms`, the gap between them; the first token comes one gap after the request. Without `stream`
the whole answer is sent at once.
"""

import argparse
import asyncio
import signal
from itertools import count
from time import time
from typing import cast

import httptools
import orjson
import uvloop

from hmas.contracts.registry import CHAT_PATH, COMPLETIONS_PATH
from hmas.engine.answer import AnswerText
from hmas.engine.api import Generation, UrgencyTerms

DEFAULT_TOKENS = 64
MODEL = "mock"
_IDS = count()
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
_METRICS = (
    b'vllm:num_requests_running{model_name="mock"} %d\n'
    b'vllm:num_requests_waiting{model_name="mock"} 0\n'
    b'vllm:kv_cache_usage_perc{model_name="mock"} 0\n'
    b'vllm:cache_config_info{block_size="16",num_gpu_blocks="1048576"} 1\n'
)


class MockConnection(asyncio.Protocol):
    """The server's side of one HTTP/1.1 connection, with one request at a time. `streams` counts the open streams of
    all connections."""

    streams = 0

    def __init__(self, loop: asyncio.AbstractEventLoop, gap_s: float) -> None:
        self._loop = loop
        self._default_gap_s = gap_s
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._timer: asyncio.Handle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(
            asyncio.Transport, transport
        )  # uvloop's transport has the methods, but another base class

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            MockConnection.streams -= 1

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if self._transport is not None:
                self._transport.close()

    def on_message_begin(self) -> None:
        self._url = b""
        self._body = b""
        self._gap_s = self._default_gap_s

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-mock-gap-ms":
            self._gap_s = float(value) / 1000

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._url in (b"/v1/chat/completions", b"/v1/completions"):
            self._generate(orjson.loads(self._body))
        elif self._url == b"/metrics":
            self._reply(_METRICS % MockConnection.streams, b"text/plain; version=0.0.4")
        elif self._url == b"/v1/models":
            card = {"id": MODEL, "object": "model", "owned_by": "vllm", "max_model_len": 131072}
            self._reply(orjson.dumps({"object": "list", "data": [card]}))
        else:
            self._reply(b"{}")

    def _reply(self, body: bytes, kind: bytes = b"application/json") -> None:
        assert self._transport is not None
        head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (kind, len(body))
        self._transport.write(head + body)

    def _generate(self, body: dict[str, object]) -> None:
        tokens = body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_TOKENS
        options = body.get("stream_options")
        assert isinstance(tokens, int)
        generation = Generation(
            path=CHAT_PATH if b"chat" in self._url else COMPLETIONS_PATH,
            stream=bool(body.get("stream")),
            include_usage=isinstance(options, dict) and bool(options.get("include_usage")),
            continuous_usage=False,
            prompt_tokens=max(1, len(self._body) // 4),
            output_tokens=tokens,
            stops=False,
            priority=0,
            prefix_hashes=(),
            terms=UrgencyTerms(),
        )
        text = AnswerText(generation, f"mock-{next(_IDS)}", str(body.get("model", MODEL)), int(time()))
        if not generation.stream:
            self._reply(text.whole())
            return
        assert self._transport is not None
        self._transport.write(_STREAM_HEAD)
        MockConnection.streams += 1
        self._left = tokens
        self._opening = text.role_event()
        self._event = _chunk(text.event(0))
        self._ending = _chunk(text.last_events(tokens - 1)) + b"0\r\n\r\n"
        self._due_s = self._loop.time()
        self._next()

    def _next(self) -> None:
        self._due_s += self._gap_s
        self._timer = self._loop.call_later(max(0.0, self._due_s - self._loop.time()), self._token)

    def _token(self) -> None:
        if self._transport is None:
            return
        if self._opening:
            self._transport.write(_chunk(self._opening))
            self._opening = b""
        self._left -= 1
        if self._left:
            self._transport.write(self._event)
            self._next()
        else:
            self._timer = None
            MockConnection.streams -= 1
            self._transport.write(self._ending)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def serve(host: str, port: int, gap_s: float) -> None:
    """Serves until SIGTERM or SIGINT, and prints the URL once it listens. `gap_s` is the default gap between tokens."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: MockConnection(loop, gap_s), host, port, backlog=4096)
    print(f"http://{host}:{server.sockets[0].getsockname()[1]}", flush=True)
    stop = asyncio.Event()
    for caught in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(caught, stop.set)
    await stop.wait()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mock_engine", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0: any free one")
    parser.add_argument("--gap-ms", type=float, default=20.0, help="gap between tokens, ms")
    args = parser.parse_args()
    uvloop.run(serve(args.host, args.port, args.gap_ms / 1000))


if __name__ == "__main__":
    main()
