"""The framed connection against a plain socket, over TCP and the Unix socket, on both event loops."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator

import pytest
import structlog.testing

from hmas.runtime import frames
from hmas.runtime.frames import PING, PING_S, FrameConnection, FrameListener, connect
from hmas.wire.v1 import execution_pb2 as pb
from tests.conftest import eventually

SOON_S = 60.0  # how long a test waits for what must happen
Plain = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Owner:
    """Keeps what its connections tell."""

    def __init__(self) -> None:
        self.opened: asyncio.Queue[FrameConnection] = asyncio.Queue()
        self.frames: asyncio.Queue[pb.GatewayFrame] = asyncio.Queue()
        self.closed: asyncio.Queue[tuple[FrameConnection, str]] = asyncio.Queue()

    def on_open(self, connection: FrameConnection) -> None:
        self.opened.put_nowait(connection)

    def on_frame(self, connection: FrameConnection, frame: pb.GatewayFrame) -> None:
        self.frames.put_nowait(frame)

    def on_closed(self, connection: FrameConnection, reason: str) -> None:
        self.closed.put_nowait((connection, reason))

    async def end(self) -> tuple[FrameConnection, str]:
        return await asyncio.wait_for(self.closed.get(), SOON_S)


class Listening:
    def __init__(self, silence_s: float) -> None:
        self.owner = Owner()
        self.listener = FrameListener(
            lambda: FrameConnection(pb.GatewayFrame, pb.WorkerFrame, self.owner, silence_s)
        )  # fmt: skip

    async def start(self) -> None:
        self.port = await self.listener.start("127.0.0.1", 0)
        self.address = f"127.0.0.1:{self.port}"
        await self.listener.start_local(self.address)

    async def plainly(self, local: bool) -> tuple[FrameConnection, Plain]:
        """Connects a plain socket; returns both ends."""
        way = socket.socket(socket.AF_UNIX if local else socket.AF_INET)
        way.connect(f"\0hmas.v2.{self.address}" if local else ("127.0.0.1", self.port))
        way.setblocking(False)
        ends = await (asyncio.open_unix_connection(sock=way) if local else asyncio.open_connection(sock=way))
        self.writer = ends[1]
        return await asyncio.wait_for(self.owner.opened.get(), SOON_S), ends

    async def frame(self) -> pb.GatewayFrame:
        return await asyncio.wait_for(self.owner.frames.get(), SOON_S)


@pytest.fixture(params=["tcp", "local"])
def local(request: pytest.FixtureRequest) -> bool:
    if request.param == "local" and sys.platform != "linux":
        pytest.skip("abstract sockets are Linux's")
    return bool(request.param == "local")


@pytest.fixture
async def patient() -> AsyncIterator[Listening]:
    listening = Listening(silence_s=60.0)
    await listening.start()
    yield listening
    listening.listener.close()
    listening.writer.transport.abort()


class Clock:
    """The time of the connections, which passes where a test says so. Their pings go by the event loop's."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(frames, "monotonic", made)
    return made


@pytest.fixture
async def hasty() -> AsyncIterator[Listening]:
    listening = Listening(silence_s=0.4)
    await listening.start()
    yield listening
    listening.listener.close()
    listening.writer.transport.abort()


def framed(frame: pb.GatewayFrame) -> bytes:
    data = frame.SerializeToString()
    return len(data).to_bytes(4) + data


def started(*ids: str) -> pb.GatewayFrame:
    return pb.GatewayFrame(ops=[pb.GatewayOp(started=pb.Started(request_id=i, grant=1)) for i in ids])


async def read_frame(reader: asyncio.StreamReader) -> pb.WorkerFrame:
    while not (length := int.from_bytes(await asyncio.wait_for(reader.readexactly(4), SOON_S))):
        pass
    return pb.WorkerFrame.FromString(await reader.readexactly(length))


async def test_what_is_added_in_one_turn_travels_in_one_frame(patient: Listening, local: bool) -> None:
    connection, (reader, _) = await patient.plainly(local)
    assert connection.local is local
    for i in range(3):
        connection.outgoing().ops.add().load.queued = i
    assert [op.load.queued for op in (await read_frame(reader)).ops] == [0, 1, 2]
    connection.outgoing().ops.add().load.queued = 3
    assert [op.load.queued for op in (await read_frame(reader)).ops] == [3]


async def test_many_operations_go_in_several_frames_in_order(patient: Listening, local: bool) -> None:
    connection, (reader, _) = await patient.plainly(local)
    for i in range(1025):
        connection.outgoing().ops.add().load.queued = i
    frames_read = [await read_frame(reader) for _ in range(3)]
    assert [len(frame.ops) for frame in frames_read] == [512, 512, 1]
    assert [op.load.queued for frame in frames_read for op in frame.ops] == list(range(1025))


async def test_frames_are_found_in_any_division_of_the_bytes(patient: Listening, local: bool) -> None:
    _, (_, writer) = await patient.plainly(local)
    data = framed(started("a")) + PING + framed(started("b", "c")) + framed(started("d" * 300_000))
    for byte in data[:60]:
        writer.write(bytes([byte]))
        await asyncio.sleep(0)
    writer.write(data[60:])
    assert [await patient.frame() for _ in range(3)] == [started("a"), started("b", "c"), started("d" * 300_000)]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ((32 * 2**20 + 1).to_bytes(4), "more than"),
        (b"PRI * HTTP/2.0\r\n", "more than"),
        (b"\0\0\0\3\xff\xff\xff", "decoded"),
    ],
)
async def test_what_is_no_frame_closes_the_connection(
    patient: Listening, local: bool, sent: bytes, reason: str
) -> None:
    _, (reader, writer) = await patient.plainly(local)
    writer.write(sent + framed(started("after")))
    assert reason in (await patient.owner.end())[1]
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await read_frame(reader)
    assert patient.owner.frames.empty()


async def test_the_end_of_the_peer_is_told_once(patient: Listening, local: bool) -> None:
    connection, (_, writer) = await patient.plainly(local)
    writer.transport.abort()
    assert (await patient.owner.end())[0] is connection
    connection.close("again")
    connection.outgoing().ops.add().load.queued = 1
    await asyncio.sleep(0)
    assert patient.owner.closed.empty()


async def test_a_silent_peer_is_closed(hasty: Listening, local: bool) -> None:
    connection, _ = await hasty.plainly(local)
    closed, reason = await hasty.owner.end()
    assert closed is connection
    assert "nothing was heard" in reason


async def test_an_idle_connection_is_pinged_and_pings_keep_it_open(clock: Clock, hasty: Listening, local: bool) -> None:
    connection, (reader, writer) = await hasty.plainly(local)
    for _ in range(4):  # in which silence would have lasted for 1 s
        assert await asyncio.wait_for(reader.readexactly(4), SOON_S) == PING
        clock.now_s += PING_S
        writer.write(PING)
        await eventually(lambda: connection.silent_s == 0.0)
    assert hasty.owner.closed.empty()


async def test_what_waited_while_this_process_was_stopped_is_not_acted_upon(
    clock: Clock, hasty: Listening, local: bool
) -> None:
    connection, (_, writer) = await hasty.plainly(local)
    writer.write(framed(started("fresh")))
    assert await hasty.frame() == started("fresh")
    os.write(writer.get_extra_info("socket").fileno(), framed(started("stale")))
    clock.now_s += 0.5  # no turn of the event loop
    assert "nothing was read" in (await hasty.owner.end())[1]
    assert connection.silent_s <= PING_S  # the peer was not silent: this process did not listen
    assert hasty.owner.frames.empty()


async def test_the_time_in_which_this_process_was_stopped_is_not_held_against_the_peer(
    clock: Clock, hasty: Listening, local: bool
) -> None:
    connection, (reader, writer) = await hasty.plainly(local)
    clock.now_s += 0.9  # no turn of the event loop
    assert await asyncio.wait_for(reader.readexactly(4), SOON_S) == PING
    assert hasty.owner.closed.empty()
    assert connection.silent_s == pytest.approx(PING_S)
    writer.transport.abort()
    assert (await hasty.owner.end())[0] is connection


async def test_a_peer_that_does_not_read_is_cut_off(patient: Listening, local: bool) -> None:
    connection, (reader, _) = await patient.plainly(local)
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(5):
        connection.outgoing().ops.add().stop.reason = "x" * (10 * 2**20)
        await asyncio.sleep(0)
    assert "wait to be sent" in (await patient.owner.end())[1]


async def connected(listening: Listening, address: str = "") -> FrameConnection:
    near = await connect(
        address or listening.address, lambda: FrameConnection(pb.WorkerFrame, pb.GatewayFrame, Owner(), 60.0)
    )
    far = await asyncio.wait_for(listening.owner.opened.get(), SOON_S)
    assert far.local is near.local
    far.close("the test is over")
    return near


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")
async def test_processes_of_another_user_use_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    listening = Listening(silence_s=60.0)
    await listening.start()
    assert (await connected(listening)).local
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not (await connected(listening)).local
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.setblocking(False)
        stranger.connect(f"\0hmas.v2.{listening.address}")
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(stranger, 1), SOON_S) == b""
    assert listening.owner.opened.empty()
    listening.listener.close()


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")
async def test_a_name_that_is_taken_is_told_and_tcp_remains() -> None:
    first, second = Listening(60.0), Listening(60.0)
    await first.start()
    await second.start()
    with structlog.testing.capture_logs() as logs:
        await second.listener.start_local(first.address)
    assert [entry["event"] for entry in logs] == ["local_stream_unavailable"]
    assert (await connected(second)).local
    for listening in (first, second):
        listening.listener.close()


async def test_connecting_to_nobody_is_an_os_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            await connected(Listening(60.0), f"127.0.0.1:{taken.getsockname()[1]}")
