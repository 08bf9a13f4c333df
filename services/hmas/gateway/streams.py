"""The gateway's side of the gateway-worker streams: one session per worker, which continues on a new connection when
the old one breaks.

Invariants
- Submitting, annotating, cancelling and recalling never wait. What waits to be sent on a broken stream is bounded.
- The end of a session is reported by `on_vanished` alone. Until then nothing sent on the session is lost or delivered
  twice, however often its connection breaks. After it, nothing from the session is delivered.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import grpc.aio
import structlog

from hmas.contracts.registry import WorkerHeartbeat
from hmas.runtime.framing import FrameWriter, FramingConfig, converse
from hmas.runtime.local import FrameStream, connect_local
from hmas.runtime.rpc import open_channel
from hmas.wire.link import Link, SessionLost
from hmas.wire.v1 import execution_pb2 as pb
from hmas.wire.v1 import execution_pb2_grpc

log = structlog.get_logger()


class StreamSink(Protocol):
    """Receives the messages of workers and the changes of their streams. It is called on the event loop and must not
    block."""

    def on_tokens(self, worker: str, message: pb.Tokens) -> None: ...

    def on_finished(self, worker: str, message: pb.Finished) -> None: ...

    def on_handback(self, worker: str, message: pb.Handback) -> None: ...

    def on_load(self, worker: str, message: pb.Load) -> None: ...

    def on_connected(self, worker: str, connected: bool) -> None: ...

    def on_vanished(self, worker: str, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """Timing of the streams to workers, in seconds.

    `grace_s`: how long a session without a connection is kept before its worker counts as vanished. `hello_timeout_s`:
    how long a new connection may take until the worker has answered. `backoff_s`, `max_backoff_s`: pause after the
    first failed connection, doubled up to the maximum. `forget_after_s`: after this time without a connection or a
    heartbeat no further connection is tried.
    """

    grace_s: float = 5.0
    hello_timeout_s: float = 3.0
    backoff_s: float = 0.1
    max_backoff_s: float = 1.0
    forget_after_s: float = 300.0
    framing: FramingConfig = field(default_factory=FramingConfig)


class WorkerStreams:
    """The sessions with all workers that sent a heartbeat."""

    def __init__(self, gateway: str, incarnation: str, sink: StreamSink, config: StreamConfig) -> None:
        self._gateway, self._incarnation = gateway, incarnation
        self._sink = sink
        self._config = config
        self._streams: dict[str, _WorkerStream] = {}

    def ensure(self, heartbeat: WorkerHeartbeat) -> None:
        """Connects to the worker if it is new. If it was restarted, its old session is ended as vanished."""
        stream = self._streams.get(heartbeat.worker)
        if stream is None or stream.forgotten:
            stream = _WorkerStream(heartbeat, self._gateway, self._incarnation, self._sink, self._config)
            self._streams[heartbeat.worker] = stream
        stream.heard(heartbeat)

    def submit(self, worker: str, message: pb.Submit) -> None:
        self._push(worker, "submit", message, urgent=True)

    def annotate(self, worker: str, message: pb.Annotate) -> None:
        self._push(worker, "annotate", message, urgent=False)

    def cancel(self, worker: str, request_id: str, attempt: int) -> None:
        self._push(worker, "cancel", pb.Cancel(request_id=request_id, attempt=attempt), urgent=True)

    def recall(self, worker: str, request_id: str, attempt: int) -> None:
        self._push(worker, "recall", pb.Recall(request_id=request_id, attempt=attempt), urgent=False)

    async def close(self) -> None:
        """Closes every connection; the sink is not called any more."""
        await asyncio.gather(*(stream.close() for stream in self._streams.values()))
        self._streams.clear()

    def _push(self, worker: str, operation: str, message: Any, *, urgent: bool) -> None:
        stream = self._streams.get(worker)
        if stream is None or stream.forgotten:
            self._sink.on_vanished(worker, "the gateway has no stream to it")
            return
        stream.push(operation, message, urgent=urgent)


class _WorkerStream:
    """The session with one worker, and the task that keeps it connected."""

    def __init__(
        self, heartbeat: WorkerHeartbeat, gateway: str, incarnation: str, sink: StreamSink, config: StreamConfig
    ) -> None:
        self._worker, self._address = heartbeat.worker, heartbeat.address
        self._peer_incarnation = heartbeat.incarnation
        self._gateway, self._own_incarnation = gateway, incarnation
        self._sink, self._config = sink, config
        self._loop = asyncio.get_running_loop()
        self._connected = False
        self._buried = ""  # the worker's previous incarnation, whose late heartbeats are ignored
        self._heard_s = self._loop.time()
        self._grace: asyncio.TimerHandle | None = None
        self._conversation: asyncio.Task[None] | None = None
        self._nudge = asyncio.Event()
        self._receivers: dict[str | None, Callable[[str, Any], None]] = {
            "tokens": sink.on_tokens,
            "finished": sink.on_finished,
            "handback": sink.on_handback,
            "load": sink.on_load,
        }
        self._open_session()
        self._task = asyncio.create_task(self._keep_connected(), name=f"stream-{self._worker}")

    @property
    def forgotten(self) -> bool:
        return self._task.done()

    def push(self, operation: str, message: Any, *, urgent: bool) -> None:
        try:
            self._writer.push(operation, message, urgent=urgent)
        except SessionLost as lost:
            self._vanish(str(lost))
            return
        if not self._connected:
            self._start_grace()

    def heard(self, heartbeat: WorkerHeartbeat) -> None:
        if heartbeat.incarnation == self._buried:
            return
        self._heard_s = self._loop.time()
        if heartbeat.incarnation != self._peer_incarnation:
            self._succeed(heartbeat.incarnation)
        if heartbeat.address != self._address:
            self._address = heartbeat.address
            self._nudge.set()

    async def close(self) -> None:
        self._stop_grace()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    # --- the session ---------------------------------------------------------------------------------------------

    def _open_session(self) -> None:
        self._link: Link[pb.GatewayFrame] = Link(uuid.uuid4().hex)
        self._writer = FrameWriter(self._link, pb.GatewayFrame, self._config.framing)
        self._established = False  # the worker has answered for this session

    def _succeed(self, incarnation: str) -> None:
        """Ends the session because the worker was restarted as the process `incarnation`."""
        self._buried, self._peer_incarnation = self._peer_incarnation, incarnation
        self._vanish("it was restarted")
        self._nudge.set()

    def _vanish(self, reason: str) -> None:
        """Ends the session, with all requests on it, and opens a new one."""
        self._stop_grace()
        held = self._established or self._writer.pending > 0
        self._open_session()
        if self._conversation is not None:
            self._conversation.cancel()
        self._set_connected(False)
        if held:
            log.warning("worker_vanished", worker=self._worker, reason=reason)
            self._sink.on_vanished(self._worker, reason)

    def _start_grace(self) -> None:
        if self._grace is None:
            self._grace = self._loop.call_later(self._config.grace_s, self._vanish, "its stream stayed broken")

    def _stop_grace(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def _set_connected(self, connected: bool) -> None:
        if connected != self._connected:
            self._connected = connected
            self._sink.on_connected(self._worker, connected)

    # --- its connections -----------------------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        failures = 0
        try:
            while self._loop.time() - self._heard_s < self._config.forget_after_s:
                self._nudge.clear()
                connected = await self._connect_once()
                failures = 0 if connected else failures + 1
                if not connected:
                    await self._back_off(failures)
        finally:
            if self._conversation is not None:
                self._conversation.cancel()
                await asyncio.gather(self._conversation, return_exceptions=True)
        self._vanish("it sent no heartbeat and could not be reached")

    async def _connect_once(self) -> bool:
        """Runs one connection until it ends; returns whether it had been established."""
        self._conversation = asyncio.create_task(self._converse(self._link, self._writer))
        await asyncio.wait((self._conversation,))
        came_about = self._connected
        error = None if self._conversation.cancelled() else self._conversation.exception()
        self._conversation = None
        match error:
            case None | grpc.RpcError() | OSError():  # OSError includes time-outs
                log.info("worker_stream_broken", worker=self._worker, error=_reason(error))
            case SessionLost():
                self._vanish(str(error))
            case _:
                log.error("worker_stream_failed", worker=self._worker, exc_info=error)
        self._set_connected(False)
        if self._established or self._writer.pending:
            self._start_grace()
        return came_about

    async def _back_off(self, failures: int) -> None:
        delay_s = min(self._config.max_backoff_s, self._config.backoff_s * 2 ** min(failures - 1, 10))
        try:
            async with asyncio.timeout(delay_s):  # wait_for may swallow a cancellation
                await self._nudge.wait()
        except TimeoutError:
            pass

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """Connects to the worker; the result has `read` and `write`. It is a Unix socket if the worker runs on this
        host, otherwise a gRPC stream."""
        local = await connect_local(self._peer_incarnation, pb.WorkerFrame.FromString)
        if local is None:
            async with open_channel(self._address) as channel:
                yield execution_pb2_grpc.ExecutionStub(channel).Connect()  # type: ignore[no-untyped-call]
            return
        try:
            yield local
        finally:
            local.close()

    async def _converse(self, link: Link[pb.GatewayFrame], writer: FrameWriter[pb.GatewayFrame]) -> None:
        async with self._connection() as call:
            async with asyncio.timeout(self._config.hello_timeout_s):
                hello = await self._greet(call, link)
            if hello.incarnation != self._peer_incarnation:
                self._heard_s = self._loop.time()
                self._succeed(hello.incarnation)  # cancels this conversation
                return
            if hello.session != link.session:
                raise SessionLost("it no longer knows the session of this gateway")
            resend = link.resume(hello.received)
            self._stop_grace()
            self._established = True
            self._set_connected(True)
            way = "local" if isinstance(call, FrameStream) else "grpc"
            log.info("worker_stream_open", worker=self._worker, way=way, resent=len(resend))
            receive = partial(self._receive, link)
            await converse(link, writer, read=call.read, write=call.write, resend=resend, receive=receive)

    async def _greet(self, call: Any, link: Link[pb.GatewayFrame]) -> pb.Hello:
        hello = pb.Hello(
            sender=self._gateway,
            incarnation=self._own_incarnation,
            received=link.received,
            session=link.session,
            resume=self._established,
        )
        await call.write(pb.GatewayFrame(hello=hello))
        frame = await call.read()
        if frame is grpc.aio.EOF:
            raise ConnectionResetError(f"worker {self._worker} closed the stream without answering its hello")
        return frame.hello  # type: ignore[no-any-return]

    def _receive(self, link: Link[pb.GatewayFrame], frame: pb.WorkerFrame) -> None:
        for operation in frame.ops:
            if link is not self._link:
                return  # the session ended meanwhile
            kind = operation.WhichOneof("op")
            receiver = self._receivers.get(kind)
            if receiver is None:
                continue  # an operation that only newer versions know
            try:
                receiver(self._worker, getattr(operation, kind))
            except Exception:
                # A bug in handling one operation must not end the session, which carries many requests.
                log.exception("worker_operation_failed", worker=self._worker, operation=kind)


def _reason(error: BaseException | None) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return "ended" if error is None else repr(error)
