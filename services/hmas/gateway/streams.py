"""The gateway's ends of its streams to workers: one task per worker keeps it connected.

Sending never waits. What is sent to a worker that is not connected is dropped, because the snapshot at the next
connection says it again.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from hmas.contracts.execution import GatewayMessage, Progress, Started, WorkerMessage
from hmas.contracts.registry import MAX_HEARD_WORKERS, WIRE_VERSION, WorkerHeartbeat
from hmas.runtime.frames import MAX_FRAME_BYTES, MAX_HELLO_BYTES, FrameConnection, connect
from hmas.runtime.logs import LogRateLimit
from hmas.runtime.security import OPEN, WORKER_NAME, MeshSecurity
from hmas.wire.execution import add, deliver
from hmas.wire.handshake import Handshake, HelloRefused, Side
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
    or a heartbeat no further connection is tried; `forget_stranger_s` is the same for a worker to which there never was
    a connection. At most `max_workers` are kept.
    """

    silence_s: float = 2.0
    hello_s: float = 3.0
    backoff_s: float = 0.1
    max_backoff_s: float = 1.0
    forget_after_s: float = 300.0
    forget_stranger_s: float = 10.0
    max_workers: int = MAX_HEARD_WORKERS


class WorkerStreams:
    """The streams to all workers that sent a heartbeat."""

    def __init__(
        self,
        gateway: str,
        incarnation: str,
        sink: StreamSink,
        config: StreamConfig,
        clock: Callable[[], float] = time.monotonic,
        security: MeshSecurity = OPEN,
    ) -> None:
        self._security = security
        self._hello = pb.Hello(sender=gateway, incarnation=incarnation, wire_version=WIRE_VERSION)
        self._sink, self._config, self._clock = sink, config, clock
        self._streams: dict[str, _WorkerStream] = {}
        self._sparingly = LogRateLimit()

    def ensure(self, heartbeat: WorkerHeartbeat) -> None:
        """Connects to the worker if it is new, and anew if it was restarted or has moved."""
        stream = self._streams.get(heartbeat.worker)
        if stream is not None:
            stream.heard(heartbeat)
        elif len(self._streams) < self._config.max_workers or self._make_room():
            stream = self._streams[heartbeat.worker] = _WorkerStream(heartbeat, self)
            stream.task.add_done_callback(lambda _: self._forget(stream))

    def send(self, worker: str, message: GatewayMessage) -> None:
        """Sends a message at the end of this turn of the event loop; it is dropped if the worker is not connected."""
        stream = self._streams.get(worker)
        if stream is not None and stream.open is not None:
            add(stream.open.outgoing(urgent=not isinstance(message, _LAZY)), self._clock(), message)

    def is_local(self, worker: str) -> bool:
        """Returns whether the worker runs on this host."""
        stream = self._streams.get(worker)
        return stream is not None and stream.open is not None and stream.open.local

    def _make_room(self) -> bool:
        """Drops the worker that was not heard of for the longest time among those without an open stream; returns
        whether there was one."""
        silent = [stream for stream in self._streams.values() if stream.open is None]
        if silent:
            oldest = min(silent, key=lambda stream: stream.heard_s)
            self._forget(oldest)
            oldest.cancel()
        self._sparingly.warn(
            "too_many_workers", limit=self._config.max_workers, effect="workers that are not connected are forgotten"
        )
        return bool(silent)

    def _forget(self, stream: "_WorkerStream") -> None:
        if self._streams.get(stream.worker) is stream:
            del self._streams[stream.worker]

    def _deliver(self, worker: str, frame: pb.WorkerFrame) -> None:
        """Passes the messages of a frame to the sink."""
        deliver(frame, self._clock(), worker, self._sink.on_message)

    async def close(self) -> None:
        """Closes every connection; the sink is not called any more."""
        await asyncio.gather(*(stream.close() for stream in list(self._streams.values())))


class _WorkerStream:
    """The stream to one worker. It is the sink of its connection."""

    def __init__(self, heartbeat: WorkerHeartbeat, owner: WorkerStreams) -> None:
        self.worker, self._owner, self._config = heartbeat.worker, owner, owner._config
        self._address, self._incarnation = heartbeat.address, heartbeat.incarnation
        self.heard_s = time.monotonic()
        self._met = False  # there was an open stream once
        self._connection: FrameConnection | None = None
        self.open: FrameConnection | None = None  # the connection once the worker has answered the hello
        self._handshake: Handshake | None = None  # of the present connection
        self._end_reason = ""  # of the last one
        self._complained = False  # the log has told why there is no stream
        self._news = asyncio.Event()  # the stream opened or ended, or a heartbeat told another address
        self.task = asyncio.create_task(self._keep_connected(), name=f"stream-{self.worker}")

    def heard(self, heartbeat: WorkerHeartbeat) -> None:
        self.heard_s = time.monotonic()
        if (heartbeat.address, heartbeat.incarnation) != (self._address, self._incarnation):
            self._address, self._incarnation = heartbeat.address, heartbeat.incarnation
            self._complained = False
            self._end("the worker was restarted or has moved")
            self._news.set()

    async def close(self) -> None:
        self.open = None  # so that its end is no news to the sink
        self.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def cancel(self) -> None:
        self.task.cancel()
        self._end("the gateway closed it")

    def _end(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.close(reason)

    async def _keep_connected(self) -> None:
        pause_s = self._config.backoff_s
        while time.monotonic() - self.heard_s < self._patience_s:
            started_s = time.monotonic()
            await self._converse()
            if time.monotonic() - started_s > self._config.max_backoff_s:
                pause_s = self._config.backoff_s
            await self._wait_for_news(pause_s)
            pause_s = min(self._config.max_backoff_s, 2 * pause_s)
        log.info("worker_forgotten", worker=self.worker, reason="it sent no heartbeat and could not be reached")

    @property
    def _patience_s(self) -> float:
        return self._config.forget_after_s if self._met else self._config.forget_stranger_s

    async def _converse(self) -> None:
        """Makes a connection and returns when it has ended or could not be made."""

        def connection() -> FrameConnection:
            return FrameConnection(pb.WorkerFrame, pb.GatewayFrame, self, self._config.silence_s)

        self._news.clear()
        tls = self._owner._security.tls
        try:
            await connect(self._address, connection, tls.client if tls is not None else None, WORKER_NAME)
        except (OSError, ValueError) as error:
            reason = (
                error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else str(error) or repr(error)
            )
            self._complain("worker_not_reached", address=self._address, reason=reason)
            self._end("it was made too late")
            return
        deadline_s = time.monotonic() + self._config.hello_s
        while self._connection is not None and self.open is None and time.monotonic() < deadline_s:
            await self._wait_for_news(deadline_s - time.monotonic())
        if self.open is None:
            self._end("the worker did not answer the hello")
            hint = tls.certificate.doubt() if tls is not None else ""
            self._complain("worker_not_reached", address=self._address, reason=self._end_reason + hint)
        while self.open is not None:
            await self._wait_for_news(None)
            self.heard_s = time.monotonic()

    async def _wait_for_news(self, timeout_s: float | None) -> None:
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
        connection.max_frame_bytes = MAX_HELLO_BYTES
        self._handshake = Handshake(Side.GATEWAY, self._owner._hello, self._owner._security.secret)
        connection.outgoing().hello.CopyFrom(self._handshake.hello())

    def on_frame(self, connection: FrameConnection, frame: pb.WorkerFrame) -> None:
        if self.open is connection or self._greet(connection, frame.hello):
            self._owner._deliver(self.worker, frame)

    def on_closed(self, connection: FrameConnection, reason: str) -> None:
        was_open, self.open, self._connection = self.open, None, None
        self._end_reason = reason
        self._news.set()
        if was_open is not None:
            log.info("worker_stream_ended", worker=self.worker, reason=reason)
            self._owner._sink.on_connected(self.worker, False, connection.silent_s)

    def _greet(self, connection: FrameConnection, hello: pb.Hello) -> bool:
        """Takes the worker's hello; returns whether the stream is open now."""
        if hello.wire_version != WIRE_VERSION or hello.sender != self.worker:
            self._complain("wire_version_differs", sender=hello.sender, theirs=hello.wire_version, ours=WIRE_VERSION,
                           effect="no requests go there: upgrade both")  # fmt: skip
            connection.close("its name or its wire version differs")
            return False
        assert self._handshake is not None
        try:
            proof = self._handshake.finish(hello)
        except HelloRefused as error:
            self._complain("worker_refused", reason=str(error), effect="no requests go there")
            connection.close(str(error))
            return False
        if proof is not None:
            connection.outgoing().hello.CopyFrom(proof)
            connection.flush()  # alone: until it has been checked the worker takes no long frame
        connection.max_frame_bytes = MAX_FRAME_BYTES
        self.open, self._incarnation, self._met = connection, hello.incarnation, True
        self._complained = False
        self._news.set()
        log.info("worker_stream_open", worker=self.worker, way="local" if connection.local else "tcp")
        self._owner._sink.on_connected(self.worker, True, 0.0)
        return True

    def _complain(self, event: str, **facts: object) -> None:
        """Logs the first problem, until the stream opens or the worker is another process: what follows from it says
        less."""
        if not self._complained:
            self._complained = True
            level = logging.WARNING if event == "worker_not_reached" else logging.ERROR
            log.log(level, event, worker=self.worker, **facts)
