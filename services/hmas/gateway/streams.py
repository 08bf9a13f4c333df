"""The gateway's ends of its streams to workers: one task per worker keeps it connected.

Sending never waits. What is sent to a worker that is not connected is dropped, because the snapshot at the next
connection says it again.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from hmas.contracts.execution import GatewayMessage, Progress, Started, WorkerMessage
from hmas.contracts.registry import WIRE_VERSION, WorkerHeartbeat
from hmas.runtime.frames import FrameConnection, connect
from hmas.wire.execution import add, deliver
from hmas.wire.v1 import execution_pb2 as pb

log = structlog.get_logger()

# A worker needs these sooner or later; the next urgent message takes them along.
_LAZY = (Started, Progress)


class StreamSink(Protocol):
    """Receives the messages of workers and the changes of their streams. It is called on the event loop and must not
    block."""

    def on_connected(self, worker: str, connected: bool, silent_s: float) -> None:
        """Learns that a stream opened or ended; `silent_s`: how long nothing had been heard then, in s."""
        ...

    def on_message(self, worker: str, message: WorkerMessage) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """Timing of the streams to workers, in seconds.

    `silence_s`: a stream on which nothing was heard for so long is closed. `hello_s`: how long a worker may take to
    answer a new connection. `backoff_s`, `max_backoff_s`: pause after the end of a connection or a failure to make one,
    doubled up to the maximum while streams end sooner than that. `forget_after_s`: after this time without a connection
    or a heartbeat no further connection is tried.
    """

    silence_s: float = 2.0
    hello_s: float = 3.0
    backoff_s: float = 0.1
    max_backoff_s: float = 1.0
    forget_after_s: float = 300.0


class WorkerStreams:
    """The streams to all workers that sent a heartbeat."""

    def __init__(
        self,
        gateway: str,
        incarnation: str,
        sink: StreamSink,
        config: StreamConfig,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hello = pb.Hello(sender=gateway, incarnation=incarnation, wire_version=WIRE_VERSION)
        self._sink, self._config, self._clock = sink, config, clock
        self._streams: dict[str, _WorkerStream] = {}

    def ensure(self, heartbeat: WorkerHeartbeat) -> None:
        """Connects to the worker if it is new, and anew if it was restarted or has moved."""
        worker = heartbeat.worker
        if worker in self._streams:
            self._streams[worker].heard(heartbeat)
        else:
            stream = self._streams[worker] = _WorkerStream(heartbeat, self)
            stream.task.add_done_callback(lambda _: self._streams.pop(worker, None))

    def send(self, worker: str, message: GatewayMessage) -> None:
        """Sends a message at the end of this turn of the event loop; it is dropped if the worker is not connected."""
        stream = self._streams.get(worker)
        if stream is not None and stream.open is not None:
            add(stream.open.outgoing(urgent=not isinstance(message, _LAZY)), self._clock(), message)

    def is_local(self, worker: str) -> bool:
        """Returns whether the worker runs on this host."""
        stream = self._streams.get(worker)
        return stream is not None and stream.open is not None and stream.open.local

    def _deliver(self, worker: str, frame: pb.WorkerFrame) -> None:
        """Passes the messages of a frame to the sink."""
        deliver(frame, self._clock(), worker, self._sink.on_message)

    async def close(self) -> None:
        """Closes every connection; the sink is not called any more."""
        await asyncio.gather(*(stream.close() for stream in list(self._streams.values())))


class _WorkerStream:
    """The stream to one worker. It is the sink of its connection."""

    def __init__(self, heartbeat: WorkerHeartbeat, owner: WorkerStreams) -> None:
        self._worker, self._owner, self._config = heartbeat.worker, owner, owner._config
        self._address, self._incarnation = heartbeat.address, heartbeat.incarnation
        self._heard_s = time.monotonic()
        self._connection: FrameConnection | None = None
        self.open: FrameConnection | None = None  # the connection once the worker has answered the hello
        self._refused: str | None = None  # the incarnation that was refused
        self._news = asyncio.Event()  # the stream opened or ended, or a heartbeat told another address
        self.task = asyncio.create_task(self._keep_connected(), name=f"stream-{self._worker}")

    def heard(self, heartbeat: WorkerHeartbeat) -> None:
        self._heard_s = time.monotonic()
        if (heartbeat.address, heartbeat.incarnation) != (self._address, self._incarnation):
            self._address, self._incarnation = heartbeat.address, heartbeat.incarnation
            self._end("the worker was restarted or has moved")
            self._news.set()

    async def close(self) -> None:
        self.open = None  # so that its end is no news to the sink
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self._end("the gateway closed it")

    def _end(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.close(reason)

    async def _keep_connected(self) -> None:
        pause_s = self._config.backoff_s
        while time.monotonic() - self._heard_s < self._config.forget_after_s:
            started_s = time.monotonic()
            await self._converse()
            if time.monotonic() - started_s > self._config.max_backoff_s:
                pause_s = self._config.backoff_s
            await self._told(pause_s)
            pause_s = min(self._config.max_backoff_s, 2 * pause_s)
        log.info("worker_forgotten", worker=self._worker, reason="it sent no heartbeat and could not be reached")

    async def _converse(self) -> None:
        """Makes a connection and returns when it has ended or could not be made."""

        def connection() -> FrameConnection:
            return FrameConnection(pb.WorkerFrame, pb.GatewayFrame, self, self._config.silence_s)

        self._news.clear()
        try:
            await connect(self._address, connection)
        except (OSError, ValueError) as error:
            log.debug("worker_not_reached", worker=self._worker, address=self._address, error=repr(error))
            self._end("it was made too late")
            return
        deadline_s = time.monotonic() + self._config.hello_s
        while self._connection is not None and self.open is None and time.monotonic() < deadline_s:
            await self._told(deadline_s - time.monotonic())
        if self.open is None:
            self._end("the worker did not answer the hello")
        while self.open is not None:
            await self._told(None)
            self._heard_s = time.monotonic()

    async def _told(self, timeout_s: float | None) -> None:
        """Waits for news of the stream or the worker, at most `timeout_s` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()

    # --- FrameSink -------------------------------------------------------------------------------------------------

    def on_open(self, connection: FrameConnection) -> None:
        self._connection = connection
        connection.outgoing().hello.CopyFrom(self._owner._hello)

    def on_frame(self, connection: FrameConnection, frame: pb.WorkerFrame) -> None:
        if self.open is connection or self._greet(connection, frame.hello):
            self._owner._deliver(self._worker, frame)

    def on_closed(self, connection: FrameConnection, reason: str) -> None:
        was_open, self.open, self._connection = self.open, None, None
        self._news.set()
        if was_open is not None:
            log.info("worker_stream_ended", worker=self._worker, reason=reason)
            self._owner._sink.on_connected(self._worker, False, connection.silent_s)

    def _greet(self, connection: FrameConnection, hello: pb.Hello) -> bool:
        """Takes the worker's hello; returns whether the stream is open now."""
        if hello.wire_version != WIRE_VERSION or hello.sender != self._worker:
            if self._refused != hello.incarnation:
                self._refused = hello.incarnation
                log.error("wire_version_differs", worker=self._worker, sender=hello.sender, theirs=hello.wire_version,
                          ours=WIRE_VERSION, effect="no requests go there: upgrade both")  # fmt: skip
            connection.close("its name or its wire version differs")
            return False
        self.open, self._incarnation = connection, hello.incarnation
        self._news.set()
        log.info("worker_stream_open", worker=self._worker, way="local" if connection.local else "tcp")
        self._owner._sink.on_connected(self._worker, True, 0.0)
        return True
