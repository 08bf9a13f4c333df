"""Several exchanges that are one to the client: a request for several answers, or with several prompts."""

import asyncio
from collections.abc import Sequence

from hmas.gateway.errors import ApiError
from hmas.gateway.exchange import Exchange
from hmas.gateway.openai.merging import AnswerMerger


class ExchangeGroup:
    """Exchanges whose answers are merged, with the part of `Exchange` that writes to the client.

    It has ended when all have, or when one ended with an error.
    """

    def __init__(self, parts: Sequence[Exchange], merger: AnswerMerger) -> None:
        self._parts, self._merger = parts, merger
        self._ended = False  # the end of the stream was taken
        self.comment_due = False

    first_s: float | None = None  # its parts never write to the connection themselves
    direct = None

    @property
    def left(self) -> bool:
        return any(part.left for part in self._parts)

    @property
    def error(self) -> ApiError | None:
        return next((part.error for part in self._parts if part.error is not None), None)

    @property
    def done(self) -> bool:
        return all(part.done for part in self._parts) or self.error is not None

    @property
    def chunks(self) -> bool:
        """Whether there is something to write."""
        if any(part.chunks for part in self._parts):
            return True
        return self.done and self.error is None and not self._ended

    @property
    def mode(self) -> str:
        """The mode of the first answer that has one (`Exchange.mode`)."""
        return next((each.mode for each in self._parts if each.mode), "")

    @property
    def stream(self) -> bool:
        return self._parts[0].stream

    def ring(self) -> None:
        self.comment_due = True
        self._parts[0].wake()

    async def wait(self) -> None:
        while not (self.chunks or self.done or self.left or self.comment_due):
            await self._woken()

    async def settled(self) -> None:
        while not (self.done or self.left):
            await self._woken()

    async def _woken(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for part in self._parts:
            part.waiter = waiter
        await waiter

    def take(self) -> bytes:
        """Takes and returns what waits, merged; at its end the whole answer, or the end of the stream."""
        if not self.stream:
            return self._merger.whole([part.take() for part in self._parts])
        waiting = [(number, part) for number, part in enumerate(self._parts) if part.chunks]
        data = b"".join(self._merger.events(number, part.take()) for number, part in waiting)
        if self.done and self.error is None:
            self._ended = True
            data += self._merger.end()
        return data
