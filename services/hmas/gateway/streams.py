"""The gateway's ends of its streams to workers: one task per worker keeps it connected.

Sending never waits. What is sent to a worker that is not connected is dropped, because the snapshot at the next
connection says it again.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import structlog

from hmas.contracts.execution import GatewayMessage, WorkerMessage
from hmas.contracts.registry import WIRE_VERSION, WorkerHeartbeat
from hmas.runtime.frames import FrameConnection, connect
from hmas.wire.codec import WireError
from hmas.wire.execution import add, messages_of
from hmas.wire.v1 import execution_pb2 as pb

log = structlog.get_logger()


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
    answer a new connection. `backoff_s`, `max_backoff_s`: pause after the first failed connection, doubled up to the
    maximum. `forget_after_s`: after this time without a connection or a heartbeat no further connection is tried.
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
        hello = pb.Hello(sender=gateway, incarnation=incarnation, wire_version=WIRE_VERSION)
        self._open = partial(_WorkerStream, hello=hello, sink=sink, config=config, clock=clock)
        self._streams: dict[str, _WorkerStream] = {}

    def ensure(self, heartbeat: WorkerHeartbeat) -> None:
        """Connects to the worker if it is new, and anew if it was restarted or has moved."""
        stream = self._streams.get(heartbeat.worker)
        if stream is None or stream.forgotten:
            stream = self._streams[heartbeat.worker] = self._open(heartbeat)
        stream.heard(heartbeat)

    def send(self, worker: str, message: GatewayMessage) -> None:
        stream = self._streams.get(worker)
        if stream is not None:
            stream.send(message)

    def is_local(self, worker: str) -> bool:
        """Returns whether the worker runs on this host."""
        stream = self._streams.get(worker)
        return stream is not None and stream.local

    async def close(self) -> None:
        """Closes every connection; the sink is not called any more."""
        await asyncio.gather(*(stream.close() for stream in self._streams.values()))
        self._streams.clear()


class _WorkerStream:
    """The stream to one worker. It is the sink of its connection."""

    def __init__(
        self,
        heartbeat: WorkerHeartbeat,
        *,
        hello: pb.Hello,
        sink: StreamSink,
        config: StreamConfig,
        clock: Callable[[], float],
    ) -> None:
        self._worker, self._hello, self._sink, self._config, self._clock = (
            heartbeat.worker, hello, sink, config, clock
        )  # fmt: skip
        self._address, self._incarnation = heartbeat.address, heartbeat.incarnation
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        self._connection: FrameConnection[pb.WorkerFrame] | None = None
        self._greeted = False  # the worker has answered, so that the stream is open
        self._refused = ""  # the incarnation that was refused for its wire version
        self._news = asyncio.Event()  # the stream opened or ended, or a heartbeat told another address
        self._task = asyncio.create_task(self._keep_connected(), name=f"stream-{self._worker}")

    @property
    def forgotten(self) -> bool:
        return self._task.done()

    @property
    def local(self) -> bool:
        return self._connection is not None and self._connection.local

    def send(self, message: GatewayMessage) -> None:
        if self._greeted and self._connection is not None:
            add(self._connection.outgoing(), self._clock(), message)

    def heard(self, heartbeat: WorkerHeartbeat) -> None:
        self._heard_s = self._loop.time()
        news = (heartbeat.address, heartbeat.incarnation)
        if news != (self._address, self._incarnation):
            self._address, self._incarnation = news
            if self._connection is not None:
                self._connection.close("the worker was restarted")
            self._news.set()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._greeted = False
        if self._connection is not None:
            self._connection.close("the gateway closed it")

    async def _keep_connected(self) -> None:
        failures = 0
        while self._loop.time() - self._heard_s < self._config.forget_after_s:
            if await self._connect():
                failures = 0
                while self._greeted:
                    await self._told(None)
                self._heard_s = self._loop.time()
            else:
                await self._told(min(self._config.max_backoff_s, self._config.backoff_s * 2**failures))
                failures = min(failures + 1, 10)
        log.info("worker_forgotten", worker=self._worker, reason="it sent no heartbeat and could not be reached")

    async def _told(self, timeout_s: float | None) -> None:
        """Waits for news of the stream or the worker, at most `timeout_s` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()

    async def _connect(self) -> bool:
        """Makes a connection and waits for the worker's answer; returns whether the stream is open."""

        def connection() -> FrameConnection[pb.WorkerFrame]:
            return FrameConnection(pb.WorkerFrame, pb.GatewayFrame, self, self._config.silence_s)

        self._news.clear()
        try:
            made = await connect(self._address, self._address, connection)
        except OSError as error:
            log.debug("worker_not_reached", worker=self._worker, address=self._address, error=repr(error))
            return False
        deadline_s = self._loop.time() + self._config.hello_s
        while not self._greeted and self._connection is made and self._loop.time() < deadline_s:
            await self._told(deadline_s - self._loop.time())
        if not self._greeted:
            made.close("the worker did not answer the hello")
        return self._greeted

    # --- FrameSink -------------------------------------------------------------------------------------------------

    def on_open(self, connection: FrameConnection[Any]) -> None:
        self._connection, self._greeted = connection, False
        connection.outgoing().hello.CopyFrom(self._hello)

    def on_frame(self, connection: FrameConnection[Any], frame: pb.WorkerFrame) -> None:
        if connection is not self._connection:
            return
        if not self._greeted and not self._greet(frame):
            return
        try:
            for message in messages_of(frame, self._clock()):
                self._take(message)
        except WireError as error:
            log.warning("worker_message_malformed", worker=self._worker, error=str(error))

    def on_closed(self, connection: FrameConnection[Any], reason: str) -> None:
        if connection is not self._connection:
            return
        was_open, self._greeted, self._connection = self._greeted, False, None
        self._news.set()
        if was_open:
            log.info("worker_stream_ended", worker=self._worker, reason=reason)
            self._sink.on_connected(self._worker, False, connection.silent_s)

    def _greet(self, frame: pb.WorkerFrame) -> bool:
        """Takes the worker's hello; returns whether the stream is open now."""
        connection, hello = self._connection, frame.hello
        assert connection is not None
        if not frame.HasField("hello") or hello.wire_version != WIRE_VERSION:
            if self._refused != self._incarnation:
                self._refused = self._incarnation
                log.error("wire_version_differs", worker=self._worker, theirs=hello.wire_version, ours=WIRE_VERSION,
                          effect="no requests go there: upgrade both")  # fmt: skip
            connection.close("its wire version differs")
            return False
        self._greeted = True
        self._news.set()
        log.info("worker_stream_open", worker=self._worker, way="local" if connection.local else "tcp")
        self._sink.on_connected(self._worker, True, 0.0)
        return True

    def _take(self, message: WorkerMessage) -> None:
        try:
            self._sink.on_message(self._worker, message)
        except Exception:
            # A bug in handling one message must not end the stream, which carries many requests.
            log.exception("worker_message_failed", worker=self._worker, message=type(message).__name__)
