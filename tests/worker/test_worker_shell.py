"""The worker's shell between a gateway's stream, an agent that follows a script, and engines."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError
from structlog.testing import capture_logs

from hmas.contracts.control import TopologyName
from hmas.contracts.execution import (
    Adopt,
    Declined,
    Ended,
    FirstToken,
    GatewayMessage,
    Grant,
    Load,
    Progress,
    Refusal,
    Started,
    Stop,
    Submit,
    Synced,
    Withdraw,
    WorkerMessage,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.contracts.worker import (
    ControlExpired,
    CycleTicked,
    DrainStarted,
    FromGateway,
    GatewayConnected,
    GatewayLost,
    HeartbeatDue,
    PublishHeartbeat,
    SteerEngine,
    ToGateway,
    TopologySwitched,
    WorkerEffect,
    WorkerEvent,
)
from hmas.gateway.streams import StreamConfig, WorkerStreams
from hmas.worker.adapters.base import GrantedRun
from hmas.worker.adapters.engine_facts import EngineFacts
from hmas.worker.adapters.openai_http import OpenAiHttpAdapter, OpenAiHttpConfig
from hmas.worker.agent import WorkerAgent
from hmas.worker.agent.config import WorkerConfig
from hmas.worker.metrics import WorkerMetrics
from hmas.worker.settings import WorkerSettings
from hmas.worker.shell import WorkerShell
from hmas.worker.streams import GatewayStreams, GatewayStreamsConfig
from tests.builders.registry import worker_heartbeat
from tests.builders.requests import timeline
from tests.conftest import PATIENCE_S
from tests.worker.adapters.scripted_engine import Peer, ScriptedEngine
from tests.worker.builders import request

G = "g#1"
TIMELINE = timeline(engine="e", topology="fcfs", queue_length=0, upper_output_tokens=9.0)
HEARTBEAT = worker_heartbeat("w", incarnation="w-1", max_queued=9, max_queued_tokens=9, draining=True)


def submit(request_id: str, prompt_tokens: int = 100) -> Submit:
    return Submit(request=request(request_id, prompt_tokens=prompt_tokens), attempt=1)


def grant(request_id: str, number: int = 1) -> Grant:
    return Grant(
        request_id=request_id, attempt=1, grant=number, engine="e", urgency=2.0, pace_s=None, timeline=TIMELINE
    )


def adopt(request_id: str, *, tokens: int = 0, engine: str = "e") -> Adopt:
    return Adopt(
        request=request(request_id),
        attempt=1,
        annotation=None,
        engine=engine,
        grant=0,
        output_tokens=tokens,
        granted_s=0.0,
        first_token_s=None,
    )


def ended(request_id: str, number: int = 1, outcome: Outcome = Outcome.ENGINE_ERROR, **fields: Any) -> Ended:
    return Ended(request_id=request_id, grant=number, outcome=outcome, **fields)


async def turns() -> None:
    """Lets every task go on as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


class Agent:
    """Notes its events, and answers each as `answer` says."""

    def __init__(self) -> None:
        self.events: list[WorkerEvent] = []
        self.answer: Callable[[WorkerEvent], list[WorkerEffect]] = lambda event: []

    def step(self, now_s: float, event: WorkerEvent) -> list[WorkerEffect]:
        if not isinstance(event, CycleTicked):
            self.events.append(event)
        return self.answer(event)


class Streams:
    def __init__(self) -> None:
        self.sent: list[tuple[str, WorkerMessage]] = []
        self.opened = asyncio.Event()

    def open(self, sink: WorkerShell) -> None:
        self.opened.set()

    def send(self, gateway: str, message: WorkerMessage) -> None:
        self.sent.append((gateway, message))


class Published:
    def __init__(self) -> None:
        self.values: list[Any] = []
        self.changed = asyncio.Event()

    def publish(self, subject: str, value: Any) -> None:
        self.values.append(value)
        self.changed.set()

    def of(self, kind: type) -> list[Any]:
        return [value for value in self.values if isinstance(value, kind)]


class Engine:
    """Notes what runs on it, and what it is told."""

    name = "e"

    def __init__(self) -> None:
        self.plugin = False
        self.priority: int | None = None
        self.runs: list[GrantedRun] = []
        self.judged: list[Ended] = []
        self.limits: list[tuple[int, int]] = []

    def add(self, run: GrantedRun) -> None:
        run.priority = self.priority
        self.runs.append(run)

    def remove(self, run: GrantedRun, end: Ended | None) -> None:
        self.runs.remove(run)

    def judge(self, end: Ended) -> None:
        self.judged.append(end)

    def steer(self, n_run: int, b_token: int) -> None:
        self.limits.append((n_run, b_token))

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None: ...


class Rig:
    def __init__(self) -> None:
        self.agent, self.streams, self.bus, self.engine = Agent(), Streams(), Published(), Engine()
        self.registry = CollectorRegistry()
        self.shell = WorkerShell(self.agent, self.streams, self.bus, WorkerMetrics(self.registry))

    async def start(self) -> None:
        self.running = asyncio.create_task(self.shell.run({"e": self.engine}))
        await self.streams.opened.wait()
        self.shell.on_connected(G)

    def hear(self, *messages: Any, gateway: str = G) -> None:
        for message in messages:
            self.shell.on_message(gateway, message)

    def tell(self, *messages: WorkerMessage, gateway: str = G) -> None:
        """Has the agent send messages."""
        self.do(*(ToGateway(gateway, message) for message in messages))

    def do(self, *effects: WorkerEffect) -> None:
        """Has the agent answer its next event with effects."""
        self.agent.answer = lambda event: list(effects)
        self.shell.post(CycleTicked())
        self.agent.answer = lambda event: []

    def grant(self, request_id: str, number: int = 1) -> GrantedRun:
        self.hear(submit(request_id))
        self.tell(grant(request_id, number))
        return self.engine.runs[-1]

    async def drain(self) -> asyncio.Task[None]:
        """Begins a drain, which then waits for the gateways."""
        draining = asyncio.create_task(self.shell.drain(30.0))
        await turns()
        return draining

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


@pytest.fixture
async def rig(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr("hmas.worker.shell.LEAST_DRAIN_S", 0.0)
    rig = Rig()
    await rig.start()
    yield rig
    await rig.stop()


async def test_what_gateways_do_reaches_the_agent_in_order(rig: Rig) -> None:
    messages: list[GatewayMessage] = [submit("a"), Synced(), Withdraw("a", 1)]
    rig.hear(*messages)
    rig.shell.on_lost(G)
    heard = [event for event in rig.agent.events if not isinstance(event, HeartbeatDue)]
    assert heard == [GatewayConnected(G), *(FromGateway(G, message) for message in messages), GatewayLost(G)]


async def test_effects_are_carried_out(rig: Rig) -> None:
    load = Load(queued=1, queued_tokens=2, running=3, backlog_s=4.0, draining=False)
    refusal = Refusal(request_id="a", attempt=1, outcome=Outcome.NO_ENGINE, message="none")
    rig.tell(load, refusal)
    assert rig.streams.sent == [(G, load), (G, refusal)]
    switched = TopologySwitched(before=TopologyName.FCFS, after=TopologyName.EDF, queued=1, reason="test")
    rig.do(PublishHeartbeat(HEARTBEAT), SteerEngine("e", 3, 4), switched, ControlExpired("tuple"))
    assert rig.bus.values == [HEARTBEAT]
    assert rig.engine.limits == [(3, 4)]
    value = rig.registry.get_sample_value
    assert value("hmas_worker_topology_switches_total") == 1
    assert value("hmas_worker_control_expiries_total", {"control": "tuple"}) == 1


@pytest.mark.parametrize(("priority", "plugin"), [(None, False), (7, False), (None, True)])
async def test_a_grant_carries_what_its_engine_wants_in_the_body(rig: Rig, priority: int | None, plugin: bool) -> None:
    rig.engine.priority, rig.engine.plugin = priority, plugin
    run = rig.grant("a")
    assert rig.streams.sent == [(G, replace(grant("a"), priority=priority, plugin=plugin))]
    assert (run.prompt_tokens, run.urgency) == (100, 2.0)
    assert rig.registry.get_sample_value("hmas_worker_grants_total") == 1


async def test_a_grant_within_the_step_of_its_submit_knows_the_request(rig: Rig) -> None:
    rig.agent.answer = lambda event: [ToGateway(G, grant("a"))] if isinstance(event, FromGateway) else []
    rig.hear(submit("a", prompt_tokens=77))
    assert [run.prompt_tokens for run in rig.engine.runs] == [77]


async def test_progress_is_noted_at_the_engine(rig: Rig) -> None:
    run, other = rig.grant("a"), rig.grant("b", 2)
    rig.hear(Started("a", 1))
    assert run.output_tokens == 0
    rig.hear(FirstToken("a", 1))
    assert (run.output_tokens, other.output_tokens) == (1, 0)
    rig.hear(Progress(("a", "b", "unknown"), (9, 3, 1)), Progress(("a",), (8,)))
    assert (run.output_tokens, other.output_tokens) == (9, 3)


@pytest.mark.parametrize("over", [ended("a", outcome=Outcome.FINISHED), ended("a", retryable=True), Declined("a", 1)])
async def test_a_run_leaves_its_engine_by_the_end_of_its_own_grant(rig: Rig, over: Ended | Declined) -> None:
    run = rig.grant("a")
    rig.hear(replace(over, grant=9), replace(over, request_id="b"), Withdraw("a", 1))
    assert rig.engine.runs == [run]
    rig.hear(over)
    assert rig.engine.runs == []
    rig.hear(over)
    assert len(rig.engine.judged) == isinstance(over, Ended)


async def test_what_comes_back_is_granted_again_with_its_prompt(rig: Rig) -> None:
    rig.grant("a")
    rig.agent.answer = lambda event: [ToGateway(G, grant("a", 2))] if isinstance(event, FromGateway) else []
    rig.hear(ended("a", retryable=True, status=500))
    assert [run.prompt_tokens for run in rig.engine.runs] == [100]
    assert [end.status for end in rig.engine.judged] == [500], "the engine is judged by the grant that failed"


async def test_the_agent_hears_of_an_end_before_the_engine_judges_itself_by_it(rig: Rig) -> None:
    rig.grant("a")
    judged: list[int] = []

    def answer(event: WorkerEvent) -> list[WorkerEffect]:
        judged.append(len(rig.engine.judged))
        return []

    rig.agent.answer = answer
    rig.hear(ended("a"))
    assert judged == [0]
    assert len(rig.engine.judged) == 1


async def test_what_the_worker_asked_back_says_nothing_about_the_engine(rig: Rig) -> None:
    rig.grant("a")
    rig.tell(Stop("a", 9, "of another grant"))
    rig.hear(ended("a"))
    assert len(rig.engine.judged) == 1
    rig.grant("b", 2)
    rig.tell(Stop("b", 2, "late"))
    rig.hear(ended("b", 2, retryable=True))
    assert len(rig.engine.judged) == 1
    assert rig.engine.runs == []


async def test_a_lost_gateways_runs_are_forgotten_until_it_names_them(rig: Rig) -> None:
    rig.shell.on_connected("other#1")
    rig.hear(submit("o"), gateway="other#1")
    rig.tell(grant("o", 8), gateway="other#1")
    rig.grant("a")
    rig.shell.on_lost(G)
    assert len(rig.engine.runs) == 1
    rig.tell(grant("b", 2), Stop("a", 1, "late"))  # nobody is there to take them
    assert len(rig.engine.runs) == 1
    rig.shell.on_connected(G)
    rig.hear(adopt("a", tokens=5), adopt("a", tokens=6), adopt("x", engine="elsewhere"))
    assert [(run.urgency, run.output_tokens) for run in rig.engine.runs[1:]] == [(None, 6)]
    rig.hear(ended("a", 0, Outcome.FINISHED))
    assert len(rig.engine.runs) == 1


async def test_what_came_back_keeps_its_place_while_its_old_grant_is_declined(rig: Rig) -> None:
    rig.grant("a")
    rig.hear(Withdraw("a", 1), replace(submit("a", 50), attempt=2, again=True), Declined("a", 1))
    assert rig.engine.runs == []
    rig.tell(replace(grant("a", 2), attempt=2))
    assert [run.prompt_tokens for run in rig.engine.runs] == [50]


async def test_an_error_in_one_message_is_answered_and_the_next_is_heard(rig: Rig) -> None:
    def fail(event: WorkerEvent) -> list[WorkerEffect]:
        raise ArithmeticError

    rig.agent.answer = fail
    with capture_logs() as logs:
        rig.hear(submit("a"), Synced())
    assert [(entry["event"], entry["event_type"]) for entry in logs] == [("step_failed", "FromGateway")]
    ((gateway, refusal),) = rig.streams.sent
    assert isinstance(refusal, Refusal)
    assert (gateway, refusal.request_id, refusal.outcome) == (G, "a", Outcome.INTERNAL)
    rig.agent.answer = lambda event: []
    rig.hear(submit("b"))
    assert rig.agent.events[-1] == FromGateway(G, submit("b"))


@pytest.mark.parametrize("last", [("b", "c", ""), ("", "b", "c")])
async def test_a_drain_says_so_and_waits_until_nothing_waits_here(rig: Rig, last: tuple[str, str, str]) -> None:
    rig.hear(submit("a"), submit("b"), submit("c"), submit("d"))
    rig.tell(grant("d"))
    with capture_logs() as logs:
        draining = await rig.drain()
        assert [type(event) for event in rig.agent.events[-2:]] == [DrainStarted, HeartbeatDue]
        rig.hear(Withdraw("a", 1))
        rig.tell(*(Refusal(request_id=i, attempt=1, outcome=Outcome.DRAINING, message="it stops") for i in last[0]))
        await turns()
        assert not draining.done()
        rig.hear(*(Withdraw(i, 1) for i in last[1]))
        await turns()
        rig.tell(*(Refusal(request_id=i, attempt=1, outcome=Outcome.DRAINING, message="it stops") for i in last[2]))
        await asyncio.wait_for(draining, PATIENCE_S)
    assert logs == [], "it did not wait in vain"
    assert len(rig.engine.runs) == 1, "what was granted goes on"


async def test_a_drain_also_ends_when_the_gateways_are_gone(rig: Rig) -> None:
    rig.hear(submit("a"))
    with capture_logs() as logs:
        draining = await rig.drain()
        rig.shell.on_lost(G)
        await asyncio.wait_for(draining, PATIENCE_S)
    assert logs == []


@pytest.mark.parametrize("grace_s", [0.0, 30.0])
async def test_a_drain_is_short_whatever_waits(rig: Rig, grace_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hmas.worker.shell.MOST_DRAIN_S", 0.01)
    rig.hear(submit("a"))
    with capture_logs() as logs:
        await asyncio.wait_for(rig.shell.drain(grace_s), PATIENCE_S)
    assert [entry["waiting"] for entry in logs] == [1]


class Gateway:
    """A gateway's end of a real stream."""

    def __init__(self) -> None:
        self.messages: list[WorkerMessage] = []
        self.connected = False
        self.changed = asyncio.Event()

    def on_connected(self, worker: str, connected: bool, silent_s: float) -> None:
        self.connected = connected
        self.changed.set()

    def on_message(self, worker: str, message: WorkerMessage) -> None:
        self.messages.append(message)
        self.changed.set()

    async def got(self, kind: type[Any], **fields: Any) -> Any:
        """Waits for a message of a kind with these values."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for message in self.messages:
                    if isinstance(message, kind) and all(getattr(message, k) == v for k, v in fields.items()):
                        return message
                self.changed.clear()
                await self.changed.wait()


async def test_the_whole_worker_grants_over_a_stream_and_says_when_it_drains() -> None:
    engine, gateway, bus = ScriptedEngine(), Gateway(), Published()
    for path, body in (("/health", b""), ("/v1/models", b"{}"), ("/metrics", b"vllm:num_requests_running 0\n")):
        engine.script[path] = partial(Peer.reply, body=body)
    await engine.start()
    streams = GatewayStreams(GatewayStreamsConfig(worker="w", incarnation="w-1"))
    address = f"127.0.0.1:{await streams.start('127.0.0.1', 0)}"
    config = WorkerConfig(worker="w", incarnation="w-1", address=address, pool="m")
    shell = WorkerShell(WorkerAgent(config), streams, bus, WorkerMetrics(CollectorRegistry()))
    facts = EngineFacts(name="e", endpoint="http://node:1")
    adapter = OpenAiHttpAdapter(OpenAiHttpConfig(facts=facts, url=engine.url, scrape_period_s=0.02), shell.post)
    running = asyncio.create_task(shell.run({"e": adapter}))
    workers = WorkerStreams("g", "1", gateway, StreamConfig())
    workers.ensure(replace(HEARTBEAT, address=address, draining=False))
    async with asyncio.timeout(PATIENCE_S):
        while not gateway.connected:
            gateway.changed.clear()
            await gateway.changed.wait()
    for message in (submit("a"), Synced()):
        workers.send("w", message)
    granted = await gateway.got(Grant, request_id="a")
    assert (granted.engine, granted.timeline.topology) == ("e", "fcfs")
    for told in (
        Started("a", granted.grant),
        FirstToken("a", granted.grant),
        ended("a", granted.grant, Outcome.FINISHED, output_tokens=7, status=200),
    ):
        workers.send("w", told)
    async with asyncio.timeout(PATIENCE_S):
        while not any(value.finished for value in bus.of(WorkerTelemetry)):
            bus.changed.clear()
            await bus.changed.wait()
    await asyncio.wait_for(shell.drain(30.0), PATIENCE_S)
    await gateway.got(Load, draining=True)
    assert bus.of(WorkerHeartbeat)[-1].draining
    assert [info.endpoint for info in bus.of(WorkerHeartbeat)[-1].engines] == ["http://node:1"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await adapter.close()
    await workers.close()
    await streams.close()
    await engine.stop()


def test_settings_take_urls_or_a_list_of_engines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HMAS_POOL", "m")
    monkeypatch.setenv("HMAS_ALIASES", "x, y")
    monkeypatch.setenv("HMAS_ENGINES", "http://a:1, http://b:2/v1")
    settings = WorkerSettings()
    assert settings.aliases == ("x", "y")
    assert [c.facts.name for c in settings.engine_configs()] == ["a:1", "b:2/v1"]
    assert [c.facts.endpoint for c in settings.engine_configs()] == ["http://a:1", "http://b:2/v1"]
    key = tmp_path / "key"
    key.write_text("secret\n")
    admin = tmp_path / "admin"
    admin.write_text("root\n")
    engines = [{"url": "http://a:1", "name": "one", "priority": "vllm", "api_key_file": str(key), "hardware": "H200",
                "admin_key_file": str(admin), "advertise_url": "http://node:1"}]  # fmt: skip
    monkeypatch.setenv("HMAS_ENGINES", orjson.dumps(engines).decode())
    (config,) = WorkerSettings().engine_configs()
    assert (config.facts.name, config.facts.hardware, config.priority) == ("one", "H200", "vllm")
    assert (config.api_key, config.admin_key) == ("secret", "root")
    assert (config.url, config.facts.endpoint) == ("http://a:1", "http://node:1")


@pytest.mark.parametrize(
    ("engines", "message"),
    [
        ("", "no engine is configured"),
        ("http://a:1,http://a:1", "different names"),
        ('[{"url":"http://a:1","speed":3}]', "speed"),
        ('[{"url":"http://a:1","advertise_url":"a:1"}]', "advertise_url"),
        ("[nonsense", "engines"),
    ],
)
def test_bad_settings_say_what_is_wrong(monkeypatch: pytest.MonkeyPatch, engines: str, message: str) -> None:
    monkeypatch.setenv("HMAS_POOL", "m")
    monkeypatch.setenv("HMAS_ENGINES", engines)
    with pytest.raises(ValidationError, match=message):
        WorkerSettings()


@pytest.mark.parametrize(
    ("host", "unreachable"),
    [("127.0.0.1", []), ("localhost", []), ("0.0.0.0", ["a", "b", "c"]), ("node", ["a", "b", "c"])],
)
def test_engines_that_gateways_elsewhere_cannot_reach_are_known(
    monkeypatch: pytest.MonkeyPatch, host: str, unreachable: str
) -> None:
    engines = [
        {"url": "http://127.0.0.1:1", "name": "a"},
        {"url": "http://localhost:1", "name": "b"},
        {"url": "http://[::1]:1", "name": "c"},
        {"url": "http://127.0.0.1:1", "name": "d", "advertise_url": "http://node:1"},
        {"url": "http://10.0.0.7:1", "name": "e"},
    ]
    monkeypatch.setenv("HMAS_POOL", "m")
    monkeypatch.setenv("HMAS_STREAM_HOST", host)
    monkeypatch.setenv("HMAS_ENGINES", orjson.dumps(engines).decode())
    assert [engine.label for engine in WorkerSettings().unreachable_engines()] == list(unreachable)
