"""Gateways and workers without the mesh's secret, or with a wrong certificate: nothing is believed, sent or kept."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from hmas.contracts.execution import Synced
from hmas.contracts.registry import WIRE_VERSION, WorkerHeartbeat
from hmas.gateway.streams import StreamConfig
from hmas.runtime.extras import CannotStart
from hmas.runtime.frames import FrameConnection, FrameListener, connect
from hmas.runtime.security import OPEN, MeshSecurity
from hmas.wire.handshake import MeshSecret
from hmas.wire.v1 import execution_pb2 as pb
from hmas.worker.streams import GatewayStreams, GatewayStreamsConfig
from tests.certificates import issuer
from tests.worker.test_stream_healing import SOON_S, Pair, Told

OURS, THEIRS = (MeshSecurity(MeshSecret(key * 32)) for key in (b"o", b"t"))


@pytest.fixture
async def guarded() -> AsyncIterator[Pair]:
    pair = Pair(False, OURS, OURS)
    await pair.start_worker(hello_s=0.3, max_strangers=8)
    yield pair
    await pair.close()


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Awaitable[None]]:
    """Waits until a gateway has tried five times more to reach a worker."""
    made, more = 0, asyncio.Event()

    async def counted(*to: Any) -> FrameConnection:
        nonlocal made
        made += 1
        more.set()
        return await connect(*to)

    async def five_more() -> None:
        wanted = made + 5
        async with asyncio.timeout(SOON_S):
            while made < wanted:
                more.clear()
                await more.wait()

    monkeypatch.setattr("hmas.gateway.streams.connect", counted)
    return five_more


class Stranger(Told):
    """A peer that keeps what it is sent, without a secret."""

    def on_open(self, connection: FrameConnection) -> None:
        self.connection = connection

    def on_frame(self, connection: FrameConnection, frame: Any) -> None:
        self._tell(frame)

    def on_closed(self, connection: FrameConnection, reason: str) -> None:
        self._tell("closed")

    async def closed(self) -> None:
        await self.times(1, "closed")


async def to_worker(pair: Pair) -> Stranger:
    """Connects a stranger to the worker as a gateway would."""
    stranger = Stranger()
    await connect(pair.address, lambda: FrameConnection(pb.WorkerFrame, pb.GatewayFrame, stranger, 60.0))
    return stranger


def hello(nonce: bytes = b"n" * 16) -> pb.Hello:
    return pb.Hello(sender="g", incarnation="a", wire_version=WIRE_VERSION, nonce=nonce)


@pytest.mark.parametrize(("worker", "gateway"), [(OURS, THEIRS), (OURS, OPEN), (OPEN, OURS)])
async def test_only_one_secret_opens_a_stream_and_both_sides_say_so_once(
    worker: MeshSecurity, gateway: MeshSecurity, attempts: Callable[[], Awaitable[None]]
) -> None:
    pair = Pair(False, worker, gateway)
    await pair.start_worker()
    with structlog.testing.capture_logs() as logs:
        pair.start_gateway(backoff_s=0.01, max_backoff_s=0.01)
        await attempts()
    told = [entry["reason"] for entry in logs if entry["event"] == "worker_refused"]
    assert len(told) == 1
    assert "HMAS_MESH_SECRET_FILE" in told[0]
    assert len([entry for entry in logs if entry["event"] == "gateway_refused"]) <= 1
    assert pair.gateway.events == pair.worker.events == []
    await pair.close()


async def test_a_gateway_without_the_secret_is_not_believed(guarded: Pair) -> None:
    """It gets a proof of the worker, and sends that, nothing, and its own messages in place of a proof."""
    for proof in ("theirs", "none", "zeros"):
        stranger = await to_worker(guarded)
        stranger.connection.outgoing().hello.CopyFrom(hello())
        stranger.connection.outgoing().ops.add().synced.SetInParent()
        await stranger.until(lambda events: len(events) == 1)
        answer = stranger.events[0][0].hello
        assert len(answer.proof) == 32
        frame = stranger.connection.outgoing()
        frame.hello.proof = {"theirs": answer.proof, "none": b"", "zeros": bytes(32)}[proof]
        frame.ops.add().synced.SetInParent()
        stranger.connection.flush()
        stranger.connection.outgoing().ops.add().synced.SetInParent()
        await stranger.closed()
        assert len(stranger.events) == 2
    assert guarded.worker.events == []
    assert guarded.server._strangers == {}


async def test_who_says_nothing_or_too_much_is_closed(guarded: Pair) -> None:
    silent, loud = await to_worker(guarded), await to_worker(guarded)
    loud.connection.outgoing().hello.CopyFrom(hello())
    loud.connection.outgoing().hello.sender = "x" * 70_000
    await loud.closed()
    assert loud.events == [("closed",)]
    await silent.closed()
    assert guarded.server._strangers == {}


async def test_strangers_do_not_keep_a_gateway_out(guarded: Pair) -> None:
    strangers = [await to_worker(guarded) for _ in range(50)]
    assert len(guarded.server._strangers) <= 8
    await guarded.open()
    for stranger in strangers:
        await stranger.closed()
    assert guarded.worker.events == [("g#a", "connected")]


async def test_a_heartbeat_alone_earns_no_message(guarded: Pair) -> None:
    """A stranger announces itself as a worker, and answers every hello with the gateway's own."""

    class Mirror(Stranger):
        def on_frame(self, connection: FrameConnection, frame: Any) -> None:
            self._tell(frame)
            connection.outgoing().hello.CopyFrom(frame.hello)
            connection.outgoing().hello.sender = "forged"

    mirror = Mirror()
    listener = FrameListener(lambda: FrameConnection(pb.GatewayFrame, pb.WorkerFrame, mirror, 60.0))
    address = f"127.0.0.1:{await listener.start('127.0.0.1', 0)}"
    streams = guarded.start_gateway()
    await guarded.gateway.times(1, "w", True)
    streams.ensure(guarded.heartbeat(worker="forged", address=address))
    await mirror.closed()
    streams.send("forged", Synced())
    listener.close()
    assert guarded.gateway.events == [("w", True)]
    frames = [event[0] for event in mirror.events if event[0] != "closed"]
    assert all(not frame.ops and not frame.hello.proof for frame in frames)


@pytest.mark.parametrize("fault", ["another CA", "another service", "expired", "none"])
async def test_a_wrong_certificate_opens_no_stream(
    tmp_path: Path, fault: str, attempts: Callable[[], Awaitable[None]]
) -> None:
    """Both have the secret."""
    ours = issuer(tmp_path / "ours")
    gateway = {
        "another CA": lambda: issuer(tmp_path / "theirs").security("gateway", secret=b"o" * 32),
        "another service": lambda: ours.security("qos", secret=b"o" * 32),
        "expired": lambda: ours.security("gateway", secret=b"o" * 32),
        "none": lambda: OURS,
    }[fault]()
    if fault == "expired":  # the one that was loaded is replaced by one that has ended
        assert gateway.tls is not None
        gateway.tls.certificate._show(0.0)
        files = ours.issue("gateway", days=-1)
        for context in gateway.tls.certificate.contexts:
            files.load_into(context)
    pair = Pair(False, ours.security("worker", secret=b"o" * 32), gateway)
    await pair.start_worker()
    with structlog.testing.capture_logs() as logs:
        pair.start_gateway(backoff_s=0.01, max_backoff_s=0.01)
        await attempts()
    assert pair.gateway.events == pair.worker.events == []
    told = [entry["reason"] for entry in logs if entry["event"] == "worker_not_reached"]
    if fault == "another service":
        assert any("not for the name `gateway`" in entry.get("reason", "") for entry in logs)
    else:
        assert len(told) == 1
        assert re.search({"another CA": "self-signed", "expired": "(?i)expired"}.get(fault, ""), told[0]), told
    await pair.close()


async def test_a_worker_with_a_wrong_certificate_gets_nothing_and_the_gateway_says_why(
    tmp_path: Path, attempts: Callable[[], Awaitable[None]]
) -> None:
    ours = issuer(tmp_path / "ours")
    for wrong, reason in (
        (issuer(tmp_path / "theirs").security("worker"), "(?i)verify failed|self-signed|issuer"),
        (ours.security("qos"), "Hostname mismatch"),
    ):
        pair = Pair(False, wrong, ours.security("gateway"))
        await pair.start_worker()
        with structlog.testing.capture_logs() as logs:
            pair.start_gateway(backoff_s=0.01, max_backoff_s=0.01)
            await attempts()
        (told,) = [entry for entry in logs if entry["event"] == "worker_not_reached"]
        assert re.search(reason, told["reason"]), told
        assert pair.gateway.events == pair.worker.events == []
        await pair.close()


async def test_no_port_is_opened_to_the_network_without_secret_or_certificate(tmp_path: Path) -> None:
    config = GatewayStreamsConfig(worker="w", incarnation="1")
    with pytest.raises(CannotStart, match="HMAS_STREAM_HOST=0"):
        await GatewayStreams(config).start("0.0.0.0", 0)
    for security in (OURS, issuer(tmp_path).security("worker")):
        streams = GatewayStreams(config, security=security)
        await streams.start("0.0.0.0", 0)
        await streams.close()


async def test_a_worker_that_cannot_be_reached_is_told_once(
    guarded: Pair, attempts: Callable[[], Awaitable[None]]
) -> None:
    await guarded.server.close()
    with structlog.testing.capture_logs() as logs:
        guarded.start_gateway(backoff_s=0.01, max_backoff_s=0.01)
        await attempts()
    assert [entry["event"] for entry in logs] == ["worker_not_reached"]


async def test_a_flood_of_workers_is_bounded_and_connected_ones_stay(guarded: Pair) -> None:
    streams = guarded.start_gateway(max_workers=20, forget_stranger_s=0.2)
    await guarded.gateway.times(1, "w", True)
    heartbeat: WorkerHeartbeat = guarded.heartbeat(address="127.0.0.1:1")
    for number in range(200):
        streams.ensure(replace(heartbeat, worker=f"forged-{number}"))
        assert len(streams._streams) <= 20
    assert "w" in streams._streams
    assert "forged-199" in streams._streams
    async with asyncio.timeout(SOON_S):
        while len(streams._streams) > 1:  # what never came about is dropped soon
            await asyncio.sleep(0.05)
    assert guarded.gateway.events == [("w", True)]


async def test_a_worker_that_was_met_is_looked_for_longer_than_a_stranger(guarded: Pair) -> None:
    streams = guarded.start_gateway(forget_stranger_s=0.2, forget_after_s=300.0)
    await guarded.gateway.times(1, "w", True)
    await guarded.server.close()
    await guarded.gateway.times(1, "w", False)
    with structlog.testing.capture_logs() as logs:
        streams.ensure(guarded.heartbeat(worker="forged", address="127.0.0.1:1"))
        async with asyncio.timeout(SOON_S):
            while not (forgotten := [entry["worker"] for entry in logs if entry["event"] == "worker_forgotten"]):
                await asyncio.sleep(0.01)
    assert forgotten == ["forged"]  # which came later
    assert StreamConfig().forget_stranger_s == 10.0
