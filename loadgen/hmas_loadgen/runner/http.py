"""HTTP requests whose answers are timed where the bytes are read from the socket, so that other ready sockets delay no
time stamp."""

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from hmas.runtime.http1 import HttpPool, PoolConfig

# Idle connections are kept for less time than servers do (often 5 s), and all of them: none is made twice.
_POOL = PoolConfig(max_connections=2**20, max_idle=2**20, connect_timeout_s=10.0, keepalive_s=3.0)


class BodySink(Protocol):
    """Receives an HTTP answer as it arrives. `at_s` is an instant of the monotonic clock, seconds."""

    def head(self, status: int) -> None: ...

    def body(self, at_s: float, chunk: bytes) -> None: ...


class ConnectionFailed(OSError):
    """Raised if a connection could not be made, broke before the answer ended, or carried something that is not
    HTTP."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The server and path prefix of a base URL. Idle connections are kept per origin."""

    host: str
    port: int
    tls: bool
    prefix: str

    @classmethod
    def of(cls, base_url: str) -> "Origin":
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"base URL {base_url!r} must have the form http://HOST:PORT")
        tls = parts.scheme == "https"
        return cls(parts.hostname, parts.port or (443 if tls else 80), tls, parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class StampedReply:
    """Passes an answer of the server at `authority` on to a sink; `ended` gets its end or ConnectionFailed."""

    def __init__(self, sink: BodySink, authority: str) -> None:
        self._sink, self._authority = sink, authority
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_head = sink.head

    def on_body(self, data: bytes) -> None:
        self._sink.body(time.monotonic(), data)

    def on_complete(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def on_failure(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_exception(ConnectionFailed(reason.replace("the engine", self._authority)))


class HttpClient:
    """Sends HTTP requests and keeps idle connections per origin. It retries nothing and follows no redirect."""

    def __init__(self) -> None:
        self._pools: dict[Origin, HttpPool] = {}

    async def get(self, origin: Origin, path: str, headers: Mapping[str, str], sink: BodySink) -> None:
        """Sends a GET request and passes its answer to `sink`. Raises ConnectionFailed."""
        await self._send(origin, f"GET {origin.prefix}{path}", headers, b"", sink)

    async def post(self, origin: Origin, path: str, headers: Mapping[str, str], body: bytes, sink: BodySink) -> None:
        """Sends a POST request and passes its answer to `sink`. Raises ConnectionFailed. If cancelled, it closes the
        connection, so that the server notices."""
        await self._send(origin, f"POST {origin.prefix}{path}", headers, body, sink)

    async def _send(self, origin: Origin, target: str, headers: Mapping[str, str], body: bytes, sink: BodySink) -> None:
        pool = self._pools.get(origin)
        if pool is None:
            tls = ssl.create_default_context() if origin.tls else None
            pool = self._pools[origin] = HttpPool(origin.host, origin.port, tls, _POOL)
        reply = StampedReply(sink, origin.authority)
        exchange = pool.send(_head(origin, target, headers, len(body)), body, reply)
        exchange.retried = True  # a request that a dying server may have begun is not sent again unseen
        try:
            await reply.ended
        except asyncio.CancelledError:
            exchange.abort()
            raise

    def close(self) -> None:
        """Closes idle connections now and the others after their answers."""
        for pool in self._pools.values():
            pool.retire()
        self._pools.clear()


def _head(origin: Origin, target: str, headers: Mapping[str, str], length: int) -> bytes:
    lines = [f"{target} HTTP/1.1", f"Host: {origin.authority}", f"Content-Length: {length}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
