"""Frames of the gateway-worker stream. Operations are queued without waiting, gathered into frames, and written by one
task.

A gRPC message costs about the same whatever its size, so that operations share frames: under load at most one frame is
written every `window_s` seconds. An urgent operation is written at once, and so is the first one after a pause.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import grpc.aio

from hmas.wire.link import Frame, Link, SessionLost


class OpsFrame(Frame, Protocol):
    """A frame with operations: the protobuf message `GatewayFrame` or `WorkerFrame`."""

    @property
    def ops(self) -> Any: ...


F = TypeVar("F", bound=OpsFrame)
R = TypeVar("R", bound=Frame)


@dataclass(frozen=True, slots=True)
class FramingConfig:
    """Bounds of the frames on a gateway-worker stream; durations in seconds.

    `window_s`: least time between two frames without urgent operations. `max_frame_bytes`: a frame ends with the
    operation that makes it reach this size. `max_pending_bytes`: most bytes of operations that wait for a frame; more
    end the session. `ack_delay_s`: longest time until a received frame is acknowledged.
    """

    window_s: float = 0.012
    max_frame_bytes: int = 2**20
    max_pending_bytes: int = 128 * 2**20
    ack_delay_s: float = 0.2


class _Tokens:
    """Bytes of one request's answer that wait for a frame; later bytes of the same attempt are appended."""

    __slots__ = ("at_us", "attempt", "chunks", "request_id", "tokens")

    def __init__(self, request_id: str, attempt: int, data: bytes, tokens: int, at_us: int) -> None:
        self.request_id, self.attempt, self.chunks, self.tokens, self.at_us = request_id, attempt, [data], tokens, at_us

    def write(self, message: Any) -> int:
        """Fills an empty protobuf message `Tokens` and returns the size of its data in bytes. Setting field by field is
        the cheapest way."""
        chunks = self.chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        message.request_id = self.request_id
        message.attempt = self.attempt
        message.data = data
        message.tokens = self.tokens
        message.at_us = self.at_us
        return len(data)


TIMER_SLACK_S = 0.0005  # event loops keep time in milliseconds, or fire a little early
OP_OVERHEAD_BYTES = 64  # counted for each operation besides its data, so that empty operations are bounded too


class FrameWriter(Generic[F]):
    """The sending side of a gateway-worker session; it lives on when the connection breaks. Adding an operation raises
    SessionLost if more than `max_pending_bytes` wait."""

    def __init__(self, link: Link[F], new_frame: Callable[[], F], config: FramingConfig) -> None:
        self._link = link
        self._new_frame = new_frame
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._pending: deque[tuple[str, Any]] = deque()  # field of the operation, its value
        self._pending_bytes = 0
        self._mergeable: dict[str, _Tokens] = {}  # answer bytes among the pending, by request
        self._urgent = False
        self._flushed_s = 0.0
        self._idle: asyncio.Future[None] | None = None  # set while the writer task sleeps
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pending(self) -> int:
        return len(self._pending)

    def push(self, field: str, message: Any, *, urgent: bool) -> None:
        """Queues one operation. `field` is its name in the `oneof` of the frame's operations, `message` its protobuf
        message. Raises SessionLost if too many bytes wait."""
        self._append(field, message, message.ByteSize() + OP_OVERHEAD_BYTES, urgent)

    def push_tokens(self, request_id: str, attempt: int, data: bytes, tokens: int, at_us: int, *, urgent: bool) -> None:
        """Queues bytes of an answer; they are joined to those of the same attempt that already wait. `at_us`: when the
        last of its `tokens` came, in microseconds. Raises SessionLost if too many bytes wait."""
        waiting = self._mergeable.get(request_id)
        if waiting is None or waiting.attempt != attempt:
            waiting = self._mergeable[request_id] = _Tokens(request_id, attempt, data, tokens, at_us)
            self._append("tokens", waiting, len(data) + OP_OVERHEAD_BYTES, urgent)
            return
        waiting.chunks.append(data)
        waiting.tokens += tokens
        waiting.at_us = at_us
        self._grow(len(data))
        if urgent:
            self._urgent = True
            self._schedule()

    def acknowledge(self) -> None:
        """Must be called for each received frame: it may have acknowledged frames, so that more can be sent, and it
        must be acknowledged itself."""
        self._schedule()

    async def run(self, write: Callable[[F], Awaitable[None]], resend: Sequence[F]) -> None:
        """Writes frames to one connection until cancelled, beginning with the unacknowledged ones in `resend`. Raises
        SessionLost, or what `write` raises."""
        for sent in resend:
            await write(self._link.stamp(sent))
        try:
            while True:
                frame = self._next_frame()
                if frame is not None:
                    await write(frame)
                    continue
                self._idle = self._loop.create_future()
                self._schedule()
                await self._idle
        finally:
            self._idle = None
            self._cancel_timer()

    def _append(self, field: str, value: Any, size: int, urgent: bool) -> None:
        self._pending.append((field, value))
        self._grow(size)
        if urgent:
            self._urgent = True
        if urgent or len(self._pending) == 1:
            self._schedule()

    def _grow(self, size: int) -> None:
        self._pending_bytes += size
        if self._pending_bytes > self._config.max_pending_bytes:
            raise SessionLost(f"{len(self._pending)} operations, {self._pending_bytes} bytes wait to be sent, too many")

    def _next_frame(self) -> F | None:
        due_s = self._due_s()
        if due_s is None or due_s > self._loop.time() + TIMER_SLACK_S:
            return None
        self._flushed_s = self._loop.time()
        frame = self._new_frame()
        if not self._pending or not self._link.window_open:
            return self._link.stamp(frame)
        self._fill(frame)
        return self._link.number(frame)

    def _fill(self, frame: F) -> None:
        add, size = frame.ops.add, 0
        while self._pending and size < self._config.max_frame_bytes:
            field, value = self._pending.popleft()
            if isinstance(value, _Tokens):
                size += value.write(add().tokens) + OP_OVERHEAD_BYTES
            else:
                size += value.ByteSize() + OP_OVERHEAD_BYTES
                add(**{field: value})
        self._mergeable.clear()  # answers left for the next frame must not grow: other operations may be queued behind
        self._pending_bytes -= size
        self._urgent = self._urgent and bool(self._pending)

    def _due_s(self) -> float | None:
        """Returns when the next frame is due on the event loop's clock, in seconds; None if nothing must be sent."""
        if self._link.ack_due:
            return 0.0
        if self._pending and self._link.window_open:
            return 0.0 if self._urgent else self._flushed_s + self._config.window_s
        return self._flushed_s + self._config.ack_delay_s if self._link.ack_pending else None

    def _schedule(self) -> None:
        if self._idle is None:
            return  # the writer task is not sleeping, or not running; it checks by itself before it sleeps
        due_s = self._due_s()
        if due_s is None:
            return
        if due_s <= self._loop.time() + TIMER_SLACK_S:
            self._wake()
        elif self._timer is None or due_s < self._timer.when():
            self._cancel_timer()
            self._timer = self._loop.call_at(due_s, self._wake)

    def _wake(self) -> None:
        self._cancel_timer()
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def converse(
    link: Link[F],
    writer: FrameWriter[F],
    *,
    read: Callable[[], Awaitable[Any]],
    write: Callable[[F], Awaitable[None]],
    resend: Sequence[F],
    receive: Callable[[Any], None],
) -> None:
    """Runs one connection of a session in both directions until the peer closes it.

    `receive` gets each received frame with new operations; `resend` are the frames that the peer has not acknowledged.
    Raises SessionLost, or what `read` and `write` raise.
    """
    sending = asyncio.create_task(writer.run(write, resend))
    receiving = asyncio.create_task(_receive(link, writer, read, receive))
    try:
        done, _ = await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sending.cancel()
        receiving.cancel()
        await asyncio.gather(sending, receiving, return_exceptions=True)
    for task in done:
        task.result()


async def _receive(
    link: Link[F], writer: FrameWriter[F], read: Callable[[], Awaitable[Any]], receive: Callable[[Any], None]
) -> None:
    while (frame := await read()) is not grpc.aio.EOF:
        if link.accept(frame):
            receive(frame)
        writer.acknowledge()
