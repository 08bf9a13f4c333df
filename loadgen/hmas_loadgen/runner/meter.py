"""Counts and times the token events of one SSE stream, with JSON parsed only up to the first token and at the end."""

from dataclasses import dataclass

import orjson

TAIL_BYTES = 4096
TAIL_EVENTS = 8  # more than finish, usage, error and [DONE] events together
MAX_HEAD_BYTES = 1 << 20
_FIELD = b"\ndata:"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnd:
    """What a stream amounted to. `complete` is false where it broke off before its end was announced."""

    output_tokens: int
    times_s: tuple[float, ...]  # one per token event, the first token's first
    complete: bool
    error_code: str = ""
    error_message: str = ""


class StreamMeter:
    """Feed it chunks as they arrive; chunk borders may fall anywhere. Comments (keep-alive) are no events."""

    __slots__ = ("_carry", "_first", "_head", "_parsed", "_tail", "_times")

    def __init__(self) -> None:
        self._times: list[float] = []
        self._carry = b"\n"
        self._first: int | None = None  # index of the event with the first token
        self._parsed = 0  # events of the head already looked at
        self._head = b""
        self._tail = b""

    def feed(self, now_s: float, chunk: bytes) -> int:
        """Takes a chunk that arrived at `now_s`; returns how many events began in it."""
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
        """Engines may open with an event that only names the role: it is not a token."""
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
        """Reads the tail: usage, error, end marks. Lengths come from `usage`, else from the count of events."""
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
    """One event's JSON; `{"done": True}` for the end mark, {} for what cannot be read (cut off by the tail)."""
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
    """Whether the event carries something generated: text, reasoning or a tool call."""
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
