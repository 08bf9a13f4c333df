"""A run: one request on one engine. Its answer is handled where the connection delivers it, and a streamed one is
relayed from there straight to the client's connection."""

from collections.abc import Callable
from typing import Protocol

from hmas.contracts.outcome import Outcome
from hmas.gateway.api_form import ApiForm
from hmas.gateway.engines.answer_checks import ABORTED, NO_REASON, NO_USAGE
from hmas.gateway.engines.named_sse import NamedSseDecoder
from hmas.gateway.engines.replies import ReplyEnd, error_end, plain_end, refusal
from hmas.gateway.engines.sse import MAX_EVENT_BYTES, SseDecoder
from hmas.runtime.http1 import HttpExchange

MAX_ERROR_BYTES = 2**20  # that are read of an error which an engine answers


class RunSink(Protocol):
    """Receives the two events of a run. It must not block."""

    def on_first(self, run: "GatewayRun") -> None:
        """Learns that the first token of a streamed answer is about to be relayed."""
        ...

    def on_end(self, run: "GatewayRun", end: ReplyEnd) -> None:
        """Learns once that the answer has ended, unless the run was stopped."""
        ...


class GatewayRun:
    """A run whose answer is not streamed; it receives the engine's HTTP answer.

    `tokens` counts token events so far. `form` is that of the request. `max_bytes`: most bytes of an answer that is
    kept until its end. `max_tokens`: most tokens that the request allows, None if it does not say. `http` is set once
    the request was sent.
    """

    counted = True  # whether the tokens of its answer are counted

    def __init__(
        self,
        request_id: str,
        number: int,
        sink: RunSink,
        max_bytes: int,
        *,
        form: ApiForm,
        max_tokens: int | None = None,
    ) -> None:
        self.request_id, self.number = request_id, number
        self._form, self._max_tokens = form, max_tokens
        self.tokens = 0
        self.http: HttpExchange | None = None
        self._sink, self._max_bytes = sink, max_bytes
        self._prompt_cached: int | None = None
        self._over = False
        self._status = 0
        self._bodies: list[bytes] = []
        self._size = 0

    def stop(self) -> None:
        """Closes the connection to the engine, by which it stops the request; the sink is not called any more."""
        self._over = True
        if self.http is not None:
            self.http.abort()

    def fail(self, reason: str, *, retryable: bool = True, unreached: bool = False) -> None:
        """Ends the run without an answer; it can be retried only if no token was relayed."""
        self._finish(
            ReplyEnd(
                outcome=Outcome.ENGINE_ERROR,
                message=reason,
                status=self._status,
                retryable=retryable and self.tokens == 0,
                unreached=unreached,
                given_up=reason in ABORTED,
            )
        )

    def end(self, end: ReplyEnd) -> None:
        """Ends the run as another answer than its own did: that of the engine which was to compute the prompt."""
        self._finish(end)

    def tell_cached(self, tokens: int | None) -> None:
        """Has the answer say that so many tokens of the prompt were cached: by another engine, which computed it."""
        self._prompt_cached = tokens

    # --- Reply ---

    def on_head(self, status: int) -> None:
        self._status = status

    def on_body(self, data: bytes) -> None:
        if self._over:
            return
        self._size += len(data)
        limit = self._max_bytes if self._status == 200 else MAX_ERROR_BYTES
        if self._size <= limit:
            self._bodies.append(data)
        elif self._status != 200:
            self._bodies.append(data[:MAX_ERROR_BYTES])
            self._finish(refusal(self._status, b"".join(self._bodies)))
        else:
            self.fail(
                f"the answer is larger than {limit} bytes (HMAS_MAX_BUFFERED_BYTES): ask for a stream", retryable=False
            )

    def on_complete(self) -> None:
        if self._over:
            return
        body = b"".join(self._bodies)
        whole = self._status == 200
        end = (
            plain_end(body, self._form, self._max_tokens, self._prompt_cached) if whole else refusal(self._status, body)
        )
        self._finish(end)

    def on_failure(self, reason: str) -> None:
        self.fail(reason, unreached=self.http is not None and self.http.unreached)

    def _finish(self, end: ReplyEnd) -> None:
        if self._over:
            return
        self._over = True
        self._bodies.clear()
        http, self.http = self.http, None  # which breaks the cycle between them
        if http is not None and end.outcome is not Outcome.FINISHED:
            http.abort()  # the rest of the answer is of no use
        self._sink.on_end(self, end)


class StreamedRun(GatewayRun):
    """A run whose answer is streamed. Events before the first token are held back, so that the request can run on
    another engine until then. `push` gets the bytes for the client; `strip_usage`: events of usage are left out."""

    def __init__(
        self,
        request_id: str,
        number: int,
        sink: RunSink,
        push: Callable[[bytes], None],
        *,
        strip_usage: bool,
        form: ApiForm,
        max_tokens: int | None = None,
    ) -> None:
        super().__init__(request_id, number, sink, MAX_EVENT_BYTES, form=form, max_tokens=max_tokens)
        self._push = push
        self._decoder = NamedSseDecoder(form.events) if form.events else SseDecoder(strip_usage=strip_usage)
        self._held = b""

    def tell_cached(self, tokens: int | None) -> None:
        self._decoder.prompt_cached = tokens

    def on_body(self, data: bytes) -> None:
        if self._over:
            return
        if self._status != 200:
            super().on_body(data)
            return
        try:
            relayed, tokens = self._decoder.feed(data)
        except ValueError as error:
            self.fail(str(error))
            return
        if self._decoder.done or self._decoder.error is not None:
            self._conclude(relayed, tokens)
        elif self.tokens:  # nothing is held back any more
            self.tokens += tokens
            self._push(relayed)
        else:
            self._relay(relayed, tokens)

    def on_complete(self) -> None:
        if self._over or self._status != 200:
            super().on_complete()
            return
        decoder = self._decoder
        relayed, tokens = decoder.close()
        if decoder.error is not None or decoder.done:
            self._conclude(relayed, tokens)
        elif self.tokens + tokens == 0:
            self.fail("the engine ended the stream before the first token")
        elif decoder.fault() == NO_REASON:
            if relayed:
                self._relay(relayed, tokens)
            self.fail("the engine ended the stream early: neither its last event nor a reason for the end came")
        else:
            self._conclude(relayed, tokens, decoder.missing_end)

    def _relay(self, relayed: bytes, tokens: int) -> None:
        if self.tokens + tokens == 0:
            self._held += relayed
            if len(self._held) > MAX_EVENT_BYTES:
                self.fail(f"the engine sent more than {MAX_EVENT_BYTES} bytes before the first token")
            return
        if self._held:
            relayed, self._held = self._held + relayed, b""
        if self.tokens == 0:
            self._sink.on_first(self)
        self.tokens += tokens
        self._push(relayed)

    def _conclude(self, relayed: bytes, tokens: int, missing: bytes = b"") -> None:
        """Ends the answer with its last events, which travel with the end unless they hold tokens or an error, and with
        the end that the engine left out (`missing`)."""
        decoder = self._decoder
        if tokens or decoder.error is not None:
            self._relay(relayed, tokens)
            relayed = b""
        if decoder.error is not None:
            self._finish(error_end({"error": decoder.error}, generated=self.tokens > 0))
            return
        if fault := decoder.fault():
            self._relay(relayed, 0)
            self.fail(fault)
            return
        usage = (decoder.usage or NO_USAGE).within(self._max_tokens)
        data = self._held + relayed + missing
        self._finish(ReplyEnd(outcome=Outcome.FINISHED, status=200, data=data, usage=usage))
