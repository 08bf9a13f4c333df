"""Reading a request's body: bounded before it is read, while it is read, and in time."""

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
    """The client left before its request was complete."""


@dataclass(frozen=True, slots=True)
class BodyBounds:
    """Of one body. `linger_bytes`, `linger_s`: how much is taken in of one that was refused, and for how long."""

    max_bytes: int = 10 * 2**20
    timeout_s: float = 30.0
    linger_bytes: int = 64 * 2**20
    linger_s: float = 5.0


class BodyReader:
    """One request's body. `complete` tells whether all of it was taken off the connection."""

    __slots__ = ("_arrived", "_bounds", "_receive", "complete")

    def __init__(self, receive: Receive, bounds: BodyBounds, *, arrived: bool = False) -> None:
        """`arrived`: all of it is here already, so that no timer is needed."""
        self._receive, self._bounds, self._arrived = receive, bounds, arrived
        self.complete = False

    async def read(self, headers: Mapping[bytes, bytes]) -> bytes | bytearray:
        """Raises InvalidRequest (413, 408) and ClientGone."""
        self._check_declared(headers)
        if self._arrived:
            return await self._whole()
        try:
            async with asyncio.timeout(self._bounds.timeout_s):
                return await self._whole()
        except TimeoutError:
            message = f"the body did not arrive within {self._bounds.timeout_s:g} s"
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
        """Takes in what the client still sends, so that it reads the answer before the connection closes on it."""
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
            message = f"the body is larger than {self._bounds.max_bytes} bytes"
            raise InvalidRequest(message, outcome=Outcome.BODY_TOO_LARGE)
