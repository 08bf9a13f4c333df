"""The worker's ends of the streams from gateways. A gateway is known as `name#incarnation`, which names one process,
and to a worker that has the mesh's secret only once it has proved that it has it as well."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from hmas.contracts.execution import GatewayMessage, WorkerMessage
from hmas.contracts.registry import WIRE_VERSION
from hmas.runtime.frames import MAX_FRAME_BYTES, MAX_HELLO_BYTES, FrameConnection, FrameListener
from hmas.runtime.logs import LogRateLimit
from hmas.runtime.security import GATEWAY_NAME, OPEN, MeshSecurity
from hmas.wire.execution import add, deliver
from hmas.wire.handshake import Handshake, HelloRefused, Side
from hmas.wire.v1 import execution_pb2 as pb

log = structlog.get_logger()

FAREWELL_S = 1.0  # time for the hello to reach a gateway that is refused


class GatewaySink(Protocol):
    """Receives the messages of gateways and the changes of their streams. It is called on the event loop and must not
    block."""

    def on_connected(self, gateway: str) -> None: ...

    def on_message(self, gateway: str, message: GatewayMessage) -> None: ...

    def on_lost(self, gateway: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStreamsConfig:
    """Identity of the worker and bounds: a stream on which nothing was heard for `silence_s` seconds is closed; at most
    `max_gateways` are connected. Of connections that have not said who they are, the newest `max_strangers` are kept,
    each for `hello_s` seconds."""

    worker: str
    incarnation: str
    silence_s: float = 2.0
    max_gateways: int = 256
    max_strangers: int = 64
    hello_s: float = 3.0


@dataclass(slots=True)
class _Stranger:
    """A connection whose gateway is not known yet. `frame` waits for `open`; `hello` is its first one, once answered.
    Nothing is heard of one that was refused."""

    handshake: Handshake
    frame: pb.GatewayFrame | None = None
    hello: pb.Hello | None = None
    refused: bool = False


class GatewayStreams:
    """The streams of all gateways that are connected. Before `open`, connections wait for their answer."""

    def __init__(
        self,
        config: GatewayStreamsConfig,
        clock: Callable[[], float] = time.monotonic,
        security: MeshSecurity = OPEN,
    ) -> None:
        self._config, self._clock, self._security = config, clock, security
        self._hello = pb.Hello(sender=config.worker, incarnation=config.incarnation, wire_version=WIRE_VERSION)
        self._listener = FrameListener(
            lambda: FrameConnection(pb.GatewayFrame, pb.WorkerFrame, self, config.silence_s),
            security.tls.server if security.tls is not None else None,
        )
        self._sink: GatewaySink | None = None
        self._strangers: dict[FrameConnection, _Stranger] = {}  # the oldest first
        self._gateways: dict[str, FrameConnection] = {}
        self._complained: set[str] = set()  # the problems that the log has told once
        self._sparingly = LogRateLimit()

    async def start(self, host: str, port: int) -> int:
        """Listens at `host` and `port` (0: any free one) and returns the port. Raises OSError if it is taken, and
        CannotStart if gateways elsewhere could not be told from anybody else."""
        self._security.check_host("HMAS_STREAM_HOST", host)
        return await self._listener.start(host, port)

    async def start_local(self, address: str) -> None:
        """Also listens for gateways of this host and user, which look for it under the address of the heartbeats."""
        await self._listener.start_local(address)

    def open(self, sink: GatewaySink) -> None:
        self._sink = sink
        for connection, stranger in list(self._strangers.items()):
            if stranger.frame is not None:
                self.on_frame(connection, stranger.frame)

    def send(self, gateway: str, message: WorkerMessage) -> None:
        """Sends a message at the end of this turn of the event loop; it is dropped if the gateway is not connected."""
        connection = self._gateways.get(gateway)
        if connection is not None:
            add(connection.outgoing(), self._clock(), message)

    async def close(self) -> None:
        """Closes every connection; the sink is not called any more."""
        self._sink = None
        self._listener.close()
        for connection in [*self._strangers, *self._gateways.values()]:
            connection.close("the worker closed it")

    # --- FrameSink -------------------------------------------------------------------------------------------------

    def on_open(self, connection: FrameConnection) -> None:
        if len(self._strangers) >= self._config.max_strangers:
            next(iter(self._strangers)).close("newer connections took its place before it said who it is")
        connection.max_frame_bytes = MAX_HELLO_BYTES
        handshake = Handshake(Side.WORKER, self._hello, self._security.secret)
        stranger = self._strangers[connection] = _Stranger(handshake)
        asyncio.get_running_loop().call_later(self._config.hello_s, self._too_late, connection)
        if connection.certified is not None and GATEWAY_NAME not in connection.certified:
            self._refuse(connection, stranger, f"its certificate is not for the name `{GATEWAY_NAME}`")

    def on_frame(self, connection: FrameConnection, frame: pb.GatewayFrame) -> None:
        stranger, sink = self._strangers.get(connection), self._sink
        if stranger is None and connection.peer and sink is not None:
            deliver(frame, self._clock(), connection.peer, sink.on_message)
        elif stranger is None or stranger.refused:
            return
        elif sink is None:
            stranger.frame = frame
        elif self._meet(connection, stranger, frame.hello, sink):
            deliver(frame, self._clock(), connection.peer, sink.on_message)

    def on_closed(self, connection: FrameConnection, reason: str) -> None:
        self._strangers.pop(connection, None)
        if self._gateways.get(connection.peer) is connection:
            del self._gateways[connection.peer]
            log.info("gateway_stream_ended", gateway=connection.peer, reason=reason)
            if self._sink is not None:
                self._sink.on_lost(connection.peer)

    # ---------------------------------------------------------------------------------------------------------------

    def _meet(self, connection: FrameConnection, stranger: _Stranger, hello: pb.Hello, sink: GatewaySink) -> bool:
        """Takes a hello of a gateway that is not known yet; returns whether it is known now and may go on."""
        first = stranger.hello is None
        try:
            if not first:
                stranger.handshake.check(hello)
            elif not self._answer(connection, stranger, hello):
                return False
        except HelloRefused as error:
            self._refuse(connection, stranger, str(error))
            return False
        if first and self._security.secret is not None:
            return False  # the proof comes with the next frame
        self._welcome(connection, stranger.hello or hello, sink)
        return True

    def _answer(self, connection: FrameConnection, stranger: _Stranger, hello: pb.Hello) -> bool:
        """Answers the first hello of a gateway; returns whether there is room for it and both are of one wire version.
        Raises HelloRefused."""
        stranger.hello = hello
        if len(self._gateways) >= self._config.max_gateways and _name(hello) not in self._gateways:
            limit = self._config.max_gateways
            self._complain("too_many_gateways", limit=limit, effect="others get no grants from here")
            connection.close("the worker has too many gateways")
            return False
        connection.outgoing().hello.CopyFrom(stranger.handshake.hello())  # tells a gateway without secret what it lacks
        if hello.wire_version != WIRE_VERSION:
            self._complain("wire_version_differs", gateway=hello.sender, theirs=hello.wire_version, ours=WIRE_VERSION,
                           effect="it gets no grants from here: upgrade both")  # fmt: skip
            self._dismiss(connection, stranger, "its wire version differs")
            return False
        connection.outgoing().hello.MergeFrom(stranger.handshake.answer(hello))
        return True

    def _welcome(self, connection: FrameConnection, hello: pb.Hello, sink: GatewaySink) -> None:
        """Opens the stream of a gateway."""
        gateway = _name(hello)
        older = self._gateways.get(gateway)
        if older is not None:  # it may be dead without this side knowing it yet
            older.close("the gateway opened another one")
        del self._strangers[connection]
        connection.peer, self._gateways[gateway] = gateway, connection
        connection.max_frame_bytes = MAX_FRAME_BYTES
        log.info("gateway_stream_open", gateway=gateway, way="local" if connection.local else "tcp")
        sink.on_connected(gateway)

    def _refuse(self, connection: FrameConnection, stranger: _Stranger, reason: str) -> None:
        self._sparingly.warn(
            "gateway_refused", peer=connection.address, reason=reason, effect="it gets no grants from here"
        )
        self._dismiss(connection, stranger, reason)

    def _dismiss(self, connection: FrameConnection, stranger: _Stranger, reason: str) -> None:
        """Closes a connection once what was written to it has had time to arrive."""
        stranger.refused = True
        asyncio.get_running_loop().call_later(FAREWELL_S, connection.close, reason)

    def _too_late(self, connection: FrameConnection) -> None:
        if connection in self._strangers:
            connection.close("it did not say who it is in time")

    def _complain(self, event: str, gateway: str = "", **facts: object) -> None:
        """Logs an error once for each gateway."""
        if event + gateway not in self._complained and len(self._complained) <= self._config.max_gateways:
            self._complained.add(event + gateway)
            log.error(event, gateway=gateway, **facts)


def _name(hello: pb.Hello) -> str:
    return f"{hello.sender}#{hello.incarnation}"
