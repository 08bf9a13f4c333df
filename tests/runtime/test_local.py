"""Frames over a real Unix socket: bounds, bad bytes, slow readers, frozen peers, strangers."""

import asyncio
import socket
import sys
import uuid
from collections.abc import AsyncIterator

import grpc.aio
import pytest

from hmas.runtime import local
from hmas.runtime.local import FrameStream, LocalListener, connect_local
from hmas.wire.v1 import execution_pb2 as pb

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")

Stream = FrameStream[pb.WorkerFrame]


class Listening:
    """A listener that keeps what connects until the test ends."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex
        self.accepted: asyncio.Queue[Stream] = asyncio.Queue()
        self.over = asyncio.Event()
        self.listener = LocalListener(pb.WorkerFrame.FromString, self._serve)

    async def _serve(self, stream: Stream) -> None:
        self.accepted.put_nowait(stream)
        await self.over.wait()

    async def connect(self) -> tuple[Stream, Stream]:
        near = await connect_local(self.name, pb.WorkerFrame.FromString)
        assert near is not None
        return near, await asyncio.wait_for(self.accepted.get(), 5)

    async def raw(self) -> tuple[socket.socket, Stream]:
        peer = socket.socket(socket.AF_UNIX)
        peer.setblocking(False)
        await asyncio.get_running_loop().sock_connect(peer, f"\0hmas.v1.{self.name}")
        return peer, await asyncio.wait_for(self.accepted.get(), 5)


@pytest.fixture
async def listening() -> AsyncIterator[Listening]:
    it = Listening()
    assert await it.listener.start(it.name)
    yield it
    it.over.set()
    await it.listener.close()


def frame(seq: int, size: int = 0) -> pb.WorkerFrame:
    tokens = pb.Tokens(request_id="r", data=b"x" * size)
    return pb.WorkerFrame(seq=seq, ops=[pb.WorkerOp(tokens=tokens)] if size else [])


async def read(stream: Stream) -> object:
    return await asyncio.wait_for(stream.read(), 5)


async def test_frames_arrive_whole_and_in_order_and_then_the_end(listening: Listening) -> None:
    near, far = await listening.connect()
    sent = [frame(seq, size) for seq, size in enumerate((0, 10, 3_000_000, 1, 0), 1)]
    writing = asyncio.create_task(_write(near, sent))
    assert [await read(far) for _ in sent] == sent
    await writing
    await far.write(frame(9))
    assert await read(near) == frame(9)
    near.close()
    assert await read(far) is grpc.aio.EOF
    with pytest.raises(ConnectionError):
        await near.write(frame(6))


async def _write(stream: Stream, frames: list[pb.WorkerFrame]) -> None:
    for each in frames:
        await stream.write(each)


async def test_a_writer_waits_for_a_slow_reader_and_hears_of_its_end(listening: Listening) -> None:
    peer, far = await listening.raw()
    writing = asyncio.create_task(_write(far, [frame(seq, 2**20) for seq in range(1, 65)]))
    await asyncio.sleep(0)
    done, _ = await asyncio.wait((writing,), timeout=0.05)
    assert not done
    peer.close()
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(writing, 5)


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\0\0\0\x04\xff\xff\xff\xff"])
async def test_what_is_no_frame_ends_the_connection(listening: Listening, data: bytes) -> None:
    peer, far = await listening.raw()
    await asyncio.get_running_loop().sock_sendall(peer, data)
    with pytest.raises(ConnectionError):
        await read(far)
    peer.close()


async def test_a_peer_that_falls_silent_is_given_up(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "PING_S", 0.01)
    monkeypatch.setattr(local, "SILENCE_S", 0.2)
    peer, far = await listening.raw()
    with pytest.raises(ConnectionError, match="the peer sent nothing"):
        await read(far)
    peer.close()
    near, far = await listening.connect()  # two that are idle hear each other's pings
    await asyncio.sleep(0.5)
    await near.write(frame(1))
    assert await read(far) == frame(1)


async def test_nobody_listens_or_a_stranger_does(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await connect_local("nobody", pb.WorkerFrame.FromString) is None
    monkeypatch.setattr(local, "_same_user", lambda peer: False)
    assert await connect_local(listening.name, pb.WorkerFrame.FromString) is None


async def test_a_name_that_is_taken_is_left_alone(listening: Listening) -> None:
    assert not await LocalListener(pb.WorkerFrame.FromString, listening._serve).start(listening.name)
