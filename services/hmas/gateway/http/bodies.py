"""Reads a request's body. Its declared size is checked before reading, its real size while reading, and its time is
bounded."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from hmas.contracts.outcome import Outcome
from hmas.gateway.openai.errors import InvalidRequest

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


@dataclass(frozen=True, slots=True)
class BodyBounds:
    """Bounds of one request body: size in bytes, and seconds until all of it must be here.

    `linger_bytes`, `linger_s`: how much of a refused body is still read and thrown away, and for how long, so that the
    client reads the error instead of a broken connection.
    """

    max_bytes: int = 10 * 2**20
    timeout_s: float = 30.0
    linger_bytes: int = 64 * 2**20
    linger_s: float = 5.0


class BodyReader:
    """Reads the body of one request. `complete` is true once all of it was read from the connection."""

    __slots__ = ("_arrived", "_bounds", "_receive", "complete")

    def __init__(self, receive: Receive, bounds: BodyBounds, *, arrived: bool = False) -> None:
        """`arrived`: the whole body has arrived already, so that reading it needs no timer."""
        self._receive, self._bounds, self._arrived = receive, bounds, arrived
        self.complete = False

    async def read(self, headers: Mapping[bytes, bytes]) -> bytes | bytearray:
        """Returns the whole body. Raises InvalidRequest if it is larger than `max_bytes` (413) or does not arrive
        within `timeout_s` seconds (408), and ClientGone if the client closes the connection first."""
        self._check_declared(headers)
        if self._arrived:
            return await self._whole()
        try:
            async with asyncio.timeout(self._bounds.timeout_s):
                return await self._whole()
        except TimeoutError:
            message = f"the request body did not arrive within {self._bounds.timeout_s:g} s (HMAS_BODY_TIMEOUT_S)"
            raise InvalidRequest(message, outcome=Outcome.CLIENT_TOO_SLOW) from None

    async def _whole(self) -> bytes | bytearray:
        first = await self._chunk()
        self._check(len(first))
        if self.complete:
            return first
        body = bytearray(first)
        while not self.complete:
            body += await self._chunk()
            self._check(len(body))
        return body

    async def linger(self) -> None:
        """Reads and discards what the client still sends, so that it reads its error before the connection closes."""
        taken = 0
        try:
            async with asyncio.timeout(self._bounds.linger_s):
                while not self.complete and taken < self._bounds.linger_bytes:
                    taken += len(await self._chunk())
        except (TimeoutError, ClientGone):
            pass

    async def _chunk(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        self.complete = not message.get("more_body", False)
        body: bytes = message.get("body", b"")
        return body

    def _check_declared(self, headers: Mapping[bytes, bytes]) -> None:
        declared = headers.get(b"content-length")
        if declared is not None and declared.isdigit():
            self._check(int(declared))

    def _check(self, size: int) -> None:
        if size > self._bounds.max_bytes:
            message = f"the request body is larger than {self._bounds.max_bytes} bytes (HMAS_MAX_BODY_BYTES)"
            raise InvalidRequest(message, outcome=Outcome.BODY_TOO_LARGE)
