"""A gateway's shell on a real uvicorn, with workers that live in the test."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import uvicorn

from hmas.contracts.gateway import (
    CognitionQueueEvent,
    GatewayEffect,
    GatewayEvent,
    GatewayTicked,
    Question,
    QuestionAsked,
    TenantsChanged,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.telemetry import GatewayTelemetry
from hmas.gateway.agent import GatewayAgent
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.directory import ModelDirectory
from hmas.gateway.decisions import DecisionLog
from hmas.gateway.http.api import build_api
from hmas.gateway.http.bodies import BodyBounds
from hmas.gateway.http.connections import ConnectionBounds, guarded
from hmas.gateway.http.server import GatewayServer, HttpServerConfig
from hmas.gateway.shell import GatewayShell, GatewayShellConfig
from hmas.gateway.tenants.store import TenantStore
from hmas.runtime.host import AgentHost
from hmas.runtime.ops import HttpServer
from hmas.wire.v1 import execution_pb2 as pb
from tests.gateway.gateway_script import heartbeat

PATH = "/v1/chat/completions"
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"  # of a request that is written by hand
DONE = b"data: [DONE]\n\n"
PLAIN = b'{"id":"c1","choices":[]}'


def event(n: int) -> bytes:
    return b'data: {"n":%d}\n\n' % n


@dataclass
class FakeWorkers:
    """The workers' side of the streams. `behave` is called, at the loop's next turn, with each request sent."""

    shell: GatewayShell
    behave: Callable[["FakeWorkers", str, pb.Submit], None] | None = None
    submits: list[tuple[str, pb.Submit]] = field(default_factory=list)
    annotates: list[tuple[str, pb.Annotate]] = field(default_factory=list)
    cancels: list[tuple[str, str, int]] = field(default_factory=list)
    recalls: list[tuple[str, str, int]] = field(default_factory=list)

    def ensure(self, heartbeat: WorkerHeartbeat) -> None:
        pass

    def submit(self, worker: str, message: pb.Submit) -> None:
        self.submits.append((worker, message))
        if self.behave is not None:
            asyncio.get_running_loop().call_soon(self.behave, self, worker, message)

    def annotate(self, worker: str, message: pb.Annotate) -> None:
        self.annotates.append((worker, message))

    def cancel(self, worker: str, request_id: str, attempt: int) -> None:
        self.cancels.append((worker, request_id, attempt))

    def recall(self, worker: str, request_id: str, attempt: int) -> None:
        self.recalls.append((worker, request_id, attempt))

    # --- what a worker says ---

    def tokens(self, worker: str, submit: pb.Submit, data: bytes, tokens: int = 1) -> None:
        self.shell.on_tokens(
            worker, pb.Tokens(request_id=submit.request_id, attempt=submit.attempt, data=data, tokens=tokens)
        )

    def finish(
        self,
        worker: str,
        submit: pb.Submit,
        data: bytes = b"",
        outcome: Outcome = Outcome.FINISHED,
        *,
        message: str = "",
        status: int = 200,
        output_tokens: int = 3,
        retry_after_s: float | None = None,
    ) -> None:
        self.shell.on_finished(
            worker,
            pb.Finished(
                request_id=submit.request_id, attempt=submit.attempt, outcome=outcome, message=message, status=status,
                data=data, output_tokens=output_tokens, retry_after_s=retry_after_s,
            ),
        )  # fmt: skip


def answer(workers: FakeWorkers, worker: str, submit: pb.Submit) -> None:
    """Three tokens, or a plain body."""
    if not submit.stream:
        workers.finish(worker, submit, PLAIN)
        return
    for n in range(3):
        workers.tokens(worker, submit, event(n))
    workers.finish(worker, submit, DONE)


def silence(workers: FakeWorkers, worker: str, submit: pb.Submit) -> None:
    """The request queues for ever."""


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
    url: str
    port: int
    shell: GatewayShell
    workers: FakeWorkers
    questions: Questions
    published: list[GatewayTelemetry]
    host: AgentHost[GatewayEvent, GatewayEffect]
    app: GatewayServer
    http: HttpServer

    def add_worker(self, name: str) -> None:
        self.shell.on_heartbeat(heartbeat(name))
        self.shell.on_connected(name, True)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Turns the loop until something is so; fails after five seconds."""
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.005)


CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
STREAMED = {**CHAT, "stream": True}


def body(**fields: object) -> bytes:
    return orjson.dumps({**CHAT, **fields})


def client(g: Gateway) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=g.url, timeout=10, verify=False)  # no certificates to load


async def asking(
    g: Gateway, *, stream: bool = True
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str, pb.Submit]:
    """A client on a plain socket, which reads what it wants, and its request as a worker got it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", g.port, limit=2**14)
    data = body(stream=stream)
    writer.write(HEAD + b"content-length: %d\r\n\r\n" % len(data) + data)
    await g.until(lambda: bool(g.workers.submits))
    return reader, writer, *g.workers.submits[0]


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
    behave: Callable[[FakeWorkers, str, pb.Submit], None] | None = answer,
    agent: GatewayConfig | None = None,
    server: HttpServerConfig | None = None,
    shell: GatewayShellConfig | None = None,
    connections: ConnectionBounds | None = None,
    tenants_file: Path | None = None,
    decisions: DecisionLog | None = None,
) -> AsyncIterator[Gateway]:
    directory = ModelDirectory(max_pools=256)
    published: list[GatewayTelemetry] = []
    the_shell = GatewayShell(shell or GatewayShellConfig("g"), directory, published.append)
    host: AgentHost[GatewayEvent, GatewayEffect] = AgentHost(
        GatewayAgent(agent or GatewayConfig(gateway="g")), the_shell.execute
    )
    fake, questions = FakeWorkers(the_shell, behave), Questions()
    the_shell.connect(host.post, fake, questions.post)
    tenants = TenantStore(tenants_file)
    rest = build_api(directory, tenants, lambda: the_shell.workers_connected > 0, decisions or DecisionLog(lambda: 0.0))
    config = server or HttpServerConfig(body=BodyBounds(max_bytes=100_000))
    app = GatewayServer(config, the_shell, tenants, directory, rest)
    http = HttpServer(
        uvicorn.Config(
            app, host="127.0.0.1", port=0, http=guarded(connections or ConnectionBounds()), ws="none", lifespan="off",
            log_config=None, access_log=False, proxy_headers=False, timeout_graceful_shutdown=1,
        )
    )  # fmt: skip
    host.post(TenantsChanged(tenants.limits()))
    port = await http.start()
    ticker = asyncio.create_task(_tick(host))
    it = Gateway(
        url=f"http://127.0.0.1:{port}", port=port, shell=the_shell, workers=fake, questions=questions,
        published=published, host=host, app=app, http=http,
    )  # fmt: skip
    for name in workers:
        it.add_worker(name)
    try:
        yield it
    finally:
        ticker.cancel()
        await http.stop()


async def _tick(host: AgentHost[GatewayEvent, GatewayEffect]) -> None:
    while True:
        await asyncio.sleep(0.02)
        host.post(GatewayTicked())
