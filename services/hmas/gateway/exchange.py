"""The exchange: one request and its answer as the gateway's shell keeps them, while the agent decides about them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from hmas.contracts.execution import Grant
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Annotation, Request
from hmas.gateway.engines.replies import ReplyEnd
from hmas.gateway.openai.body import Call
from hmas.gateway.openai.errors import ApiError
from hmas.runtime.tracing import Span


@dataclass(frozen=True, slots=True)
class AttemptTrace:
    """One submission of a request to a worker, for `hmas why`; `sent_s` is on this host's monotonic clock, in s."""

    number: int
    worker: str
    sent_s: float


@dataclass(slots=True, kw_only=True)
class RunTrace:
    """One run of a request, for `hmas why`. `grant` is None if the gateway placed it itself. Instants are in seconds on
    this host's monotonic clock, None until they come; `outcome` is empty until the run ends."""

    worker: str
    engine: str
    grant: Grant | None
    started_s: float
    span: Span | None = None
    first_s: float | None = None
    ended_s: float | None = None
    outcome: str = ""


class Exchange:
    """One request and its answer. The answer's bytes wait here until the one task that writes to the client, and that
    sleeps in `wait`, takes them; `overflow` is called when more than `max_size` bytes wait.

    If `direct` is set, bytes are written to the connection by that function, without waking the task. When `done` is
    true the answer has ended; `error` is then None if it ended well.
    """

    __slots__ = (
        "annotation", "attempts", "body", "call", "chunks", "client_id", "comment_due", "direct", "done", "end_of_run",
        "error", "first_s", "left", "max_size", "message", "outcome", "output_tokens", "overflow", "pool",
        "queue_span", "request", "runs", "settled_s", "size", "span", "traceparent", "waiter",
    )  # fmt: skip

    def __init__(
        self,
        *,
        call: Call,
        request: Request,
        client_id: str,
        traceparent: str,
        pool: str,
        body: bytes,
        max_size: int,
        overflow: Callable[["Exchange"], None],
    ) -> None:
        self.call: Call | None = call
        self.request = request
        self.client_id = client_id
        self.traceparent = traceparent
        self.span: Span | None = None
        self.queue_span: Span | None = None
        self.pool = pool  # the pool that is named as the model in `body`
        self.body = body  # kept until the first token, after which the request cannot be sent again
        self.attempts: list[AttemptTrace] = []
        self.runs: list[RunTrace] = []
        self.end_of_run: ReplyEnd | None = None  # how the last run ended
        self.annotation: Annotation | None = None
        self.first_s: float | None = None
        self.settled_s: float | None = None
        self.outcome: Outcome | None = None
        self.message = ""
        self.output_tokens = 0
        self.chunks: list[bytes] = []
        self.size = 0
        self.max_size, self.overflow = max_size, overflow
        self.direct: Callable[[bytes], bool] | None = None
        self.done = False
        self.left = False  # the client went away
        self.comment_due = False
        self.error: ApiError | None = None
        self.waiter: asyncio.Future[None] | None = None

    @property
    def bypass(self) -> bool:
        """Whether the gateway placed the last run itself, because the worker was silent."""
        return bool(self.runs) and self.runs[-1].grant is None

    def push(self, data: bytes) -> None:
        if not data:
            return  # in HTTP an empty chunk marks the end of the answer
        direct = self.direct
        if direct is not None:
            if direct(data):
                return
            self.direct = None
        self.chunks.append(data)
        self.size += len(data)
        self.wake()
        if self.size > self.max_size:
            self.overflow(self)

    def end(self, error: ApiError | None) -> None:
        self.done, self.error = True, error
        self.wake()

    def leave(self) -> None:
        self.left = True
        self.direct = None
        self.chunks.clear()
        self.wake()

    def ring(self) -> None:
        """Wakes the writing task because a keep-alive comment is due."""
        self.comment_due = True
        self.wake()

    def wake(self) -> None:
        waiter = self.waiter
        if waiter is not None:
            self.waiter = None
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Returns when there are bytes to write, the answer has ended, the client left or a comment is due."""
        while not (self.chunks or self.done or self.left or self.comment_due):
            await self._woken()

    async def settled(self) -> None:
        """Returns when the answer has ended or the client left."""
        while not (self.done or self.left):
            await self._woken()

    async def _woken(self) -> None:
        self.waiter = asyncio.get_running_loop().create_future()
        await self.waiter

    def take(self) -> bytes:
        """Takes and returns all bytes that wait, in order."""
        chunks = self.chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self.size = 0
        return data
