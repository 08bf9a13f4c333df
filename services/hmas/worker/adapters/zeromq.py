"""Connections over ZeroMQ that are made once: what fails or is lost is told at once, and is not made again unasked."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

_WATCHED = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_CLOSED | zmq.EVENT_DISCONNECTED
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """`max_bytes`: of a frame; a larger one ends the connection. `max_waiting`: messages that have come and are not yet
    received; then the sender has to keep them. `timeout_s`: for connecting, and after which a silent host is lost."""

    max_bytes: int
    max_waiting: int
    timeout_s: float


class Connection:
    """A socket that is connected to one other. Its methods raise ConnectionError where that has gone."""

    def __init__(self, context: zmq.asyncio.Context, kind: zmq.SocketType, bounds: Bounds) -> None:
        self._socket = context.socket(kind)
        self._socket.linger, self._socket.reconnect_ivl, self._socket.ipv6 = 0, -1, True
        self._socket.maxmsgsize, self._socket.rcvhwm = bounds.max_bytes, bounds.max_waiting
        timeout_ms = round(bounds.timeout_s * 1e3)
        self._socket.heartbeat_ivl, self._socket.heartbeat_timeout = timeout_ms // 3, timeout_ms
        if kind == zmq.SUB:
            self._socket.subscribe(b"")
        self._monitor = self._socket.get_monitor_socket(_WATCHED)
        self._poller = zmq.asyncio.Poller()
        for each in (self._socket, self._monitor):
            self._poller.register(each, zmq.POLLIN)

    async def connect(self, host: str, port: int) -> None:
        """Connects to a numeric address, and waits until both sides have agreed to talk."""
        self._socket.connect(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}")
        event = await self._event()
        if event != zmq.EVENT_HANDSHAKE_SUCCEEDED:
            raise ConnectionError(f"no connection: {event.name}")

    async def receive(self) -> list[bytes]:
        """Returns the next message, which is a list of frames. What had come before a loss is returned first. Many that
        have come leave the event loop its turns."""
        if self._socket not in dict(await self._poller.poll()):
            raise ConnectionError(f"the connection is lost: {(await self._event()).name}")
        return await self._socket.recv_multipart()

    async def send(self, frames: Sequence[bytes]) -> None:
        await self._socket.send_multipart(frames)

    def close(self) -> None:
        self._monitor.close()
        self._socket.close()

    async def _event(self) -> zmq.Event:
        return zmq.Event((await recv_monitor_message(self._monitor))["event"])


@asynccontextmanager
async def connected(
    context: zmq.asyncio.Context, kind: zmq.SocketType, address: tuple[str, int], bounds: Bounds
) -> AsyncIterator[Connection]:
    """Context manager for a connection of a socket of `kind` to host and port; a SUB socket gets all that is published.
    Raises OSError, TimeoutError included, or zmq.ZMQError, where it cannot be made."""
    host, port = address
    async with asyncio.timeout(bounds.timeout_s):
        # libzmq would block a thread with the name, and take its first address alone.
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        connection = await _first(context, kind, [str(place[0]) for *_, place in found], port, bounds)
    try:
        yield connection
    finally:
        connection.close()


async def _first(
    context: zmq.asyncio.Context, kind: zmq.SocketType, hosts: Sequence[str], port: int, bounds: Bounds
) -> Connection:
    """Connects to the first host that can be; the last one's failure is raised."""
    for host in hosts[:-1]:
        with suppress(ConnectionError):
            return await _one(context, kind, host, port, bounds)
    return await _one(context, kind, hosts[-1], port, bounds)


async def _one(context: zmq.asyncio.Context, kind: zmq.SocketType, host: str, port: int, bounds: Bounds) -> Connection:
    connection = Connection(context, kind, bounds)
    try:
        await connection.connect(host, port)
    except BaseException:
        connection.close()
        raise
    return connection
