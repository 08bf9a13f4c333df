"""Shell: sends ASGI messages from the step loop itself, without a task switch per token."""

from asyncio import Task, create_task
from collections import deque
from collections.abc import Callable, Coroutine, Generator, MutableMapping
from types import coroutine
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Coroutine[Any, Any, None]]


class DirectSend:
    """Calls uvicorn's `send` synchronously; it suspends only while a slow client keeps the transport full.

    During that time further messages queue in order; the length of one answer bounds the queue.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._queued: deque[Message] | None = None
        self._task: Task[None] | None = None  # kept so that it is not collected while it runs

    def __call__(self, message: Message) -> None:
        if self._queued is not None:
            self._queued.append(message)
            return
        sending = self._send(message)
        try:
            awaited = sending.send(None)
        except StopIteration:
            return
        self._queued = deque()
        self._task = create_task(self._finish(sending, awaited))

    async def _finish(self, sending: Coroutine[Any, Any, None], awaited: Any) -> None:
        await _rest_of(sending, awaited)
        while self._queued:
            await self._send(self._queued.popleft())
        self._queued = None


@coroutine
def _rest_of(sending: Coroutine[Any, Any, None], awaited: Any) -> Generator[Any, None, None]:
    """Runs a coroutine to its end that has already been driven to its first suspension, which `awaited` stands for."""
    while True:
        yield awaited
        try:
            awaited = sending.send(None)
        except StopIteration:
            return
