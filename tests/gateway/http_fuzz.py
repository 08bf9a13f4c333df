"""Hostile HTTP: requests made from good ones by random faults, and a client that sends them and judges the answers.

What must hold for any bytes: no answer with a status of 500 or above, each error is an error object, no request hidden
in a body is answered, and the connection ends or goes on in order.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

CANARY = b"canary-in-a-body"  # a path that nobody asks for, but bodies hold requests for it
PATHS = (b"/v1/chat/completions", b"/v1/completions")
ODD_PATHS = (
    b"/", b"*", b"/v1/models", b"/v1/models/emulated", b"/v1/models/%00%ff", b"/v1/models/" + b"a" * 3000,
    b"/hmas/timeline",
    b"/hmas/timeline?model=%F0%9F", b"/openapi.json", b"/metrics", b"/docs", b"/health", b"/version", b"//v1//models",
    b"/v1/chat/completions/../completions", b"http://evil/v1/models", b"/v1/chat/completions?x=" + b"%41" * 100, b"",
    b"/\xc3\xa9", b"/v1/chat/completions#x", b"?", b"/%", b"/v1/%2e%2e/metrics", b"evil:80",
)  # fmt: skip
METHODS = (
    b"POST",
    b"GET",
    b"HEAD",
    b"OPTIONS",
    b"PUT",
    b"DELETE",
    b"PATCH",
    b"TRACE",
    b"CONNECT",
    b"post",
    b"PRI",
    b"X",
)
HIDDEN = b"GET /%b HTTP/1.1\r\nhost: x\r\n\r\n" % CANARY
TEXTS: tuple[Any, ...] = (
    "", "x", "\x00", "\ud83d\ude00", "é" * 50, "a" * 5000, "\u202e", "NaN", "1_000", "\r\nhost: evil\r\n\r\n",
    HIDDEN.decode(),
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 1.5, -0.0, 1e308, -1e308, 1e-320, 2**31 - 1, 2**31, 2**53, 2**63, 2**64 - 1, -(2**63), 1e15
)  # fmt: skip
FIELDS = (
    "model", "messages", "prompt", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "best_of",
    "temperature", "top_p", "priority", "stop", "seed", "logprobs", "top_logprobs", "tools", "response_format", "user",
    "hmas_replay", "request_id", "rid", "kv_transfer_params", "vllm_xargs", "cache_salt", "bootstrap_host", "lora_path",
    "echo", "suffix", "logit_bias", "frequency_penalty", "presence_penalty", "include_usage", "", "__proto__",
)  # fmt: skip
HEADERS = (
    b"x-slo-ttft-ms", b"x-slo-tpot-ms", b"x-slo-ttlt-ms", b"x-llm-d-slo-ttft-ms", b"x-priority", b"x-llm-d-priority",
    b"x-hmas-importance", b"x-llm-d-inference-fairness-id", b"x-request-id", b"traceparent", b"authorization",
    b"accept",
    b"content-type", b"content-encoding", b"expect", b"range", b"cookie", b"x-forwarded-for", b"te", b"trailer",
    b"host",
)  # fmt: skip
VALUES = (
    b"", b"1", b"-1", b"0", b"1e3", b"1_000", b"nan", b"inf", b"1e999", b"99999999999999999999", b" 5", b"Bearer",
    b"gzip",
    b"Bearer hmas-x", b"Bearer " + b"k" * 300, b"\xff\xfe", b"a" * 200, b"a b", b"100-continue", b"00-" + b"a" * 32,
    b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", b"bytes=0-1", b"abc.1_2:3-4", b"\t", b'"', b"%s%n",
)  # fmt: skip
UPGRADES = (
    b"connection: upgrade\r\nupgrade: h2c\r\n", b"connection: Upgrade, HTTP2-Settings\r\nupgrade: websocket\r\n",
    b"upgrade: h2c\r\n", b"connection: close\r\n", b"connection: keep-alive, upgrade\r\n", b"connection: \r\n",
)  # fmt: skip
FRAMINGS = (
    b"content-length: -1\r\n", b"content-length: 5\r\ncontent-length: 6\r\n", b"content-length: +5\r\n",
    b"content-length: 0x5\r\n",
    b"content-length: 5\r\ntransfer-encoding: chunked\r\n", b"transfer-encoding: chunked, chunked\r\n",
    b"transfer-encoding: identity\r\n", b"transfer-encoding: xchunked\r\n", b"transfer-encoding : chunked\r\n",
    b"transfer-encoding: gzip, chunked\r\n", b"content-length: 99999999999999999999\r\n", b"content-length: 5, 5\r\n",
    b"content-length:\r\n", b"content-length: 1_0\r\n", b" content-length: 5\r\n", b"x: y\r\n z: folded\r\n",
    b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
)  # fmt: skip
CHUNKS = (
    b"5\r\nhello\r\n0\r\n\r\n", b"zz\r\n", b"-1\r\n", b"5;ext=" + b"e" * 300 + b"\r\nhello\r\n0\r\n\r\n",
    b"5\nhello\n0\n\n",
    b"fffffffffffffffff\r\n", b"0\r\nx-trailer: a\r\n\r\n", b"0\r\n" + b"t: u\r\n" * 500 + b"\r\n",
    b"5\r\nhelloworld\r\n0\r\n\r\n",
    b"00000000000000005\r\nhello\r\n0\r\n\r\n", b"0\r\ncontent-length: 5\r\n\r\n", b"5\r\nhello0\r\n\r\n", b"",
)  # fmt: skip


KINDS = (
    "body", "body", "body", "headers", "headers", "path", "framing", "chunks", "flips", "noise", "pipeline"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hostile:
    """Bytes for one connection, in the parts in which they are sent. `framed`: all requests in it say plainly where
    they end, so that nothing in a body may be taken for one. `leaves`: the client closes without reading."""

    parts: tuple[bytes, ...]
    framed: bool
    leaves: bool


def hostile(random: Random) -> Hostile:
    """Returns what one hostile client sends."""
    kind = random.choice(KINDS)
    if kind == "pipeline":
        several = [_one(random, random.choice(("body", "headers", "path"))) for _ in range(random.randint(2, 4))]
        data, framed = b"".join(data for data, _ in several), all(framed for _, framed in several)
    else:
        data, framed = _one(random, kind)
    leaves = random.random() < 0.1
    if leaves:
        data = data[: random.randint(0, len(data))]
    cuts = sorted(random.randint(0, len(data)) for _ in range(random.choice((0, 0, 0, 1, 3))))
    if random.random() < 0.4:
        cuts = sorted([*cuts, len(data.partition(b"\r\n\r\n")[0]) + 4])  # the body comes after the head
    parts = tuple(data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True))
    return Hostile(parts, framed, leaves)


def _one(random: Random, kind: str) -> tuple[bytes, bool]:
    """Returns one request, and whether its end is plain."""
    path, method, version = random.choice(PATHS), b"POST", random.choice((b"1.1",) * 8 + (b"1.0",))
    body = _body(random) if kind in ("body", "flips") or random.random() < 0.5 else _good(random)
    extra, framing, framed = b"", b"content-length: %d\r\n" % len(body), True
    if kind == "headers":
        for _ in range(random.randint(1, 5)):
            extra += b"%b: %b\r\n" % (random.choice(HEADERS), random.choice(VALUES))
        extra += random.choice((b"", *UPGRADES))
    elif kind == "path":
        path, method = random.choice(ODD_PATHS), random.choice(METHODS)
        framed = method not in (b"CONNECT", b"PRI", b"post", b"X") and path.isascii() and bool(path)
    elif kind == "framing":
        framing, framed = random.choice(FRAMINGS), False
    elif kind == "chunks":
        framing, body, framed = b"transfer-encoding: chunked\r\n", _chunked(random, body), False
    data = b"%b %b HTTP/%b\r\nhost: fuzz\r\n%b%b\r\n%b" % (method, path, version, extra, framing, body)
    if kind == "flips":
        flipped = bytearray(data)
        for _ in range(random.randint(1, 6)):
            flipped[random.randrange(len(flipped))] = random.choice((random.randrange(256), *b'\r\n :{}[]"'))
        return bytes(flipped), False
    if kind == "noise":
        return random.randbytes(random.randint(0, 600)), False
    return data, framed


def _good(random: Random) -> bytes:
    fields: dict[str, Any] = {"model": random.choice(("emulated", "m")), "max_tokens": random.randint(1, 4)}
    fields |= {"messages": [{"role": "user", "content": "Hello"}], "prompt": "Hello", "stream": random.random() < 0.5}
    return json.dumps(fields).encode()


def _body(random: Random) -> bytes:
    if random.random() < 0.15:
        return HIDDEN
    fields = json.loads(_good(random))
    for _ in range(random.randint(0, 4)):
        fields[random.choice(FIELDS)] = _value(random, 3)
    if random.random() < 0.1:
        fields.pop(random.choice(list(fields)))
    data = json.dumps(fields, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    if random.random() < 0.15:
        at = random.randrange(len(data))
        data = random.choice(
            (data[:at], data + data, data[:at] + b"\xff" + data[at:], b"[" * random.choice((10, 300, 5000)), b"",
             data[:-1] + b',"n":2,"n":1}', data.replace(b"1", b"NaN"), b"\xef\xbb\xbf" + data)
        )  # fmt: skip
    return data


def _value(random: Random, depth: int) -> Any:
    kind = random.randrange(7 if depth else 4)
    if kind == 0:
        return random.choice(TEXTS)
    if kind == 1:
        return random.choice(NUMBERS)
    if kind in (2, 3):
        return random.choice((None, True, False))
    if kind == 4:
        return [_value(random, depth - 1) for _ in range(random.randint(0, 4))]
    if kind == 5:
        names = random.choices((*FIELDS, "role", "content", "text"), k=random.randint(0, 4))
        return {name: _value(random, depth - 1) for name in names}
    deep: Any = 0
    for _ in range(random.choice((5, 260, 900))):
        deep = [deep]
    return deep


def _chunked(random: Random, body: bytes) -> bytes:
    if random.random() < 0.5:
        return random.choice(CHUNKS)
    sizes, data = random.randint(1, 40), b""
    for i in range(0, len(body), sizes):
        part = body[i : i + sizes]
        data += b"%x\r\n%b\r\n" % (len(part), part)
    return data + b"0\r\n" + random.choice((b"", b"t: u\r\n", b"host: evil\r\n")) + b"\r\n"


# --- the client -----------------------------------------------------------------------------------------------------

_HEAD = re.compile(rb"HTTP/1\.[01] (\d{3}) [^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n")


class Fuzzer:
    """Sends hostile requests and judges the answers: `statuses` counts them, `faults` are what must not be."""

    def __init__(self, port: int, seed: int, patience_s: float = 0.25) -> None:
        self._port, self._random, self._patience_s = port, Random(seed), patience_s
        self.statuses: Counter[int] = Counter()
        self.faults: list[str] = []

    async def run(self, number: int, width: int = 8, done: Callable[[int], None] | None = None) -> None:
        """Sends the bytes of `number` hostile clients, `width` at a time."""
        cases = iter([hostile(self._random) for _ in range(number)])

        async def client() -> None:
            for case in cases:
                await self._try(case)

        await asyncio.gather(*(client() for _ in range(width)))

    async def _try(self, case: Hostile) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            for part in case.parts:
                writer.write(part)
                await asyncio.sleep(0)
            if not case.leaves:
                self._judge(case, await self._answers(reader))
        finally:
            writer.transport.abort()

    async def _answers(self, reader: asyncio.StreamReader) -> bytes:
        """Reads until the server closes, or says nothing for a while."""
        got = b""
        try:
            while len(got) < 2**20:
                async with asyncio.timeout(self._patience_s):
                    data = await reader.read(2**16)
                if not data:
                    break
                got += data
        except (TimeoutError, ConnectionError):
            pass
        return got

    def _judge(self, case: Hostile, got: bytes) -> None:
        if got and not got.startswith(b"HTTP/1."):
            self._fault("no HTTP", case, got)
        if case.framed and CANARY + b": " in got:  # as in "GET /...: Not Found"
            self._fault("a request in a body was answered", case, got)
        for head in _HEAD.finditer(got):
            status, headers = int(head[1]), head[2].lower()
            self.statuses[status] += 1
            if status >= 500:
                self._fault("the server failed", case, got)
            elif status >= 400 and b"content-length" in headers and b"x-hmas-reason: " not in headers:
                self._fault("an error without a reason", case, got)

    def _fault(self, what: str, case: Hostile, got: bytes) -> None:
        if len(self.faults) < 20:
            self.faults.append(f"{what}: sent {case.parts!r:.1500}, got {got!r:.600}")
