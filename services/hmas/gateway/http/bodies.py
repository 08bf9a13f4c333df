"""Reads a request's body. Its declared size is checked before reading, its real size while reading, its time is
bounded, and so are the bytes of all bodies that are being read. Large bodies are parsed beside the event loop, one at
a time, the tenants in turn."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from hmas.contracts.outcome import Outcome
from hmas.gateway.errors import InvalidRequest

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
T = TypeVar("T")
LARGE_BYTES = 2**16  # bodies above are handled in a thread, one at a time


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


@dataclass(frozen=True, slots=True)
class BodyBounds:
    """Bounds of one request body: size in bytes, and seconds until all of it must be here.

    `max_reading_bytes`: most bytes of all bodies that have come in part or wait to be parsed. `linger_bytes`,
    `linger_s`: how much of a refused body is still read and thrown away, and for how long, so that the client reads the
    error instead of a broken connection.
    """

    max_bytes: int = 2 * 2**20
    timeout_s: float = 30.0
    max_reading_bytes: int = 2**28
    linger_bytes: int = 64 * 2**20
    linger_s: float = 5.0


class BodyDesk:
    """What the bodies of one server share: the room for those that are being read or wait for their turn, and the
    turns of large ones to be parsed, which takes up to some tenths of a second and many times their size in memory."""

    def __init__(self, bounds: BodyBounds) -> None:
        self._bounds = bounds
        self._thread = ThreadPoolExecutor(1, "bodies")  # started with the first large body
        self._turns_of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by tenant
        self.reading = 0  # bytes

    def take(self, size: int) -> None:
        """Takes room for `size` bytes. Raises InvalidRequest (429) if there is none."""
        if self.reading + size > self._bounds.max_reading_bytes:
            message = "the gateway is reading too many bodies (HMAS_MAX_READING_BYTES): send the request again"
            raise InvalidRequest(message, outcome=Outcome.POOL_QUEUE_FULL)
        self.reading += size

    def give(self, size: int) -> None:
        self.reading -= size

    async def parsed(self, tenant: str, size: int, parse: Callable[[], T]) -> T:
        """Returns what `parse` returns for a body of `size` bytes. It is called at once for a small body, and for a
        large one in a thread in its turn, so that the event loop goes on. Raises InvalidRequest (429) if there is no
        room to wait for a turn."""
        if size <= LARGE_BYTES:
            return parse()
        self.take(size)
        try:
            # One body of each tenant at a time waits for the thread, so that none waits for many of another's.
            async with self._turns_of.setdefault(tenant, asyncio.Lock()):
                return await asyncio.get_running_loop().run_in_executor(self._thread, parse)
        finally:
            self.give(size)


class BodyReader:
    """Reads the body of one request. `complete` is true once all of it was read from the connection."""

    __slots__ = ("_arrived", "_bounds", "_desk", "_receive", "complete")

    def __init__(self, receive: Receive, bounds: BodyBounds, desk: BodyDesk, *, arrived: bool = False) -> None:
        """`arrived`: the whole body has arrived already, so that reading it needs no timer."""
        self._receive, self._bounds, self._desk, self._arrived = receive, bounds, desk, arrived
        self.complete = False

    async def read(self, headers: Mapping[bytes, bytes]) -> bytes | bytearray:
        """Returns the whole body. Raises InvalidRequest if it is larger than `max_bytes` (413), does not arrive within
        `timeout_s` seconds (408) or finds no room (429), and ClientGone if the client closes the connection first."""
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
        body, taken = bytearray(first), 0
        try:
            while not self.complete:
                if len(body) > taken:
                    self._desk.take(len(body) - taken)
                    taken = len(body)
                body += await self._chunk()
                self._check(len(body))
        finally:
            self._desk.give(taken)
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
