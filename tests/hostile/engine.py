"""An engine that does whatever an engine may do: `python -m tests.hostile.engine --port N --seed S [--grows]`.

It speaks HTTP on raw sockets. /health is always well. Each request gets one of `ACTS` at random, honest answers among
them; /hmas/acts tells how often each was done. Its metrics are nonsense now and then, and otherwise count the tokens
that it gave; with `--grows` they grow whether it gives any or not.
"""

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

STEP_S = 0.01
PROMPT_TOKENS = 10  # that it says every prompt has, by which its answers are known
TEXT = b"x" * 300_000
NONSENSE = ("NaN", "+Inf", "-Inf", "-1", "1e300", str(2**63), "9" * 400)
MIB = b"y" * 2**20
MANY_MODELS = [b'{"id":"<b>%d</b>\\n\\u001b[2J","parent":"emulated"}' % number for number in range(10_000)]


@dataclass(slots=True)
class Answering:
    """One request, and the connection on which it is answered."""

    body: dict[str, Any]
    writer: asyncio.StreamWriter
    engine: "HostileEngine"

    @property
    def streamed(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def length(self) -> int:
        return int(self.body.get("max_tokens") or 16)

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def reply(self, body: bytes, status: int = 200, length: int | None = None) -> None:
        size = len(body) if length is None else length
        await self.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, size) + body)

    async def head(self) -> None:
        await self.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def token(self, reason: str | None = None) -> None:
        await asyncio.sleep(STEP_S)
        self.engine.tokens += 1
        await self.event({"choices": [{"index": 0, "delta": {"content": "w "}, "finish_reason": reason}]})

    async def event(self, document: object) -> None:
        await self.chunk(b"data: " + json.dumps(document).encode() + b"\n\n")

    async def some(self, tokens: int) -> None:
        await self.head()
        for _ in range(tokens):
            await self.token()

    async def end(self) -> None:
        await self.write(b"0\r\n\r\n")

    def usage(self) -> dict[str, object]:
        return {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": self.length}

    def document(self, usage: object) -> bytes:
        choice = {"index": 0, "message": {"role": "assistant", "content": "w " * self.length}, "finish_reason": "stop"}
        named = {"id": "c", "object": "chat.completion", "created": 1, "model": str(self.body.get("model"))}
        return json.dumps({**named, "choices": [choice], "usage": usage}).encode()


async def honest(a: Answering, usage: object = None) -> None:
    if not a.streamed:
        await asyncio.sleep(STEP_S * a.length)
        a.engine.tokens += a.length
        await a.reply(a.document(usage or a.usage()))
        return
    await a.some(a.length - 1)
    await a.token("stop")
    await a.event({"choices": [], "usage": usage or a.usage()})
    await a.chunk(b"data: [DONE]\n\n")
    await a.end()


async def never(a: Answering) -> None:
    await asyncio.sleep(3600)


async def head_only(a: Answering) -> None:
    await a.head()
    await asyncio.sleep(3600)


async def stops(a: Answering) -> None:
    await a.some(3)
    await asyncio.sleep(3600)


async def comments(a: Answering) -> None:
    await a.some(a.engine.dice.choice((0, 3)))
    while True:
        await a.chunk(b": still here\n\n")
        await asyncio.sleep(0.1)


async def drips(a: Answering) -> None:
    """Sends a byte now and then, of an event or a document that never ends."""
    if a.streamed:
        await a.some(a.engine.dice.choice((0, 3)))
        await a.chunk(b"data: {")
    else:
        await a.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{")
    while True:
        await (a.chunk(b" ") if a.streamed else a.write(b" "))
        await asyncio.sleep(0.1)


async def roles(a: Answering) -> None:
    await a.head()
    while True:
        await a.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        await asyncio.sleep(0.1)


async def big_header(a: Answering) -> None:
    await a.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    for _ in range(200):
        await a.write(MIB)


async def interim(a: Answering) -> None:
    while True:
        await a.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


async def upgrade(a: Answering) -> None:
    await a.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello")


async def early(a: Answering) -> None:
    await a.some(3)
    await a.end()


async def half(a: Answering) -> None:
    await a.some(3)
    await a.chunk(b'data: {"choices":[{"index":0,"delta":{"content":"w')
    await a.end()


async def no_done(a: Answering) -> None:
    """Whole, but for the end."""
    await a.some(a.length - 1)
    await a.token("stop")
    await a.event({"choices": [], "usage": a.usage()})
    await a.end()


async def broken(a: Answering) -> None:
    await a.some(a.engine.dice.choice((0, 3)))
    a.writer.transport.abort()


async def refuses(a: Answering) -> None:
    await a.reply(TEXT, a.engine.dice.choice((500, 502, 503, 429)))


async def refuses_in_json(a: Answering) -> None:
    await a.reply(b'{"error":{"message":"%b","type":"%b"}}' % (TEXT, TEXT), 500)


async def endless_error(a: Answering) -> None:
    await a.write(b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(200):
        await a.chunk(MIB)


async def error_event(a: Answering) -> None:
    await a.some(a.engine.dice.choice((0, 3)))
    await a.event({"error": {"message": TEXT.decode(), "code": 500}})
    await asyncio.sleep(3600)


async def gives_up(a: Answering) -> None:
    """Ends as if it were whole, with a reason that says that it is not."""
    if a.streamed:
        await a.some(a.engine.dice.choice((0, 3)))
        await a.token(a.engine.dice.choice(("abort", "error")))
        await a.chunk(b"data: [DONE]\n\n")
        await a.end()
    else:
        await a.reply(a.document(a.usage()).replace(b'"stop"', b'"abort"'))


async def no_reason(a: Answering) -> None:
    """Ends as if it were whole, and says nowhere why."""
    await a.some(3)
    await a.chunk(b"data: [DONE]\n\n")
    await a.end()


async def short(a: Answering) -> None:
    body = a.document(a.usage())
    await a.reply(body[: len(body) // 2], length=len(body))
    a.writer.transport.abort()


async def no_json(a: Answering) -> None:
    await a.reply(b"<html>" + TEXT)


async def no_event(a: Answering) -> None:
    await a.head()
    await a.chunk(b"data: <html>\n\n" * 3)
    await asyncio.sleep(3600)


async def no_http(a: Answering) -> None:
    await a.write(b"\x16\x03\x01" + bytes(range(256)) * 10)


async def long_event(a: Answering) -> None:
    await a.some(1)
    for _ in range(20):
        await a.chunk(MIB)
    await asyncio.sleep(3600)


async def nonsense_usage(a: Answering) -> None:
    """Whole, with counts that cannot be."""
    count: object = a.engine.dice.choice((2**63, -1, 1e300, 2**62, "7", None, True))
    details = {"cached_tokens": count}
    await honest(a, {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": count, "prompt_tokens_details": details})


Act = Callable[[Answering], Coroutine[Any, Any, None]]

STREAMED: tuple[Act, ...] = (
    never, head_only, stops, comments, drips, roles, big_header, interim, upgrade, early, half, no_done, broken,
    refuses, refuses_in_json, endless_error, error_event, no_event, no_http, long_event, nonsense_usage, gives_up,
    no_reason,
)  # fmt: skip
PLAIN: tuple[Act, ...] = (
    never, drips, big_header, interim, upgrade, refuses, refuses_in_json, endless_error, short, no_json, no_http,
    nonsense_usage, gives_up,
)  # fmt: skip


@dataclass
class HostileEngine:
    """The engine. `share`: how many of a hundred requests are answered honestly."""

    dice: random.Random
    grows: bool = False
    share: int = 50
    tokens: int = 0
    running: int = 0
    acts: Counter[str] = field(default_factory=Counter)
    model: str = "emulated"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gone: asyncio.Event) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, path, _ = lines[0].split(" ")
                sizes = [line for line in lines if line.lower().startswith("content-length:")]
                body = await reader.readexactly(int(sizes[0].partition(":")[2]) if sizes else 0)
                if method == "POST":
                    await self.generate(Answering(json.loads(body), writer, self), gone)
                else:
                    await self.page(path, writer)
        writer.transport.abort()

    async def generate(self, answering: Answering, left: asyncio.Event) -> None:
        """Answers, or stops when the client has closed the connection."""
        act: Act = honest
        if self.dice.randrange(100) >= self.share:
            act = self.dice.choice(STREAMED if answering.streamed else PLAIN)
        self.acts[act.__name__] += 1
        self.running += 1
        doing = asyncio.ensure_future(act(answering))
        gone = asyncio.ensure_future(left.wait())
        try:
            await asyncio.wait((doing, gone), return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise ConnectionError("the client left")
            doing.result()
            if act not in (honest, no_done, nonsense_usage, early, half, gives_up, no_reason):
                raise ConnectionError("nothing more is said on this connection")
        finally:
            self.running -= 1
            for task in (doing, gone):
                task.cancel()
            await asyncio.gather(doing, gone, return_exceptions=True)

    async def page(self, path: str, writer: asyncio.StreamWriter) -> None:
        answer: dict[str, Callable[[], bytes]] = {
            "/health": lambda: b"",
            "/v1/models": self._models,
            "/metrics": self._metrics,
            "/hmas/acts": lambda: json.dumps(self.acts).encode(),
        }
        body = answer.get(path, lambda: b"{}")()
        if path == "/metrics" and self.dice.randrange(200) == 0:
            writer.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
            for _ in range(50):
                writer.write(MIB)
                await writer.drain()
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()

    def _figure(self, value: float) -> str:
        return self.dice.choice(NONSENSE) if self.dice.randrange(40) == 0 else str(value)

    def _models(self) -> bytes:
        length = self.dice.choice(("4096", "4096", "4096", str(2**63), "1e300", '"x"', "-1"))
        own = b'{"id":"%b","max_model_len":%b}' % (self.model.encode(), length.encode())
        return b'{"object":"list","data":[%b]}' % b",".join([own, *(self.dice.choice(((), MANY_MODELS)))])

    def _metrics(self) -> bytes:
        if self.grows:
            self.tokens += 1
        blocks = self.dice.choice(("1000", "1000", "1000", *NONSENSE))
        figures = {
            "vllm:num_requests_running": self.running,
            "vllm:num_requests_waiting": 0,
            "vllm:kv_cache_usage_perc": 0.1,
            "vllm:num_preemptions_total": 0,
            "vllm:prompt_tokens_total": self.tokens,
            "vllm:generation_tokens_total": self.tokens,
            "vllm:inter_token_latency_seconds_sum": self.tokens * STEP_S,
            "vllm:inter_token_latency_seconds_count": self.tokens,
        }
        lines = [f"{name} {self._figure(value)}" for name, value in figures.items()]
        lines.append(f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{blocks}"}} 1')
        return "\n".join([*lines, ""]).encode()


class _Connection(asyncio.StreamReaderProtocol):
    """One connection; `gone` is set once the client has closed it."""

    def __init__(self, engine: HostileEngine) -> None:
        self.gone = asyncio.Event()
        super().__init__(asyncio.StreamReader(), lambda reader, writer: engine.serve(reader, writer, self.gone))

    def eof_received(self) -> bool:
        self.gone.set()
        return bool(super().eof_received())

    def connection_lost(self, error: Exception | None) -> None:
        self.gone.set()
        super().connection_lost(error)


async def run(engine: HostileEngine, port: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(engine), "127.0.0.1", port)
    async with server:
        await server.serve_forever()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.engine")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--grows", action="store_true")
    args = parser.parse_args(argv)
    asyncio.run(run(HostileEngine(random.Random(args.seed), grows=args.grows), args.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
