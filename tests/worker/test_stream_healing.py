"""Both ends of the stream between gateways and a worker, over TCP and the Unix socket."""

import asyncio
import socket
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.execution import (
    Adopt,
    Annotate,
    Declined,
    Ended,
    EngineShare,
    FirstToken,
    Grant,
    Load,
    Progress,
    Refusal,
    Started,
    Stop,
    Submit,
    Synced,
    Withdraw,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import WIRE_VERSION, WorkerHeartbeat
from hmas.contracts.request import Annotation, Cost, KindCost, Slo, Tags, TagSource, TaskType
from hmas.gateway.streams import StreamConfig, WorkerStreams
from hmas.runtime.frames import FrameConnection, connect
from hmas.runtime.security import OPEN, MeshSecurity
from hmas.wire.handshake import MeshSecret
from hmas.wire.v1 import execution_pb2 as pb
from hmas.worker.streams import GatewayStreams, GatewayStreamsConfig
from tests.builders.registry import worker_heartbeat
from tests.builders.requests import client_request, timeline
from tests.certificates import issuer

SOON_S = 60.0  # how long a test waits for what must happen
GATEWAY_CLOCK_S, WORKER_CLOCK_S = 1000.0, 64.0  # the two hosts' clocks differ

REQUEST = client_request(
    "r", tenant="t", flow="f", prompt_tokens=7, slo=Slo(1.0, 0.25), priority=-3, weight=2.0, importance=0.5,
    arrival_s=GATEWAY_CLOCK_S - 2.0,
)  # fmt: skip
ANNOTATION = Annotation(
    Tags(task=TaskType.QA, slo=Slo(1.0, 0.5, 9.0, True), output_tokens=8.0, output_tokens_p90=9.0, confidence=0.5,
         source=TagSource.PRIOR, version="1"),
    (KindCost(EngineKind("", "A100"), Cost(0.5, 0.25)),),
)  # fmt: skip
ADOPT = Adopt(
    request=REQUEST, attempt=1, annotation=ANNOTATION, engine="e", grant=4, output_tokens=5,
    granted_s=GATEWAY_CLOCK_S - 1.0, first_token_s=GATEWAY_CLOCK_S - 0.5,
)  # fmt: skip
FROM_GATEWAY = (
    Submit(request=REQUEST, attempt=1, again=True), ADOPT, replace(ADOPT, annotation=None, first_token_s=None),
    Synced(), Annotate("r", 1, ANNOTATION), Withdraw("r", 1), Started("r", 4), FirstToken("r", 4),
    Progress(("r", "s"), (1, 2)), Progress((), ()), Ended(request_id="r", grant=4, outcome=Outcome.FINISHED),
    Declined("r", 5),
)  # fmt: skip
FROM_WORKER = (
    Grant(request_id="r", attempt=1, grant=4, engine="e", urgency=0.5, pace_s=None, priority=-1,
          timeline=timeline(engine="e", topology="fcfs", queued_s=0.5, queue_length=1, upper_output_tokens=9.0)),
    Stop("r", 4, "why"),
    Refusal(request_id="r", attempt=1, outcome=Outcome.NO_ENGINE, message="no"),
    Load(queued=1, queued_tokens=2, running=3, backlog_s=0.5, draining=True, shares=(EngineShare("e", 2),)),
)  # fmt: skip
LOAD = FROM_WORKER[-1]


class Told:
    """A sink at either end: keeps what it is told, with the peer."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self._changed = asyncio.Event()
        self.fails_at: object = None

    def _tell(self, *event: Any) -> None:
        self.events.append(event)
        self._changed.set()

    def on_connected(self, peer: str, *state: Any) -> None:
        self._tell(peer, *(state[:1] or ["connected"]))

    def on_lost(self, peer: str) -> None:
        self._tell(peer, "lost")

    def on_message(self, peer: str, message: Any) -> None:
        if message == self.fails_at:
            raise RuntimeError("planted")
        self._tell(peer, message)

    async def until(self, condition: Callable[[list[tuple[Any, ...]]], bool]) -> None:
        async with asyncio.timeout(SOON_S):
            while not condition(self.events):
                self._changed.clear()
                await self._changed.wait()

    async def times(self, count: int, *event: Any) -> None:
        await self.until(lambda events: events.count(event) == count)


class Pair:
    """A worker `w` and gateways in front of it."""

    def __init__(self, local: bool, worker: MeshSecurity = OPEN, gateway: MeshSecurity = OPEN) -> None:
        self.local = local
        self.securities = worker, gateway
        self.address = ""
        self.gateways: list[WorkerStreams] = []
        self.gateway, self.worker = Told(), Told()
        self._run = uuid.uuid4().hex[:8]

    async def start_worker(self, incarnation: str = "1", *, opened: bool = True, **config: Any) -> None:
        """Starts the worker at the address that it had before."""
        self.incarnation = incarnation
        self.server = GatewayStreams(
            GatewayStreamsConfig(worker="w", incarnation=incarnation, **config),
            lambda: WORKER_CLOCK_S,
            self.securities[0],
        )
        port = await self.server.start("127.0.0.1", int(self.address.rpartition(":")[2] or 0))
        self.address = f"127.0.0.1:{port}"
        if self.local:
            await self.server.start_local(self.address)
        if opened:
            self.server.open(self.worker)

    def heartbeat(self, **changes: Any) -> WorkerHeartbeat:
        heartbeat = worker_heartbeat(
            "w", incarnation=self.incarnation, address=self.address, max_queued=9, max_queued_tokens=9
        )
        return replace(heartbeat, **changes)

    def start_gateway(self, incarnation: str = "a", told: Told | None = None, **config: Any) -> WorkerStreams:
        streams = WorkerStreams(
            "g", incarnation, told or self.gateway, StreamConfig(**config), lambda: GATEWAY_CLOCK_S, self.securities[1]
        )  # fmt: skip
        self.gateways.append(streams)
        streams.ensure(self.heartbeat())
        return streams

    async def open(self) -> WorkerStreams:
        streams = self.start_gateway()
        await self.gateway.times(1, "w", True)
        await self.worker.until(lambda events: ("g#a", "connected") in events)
        return streams

    def cut(self) -> None:
        """Breaks every connection as a failing network would."""
        for connection in [*self.server._strangers, *self.server._gateways.values()]:
            assert connection._transport is not None
            connection._transport.abort()

    async def close(self) -> None:
        for streams in self.gateways:
            await streams.close()
        await self.server.close()


@pytest.fixture(params=["tcp", "local", "tls"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """Plain TCP, the Unix socket with a secret, and TLS with certificates and a secret."""
    if request.param == "local" and sys.platform != "linux":
        pytest.skip("abstract sockets are Linux's")
    secret = b"a secret of the mesh, for tests"
    ends = [OPEN, OPEN]
    if request.param == "local":
        ends = [MeshSecurity(MeshSecret(secret))] * 2
    elif request.param == "tls":
        authority = issuer(tmp_path)
        ends = [authority.security(name, secret=secret) for name in ("worker", "gateway")]
    pair = Pair(request.param == "local", *ends)
    await pair.start_worker()
    yield pair
    await pair.close()


async def test_every_message_arrives_in_order_with_instants_on_the_receivers_clock(pair: Pair) -> None:
    streams = await pair.open()
    assert streams.is_local("w") is pair.local
    for message in FROM_GATEWAY:
        streams.send("w", message)
    for answer in FROM_WORKER:
        pair.server.send("g#a", answer)
    await pair.worker.until(lambda events: len(events) > len(FROM_GATEWAY))
    await pair.gateway.until(lambda events: len(events) > len(FROM_WORKER))
    assert pair.gateway.events == [("w", True), *(("w", answer) for answer in FROM_WORKER)]
    request = replace(REQUEST, arrival_s=WORKER_CLOCK_S - 2.0)
    adopt = replace(ADOPT, request=request, granted_s=WORKER_CLOCK_S - 1.0, first_token_s=WORKER_CLOCK_S - 0.5)
    expected = [
        Submit(request=request, attempt=1, again=True), adopt, replace(adopt, annotation=None, first_token_s=None),
        *FROM_GATEWAY[3:],
    ]  # fmt: skip
    assert pair.worker.events == [("g#a", "connected"), *(("g#a", message) for message in expected)]


async def test_a_broken_connection_is_told_to_both_and_made_again(pair: Pair) -> None:
    streams = await pair.open()
    pair.cut()
    await pair.gateway.times(1, "w", False)
    streams.send("w", Synced())  # to nobody
    assert not streams.is_local("w")
    await pair.gateway.times(2, "w", True)
    streams.send("w", Withdraw("r", 1))
    await pair.worker.times(1, "g#a", Withdraw("r", 1))
    assert [event for _, event in pair.worker.events] == ["connected", "lost", "connected", Withdraw("r", 1)]
    assert [event for _, event in pair.gateway.events] == [True, False, True]


async def test_what_is_for_nobody_is_dropped(pair: Pair) -> None:
    streams = await pair.open()
    streams.send("nobody", Synced())
    pair.server.send("g#b", LOAD)
    streams.send("w", Synced())
    pair.server.send("g#a", LOAD)
    await pair.worker.times(1, "g#a", Synced())
    await pair.gateway.times(1, "w", LOAD)
    assert len(pair.worker.events) == len(pair.gateway.events) == 2


async def test_connections_before_open_wait(pair: Pair) -> None:
    await pair.server.close()
    await pair.start_worker(opened=False)
    pair.start_gateway()
    async with asyncio.timeout(SOON_S):
        while None in (frames := [stranger.frame for stranger in pair.server._strangers.values()]) or not frames:
            await asyncio.sleep(0.01)
    assert pair.gateway.events == []
    pair.server.open(pair.worker)
    await pair.gateway.times(1, "w", True)
    await pair.worker.times(1, "g#a", "connected")
    assert len(pair.worker.events) == 1


async def test_a_worker_that_restarts_is_found_again_and_late_heartbeats_break_nothing_for_long(pair: Pair) -> None:
    streams = await pair.open()
    await pair.server.close()
    await pair.start_worker("2")
    await pair.gateway.times(2, "w", True)
    streams.ensure(pair.heartbeat())  # it is connected to this process already
    assert pair.gateway.events[-1] == ("w", True)
    streams.ensure(pair.heartbeat(incarnation="1"))
    await pair.gateway.times(3, "w", True)


async def test_a_worker_that_moves_is_followed_at_once(pair: Pair) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        pair.gateways.append(
            streams := WorkerStreams(
                "g", "a", pair.gateway, StreamConfig(backoff_s=1e6, max_backoff_s=1e6), security=pair.securities[1]
            )
        )
        streams.ensure(pair.heartbeat(address=f"127.0.0.1:{nobody.getsockname()[1]}"))
        with structlog.testing.capture_logs() as logs:
            async with asyncio.timeout(SOON_S):
                while not logs:  # until it could not be reached
                    await asyncio.sleep(0.01)
        streams.ensure(pair.heartbeat())
        await pair.gateway.times(1, "w", True)


async def test_another_connection_of_the_same_process_replaces_the_first(pair: Pair) -> None:
    first = await pair.open()
    second = Told()
    pair.start_gateway(told=second)
    await second.times(1, "w", True)
    await pair.worker.until(lambda events: len(events) == 3)
    assert pair.worker.events == [("g#a", "connected"), ("g#a", "lost"), ("g#a", "connected")]
    await first.close()  # or the two would replace one another for ever
    pair.server.send("g#a", LOAD)
    await second.times(1, "w", LOAD)


async def test_another_process_of_the_same_name_stands_beside_the_first(pair: Pair) -> None:
    await pair.open()
    second = Told()
    streams = pair.start_gateway("b", second)
    await second.times(1, "w", True)
    pair.server.send("g#a", LOAD)
    await pair.gateway.times(1, "w", LOAD)
    await streams.close()
    await pair.worker.times(1, "g#b", "lost")
    assert second.events == [("w", True)]
    assert [event for event in pair.worker.events if event[1] == "lost"] == [("g#b", "lost")]


async def test_another_wire_version_is_refused_once_in_words_and_tried_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.server.close()
    with monkeypatch.context() as other:
        other.setattr("hmas.worker.streams.WIRE_VERSION", WIRE_VERSION + 1)
        await pair.start_worker()
        greetings = 0

        def counted(connection: FrameConnection, frame: pb.GatewayFrame) -> None:
            nonlocal greetings
            greetings += 1
            GatewayStreams.on_frame(pair.server, connection, frame)

        pair.server.on_frame = counted  # type: ignore[method-assign]
        with structlog.testing.capture_logs() as logs:
            pair.start_gateway(backoff_s=0.01, max_backoff_s=0.01)
            async with asyncio.timeout(SOON_S):
                while greetings < 3:
                    await asyncio.sleep(0.01)
        told = [(entry.get("gateway"), entry.get("worker"), entry["theirs"])
                for entry in logs if entry["event"] == "wire_version_differs"]  # fmt: skip
        assert sorted(told, key=str) == [("g", None, WIRE_VERSION), (None, "w", WIRE_VERSION + 1)]
        assert pair.worker.events == pair.gateway.events == []
        await pair.server.close()
    await pair.start_worker("2")
    await pair.gateway.times(1, "w", True)


async def test_a_worker_of_another_name_at_the_address_is_refused(pair: Pair) -> None:
    with structlog.testing.capture_logs() as logs:
        streams = WorkerStreams("g", "a", pair.gateway, StreamConfig(), security=pair.securities[1])
        pair.gateways.append(streams)
        streams.ensure(pair.heartbeat(worker="v"))
        async with asyncio.timeout(SOON_S):
            while not (errors := [entry for entry in logs if entry["log_level"] == "error"]):
                await asyncio.sleep(0.01)
    assert [entry["sender"] for entry in errors] == ["w"]
    assert pair.gateway.events == []


async def test_a_bug_at_one_message_ends_nothing(pair: Pair) -> None:
    streams = await pair.open()
    pair.worker.fails_at, pair.gateway.fails_at = Synced(), LOAD
    for message in (Synced(), Withdraw("r", 1)):
        streams.send("w", message)
    for answer in (LOAD, FROM_WORKER[0]):
        pair.server.send("g#a", answer)
    await pair.worker.times(1, "g#a", Withdraw("r", 1))
    await pair.gateway.times(1, "w", FROM_WORKER[0])
    assert len(pair.gateway.events) == len(pair.worker.events) == 2


async def test_a_malformed_message_and_one_of_a_newer_peer_are_left_out(pair: Pair) -> None:
    streams = await pair.open()
    connection = streams._streams["w"].open
    assert connection is not None
    connection.outgoing().ops.add().ended.outcome = "no such outcome"
    connection.outgoing().ops.add().MergeFromString(b"\xa2\x06\x03new")
    streams.send("w", Synced())
    with structlog.testing.capture_logs() as logs:
        await pair.worker.times(1, "g#a", Synced())
    assert pair.worker.events == [("g#a", "connected"), ("g#a", Synced())]
    assert [(entry["event"], entry["peer"]) for entry in logs] == [("message_malformed", "g#a")]


async def test_what_does_not_begin_with_a_hello_is_refused(pair: Pair) -> None:
    class Rude(Told):
        def on_open(self, connection: FrameConnection) -> None:
            connection.outgoing().ops.add().synced.SetInParent()

        def on_frame(self, connection: FrameConnection, frame: pb.WorkerFrame) -> None:
            self._tell(frame.hello.wire_version)

        def on_closed(self, connection: FrameConnection, reason: str) -> None:
            self._tell("closed")

    rude = Rude()
    tls = pair.securities[1].tls
    await connect(
        pair.address,
        lambda: FrameConnection(pb.WorkerFrame, pb.GatewayFrame, rude, 60.0),
        tls.client if tls else None,
        "worker",
    )
    await rude.times(1, "closed")
    assert rude.events == [(WIRE_VERSION,), ("closed",)]
    assert pair.worker.events == []


async def test_the_number_of_gateways_is_bounded(pair: Pair) -> None:
    await pair.server.close()
    await pair.start_worker(max_gateways=1)
    first = await pair.open()
    second = Told()
    with structlog.testing.capture_logs() as logs:
        pair.start_gateway("b", second, backoff_s=0.01)
        async with asyncio.timeout(SOON_S):
            while "too_many_gateways" not in [entry["event"] for entry in logs]:
                await asyncio.sleep(0.01)
    assert second.events == []
    await first.close()
    await second.times(1, "w", True)


async def test_a_worker_that_is_silent_for_long_is_forgotten_until_its_next_heartbeat(pair: Pair) -> None:
    streams = pair.start_gateway(forget_stranger_s=0.0)
    async with asyncio.timeout(SOON_S):
        while streams._streams:
            await asyncio.sleep(0.01)
    assert pair.gateway.events == []
    streams._config = StreamConfig()
    streams.ensure(pair.heartbeat())
    await pair.gateway.times(1, "w", True)


async def test_what_is_closed_tells_its_sink_nothing_more(pair: Pair) -> None:
    streams = await pair.open()
    await streams.close()
    await pair.worker.times(1, "g#a", "lost")
    assert pair.gateway.events == [("w", True)]
    streams = pair.start_gateway()
    await pair.gateway.times(2, "w", True)
    await pair.server.close()
    await pair.gateway.times(1, "w", False)
    assert pair.worker.events[:2] == [("g#a", "connected"), ("g#a", "lost")]
    assert pair.worker.events[2:] in ([], [("g#a", "connected")])
