"""The worker's ends of the streams from gateways. A gateway is known as `name#incarnation`, which names one process."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from hmas.contracts.execution import GatewayMessage, WorkerMessage
from hmas.contracts.registry import WIRE_VERSION
from hmas.runtime.frames import FrameConnection, FrameListener
from hmas.wire.codec import WireError
from hmas.wire.execution import add, messages_of
from hmas.wire.v1 import execution_pb2 as pb

log = structlog.get_logger()


class GatewaySink(Protocol):
    """Receives the messages of gateways and the changes of their streams. It is called on the event loop and must not
    block."""

    def on_connected(self, gateway: str) -> None: ...

    def on_message(self, gateway: str, message: GatewayMessage) -> None: ...

    def on_lost(self, gateway: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStreamsConfig:
    """Identity of the worker and bounds: a stream on which nothing was heard for `silence_s` seconds is closed; at most
    `max_gateways` are connected."""

    worker: str
    incarnation: str
    silence_s: float = 2.0
    max_gateways: int = 256


class GatewayStreams:
    """The streams of all gateways that are connected. Before `open`, connections are turned away and come again."""

    def __init__(self, config: GatewayStreamsConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._hello = pb.Hello(sender=config.worker, incarnation=config.incarnation, wire_version=WIRE_VERSION)
        self._listener = FrameListener(lambda: FrameConnection(pb.GatewayFrame, pb.WorkerFrame, self, config.silence_s))
        self._sink: GatewaySink | None = None
        self._connections: set[FrameConnection[Any]] = set()
        self._names: dict[FrameConnection[Any], str] = {}
        self._gateways: dict[str, FrameConnection[Any]] = {}
        self._refused: set[str] = set()

    async def start(self, host: str, port: int) -> int:
        """Listens at `host` and `port` (0: any free one) and returns the port. Raises OSError if it is taken."""
        return await self._listener.start(host, port)

    async def start_local(self, address: str) -> None:
        """Also listens for gateways of this host and user, which look for it under the address of the heartbeats."""
        await self._listener.start_local(address)

    def open(self, sink: GatewaySink) -> None:
        self._sink = sink

    def send(self, gateway: str, message: WorkerMessage) -> None:
        """Sends a message at the end of this turn of the event loop; it is dropped if the gateway is not connected."""
        connection = self._gateways.get(gateway)
        if connection is not None:
            add(connection.outgoing(), self._clock(), message)

    async def close(self) -> None:
        """Closes every connection; the sink is not called any more."""
        self._sink = None
        self._listener.close()
        for connection in list(self._connections):
            connection.close("the worker closed it")

    # --- FrameSink -------------------------------------------------------------------------------------------------

    def on_open(self, connection: FrameConnection[Any]) -> None:
        self._connections.add(connection)
        if self._sink is None or len(self._connections) > self._config.max_gateways:
            connection.close("the worker takes no connection now")

    def on_frame(self, connection: FrameConnection[Any], frame: pb.GatewayFrame) -> None:
        name = self._names.get(connection) or self._greet(connection, frame)
        if name is None or self._sink is None:
            return
        try:
            for message in messages_of(frame, self._clock()):
                self._take(self._sink, name, message)
        except WireError as error:
            log.warning("gateway_message_malformed", gateway=name, error=str(error))

    def on_closed(self, connection: FrameConnection[Any], reason: str) -> None:
        self._connections.discard(connection)
        name = self._names.pop(connection, None)
        if name is None:
            return
        if self._gateways.get(name) is connection:
            del self._gateways[name]
            log.info("gateway_stream_ended", gateway=name, reason=reason)
            if self._sink is not None:
                self._sink.on_lost(name)

    def _greet(self, connection: FrameConnection[Any], frame: pb.GatewayFrame) -> str | None:
        """Takes a gateway's hello; returns its name, or None after it was refused."""
        hello = frame.hello
        if not frame.HasField("hello") or hello.wire_version != WIRE_VERSION:
            name = hello.sender or "unknown"
            if name not in self._refused and len(self._refused) < self._config.max_gateways:
                self._refused.add(name)
                log.error("wire_version_differs", gateway=name, theirs=hello.wire_version, ours=WIRE_VERSION,
                          effect="it gets no grants from here: upgrade both")  # fmt: skip
            connection.outgoing().hello.CopyFrom(self._hello)
            return None
        name = f"{hello.sender}#{hello.incarnation}"
        older = self._gateways.get(name)
        if older is not None:  # it may be dead without this side knowing it yet
            self.on_closed(older, "the gateway opened another one")
            older.close("the gateway opened another one")
        self._names[connection], self._gateways[name] = name, connection
        connection.outgoing().hello.CopyFrom(self._hello)
        log.info("gateway_stream_open", gateway=name, way="local" if connection.local else "tcp")
        if self._sink is not None:
            self._sink.on_connected(name)
        return name

    def _take(self, sink: GatewaySink, name: str, message: GatewayMessage) -> None:
        try:
            sink.on_message(name, message)
        except Exception:
            # A bug in handling one message must not end the stream, which carries many requests.
            log.exception("gateway_message_failed", gateway=name, message=type(message).__name__)
