"""5,000 mutated answers of an engine, over real sockets: to a gateway's runs and to a worker's watch. Each ends,
nothing raises where nobody hears it, and nothing is kept. HMAS_SOAK multiplies their number."""

import asyncio
import gc
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import CHAT_PATH
from hmas.gateway.engines.replies import ReplyEnd
from hmas.gateway.engines.runs import GatewayRun, StreamedRun
from hmas.gateway.openai.forms import FORMS
from hmas.laws.figures import MAX_TEXT, MOST, MOST_TOKENS
from hmas.runtime.http1 import HttpPool, PoolConfig
from hmas.wire.codec import encode
from hmas.worker.adapters.engine_facts import EngineFacts
from hmas.worker.adapters.monitor import EngineMonitor, MonitorConfig, Unreachable
from tests.conftest import PATIENCE_S, eventually

TIMES = 1 + int(os.environ.get("HMAS_SOAK", "0"))
HEAD = b"HTTP/1.1 %d OK\r\nContent-Type: %b\r\n%b\r\n\r\n"
SPECIAL = (
    b"NaN", b"Infinity", b"-1", b"1e300", b"9223372036854775808", b"18446744073709551616", b"null", b"true", b"[]",
    b"{}", b'""', b"\r\n\r\n", b"\n\n", b"\n", b"data: ", b"data: [DONE]\n\n", b'"error":', b'"choices":[]',
    b'"choices":[{', b'"finish_reason":"stop"', b": c\n\n", b"\x00", b"\xff\xfe", b"0\r\n\r\n", b"ffffffffff\r\n",
    b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"[" * 2000,
    b'{"a":' * 1500, b"Connection: upgrade\r\nUpgrade: x\r\n",
)  # fmt: skip


def sized(body: bytes, status: int = 200) -> bytes:
    return HEAD % (status, b"application/json", b"Content-Length: %d" % len(body)) + body


def chunked(body: bytes, status: int = 200) -> bytes:
    """Returns an answer in chunks of 100 bytes."""
    parts = [body[i : i + 100] for i in range(0, len(body), 100)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return HEAD % (status, b"text/event-stream", b"Transfer-Encoding: chunked") + chunks + b"0\r\n\r\n"


def unsized(body: bytes, status: int = 200) -> bytes:
    """Returns an answer that ends with its connection."""
    return HEAD % (status, b"text/event-stream", b"Connection: close") + body


def event(document: object) -> bytes:
    return b"data: " + orjson.dumps(document) + b"\n\n"


def delta(text: str, reason: str | None = None) -> bytes:
    return event({"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]})


USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
ROLE = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
ERROR = {"error": {"message": "no", "type": "BadRequestError", "param": "x", "code": 400}}
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
STREAM = b"".join(
    (ROLE, delta("a"), delta("b"), delta("c", "stop"), event({"choices": [], "usage": USAGE}), b"data: [DONE]\n\n")
)
STREAMS = (
    (STREAM, 200),
    (STREAM.replace(b"\n", b"\r\n"), 200),
    (STREAM.replace(b"data: [DONE]\n\n", b""), 200),
    (ROLE + delta("a") + event(ERROR), 200),
    (orjson.dumps(ERROR), 400),
    (b"busy", 503),
)
WHOLE = orjson.dumps({"id": "c", "choices": [CHOICE], "usage": USAGE})
PLAINS = (
    (WHOLE, 200),
    (WHOLE, 200),
    (orjson.dumps(ERROR), 200),
    (b'{"detail":[{"loc":["body","n"],"msg":"bad"}]}', 422),
    (b"x" * 5000, 500),
)
METRICS = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_waiting{engine="0"} 4.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:num_preemptions_total{engine="0"} 1.0
vllm:prompt_tokens_total{engine="0"} 1000.0
vllm:generation_tokens_total{engine="0"} 1e+03
vllm:inter_token_latency_seconds_sum{engine="0"} 2.5
vllm:inter_token_latency_seconds_count{engine="0"} 100.0
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1.0
"""
SGLANG = METRICS.replace(b"vllm:", b"sglang:").replace(b"num_requests_running", b"num_running_reqs")
MODELS = orjson.dumps({"data": [{"id": "m", "max_model_len": 4096}]})
SERVER = orjson.dumps({"max_running_requests": 8, "page_size": 16, "max_total_num_tokens": 999, "internal_states": []})


def mutated(dice: random.Random, data: bytes) -> bytes:
    """Returns `data` with up to four changes."""
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(data) + 1)
        end = min(len(data), at + dice.choice((1, 1, 4, 16, 64)))
        match dice.randrange(7):
            case 0:
                data = data[:at]
            case 1:
                data = data[:at] + data[end:]
            case 2:
                data = data[:at] + dice.randbytes(end - at) + data[end:]
            case 3:
                data = data[:at] + data[at:end] * dice.choice((2, 3, 50)) + data[end:]
            case 4 | 5:
                data = data[:at] + dice.choice(SPECIAL) + data[end if dice.random() < 0.5 else at :]
            case _:
                digits = [i for i in range(len(data)) if data[i : i + 1].isdigit()]
                if digits:
                    at = dice.choice(digits)
                    data = data[:at] + dice.choice(SPECIAL[:6]) + data[at + 1 :]
    return data


def answer(dice: random.Random, body: bytes, status: int = 200) -> bytes:
    """Returns an HTTP answer, mutated in its body alone or anywhere."""
    wrap = dice.choice((sized, chunked, unsized))
    return wrap(mutated(dice, body), status) if dice.random() < 0.7 else mutated(dice, wrap(body, status))


NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


class Canned:
    """A server that answers each request with the bytes that stand under its path, in pieces, and closes."""

    def __init__(self, dice: random.Random) -> None:
        self.pages: dict[str, bytes] = {}
        self.port = 0
        self._dice = dice

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            data = self.pages.get(head.split(b" ", 2)[1].decode(), NOT_FOUND)
            cut = self._dice.randrange(len(data) + 1)
            for part in (data[:cut], data[cut:]):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)
            writer.close()
            await writer.wait_closed()
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.transport.abort()


@asynccontextmanager
async def canned(seed: int) -> AsyncIterator[tuple[Canned, HttpPool, list[dict[str, Any]]]]:
    """The server, a pool of connections to it, and what the loop's exception handler was told."""
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    server = Canned(random.Random(seed))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    pool = HttpPool("127.0.0.1", server.port, None, PoolConfig())
    try:
        yield server, pool, unheard
    finally:
        await pool.close()
        listening.close()


class Ends:
    """The sink of one run."""

    def __init__(self) -> None:
        self.pushed = b""
        self.ends: list[ReplyEnd] = []
        self.over = asyncio.Event()

    def push(self, data: bytes) -> None:
        assert not self.ends
        self.pushed += data

    def on_first(self, run: GatewayRun) -> None:
        assert not self.pushed

    def on_end(self, run: GatewayRun, end: ReplyEnd) -> None:
        self.ends.append(end)
        self.over.set()


def check(sink: Ends, run: GatewayRun, *, streamed: bool) -> None:
    (end,) = sink.ends
    assert len(end.message) <= MAX_TEXT + 100
    for count in (end.usage.prompt_tokens, end.usage.output_tokens, end.usage.cached_tokens):
        assert count is None or 0 <= count <= MOST_TOKENS
    if end.outcome is Outcome.ENGINE_REFUSED:
        assert orjson.loads(end.data)["error"]["message"]
    elif end.outcome is Outcome.FINISHED:
        if streamed:
            last = (sink.pushed + end.data).rstrip().replace(b"\r", b"").rpartition(b"\n\n")[2]
            assert b"data:[DONE]" in last.replace(b" ", b"").splitlines()
        else:
            assert isinstance(orjson.loads(end.data)["choices"], list)
    else:
        assert end.data == b""
        assert end.message
        assert not (end.retryable and sink.pushed)
    assert run.http is None


@pytest.mark.parametrize("streamed", [True, pytest.param(False, marks=pytest.mark.long)])
async def test_every_mutated_answer_ends_its_run(streamed: bool) -> None:
    dice, outcomes = random.Random(7 + streamed), dict.fromkeys(Outcome, 0)
    async with canned(1) as (server, pool, unheard):
        for batch in range(30 * TIMES):
            runs = []
            for i in range(50):
                server.pages[f"/{i}"] = answer(dice, *dice.choice(STREAMS if streamed else PLAINS))
                sink = Ends()
                run = (
                    StreamedRun(f"r{i}", i, sink, sink.push, strip_usage=bool(i % 2), form=FORMS[CHAT_PATH])
                    if streamed
                    else GatewayRun(f"r{i}", i, sink, 2**20, form=FORMS[CHAT_PATH])
                )
                head = f"POST /{i} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode()
                run.http = pool.send(head, b"", run)
                runs.append((sink, run))
            for sink, run in runs:
                async with asyncio.timeout(PATIENCE_S):
                    await sink.over.wait()
                check(sink, run, streamed=streamed)
                outcomes[sink.ends[0].outcome] += 1
            assert not unheard, (batch, unheard)
        await eventually(lambda: not pool._open)
    del runs, sink, run
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, GatewayRun)]
    print({outcome.value: n for outcome, n in outcomes.items() if n})
    assert min(outcomes[o] for o in (Outcome.FINISHED, Outcome.ENGINE_ERROR, Outcome.ENGINE_REFUSED)) > 0


async def test_every_mutated_page_leaves_the_watch_whole() -> None:
    dice, read, unreachable, longest = random.Random(11), 0, 0, 0
    async with canned(2) as (server, pool, unheard):
        monitor = EngineMonitor(
            pool, lambda path, _: f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), EngineFacts(name="e"),
            MonitorConfig(timeout_s=5.0),
        )  # fmt: skip
        for _ in range(700 * TIMES):
            page = dice.choice((METRICS, SGLANG))
            bodies = {"/metrics": page, "/v1/models": MODELS, "/server_info": SERVER, "/get_server_info": SERVER}
            server.pages = {path: answer(dice, body) for path, body in bodies.items()}
            try:
                info = await monitor.discover()
                encode(info)
                assert 0 < info.max_num_seqs <= MOST
                assert 0 < info.kv_capacity_tokens <= MOST
                reading = await monitor.reading()
            except Unreachable as error:
                unreachable, longest = unreachable + 1, max(longest, len(str(error)))
                continue
            if reading is not None:
                read += 1
                assert 0 <= reading.running <= MOST
                assert 0.0 <= reading.kv_usage <= 1.0
            assert not unheard, unheard
        await eventually(lambda: not pool._open)
    print(f"{read} readings, {unreachable} times no answer to be used")
    assert min(read, unreachable) > 0
    assert longest < 2 * MAX_TEXT
