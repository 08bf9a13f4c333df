"""The exchange: one request and its answer as the gateway's shell keeps them, while the agent decides about them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from hmas.contracts.engine_kind import UNKNOWN_KIND, EngineKind
from hmas.contracts.execution import Grant
from hmas.contracts.gateway import RouteChosen
from hmas.contracts.job import Stage
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Annotation, Request
from hmas.gateway.engines.proxied import Proxy
from hmas.gateway.engines.replies import ReplyEnd
from hmas.gateway.errors import ApiError
from hmas.gateway.openai.body import Call


@dataclass(frozen=True, slots=True)
class AttemptTrace:
    """One submission of a request to a worker, for `hmas why`; `sent_s` is on this host's monotonic clock, in s."""

    number: int
    worker: str
    sent_s: float


@dataclass(slots=True, kw_only=True)
class RunTrace:
    """One run of a request, for `hmas why`. `grant` is None if the gateway placed it itself. Instants are in seconds on
    this host's monotonic clock, None until they come; `outcome` is empty until the run ends. `kind`: the engine's."""

    worker: str
    engine: str
    grant: Grant | None
    started_s: float
    kind: EngineKind = UNKNOWN_KIND
    observed: bool = False  # the gateway only observes
    prefill: str = ""  # of a split run: the engine that computes the prompt
    computed_s: float | None = None  # of a split run: the prompt was computed
    went_on_s: float | None = None  # of a split run: the answering engine got the request
    first_s: float | None = None
    ended_s: float | None = None
    outcome: str = ""
    output_tokens: int = 0  # that were relayed when it ended
    stalled: str = ""  # why it was given up, if the engine was silent for too long

    @property
    def bypass(self) -> bool:
        """Whether the gateway placed it because the worker was silent."""
        return self.grant is None and not self.observed


class Exchange:
    """One request and its answer. The answer's bytes wait here until the one task that writes to the client, and that
    sleeps in `wait`, takes them; `overflow` is called when more than `max_size` bytes wait.

    If `direct` is set, bytes are written to the connection by that function, without waking the task. When `done` is
    true the answer has ended; `error` is then None if it ended well.
    """

    __slots__ = (
        "annotation", "attempts", "cached_tokens", "call", "chunks", "client_id", "comment_due", "direct", "done",
        "end_of_run", "error", "estimate", "first_s", "job_budget_s", "key", "left", "max_size", "message", "noted",
        "outcome", "output_tokens", "overflow", "path", "pool", "proxy", "request", "route", "runs", "settled_s",
        "size", "stage", "traceparent", "waiter", "worker",
    )  # fmt: skip

    def __init__(
        self,
        *,
        call: Call,
        request: Request,
        client_id: str,
        traceparent: str,
        pool: str,
        key: str,
        max_size: int,
        overflow: Callable[["Exchange"], None],
        proxy: Proxy | None = None,
        job_budget_s: float | None = None,
    ) -> None:
        self.call: Call | None = call  # with the body; until the first token, after which it cannot be sent again
        self.request = request
        self.path = call.form.path
        self.estimate = call.prompt_tokens  # of the prompt's tokens, without what was learnt of the engine
        self.client_id = client_id
        self.traceparent = traceparent  # the trace context that the next engine gets
        self.pool = pool  # the pool that its model's name means
        self.worker = ""  # that it was last submitted to; empty if it never was
        self.attempts: list[AttemptTrace] = []
        self.runs: list[RunTrace] = []
        self.end_of_run: ReplyEnd | None = None  # how the last run ended
        self.annotation: Annotation | None = None
        self.stage: Stage | None = None  # of the job that it belongs to
        self.route: RouteChosen | None = None  # the last choice of a worker by cost
        self.first_s: float | None = None
        self.settled_s: float | None = None
        self.outcome: Outcome | None = None
        self.message = ""
        self.output_tokens = 0
        self.cached_tokens: int | None = None  # of its prompt, as the engine reports it; None if it does not
        self.job_budget_s = job_budget_s  # what its client allows for the whole job
        self.chunks: list[bytes] = []
        self.size = 0
        self.key = key  # the id of the client's API key
        self.max_size, self.overflow = max_size, overflow
        self.proxy = proxy  # what carries the request out in the gateway's place
        self.direct: Callable[[bytes], bool] | None = None
        self.noted: tuple[str, Grant, float] | None = None  # what a worker would have granted, and when
        self.done = False
        self.left = False  # the client went away
        self.comment_due = False
        self.error: ApiError | None = None
        self.waiter: asyncio.Future[None] | None = None

    @property
    def stream(self) -> bool:
        return self.request.stream

    @property
    def mode(self) -> str:
        """`bypass` if the gateway placed the last run itself because the worker was silent, `observe` if it did because
        it only observes, otherwise empty."""
        if not self.runs or self.runs[-1].grant is not None:
            return ""
        return "observe" if self.runs[-1].observed else "bypass"

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
        if self.proxy is not None:
            self.proxy.end(error)
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
