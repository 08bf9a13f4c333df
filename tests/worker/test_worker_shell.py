"""The worker's shell whole: a gateway's stream on one side, an HTTP engine on the other, the real agent between."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from hmas.contracts.control import Hints, TopologyDecision, TopologyName, TopologyReceived
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.gateway.streams import StreamConfig, WorkerStreams
from hmas.runtime.rpc import RpcServer
from hmas.wire.v1 import execution_pb2 as pb
from hmas.wire.v1 import execution_pb2_grpc, types_pb2
from hmas.worker.adapters.monitor import EngineFacts
from hmas.worker.adapters.openai_http import OpenAiHttpAdapter, OpenAiHttpConfig
from hmas.worker.agent import WorkerAgent
from hmas.worker.agent.config import WorkerConfig
from hmas.worker.metrics import WorkerMetrics
from hmas.worker.settings import WorkerSettings
from hmas.worker.shell import WorkerShell
from hmas.worker.streams import ExecutionServer, StreamServerConfig
from tests.worker.adapters.scripted_engine import Peer, ScriptedEngine

CHAT = "/v1/chat/completions"
TOKEN = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
PLAIN = b'{"choices":[{}],"usage":{"prompt_tokens":7,"completion_tokens":9}}'


class Gateway:
    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.finished: dict[str, pb.Finished] = {}
        self.handbacks: list[str] = []
        self.loads: list[pb.Load] = []
        self.connected = False
        self.changed = asyncio.Event()

    def on_tokens(self, worker: str, message: pb.Tokens) -> None:
        self.data[message.request_id] = self.data.get(message.request_id, b"") + message.data
        self.changed.set()

    def on_finished(self, worker: str, message: pb.Finished) -> None:
        assert message.request_id not in self.finished
        self.finished[message.request_id] = message
        self.changed.set()

    def on_handback(self, worker: str, message: pb.Handback) -> None:
        self.handbacks.append(message.request_id)
        self.changed.set()

    def on_load(self, worker: str, message: pb.Load) -> None:
        self.loads.append(message)
        self.changed.set()

    def on_connected(self, worker: str, connected: bool) -> None:
        self.connected = connected
        self.changed.set()

    def on_vanished(self, worker: str, reason: str) -> None: ...

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Published:
    def __init__(self) -> None:
        self.values: list[Any] = []

    def publish(self, subject: str, value: Any) -> None:
        self.values.append(value)

    def of(self, kind: type) -> list[Any]:
        return [value for value in self.values if isinstance(value, kind)]


class HeldEngine:
    """Answers each request with one token, and the rest when told."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine = engine
        self.go = asyncio.Event()
        self.freed = asyncio.Event()

    async def __call__(self, peer: Peer) -> None:
        await peer.begin_chunks()
        await peer.chunk(TOKEN)
        gone = asyncio.create_task(peer.gone())
        go = asyncio.create_task(self.go.wait())
        await asyncio.wait((gone, go), return_when=asyncio.FIRST_COMPLETED)
        go.cancel()
        if gone.done():
            self.freed.set()
            raise ConnectionError
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        await peer.chunk(TOKEN + DONE)
        await peer.end_chunks()


class Rig:
    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine, self.gateway, self.bus = engine, Gateway(), Published()
        self.held = HeldEngine(engine)
        engine.script[CHAT] = self.held

    async def start(self, *, max_body_bytes: int = 10_000) -> None:
        for path, body in (("/health", b""), ("/v1/models", b"{}"), ("/metrics", b"")):
            self._page(path, body)
        self.server = ExecutionServer(StreamServerConfig(worker="w", incarnation="w-1", grace_s=0.05))
        self.rpc = RpcServer()
        execution_pb2_grpc.add_ExecutionServicer_to_server(self.server, self.rpc.server)  # type: ignore[no-untyped-call]
        port = await self.rpc.start("127.0.0.1", 0, [])
        config = WorkerConfig(worker="w", incarnation="w-1", address=f"127.0.0.1:{port}", pool="m", static_n_run=1)
        agent = WorkerAgent(config, Random(1))
        metrics = WorkerMetrics(CollectorRegistry())
        self.shell = WorkerShell(agent, self.server, self.bus, metrics, max_body_bytes=max_body_bytes)
        facts = EngineFacts(name="e")
        self.adapter = OpenAiHttpAdapter(OpenAiHttpConfig(facts=facts, url=self.engine.url), self.shell.post)
        self.running = asyncio.create_task(self.shell.run({"e": self.adapter}))
        self.streams = WorkerStreams("g", "g-1", self.gateway, StreamConfig())
        heartbeat = WorkerHeartbeat(
            worker="w",
            incarnation="w-1",
            address=config.address,
            wire_version=1,
            pool="m",
            aliases=(),
            engines=(),
            queued=0,
            queued_tokens=0,
            running=0,
            max_queued=9,
            max_queued_tokens=9,
            backlog_s=0.0,
            draining=False,
        )
        self.streams.ensure(heartbeat)
        await self.gateway.until(lambda: self.gateway.connected)

    def _page(self, path: str, body: bytes) -> None:
        async def answer(peer: Peer) -> None:
            await peer.reply(body)

        self.engine.script[path] = answer

    def submit(
        self, request_id: str, *, attempt: int = 1, stream: bool = True, body: bytes = b"{}", **more: Any
    ) -> None:
        slo = types_pb2.Slo(ttft_s=5, tpot_s=0.1)
        self.streams.submit(
            "w",
            pb.Submit(request_id=request_id, attempt=attempt, model="m", tenant="t", prompt_tokens=4, stream=stream,
                      slo=slo, weight=1, importance=0.75, path=CHAT, body=body, waited_s=0.5, **more),
        )  # fmt: skip

    async def finished(self, request_id: str) -> pb.Finished:
        await self.gateway.until(lambda: request_id in self.gateway.finished)
        return self.gateway.finished[request_id]

    async def stop(self) -> None:
        await self.streams.close()
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        await self.adapter.close()
        await self.server.close()
        await self.rpc.stop(0)


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    server = ScriptedEngine()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def rig(engine: ScriptedEngine) -> AsyncIterator[Rig]:
    rig = Rig(engine)
    await rig.start()
    yield rig
    await rig.stop()


async def test_a_stream_travels_from_the_engine_to_its_gateway(rig: Rig) -> None:
    rig.held.go.set()
    rig.submit("a", replay_output_tokens=2)
    finished = await rig.finished("a")
    assert rig.gateway.data["a"] + finished.data == TOKEN + TOKEN + DONE
    assert (finished.outcome, finished.output_tokens, finished.timeline.engine) == ("finished", 2, "e")
    assert 500_000 < finished.first_us <= finished.last_us < 10_000_000
    assert finished.tpot_s == pytest.approx((finished.last_us - finished.first_us) / 1e6)
    generated = next(peer for peer in rig.engine.requests if peer.path == CHAT)
    assert orjson.loads(generated.body) == {"max_tokens": 2, "min_tokens": 2, "ignore_eos": True}


async def test_a_plain_answer_comes_with_its_end(rig: Rig) -> None:
    rig._page(CHAT, PLAIN)
    rig.submit("a", stream=False)
    finished = await rig.finished("a")
    assert (finished.data, finished.output_tokens, finished.prompt_tokens) == (PLAIN, 9, 7)
    assert finished.first_us == finished.last_us > 500_000


async def test_an_engines_refusal_is_passed_on_with_its_status(rig: Rig) -> None:
    async def refuse(peer: Peer) -> None:
        await peer.reply(b'{"error":{"message":"bad","code":422}}', 422)

    rig.engine.script[CHAT] = refuse
    rig.submit("a")
    finished = await rig.finished("a")
    assert (finished.outcome, finished.status, finished.message) == ("engine_refused", 422, "bad")
    assert orjson.loads(finished.data)["error"]["message"] == "bad"


async def test_a_repeated_submit_is_served_once_and_a_later_attempt_supersedes(rig: Rig) -> None:
    rig.submit("a")
    rig.submit("a")
    await rig.gateway.until(lambda: "a" in rig.gateway.data)
    rig.submit("a", attempt=2)
    finished = await rig.finished("a")
    assert (finished.attempt, finished.outcome) == (1, "cancelled")
    await asyncio.wait_for(rig.held.freed.wait(), 5)
    del rig.gateway.finished["a"]
    rig.held.go.set()
    assert (await rig.finished("a")).attempt == 2
    rig.submit("a")
    rig.submit("b")
    await rig.finished("b")
    assert len([peer for peer in rig.engine.requests if peer.path == CHAT]) == 3


async def test_a_cancel_reaches_the_engine(rig: Rig) -> None:
    rig.submit("a")
    await rig.gateway.until(lambda: "a" in rig.gateway.data)
    rig.streams.cancel("w", "a", 1)
    await asyncio.wait_for(rig.held.freed.wait(), 5)
    assert (await rig.finished("a")).outcome == "cancelled"


async def test_only_a_queued_request_is_handed_back(rig: Rig) -> None:
    rig.submit("a")
    await rig.gateway.until(lambda: "a" in rig.gateway.data)
    rig.submit("b")
    rig.streams.recall("w", "a", 1)
    rig.streams.recall("w", "b", 1)
    await rig.gateway.until(lambda: rig.gateway.handbacks == ["b"])
    rig.held.go.set()
    assert (await rig.finished("a")).outcome == "finished"


async def test_a_lost_gateways_requests_are_taken_off_the_engine(rig: Rig) -> None:
    rig.submit("a")
    await rig.gateway.until(lambda: "a" in rig.gateway.data)
    await rig.streams.close()
    await asyncio.wait_for(rig.held.freed.wait(), 5)


async def test_bodies_are_bounded(engine: ScriptedEngine) -> None:
    rig = Rig(engine)
    await rig.start(max_body_bytes=100)
    rig.submit("a", body=b'{"x":"' + b"x" * 60 + b'"}')
    rig.submit("b", body=b'{"x":"' + b"x" * 60 + b'"}')
    assert (await rig.finished("b")).outcome == "pool_queue_full"
    rig.held.go.set()
    assert (await rig.finished("a")).outcome == "finished"
    await rig.stop()


async def test_a_drain_hands_back_the_queue_and_waits_for_what_runs(rig: Rig) -> None:
    rig.submit("a")
    await rig.gateway.until(lambda: "a" in rig.gateway.data)
    rig.submit("b")
    rig.streams.annotate("w", pb.Annotate(request_id="b", attempt=1))  # without tags: not taken, and harms nothing
    async with asyncio.timeout(5):
        while len(rig.shell._attempts) < 2:
            await asyncio.sleep(0.001)
    draining = asyncio.create_task(rig.shell.drain(30.0))
    await rig.gateway.until(lambda: rig.gateway.handbacks == ["b"])
    await rig.gateway.until(lambda: rig.gateway.loads and rig.gateway.loads[-1].draining)
    rig.submit("c")
    assert (await rig.finished("c")).outcome == "draining"
    assert not draining.done()
    rig.held.go.set()
    await asyncio.wait_for(draining, 5)
    assert rig.gateway.finished["a"].outcome == "finished"


async def test_a_drain_ends_what_outlasts_its_grace(rig: Rig) -> None:
    rig.submit("a")
    await rig.gateway.until(lambda: "a" in rig.gateway.data)
    await asyncio.wait_for(rig.shell.drain(0.01), 5)
    assert rig.gateway.finished["a"].outcome == "draining"
    await asyncio.wait_for(rig.held.freed.wait(), 5)


async def test_reports_and_controls_pass_through(rig: Rig) -> None:
    decision = TopologyDecision(
        pool="m",
        topology=TopologyName.EDF,
        hints=Hints(),
        bypass=False,
        epoch=1,
        seq=1,
        valid_for_s=60.0,
        reason="test",
        selector="rules",
    )
    rig.shell.post(TopologyReceived(decision, 0.0))
    rig.held.go.set()
    rig.submit("a")
    await rig.finished("a")
    async with asyncio.timeout(5):
        while not any(telemetry.finished for telemetry in rig.bus.of(WorkerTelemetry)):
            await asyncio.sleep(0.01)
    assert rig.bus.of(WorkerTelemetry)[-1].topology == "edf"
    assert rig.bus.of(WorkerHeartbeat)[0].pool == "m"


def test_settings_take_urls_or_a_list_of_engines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HMAS_POOL", "m")
    monkeypatch.setenv("HMAS_ALIASES", "x, y")
    monkeypatch.setenv("HMAS_ENGINES", "http://a:1, http://b:2/v1")
    settings = WorkerSettings()
    assert settings.aliases == ("x", "y")
    assert [c.facts.name for c in settings.engine_configs()] == ["a:1", "b:2/v1"]
    key = tmp_path / "key"
    key.write_text("secret\n")
    engines = [{"url": "http://a:1", "name": "one", "priority": "vllm", "api_key_file": str(key), "hardware": "H200"}]
    monkeypatch.setenv("HMAS_ENGINES", orjson.dumps(engines).decode())
    (config,) = WorkerSettings().engine_configs()
    assert (config.facts.name, config.facts.hardware, config.priority) == ("one", "H200", "vllm")
    assert config.api_key == "secret"


@pytest.mark.parametrize(
    ("engines", "message"),
    [
        ("", "no engine is configured"),
        ("http://a:1,http://a:1", "different names"),
        ('[{"url":"http://a:1","speed":3}]', "speed"),
        ("[nonsense", "engines"),
    ],
)
def test_bad_settings_say_what_is_wrong(monkeypatch: pytest.MonkeyPatch, engines: str, message: str) -> None:
    monkeypatch.setenv("HMAS_POOL", "m")
    monkeypatch.setenv("HMAS_ENGINES", engines)
    with pytest.raises(ValidationError, match=message):
        WorkerSettings()
