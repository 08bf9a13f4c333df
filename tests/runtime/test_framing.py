"""Coalescing, urgency, merging, bounds and flow control of the frame writer."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from hmas.runtime.framing import OP_OVERHEAD_BYTES, FrameWriter, FramingConfig
from hmas.wire.link import Link, SessionLost
from hmas.wire.v1 import execution_pb2 as pb

NEVER_S = 3600.0


class Wire:
    """Takes frames; `gate` holds a write up."""

    def __init__(self) -> None:
        self.frames: list[pb.WorkerFrame] = []
        self.gate: asyncio.Event | None = None
        self.arrived = asyncio.Event()

    async def write(self, frame: pb.WorkerFrame) -> None:
        self.frames.append(pb.WorkerFrame.FromString(frame.SerializeToString()))
        self.arrived.set()
        if self.gate is not None:
            await self.gate.wait()

    async def next(self) -> pb.WorkerFrame:
        await asyncio.wait_for(self.arrived.wait(), 5)
        self.arrived.clear()
        return self.frames[-1]


Session = Callable[..., Awaitable[tuple[FrameWriter[pb.WorkerFrame], Link[pb.WorkerFrame], Wire]]]


@pytest.fixture
async def session():  # type: ignore[no-untyped-def]
    tasks: list[asyncio.Task[None]] = []

    async def make(link: Link[pb.WorkerFrame] | None = None, **config: float):  # type: ignore[no-untyped-def]
        link = link or Link("s")
        wire = Wire()
        writer = FrameWriter(link, pb.WorkerFrame, FramingConfig(**config))  # type: ignore[arg-type]
        tasks.append(asyncio.create_task(writer.run(wire.write, [])))
        await asyncio.sleep(0)
        return writer, link, wire

    yield make
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def tokens(writer: FrameWriter[pb.WorkerFrame], request: str, data: bytes, at_us: int, *, urgent: bool = False) -> None:
    writer.push_tokens(request, 1, data, 1, at_us, urgent=urgent)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_idle_writer_sends_at_once(session: Session) -> None:
    writer, _, wire = await session(window_s=0.02)
    tokens(writer, "a", b"x", 1)
    frame = await wire.next()
    assert [op.tokens.data for op in frame.ops] == [b"x"]
    assert frame.seq == 1


async def test_a_busy_writer_merges_tokens_of_a_request_until_the_window_ends(session: Session) -> None:
    writer, _, wire = await session(window_s=0.02)
    tokens(writer, "a", b"0", 1)
    await wire.next()
    tokens(writer, "a", b"1", 2)
    tokens(writer, "b", b"9", 3)
    tokens(writer, "a", b"2", 4)
    await settle()
    assert len(wire.frames) == 1
    frame = await wire.next()
    merged = [(op.tokens.request_id, op.tokens.data, op.tokens.tokens, op.tokens.at_us) for op in frame.ops]
    assert merged == [("a", b"12", 2, 4), ("b", b"9", 1, 3)]


async def test_an_urgent_operation_takes_all_with_it_at_once(session: Session) -> None:
    writer, _, wire = await session(window_s=NEVER_S)
    writer.push("load", pb.Load(queued=1), urgent=True)
    await wire.next()
    tokens(writer, "a", b"1", 2)
    await settle()
    assert len(wire.frames) == 1
    writer.push("finished", pb.Finished(request_id="a"), urgent=True)
    frame = await wire.next()
    assert [op.WhichOneof("op") for op in frame.ops] == ["tokens", "finished"]


async def test_operations_gather_while_a_write_is_pending(session: Session) -> None:
    writer, _, wire = await session(window_s=0.0)
    wire.gate = asyncio.Event()
    tokens(writer, "a", b"0", 1, urgent=True)
    await wire.next()
    for i in range(3):
        writer.push("load", pb.Load(queued=i), urgent=True)
    await settle()
    assert len(wire.frames) == 1
    wire.gate.set()
    assert [op.load.queued for op in (await wire.next()).ops] == [0, 1, 2]


async def test_a_long_queue_becomes_several_frames_in_order(session: Session) -> None:
    writer, _, wire = await session(max_frame_bytes=3000)
    for i in range(10):
        tokens(writer, str(i), b"x" * 1000, 1, urgent=True)
    await settle()
    await asyncio.sleep(0.01)
    assert [op.tokens.request_id for frame in wire.frames for op in frame.ops] == [str(i) for i in range(10)]
    assert max(len(frame.ops) for frame in wire.frames) == 3
    assert writer.pending == 0


async def test_what_waits_unsent_is_bounded(session: Session) -> None:
    writer = FrameWriter(Link("s"), pb.WorkerFrame, FramingConfig(max_pending_bytes=2 * (100 + OP_OVERHEAD_BYTES)))
    tokens(writer, "a", b"x" * 100, 1)
    tokens(writer, "b", b"x" * 100, 1)
    with pytest.raises(SessionLost, match="2 operations"):
        tokens(writer, "b", b"x", 1)


async def test_a_closed_window_holds_frames_back_until_the_peer_acknowledges(session: Session) -> None:
    link: Link[pb.WorkerFrame] = Link("s", window_bytes=50)
    writer, _, wire = await session(link)
    tokens(writer, "a", b"x" * 100, 1, urgent=True)
    await wire.next()
    tokens(writer, "b", b"y", 1, urgent=True)
    await settle()
    assert len(wire.frames) == 1
    link.accept(pb.GatewayFrame(ack=1))
    writer.acknowledge()
    assert (await wire.next()).ops[0].tokens.request_id == "b"


async def test_an_idle_side_acknowledges_after_a_while(session: Session) -> None:
    writer, link, wire = await session(ack_delay_s=0.01)
    link.accept(pb.GatewayFrame(seq=1))
    writer.acknowledge()
    frame = await wire.next()
    assert (frame.seq, frame.ack, len(frame.ops)) == (0, 1, 0)


async def test_a_new_connection_sends_again_what_was_not_acknowledged() -> None:
    link: Link[pb.WorkerFrame] = Link("s")
    kept = [link.number(pb.WorkerFrame()) for _ in range(3)]
    link.accept(pb.GatewayFrame(seq=1))
    writer = FrameWriter(link, pb.WorkerFrame, FramingConfig())
    wire = Wire()
    task = asyncio.create_task(writer.run(wire.write, kept))
    await settle()
    assert [(frame.seq, frame.ack) for frame in wire.frames] == [(1, 1), (2, 1), (3, 1)]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
