"""A gateway's shell on a real uvicorn, with workers that live in the test and scripted engines on loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import httpx
import orjson
import uvicorn

from hmas.contracts.execution import Ended, GatewayMessage, Grant, Refusal, Submit, WorkerMessage
from hmas.contracts.gateway import GatewayEffect, GatewayEvent, GatewayTicked, TenantsChanged
from hmas.contracts.questions import CognitionQueueEvent, Question, QuestionAsked
from hmas.contracts.registry import API_PATHS, EngineInfo, WorkerHeartbeat
from hmas.contracts.telemetry import GatewayTelemetry
from hmas.contracts.use import UseReport
from hmas.gateway.agent import GatewayAgent
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.pools.directory import ModelDirectory
from hmas.gateway.decisions import DecisionLog
from hmas.gateway.engines.allowed import LOOPBACK, AllowedEndpoints, parse_rules
from hmas.gateway.engines.engines import EngineDirectory
from hmas.gateway.http.api import build_api
from hmas.gateway.http.bodies import BodyBounds
from hmas.gateway.http.client_protocol import ClientProtocol
from hmas.gateway.http.server import GatewayServer, HttpServerConfig
from hmas.gateway.records import GatewayRecords
from hmas.gateway.shell import MAX_BUFFERED_BYTES, GatewayShell
from hmas.gateway.tenants.store import TenantStore
from hmas.gateway.usage.book import UsageBook
from hmas.runtime.connections import ConnectionBounds, guarded
from hmas.runtime.host import AgentHost, raise_it
from hmas.runtime.ops import HttpServer
from hmas.runtime.tracing import Tracing
from tests.conftest import PATIENCE_S
from tests.gateway.gateway_script import grant, heartbeat
from tests.worker.adapters.scripted_engine import Handler, Peer, ScriptedEngine

M = TypeVar("M", bound=GatewayMessage)

PATH = "/v1/chat/completions"
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"  # of a request that is written by hand
DONE = b"data: [DONE]\n\n"
PLAIN = b'{"id":"c1","choices":[{"index":0,"finish_reason":"stop"}]}'


def event(n: int) -> bytes:
    return b'data: {"choices":[{"delta":{"content":"%d"}}]}\n\n' % n


def last(n: int) -> bytes:
    """The event of an answer's last token."""
    return b'data: {"choices":[{"delta":{"content":"%d"},"finish_reason":"stop"}]}\n\n' % n


def usage(output: int, prompt: int = 5, cached: int | None = None) -> bytes:
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    counts = {"prompt_tokens": prompt, "completion_tokens": output, **details}
    return b"data: " + orjson.dumps({"choices": [], "usage": counts}) + b"\n\n"


async def answer(peer: Peer) -> None:
    """Three tokens, or a plain body."""
    if not orjson.loads(peer.body).get("stream"):
        await peer.reply(PLAIN)
        return
    await stream(peer, event(0), event(1), last(2), usage(3), DONE)


async def stream(peer: Peer, *events: bytes, end: bool = True) -> None:
    await peer.begin_chunks()
    for each in events:
        await peer.chunk(each)
    if not end:
        raise ConnectionError
    await peer.end_chunks()


async def silence(peer: Peer) -> None:
    """The engine takes the request and says nothing by itself, until the gateway closes the connection."""
    await peer.gone()


def failing(status: int, body: bytes = b"") -> Handler:
    async def fail(peer: Peer) -> None:
        await peer.reply(body, status)

    return fail


def broken(*events: bytes) -> Handler:
    """The engine's connection breaks after these events."""

    async def break_off(peer: Peer) -> None:
        await stream(peer, *events, end=False)

    return break_off


@dataclass
class FakeWorkers:
    """The workers' side of the streams: each grants what it gets at the loop's next turn, if `grants` is true, and
    refuses what its engine gives back, if `refuses` is."""

    shell: GatewayShell
    grants: bool = True
    refuses: bool = True
    local: bool = True
    changes: dict[str, object] = field(default_factory=dict)  # of the grants
    sent: list[tuple[str, GatewayMessage]] = field(default_factory=list)
    granted: int = 0

    def ensure(self, heartbeat: WorkerHeartbeat) -> None:
        pass

    def is_local(self, worker: str) -> bool:
        return self.local

    def send(self, worker: str, message: GatewayMessage) -> None:
        self.sent.append((worker, message))
        if isinstance(message, Submit) and self.grants:
            asyncio.get_running_loop().call_soon(self.grant, worker, message)
        if isinstance(message, Ended) and message.retryable and self.refuses:
            attempt = self.submits[-1][1].attempt
            refusal = Refusal(
                request_id=message.request_id, attempt=attempt, outcome=message.outcome, message=message.message
            )
            asyncio.get_running_loop().call_soon(self.say, worker, refusal)

    def say(self, worker: str, message: WorkerMessage) -> None:
        self.shell.on_message(worker, message)

    def grant(self, worker: str, submit: Submit, **changes: object) -> Grant:
        self.granted += 1
        values: dict[str, Any] = {**self.changes, **changes}
        granted = replace(grant(submit.request.id, self.granted, submit.attempt), **values)
        self.say(worker, granted)
        return granted

    def of(self, kind: type[M]) -> list[M]:
        return [message for _, message in self.sent if isinstance(message, kind)]

    @property
    def submits(self) -> list[tuple[str, Submit]]:
        return [(worker, message) for worker, message in self.sent if isinstance(message, Submit)]


class Questions:
    """Takes the place of cognition."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.heard: list[CognitionQueueEvent] = []

    def post(self, event: CognitionQueueEvent) -> None:
        self.heard.append(event)
        if isinstance(event, QuestionAsked):
            self.asked.append(event.question)


@dataclass(kw_only=True)
class Gateway:
    """`engines` are those of the workers by their names, one each, called e1."""

    url: str
    port: int
    shell: GatewayShell
    records: GatewayRecords
    workers: FakeWorkers
    engines: dict[str, ScriptedEngine]
    directory: EngineDirectory
    questions: Questions
    published: list[GatewayTelemetry]
    host: AgentHost[GatewayEvent, GatewayEffect]
    app: GatewayServer
    http: HttpServer

    def add_worker(self, name: str, **changes: Any) -> None:
        """A worker sends a heartbeat and its stream opens."""
        self.shell.on_heartbeat(heartbeat(name, **{"engines": (engine_info(self.engines[name].url),), **changes}))
        self.shell.on_connected(name, True, 0.0)

    @property
    def engine(self) -> ScriptedEngine:
        return self.engines["w1"]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Turns the loop until something is so; fails after PATIENCE_S."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.002)

    async def asked(self, number: int = 1, worker: str = "w1") -> Peer:
        """Waits for the engine's request of that number."""
        requests = self.engines[worker].requests
        await self.until(lambda: len(requests) >= number)
        return requests[number - 1]


def engine_info(url: str, **changes: object) -> EngineInfo:
    (info,) = heartbeat().engines
    return replace(info, endpoint=url, **changes)  # type: ignore[arg-type]


CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
STREAMED = {**CHAT, "stream": True}


def body(**fields: object) -> bytes:
    return orjson.dumps({**CHAT, **fields})


def client(g: Gateway) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=g.url, timeout=PATIENCE_S, verify=False)  # no certificates to load


async def asking(g: Gateway, *, stream: bool = True) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client on a plain socket, which reads what it wants."""
    reader, writer = await asyncio.open_connection("127.0.0.1", g.port, limit=2**14)
    data = body(stream=stream)
    writer.write(HEAD + b"content-length: %d\r\n\r\n" % len(data) + data)
    return reader, writer


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    assert {"message", "type", "param", "code"} <= set(error)
    assert response.headers["x-hmas-reason"] == error["reason"]
    assert response.headers["x-request-id"]
    return error


@asynccontextmanager
async def gateway(
    *,
    workers: tuple[str, ...] = ("w1",),
    behave: Handler = answer,
    grants: bool = True,
    agent: GatewayConfig | None = None,
    server: HttpServerConfig | None = None,
    max_buffered_bytes: int = MAX_BUFFERED_BYTES,
    kept: int = 4096,
    connections: ConnectionBounds | None = None,
    tenants_file: Path | None = None,
    decisions: DecisionLog | None = None,
    endpoints: str = LOOPBACK,
    tracing: Tracing | None = None,
    usage_book: UsageBook | None = None,
) -> AsyncIterator[Gateway]:
    """Runs a gateway with these workers, which are connected, and one more whose engine is ready: "late"."""
    directory = ModelDirectory(max_pools=256)
    engines = {name: ScriptedEngine(dict.fromkeys(API_PATHS, behave)) for name in (*workers, "late")}
    for engine in engines.values():
        await engine.start()
    usable = EngineDirectory(AllowedEndpoints(parse_rules(endpoints)))
    published: list[GatewayTelemetry] = []

    def publish(message: GatewayTelemetry | UseReport) -> None:
        if isinstance(message, GatewayTelemetry):
            published.append(message)

    records = GatewayRecords("g", directory, kept=kept, tracing=tracing, usage=usage_book)
    the_shell = GatewayShell(directory, usable, records.witness, publish, max_buffered_bytes=max_buffered_bytes)
    the_agent = GatewayAgent(agent or GatewayConfig(gateway="g"))
    host: AgentHost[GatewayEvent, GatewayEffect] = AgentHost(the_agent, the_shell.execute, failed=raise_it)
    fake, questions = FakeWorkers(the_shell, grants), Questions()
    the_shell.connect(host.post, fake, questions.post, the_agent.turn)
    tenants = TenantStore(tenants_file)
    rest = build_api(directory, tenants, lambda: the_shell.workers_connected > 0, decisions or DecisionLog(lambda: 0.0))
    config = server or HttpServerConfig(body=BodyBounds(max_bytes=100_000))
    app = GatewayServer(config, the_shell, tenants, directory, rest)
    http = HttpServer(
        uvicorn.Config(
            app, host="127.0.0.1", port=0, http=guarded(connections or ConnectionBounds(), ClientProtocol), ws="none",
            lifespan="off", log_config=None, access_log=False, proxy_headers=False, timeout_graceful_shutdown=1,
            backlog=4096,
        )
    )  # fmt: skip
    host.post(TenantsChanged(tenants.limits(), tenants.classes()))
    port = await http.start()
    ticker = asyncio.create_task(_tick(host))
    it = Gateway(
        url=f"http://127.0.0.1:{port}", port=port, shell=the_shell, records=records, workers=fake, engines=engines,
        directory=usable, questions=questions, published=published, host=host, app=app, http=http,
    )  # fmt: skip
    for name in workers:
        it.add_worker(name)
    try:
        yield it
    finally:
        ticker.cancel()
        await http.stop()
        await the_shell.close()
        for engine in engines.values():
            await engine.stop()


async def _tick(host: AgentHost[GatewayEvent, GatewayEffect]) -> None:
    while True:
        await asyncio.sleep(0.02)
        host.post(GatewayTicked())
