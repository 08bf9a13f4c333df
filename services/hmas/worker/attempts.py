"""The attempts that a worker holds: their request bodies, the gateways that get their answers, and their progress."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Request
from hmas.contracts.worker import (
    Conclude,
    EngineFailed,
    EngineFinished,
    FirstTokenReceived,
    WorkerEvent,
)
from hmas.runtime.tracing import Attributes, Span, Tracing
from hmas.wire.codec import to_message
from hmas.wire.v1 import execution_pb2 as pb
from hmas.worker.adapters.base import EngineAdapter, EngineJob, JobEnd
from hmas.worker.streams import GatewaySession

REMEMBERED = 8192  # ended attempts that are remembered so that a repeated Submit is not served twice


class HeldAttempt:
    """One attempt of one request, from `Submit` to its end; it receives its engine's answer and relays it to the
    gateway.

    It records the instants of tokens, in microseconds since the request's arrival at the gateway.
    """

    __slots__ = (
        "_call", "_clock", "_post", "_span", "_tracing", "adapter", "arrival_s", "end", "first_us", "last_us", "number",
        "request_id", "session", "submit", "tokens",
    )  # fmt: skip

    def __init__(
        self,
        session: GatewaySession,
        submit: pb.Submit,
        request: Request,
        *,
        post: Callable[[WorkerEvent], None],
        clock: Callable[[], float],
        tracing: Tracing | None = None,
    ) -> None:
        self._tracing = tracing
        self._span: Span | None = None
        self._call: Span | None = None  # trace span of the call to the engine
        if tracing is not None:
            attributes: Attributes = {"hmas.request": request.id, "hmas.attempt": submit.attempt}
            self._span = tracing.start("worker", "server", submit.traceparent, attributes)
        self.session = session
        self.submit = submit
        self.request_id = request.id
        self.number = submit.attempt
        self.arrival_s = request.arrival_s
        self.adapter: EngineAdapter | None = None
        self.tokens = 0
        self.first_us = 0
        self.last_us = 0
        self.end: JobEnd | None = None
        self._post = post
        self._clock = clock

    def start(self, adapter: EngineAdapter, urgency: float, tpot_s: float | None) -> None:
        """Sends the request to an engine. `urgency` is its rank (lower first); `tpot_s` is its TPOT SLO in seconds,
        None if only its last token is judged."""
        submit = self.submit
        self.adapter = adapter
        traceparent = submit.traceparent
        if self._tracing is not None and self._span is not None:
            self._call = self._tracing.start("engine", "client", self._span.traceparent, {"hmas.engine": adapter.name})
            traceparent = self._call.traceparent
        job = EngineJob(
            request_id=self.request_id,
            path=submit.path,
            body=submit.body,
            stream=submit.stream,
            strip_usage=submit.strip_usage,
            prompt_tokens=submit.prompt_tokens,
            urgency=urgency,
            replay_output_tokens=submit.replay_output_tokens if submit.HasField("replay_output_tokens") else None,
            traceparent=traceparent,
            tpot_s=tpot_s,
        )
        adapter.start(job, self)

    def on_tokens(self, data: bytes, tokens: int) -> None:
        self.last_us = at_us = int((self._clock() - self.arrival_s) * 1e6)
        first = self.tokens == 0
        self.tokens += tokens
        self.session.send_tokens(self.request_id, self.number, data, tokens, at_us, urgent=first)
        if first:
            self.first_us = at_us
            if self._call is not None:
                self._call.event("first_token")
            self._post(FirstTokenReceived(self.request_id))

    def on_end(self, end: JobEnd) -> None:
        self.end = end
        self._end_call(end.outcome.value, end.outcome is not Outcome.FINISHED)
        if not self.tokens and end.outcome is Outcome.FINISHED:
            self.first_us = self.last_us = int((self._clock() - self.arrival_s) * 1e6)
        tokens = self.tokens if end.output_tokens is None else end.output_tokens
        if end.outcome is Outcome.FINISHED:
            self._post(EngineFinished(self.request_id, tokens, end.prompt_tokens))
        else:
            self._post(
                EngineFailed(
                    request_id=self.request_id,
                    outcome=end.outcome,
                    message=end.message,
                    output_tokens=tokens,
                    retryable=end.retryable,
                    busy=end.busy,
                )
            )

    def left(self, outcome: str, failed: bool) -> None:
        """Ends the attempt's trace spans, because it leaves this worker: ended, refused or handed back."""
        self._end_call(outcome, failed)
        if self._span is not None:
            self._span.end(outcome, failed, {"gen_ai.usage.output_tokens": self.tokens})
            self._span = None

    def _end_call(self, outcome: str, failed: bool) -> None:
        if self._call is not None:
            self._call.end(outcome, failed)
            self._call = None

    def finished_message(self, conclude: Conclude) -> pb.Finished:
        """Returns the message that tells the gateway of the end. It carries the engine's status, last bytes and counts
        if the attempt ended the way that the engine reported."""
        end = (
            self.end
            if self.end is not None and self.end.outcome is conclude.outcome
            else JobEnd(outcome=conclude.outcome)
        )
        decoded = max(self.tokens, conclude.output_tokens) - 1
        return pb.Finished(
            request_id=self.request_id,
            attempt=self.number,
            outcome=conclude.outcome.value,
            message=conclude.message,
            status=end.status,
            data=end.data,
            output_tokens=conclude.output_tokens,
            prompt_tokens=end.prompt_tokens,
            tpot_s=(self.last_us - self.first_us) / 1e6 / decoded if decoded > 0 else 0.0,
            first_us=self.first_us,
            last_us=self.last_us,
            timeline=to_message(conclude.timeline),
        )


class AttemptTable:
    """The attempts held, by request id. Their bodies together have at most `max_bytes` bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self.empty = asyncio.Event()
        self.empty.set()
        self._attempts: dict[str, HeldAttempt] = {}
        self._ended: OrderedDict[str, int] = OrderedDict()  # last attempt by request id

    def __len__(self) -> int:
        return len(self._attempts)

    def __iter__(self) -> Iterator[HeldAttempt]:
        return iter(self._attempts.values())

    def ended(self, request_id: str, number: int) -> bool:
        """Returns whether that attempt of the request, or a later one, has ended here lately."""
        return number <= self._ended.get(request_id, -1)

    def fits(self, submit: pb.Submit) -> bool:
        return self._bytes + len(submit.body) <= self._max_bytes

    def add(self, attempt: HeldAttempt) -> None:
        self.empty.clear()
        self._attempts[attempt.request_id] = attempt
        self._bytes += len(attempt.submit.body)

    def get(self, request_id: str) -> HeldAttempt | None:
        return self._attempts.get(request_id)

    def take(self, request_id: str, number: int) -> HeldAttempt | None:
        """Removes an attempt and returns it; None if that attempt of the request is not held."""
        attempt = self._attempts.get(request_id)
        if attempt is None or attempt.number != number:
            return None
        del self._attempts[request_id]
        self._bytes -= len(attempt.submit.body)
        self._ended[request_id] = number
        self._ended.move_to_end(request_id)
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)
        if not self._attempts:
            self.empty.set()
        return attempt

    def progress(self) -> tuple[tuple[str, int], ...]:
        """Returns (request id, output tokens so far) of each attempt that has at least one token."""
        return tuple((a.request_id, a.tokens) for a in self._attempts.values() if a.tokens)
