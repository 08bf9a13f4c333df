"""The worker's end of the streams between gateways and workers. A session survives the loss of its connection."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import grpc
import grpc.aio
import structlog

from hmas.contracts.outcome import Outcome
from hmas.runtime.framing import FrameWriter, FramingConfig, converse
from hmas.runtime.local import FrameStream
from hmas.wire.codec import WireError
from hmas.wire.link import Link, SessionLost
from hmas.wire.v1 import execution_pb2 as pb
from hmas.wire.v1 import execution_pb2_grpc

log = structlog.get_logger()
MAX_SESSIONS = 256

Read = Callable[[], Awaitable[Any]]
Write = Callable[[pb.WorkerFrame], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamServerConfig:
    """Identity and time limits of the worker's `Execution` service.

    `grace_s`: seconds that a session, and with it the gateway's requests, is kept after its connection broke.
    `hello_timeout_s`: seconds within which a new connection must send its hello.
    """

    worker: str
    incarnation: str
    grace_s: float = 5.0
    hello_timeout_s: float = 3.0
    framing: FramingConfig = field(default_factory=FramingConfig)


class ExecutionSink(Protocol):
    """Receives the operations of gateways. Its methods are called on the event loop and must not block; `session`
    identifies the gateway."""

    def on_submit(self, session: "GatewaySession", message: pb.Submit) -> None: ...

    def on_annotate(self, session: "GatewaySession", message: pb.Annotate) -> None: ...

    def on_cancel(self, session: "GatewaySession", message: pb.Cancel) -> None: ...

    def on_recall(self, session: "GatewaySession", message: pb.Recall) -> None: ...

    def on_gateway_lost(self, session: "GatewaySession") -> None: ...


class HelloMissing(ConnectionError):
    """Raised when a connection's first frame is not a valid hello, so that its peer is not a gateway."""


class GatewaySession:
    """The session of one gateway process with this worker, which outlives single connections.

    Sending never waits and never raises; a session whose buffer is full is lost instead.
    """

    def __init__(
        self, hello: pb.Hello, config: StreamServerConfig, lose: Callable[["GatewaySession", str], None]
    ) -> None:
        self.id = hello.session
        self.owner = (hello.sender, hello.incarnation)
        self.link: Link[pb.WorkerFrame] = Link(hello.session)
        self.writer = FrameWriter(self.link, pb.WorkerFrame, config.framing)
        self.conversation: asyncio.Task[None] | None = None
        self.grace: asyncio.TimerHandle | None = None
        self._lose = partial(lose, self)

    @property
    def quiet(self) -> bool:
        """Whether the gateway has acknowledged everything that was sent."""
        return not self.writer.pending and not self.link.unacked

    def send_tokens(self, request_id: str, attempt: int, data: bytes, tokens: int, at_us: int, *, urgent: bool) -> None:
        try:
            self.writer.push_tokens(request_id, attempt, data, tokens, at_us, urgent=urgent)
        except SessionLost as lost:
            self._lose(str(lost))

    def send(self, operation: str, message: Any, *, urgent: bool = True) -> None:
        try:
            self.writer.push(operation, message, urgent=urgent)
        except SessionLost as lost:
            self._lose(str(lost))


def _failed(submit: pb.Submit) -> pb.Finished:
    return pb.Finished(
        request_id=submit.request_id,
        attempt=submit.attempt,
        outcome=Outcome.INTERNAL.value,
        message="the worker failed to accept the request through an internal error; see `gateway_operation_failed` in "
        "its log",
    )


class ExecutionServer(execution_pb2_grpc.ExecutionServicer):
    """The gRPC service `Execution`, through which gateways submit requests. Connections wait until `open` is called."""

    def __init__(self, config: StreamServerConfig) -> None:
        self._config = config
        self._sink: ExecutionSink | None = None
        self._opened = asyncio.Event()
        self._sessions: dict[str, GatewaySession] = {}

    def open(self, sink: ExecutionSink) -> None:
        self._sink = sink
        self._opened.set()

    def session(self, session_id: str) -> GatewaySession | None:
        """Returns the session with that id; None if it never was, or is lost."""
        return self._sessions.get(session_id)

    def broadcast(self, operation: str, message: Any) -> None:
        for session in list(self._sessions.values()):
            if session.conversation is not None:
                session.send(operation, message, urgent=False)

    async def flush(self, timeout_s: float) -> None:
        """Waits until the connected gateways have acknowledged all that was sent, at most `timeout_s` seconds."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        while asyncio.get_running_loop().time() < deadline_s:
            if all(session.quiet for session in self._sessions.values() if session.conversation is not None):
                return
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Ends all connections and sessions; the sink is not told that gateways are lost."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            self._stop_grace(session)
            await self._detach(session)

    async def Connect(self, _: Any, context: Any) -> None:
        """Serves one connection of a session, over gRPC, until it ends."""
        try:
            await self._converse(context.read, context.write)
        except HelloMissing as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    async def converse_locally(self, stream: FrameStream[pb.GatewayFrame]) -> None:
        """Serves one connection of a session, from a gateway on this host, until it ends."""
        await self._converse(stream.read, stream.write)

    async def _converse(self, read: Read, write: Write) -> None:
        """Serves one connection of a session until it ends.

        Raises HelloMissing if the first frame is no valid hello, TimeoutError if it does not come in time, and whatever
        `read` and `write` raise before the session is open.
        """
        await self._opened.wait()
        async with asyncio.timeout(self._config.hello_timeout_s):
            frame = await read()
        if frame is grpc.aio.EOF or not frame.HasField("hello") or not frame.hello.session:
            raise HelloMissing("the first frame of a connection must be a hello that names a session")
        session = self._find(frame.hello)
        if session is None:
            await write(self._hello("", 0))
            return
        await self._detach(session)  # an older connection may be dead without this side knowing it yet
        try:
            resend = session.link.resume(frame.hello.received)
            await write(self._hello(session.id, session.link.received))
            receive = partial(self._receive, session)
            session.conversation = asyncio.create_task(
                converse(session.link, session.writer, read=read, write=write, resend=resend, receive=receive)
            )
            log.info("gateway_stream_open", gateway=session.owner[0], resent=len(resend))
            await self._until_over(session, session.conversation)
        except SessionLost as lost:
            self._lose(session, str(lost))

    def _find(self, hello: pb.Hello) -> GatewaySession | None:
        """Returns the session that the hello names, or a new one if the gateway does not resume one.

        None: the session to be resumed is lost, or there are too many sessions.
        """
        session = self._sessions.get(hello.session)
        if session is not None:
            self._stop_grace(session)
            return session
        if hello.resume or len(self._sessions) >= MAX_SESSIONS:
            return None
        session = GatewaySession(hello, self._config, self._lose)
        for other in [s for s in self._sessions.values() if s.owner == session.owner]:
            self._lose(other, "the same gateway process opened another session")
        self._sessions[session.id] = session
        return session

    async def _until_over(self, session: GatewaySession, conversation: asyncio.Task[None]) -> None:
        try:
            await asyncio.wait((conversation,))
        finally:
            conversation.cancel()
            if session.conversation is conversation:
                session.conversation = None
                self._start_grace(session)
        if not conversation.cancelled():
            error = conversation.exception()
            if isinstance(error, SessionLost):
                raise error
            log.info("gateway_stream_broken", gateway=session.owner[0], error=repr(error) if error else "ended")

    async def _detach(self, session: GatewaySession) -> None:
        conversation, session.conversation = session.conversation, None
        if conversation is not None:
            conversation.cancel()
            await asyncio.gather(conversation, return_exceptions=True)

    def _hello(self, session_id: str, received: int) -> pb.WorkerFrame:
        hello = pb.Hello(
            sender=self._config.worker, incarnation=self._config.incarnation, received=received, session=session_id
        )
        return pb.WorkerFrame(hello=hello)

    def _start_grace(self, session: GatewaySession) -> None:
        if session.id in self._sessions and session.grace is None:
            loop = asyncio.get_running_loop()
            session.grace = loop.call_later(
                self._config.grace_s, self._lose, session, "the gateway did not reconnect within the grace period"
            )

    def _stop_grace(self, session: GatewaySession) -> None:
        if session.grace is not None:
            session.grace.cancel()
            session.grace = None

    def _lose(self, session: GatewaySession, reason: str) -> None:
        if self._sessions.pop(session.id, None) is None:
            return
        self._stop_grace(session)
        if session.conversation is not None:
            session.conversation.cancel()
        log.warning("gateway_lost", gateway=session.owner[0], reason=reason)
        if self._sink is not None:
            self._sink.on_gateway_lost(session)

    def _receive(self, session: GatewaySession, frame: pb.GatewayFrame) -> None:
        for operation in frame.ops:
            if session.id not in self._sessions:
                return
            try:
                self._take(session, operation)
            except WireError as error:
                log.warning("gateway_operation_malformed", gateway=session.owner[0], error=str(error))
            except Exception:
                # An error in one operation must not end the others of the session.
                kind = operation.WhichOneof("op")
                log.exception("gateway_operation_failed", gateway=session.owner[0], operation=kind)
                if kind == "submit":  # the gateway would otherwise never get an answer
                    session.send("finished", _failed(operation.submit))

    def _take(self, session: GatewaySession, operation: pb.GatewayOp) -> None:
        sink = self._sink
        assert sink is not None
        match operation.WhichOneof("op"):
            case "submit":
                sink.on_submit(session, operation.submit)
            case "annotate":
                sink.on_annotate(session, operation.annotate)
            case "cancel":
                sink.on_cancel(session, operation.cancel)
            case "recall":
                sink.on_recall(session, operation.recall)
            case _:
                pass  # an operation that only a newer gateway knows
