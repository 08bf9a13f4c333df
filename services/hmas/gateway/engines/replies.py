"""Turns the answer of an OpenAI-compatible engine into tokens and an end, and errors of any shape into OpenAI's."""

from collections.abc import Callable
from typing import Any

import orjson

from hmas.contracts.outcome import Outcome
from hmas.worker.adapters.base import JobEnd, JobSink
from hmas.gateway.engines.sse import SseDecoder, Usage, usage_of

MAX_ANSWER_BYTES = 24 * 2**20  # fits one message of the gateway-worker stream
# Statuses for overload and for the worker's own credentials: not the client's fault, so another engine may serve it.
_NOT_THE_CLIENTS = (401, 403, 407, 408, 425, 429)
_BUSY = (429, 503)  # the engine's own queue is full

Ended = Callable[["EngineReply", JobEnd], None]


class EngineReply:
    """Receives the answer to one job that is not streamed, and calls `ended` once with its end, unless the exchange is
    aborted.

    `tokens` counts token events so far; `status` is the engine's HTTP status, 0 before it came; `broken`: the
    connection failed before the answer was complete.
    """

    def __init__(self, sink: JobSink, ended: Ended) -> None:
        self.sink = sink
        self._ended = ended
        self._over = False
        self._bodies: list[bytes] = []
        self._size = 0
        self.tokens = 0
        self.status = 0
        self.broken = False

    def on_head(self, status: int) -> None:
        self.status = status

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MAX_ANSWER_BYTES:
            self.fail(f"the engine's answer is longer than the {MAX_ANSWER_BYTES} bytes that the worker can relay")
            return
        self._bodies.append(data)

    def on_complete(self) -> None:
        body = b"".join(self._bodies)
        if self._over:
            return
        if self.status != 200:
            self._finish(refusal(self.status, body))
        else:
            self._finish(plain_end(body))

    def on_failure(self, reason: str) -> None:
        self.broken = True
        self.fail(reason)

    def fail(self, reason: str) -> None:
        if not self._over:
            self._finish(
                JobEnd(outcome=Outcome.ENGINE_ERROR, message=reason, status=self.status, retryable=self.tokens == 0)
            )

    @property
    def over(self) -> bool:
        return self._over

    def _finish(self, end: JobEnd) -> None:
        self._over = True
        self._ended(self, end)


class StreamReply(EngineReply):
    """Receives a streamed answer and relays it. Events before the first token are held back, so that the request can be
    tried on another engine until then."""

    def __init__(self, sink: JobSink, ended: Ended, decoder: SseDecoder) -> None:
        super().__init__(sink, ended)
        self._decoder = decoder
        self._held = b""

    def on_body(self, data: bytes) -> None:
        if self._over:
            return
        if self.status != 200:
            super().on_body(data)
            return
        try:
            relayed, tokens = self._decoder.feed(data)
        except ValueError as error:
            self.fail(str(error))
            return
        if self._decoder.done or self._decoder.error is not None:
            self._conclude(relayed, tokens)
        elif self.tokens and relayed:  # nothing is held back any more
            self.tokens += tokens
            self.sink.on_tokens(relayed, tokens)
        else:
            self._relay(relayed, tokens)

    def on_complete(self) -> None:
        if self._over or self.status != 200:
            super().on_complete()
            return
        relayed, tokens = self._decoder.close()
        if self._decoder.error is None and not self._decoder.done and self.tokens + tokens == 0:
            self.fail("the engine ended the stream before the first token")
            return
        self._conclude(relayed, tokens)

    def _relay(self, relayed: bytes, tokens: int) -> None:
        if self.tokens + tokens == 0:
            self._held += relayed
            return
        if self._held:
            relayed, self._held = self._held + relayed, b""
        self.tokens += tokens
        if relayed:
            self.sink.on_tokens(relayed, tokens)

    def _conclude(self, relayed: bytes, tokens: int) -> None:
        """Ends the answer with its last events, which travel with the end unless they hold tokens or an error."""
        if tokens or self._decoder.error is not None:
            self._relay(relayed, tokens)
            relayed = b""
        if self._decoder.error is not None:
            self._finish(self._error_end(self._decoder.error))
            return
        usage = self._decoder.usage or Usage(None, None)
        data = self._held + relayed
        self._finish(
            JobEnd(
                outcome=Outcome.FINISHED,
                message="",
                status=200,
                data=data,
                output_tokens=usage.output_tokens,
                prompt_tokens=usage.prompt_tokens,
            )
        )

    def _error_end(self, error: dict[str, Any]) -> JobEnd:
        code = error.get("code")
        status = code if isinstance(code, int) and 400 <= code <= 599 else 500
        return refusal(status, orjson.dumps({"error": error}), generated=self.tokens > 0)


def plain_end(body: bytes) -> JobEnd:
    """Returns the end of an answer with status 200 that is not streamed; its body may still be an error."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return JobEnd(
            outcome=Outcome.ENGINE_ERROR, message="the engine's answer is not JSON", status=200, retryable=True
        )
    if isinstance(document, dict) and (document.get("object") == "error" or document.get("error")):
        code = error_object(document).get("code")
        return refusal(code if isinstance(code, int) and 400 <= code <= 599 else 500, body)
    usage = usage_of(document) or Usage(None, None)
    return JobEnd(
        outcome=Outcome.FINISHED,
        message="",
        status=200,
        data=body,
        output_tokens=usage.output_tokens,
        prompt_tokens=usage.prompt_tokens,
    )


def refusal(status: int, body: bytes, *, generated: bool = False) -> JobEnd:
    """Returns the end of a job that the engine answered with an HTTP error.

    A 4xx status is the client's fault and passed on, except for overload and credentials; anything else is the
    engine's. `generated`: tokens came before, so that the request cannot be retried.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = body[:1000].decode("utf-8", "replace").strip()
    error = error_object(document)
    message = error["message"] or f"the engine answered HTTP {status}"
    if 400 <= status < 500 and status not in _NOT_THE_CLIENTS:
        error = {**error, "message": message, "code": error["code"] if error["code"] is not None else status}
        return JobEnd(
            outcome=Outcome.ENGINE_REFUSED, message=message, status=status, data=orjson.dumps({"error": error})
        )
    busy = status in _BUSY and not generated
    message = f"the engine answered HTTP {status}: {message}"
    return JobEnd(outcome=Outcome.ENGINE_ERROR, message=message, status=status, retryable=not generated, busy=busy)


def error_object(document: Any) -> dict[str, Any]:
    """Returns OpenAI's error object (message, type, param, code) for an engine's error document.

    It may have vLLM's nested, SGLang's flat or FastAPI's `detail` shape, or be plain text.
    """
    error: Any = document
    if isinstance(document, dict):
        error = document.get("error") or document
    if not isinstance(error, dict):
        return {"message": str(error), "type": "api_error", "param": None, "code": None}
    message = error.get("message") or error.get("detail") or ""
    return {
        "message": message if isinstance(message, str) else orjson.dumps(message).decode(),
        "type": str(error.get("type") or "invalid_request_error"),
        "param": error.get("param"),
        "code": error.get("code"),
    }
