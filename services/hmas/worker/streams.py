"""The worker's ends of the streams from gateways. A gateway is known as `name#incarnation`, which names one process."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from hmas.contracts.execution import GatewayMessage, WorkerMessage
from hmas.contracts.registry import WIRE_VERSION
from hmas.runtime.frames import FrameConnection, FrameListener
from hmas.wire.execution import add, deliver
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
    `max_gateways` are connected."""

    worker: str
    incarnation: str
    silence_s: float = 2.0
    max_gateways: int = 256


class GatewayStreams:
    """The streams of all gateways that are connected. Before `open`, connections wait for their answer."""

    def __init__(self, config: GatewayStreamsConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._hello = pb.Hello(sender=config.worker, incarnation=config.incarnation, wire_version=WIRE_VERSION)
        self._listener = FrameListener(lambda: FrameConnection(pb.GatewayFrame, pb.WorkerFrame, self, config.silence_s))
        self._sink: GatewaySink | None = None
        self._connections: dict[FrameConnection, pb.GatewayFrame | None] = {}  # with a hello that waits for `open`
        self._gateways: dict[str, FrameConnection] = {}
        self._complained: set[str] = set()  # the problems that the log has told once

    async def start(self, host: str, port: int) -> int:
        """Listens at `host` and `port` (0: any free one) and returns the port. Raises OSError if it is taken."""
        return await self._listener.start(host, port)

    async def start_local(self, address: str) -> None:
        """Also listens for gateways of this host and user, which look for it under the address of the heartbeats."""
        await self._listener.start_local(address)

    def open(self, sink: GatewaySink) -> None:
        self._sink = sink
        for connection, hello in list(self._connections.items()):
            if hello is not None:
                self.on_frame(connection, hello)

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

    def on_open(self, connection: FrameConnection) -> None:
        if len(self._connections) < self._config.max_gateways:
            self._connections[connection] = None
            return
        self._complain("too_many_gateways", limit=self._config.max_gateways, effect="others get no grants from here")
        connection.close("the worker has too many gateways")

    def on_frame(self, connection: FrameConnection, frame: pb.GatewayFrame) -> None:
        if self._sink is None:
            self._connections[connection] = frame
        elif connection.peer or self._greet(connection, frame.hello, self._sink):
            deliver(frame, self._clock(), connection.peer, self._sink.on_message)

    def on_closed(self, connection: FrameConnection, reason: str) -> None:
        self._connections.pop(connection, None)
        if self._gateways.get(connection.peer) is connection:
            del self._gateways[connection.peer]
            log.info("gateway_stream_ended", gateway=connection.peer, reason=reason)
            if self._sink is not None:
                self._sink.on_lost(connection.peer)

    # ---------------------------------------------------------------------------------------------------------------

    def _greet(self, connection: FrameConnection, hello: pb.Hello, sink: GatewaySink) -> bool:
        """Answers a gateway's hello; returns whether it may go on."""
        connection.outgoing().hello.CopyFrom(self._hello)
        if hello.wire_version != WIRE_VERSION:
            self._complain("wire_version_differs", gateway=hello.sender, theirs=hello.wire_version, ours=WIRE_VERSION,
                           effect="it gets no grants from here: upgrade both")  # fmt: skip
            asyncio.get_running_loop().call_later(FAREWELL_S, connection.close, "its wire version differs")
            return False
        gateway = f"{hello.sender}#{hello.incarnation}"
        older = self._gateways.get(gateway)
        if older is not None:  # it may be dead without this side knowing it yet
            older.close("the gateway opened another one")
        connection.peer, self._gateways[gateway] = gateway, connection
        log.info("gateway_stream_open", gateway=gateway, way="local" if connection.local else "tcp")
        sink.on_connected(gateway)
        return True

    def _complain(self, event: str, gateway: str = "", **facts: object) -> None:
        """Logs an error once for each gateway."""
        if event + gateway not in self._complained and len(self._complained) <= self._config.max_gateways:
            self._complained.add(event + gateway)
            log.error(event, gateway=gateway, **facts)
