"""Counts and times the stream events (SSE) of one answer. Only the events up to the first token and the last ones are
parsed as JSON."""

from dataclasses import dataclass

import orjson

TAIL_BYTES = 4096
TAIL_EVENTS = 8  # events read at the end; finish, usage, error and [DONE] are fewer together
MAX_HEAD_BYTES = 1 << 20
_FIELD = b"\ndata:"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnd:
    """The result of one stream: its number of output tokens, and the arrival of each token event. `complete` is false
    if the stream broke off before it announced its end."""

    output_tokens: int
    times_s: tuple[float, ...]  # one instant per token event, in order
    complete: bool
    error_code: str = ""
    error_message: str = ""


class StreamMeter:
    """Counts and times the events of one SSE stream. `feed` takes the chunks as they arrive, cut anywhere; `end`
    returns the result. SSE comments, which servers send as keep-alive, are not counted."""

    __slots__ = ("_carry", "_first", "_head", "_parsed", "_tail", "_times")

    def __init__(self) -> None:
        self._times: list[float] = []
        self._carry = b"\n"
        self._first: int | None = None  # index of the event with the first token
        self._parsed = 0  # events parsed so far in search of the first token
        self._head = b""
        self._tail = b""

    def feed(self, now_s: float, chunk: bytes) -> int:
        """Takes a chunk that arrived at `now_s`, seconds, and returns how many events began in it."""
        window = self._carry + chunk
        count = window.count(_FIELD)
        self._carry = window[1 - len(_FIELD) :]
        if count:
            self._times += [now_s] * count
        if self._first is None:
            self._seek_first(chunk)
        self._tail = (self._tail + chunk)[-TAIL_BYTES:]
        return count

    def _seek_first(self, chunk: bytes) -> None:
        """Looks for the first event with a token; engines may begin with an event that only names the role."""
        *lines, self._head = (self._head + chunk).split(b"\n")
        if len(self._head) > MAX_HEAD_BYTES:
            self._head = b""
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            if self._first is None and _text(_payload(line)):
                self._first = self._parsed
            self._parsed += 1

    def end(self) -> StreamEnd:
        """Returns the result of a stream that has ended. The number of output tokens comes from the answer's `usage`,
        otherwise from the count of events."""
        lines = [line for line in self._tail.split(b"\n") if line.startswith(b"data:")]
        events = [_payload(line) for line in lines[-min(TAIL_EVENTS, len(self._times)) :]] if self._times else []
        error = next((fields for e in events if isinstance(fields := e.get("error"), dict)), {})
        complete = any(e.get("done") is True or _finish_reason(e) for e in events) and not error
        trailing = 0
        for event in reversed(events):
            if event.get("choices"):
                break
            trailing += 1
        last = len(self._times) - trailing
        first = self._first if self._first is not None else 0
        counted = max(0, last - first)
        if counted > 1 and len(events) > trailing:
            final = events[len(events) - trailing - 1]
            counted -= bool(_finish_reason(final)) and not _text(final)
        tokens = next((n for e in reversed(events) if (n := _usage(e)) > 0), counted)
        times = tuple(self._times[first : min(last, first + tokens)])
        code = str(error.get("code") or error.get("type") or "") if error else ""
        return StreamEnd(
            output_tokens=tokens if times else 0,
            times_s=times,
            complete=complete,
            error_code=code,
            error_message=str(error.get("message", ""))[:500],
        )


def _payload(line: bytes) -> dict[str, object]:
    """Returns the JSON object of one event line, `{"done": True}` for the end mark `[DONE]`, or {} for an event that is
    cut off or not JSON."""
    data = line[5:].strip()
    if data == b"[DONE]":
        return {"done": True}
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _choice(event: dict[str, object]) -> dict[str, object]:
    choices = event.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def _text(event: dict[str, object]) -> bool:
    """Tells whether an event carries generated content: text, reasoning or a tool call."""
    choice = _choice(event)
    if choice.get("text"):
        return True
    delta = choice.get("delta")
    return isinstance(delta, dict) and any(value for key, value in delta.items() if key != "role")


def _finish_reason(event: dict[str, object]) -> bool:
    return bool(_choice(event).get("finish_reason"))


def _usage(event: dict[str, object]) -> int:
    usage = event.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) else 0
