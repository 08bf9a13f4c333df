"""Writes the response of one request: turns its tokens into events on the wire, and then into a telemetry record."""

from collections.abc import Callable
from typing import Protocol

from hmas.engine.answer import AnswerText
from hmas.engine.api import BadRequest, Generation
from hmas.engine.direct_send import DirectSend, Send
from hmas.engine.metrics import EngineTelemetry, ServedRequest

STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class RequestAnswer(Protocol):
    """The bytes of one answer in the format of its API: whole, or as the events of a stream, one for each token.
    `cached_tokens`: those of the prompt that were in the cache; None: there is none."""

    cached_tokens: int | None

    @property
    def finish_reason(self) -> bytes: ...

    def role_event(self) -> bytes: ...

    def event(self, index: int) -> bytes: ...

    def last_events(self, index: int) -> bytes: ...

    def whole(self) -> bytes: ...

    def error_event(self, error: BadRequest) -> bytes: ...


class RequestStream:
    """The `TokenSink` of one request, whose answer is streamed or sent whole.

    `finished` is true once the complete answer was handed to the transport.
    """

    def __init__(
        self,
        request_id: str,
        generation: Generation,
        text: RequestAnswer,
        send: Send,
        telemetry: EngineTelemetry,
        arrival_s: float,
    ) -> None:
        self.finished = False
        self._id = request_id
        self._generation = generation
        self._text = text
        self._send = DirectSend(send)
        self._telemetry = telemetry
        self._arrival_s = arrival_s
        self._scheduled_s: float | None = None
        self._first_s = 0.0
        self._count = 0
        self._preemptions = 0
        self._cached = 0
        self._opened = False
        self.lent: Callable[[int], bytes] | None = None  # leaves the KV for another engine, and says where it is

    def open(self) -> None:
        """Sends the headers of a streamed answer at once; those of a whole answer are sent with the answer."""
        if self._generation.stream and not self._opened:
            self._opened = True
            self._send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})

    def scheduled(self, now_s: float) -> None:
        if self._scheduled_s is None:
            self._scheduled_s = now_s

    def cached(self, tokens: int) -> None:
        if self._generation.caching and not self._count:
            self._text.cached_tokens = self._cached = tokens

    def preempted(self, now_s: float) -> None:
        self._preemptions += 1

    def token(self, now_s: float) -> None:
        index = self._count
        self._count = index + 1
        if index == 0:
            self._first_s = now_s
        last = self._count == self._generation.output_tokens
        if self._generation.stream:
            self._send_event(index, last)
        elif last:
            body = self._text.whole()
            if self.lent is not None:
                body = body[:-1] + b',"kv_transfer_params":' + self.lent(self._cached) + b"}"
            self._send_whole(200, body)
        if last:
            self._settle(now_s)

    def fail(self, error: BadRequest) -> None:
        """Ends a response that cannot be completed with an error; does nothing if it is complete."""
        if self.finished:
            return
        if self._opened:
            self._send({"type": "http.response.body", "body": self._text.error_event(error)})
        else:
            self._send_whole(error.status, error.json())

    def give_up(self) -> None:
        """Ends the answer as vLLM ends that of a request which it aborts: with what there is of it, and the finish
        reason `abort`. An answer of another form than those of chats and completions ends with an error."""
        if self.finished:
            return
        if not isinstance(self._text, AnswerText):
            self.fail(BadRequest(503, "the engine was put to sleep: use another engine"))
        elif self._generation.stream:
            self.open()
            data = self._text.given_up_events(self._count)
            role = b"" if self._count else self._text.role_event()
            self._send({"type": "http.response.body", "body": role + data})
        else:
            self._send_whole(200, self._text.whole(self._count, b"abort"))
        self.finished = True
        self._telemetry.aborted()

    def _send_event(self, index: int, last: bool) -> None:
        data = self._text.last_events(index) if last else self._text.event(index)
        if index == 0:
            self.open()
            data = self._text.role_event() + data
        self._send({"type": "http.response.body", "body": data, "more_body": not last})

    def _send_whole(self, status: int, body: bytes) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        self._send({"type": "http.response.start", "status": status, "headers": headers})
        self._send({"type": "http.response.body", "body": body})

    def _settle(self, now_s: float) -> None:
        self.finished = True
        scheduled_s = self._arrival_s if self._scheduled_s is None else self._scheduled_s
        gaps = self._count - 1
        record = ServedRequest(
            id=self._id,
            prompt_tokens=self._generation.prompt_tokens,
            output_tokens=self._count if self._generation.generates else 0,
            queue_s=max(0.0, scheduled_s - self._arrival_s),
            ttft_s=self._first_s - self._arrival_s,
            tpot_s=(now_s - self._first_s) / gaps if gaps else 0.0,
            e2e_s=now_s - self._arrival_s,
            preemptions=self._preemptions,
        )
        self._telemetry.finished(record, self._text.finish_reason.decode())
