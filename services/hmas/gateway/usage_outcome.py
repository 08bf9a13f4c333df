"""The outcome of an answer's deadline in its `usage`, for clients that ask for it: the fields of the header
`x-hmas-slo`, as the object `hmas_slo` beside the counts of tokens. SDKs keep a field that they do not know.

Of a stream, what tells its counts of tokens comes last and waits here until the outcome is known.
"""

from collections.abc import Callable
from typing import Any

import orjson

from hmas.gateway.engines.retold import event_of
from hmas.gateway.engines.sse import event_object

_USAGE = (b'"usage":{', b'"usage": {')  # in no text, whose quotes are escaped
_NO_CHOICES = (b'"choices":[]', b'"choices": []')
_BEGIN = b"event: message_start"  # it tells the counts of the prompt


def told_fields(told: str) -> dict[str, object]:
    """Returns the fields of a header `x-hmas-slo` as JSON has them: numbers, truth values, and `missed` as a list."""
    return {name: _value(name, value) for name, _, value in (field.partition("=") for field in told.split("; "))}


def _value(name: str, value: str) -> object:
    if name == "missed":
        return value.split(",")
    if name == "on_time":
        return value == "true"
    return float(value) if name.endswith("_ms") else value


def with_outcome(data: bytes, told: str) -> bytes:
    """Returns an answer that is not streamed with the outcome in its `usage`; one without that stays as it is."""
    document = orjson.loads(data)
    return orjson.dumps(document) if isinstance(document, dict) and _added(document, told) else data


def _added(document: dict[str, Any], told: str) -> bool:
    usage = document.get("usage")
    if not isinstance(usage, dict):
        return False
    usage["hmas_slo"] = told_fields(told)
    return True


class HeldUsage:
    """Holds back the last events of one stream, from the one on that tells the counts of tokens. `named`: its events
    have names, as those of the Responses API and of Anthropic's."""

    def __init__(self, *, named: bool) -> None:
        self._named = named
        self._held = b""

    def passed(self, data: bytes) -> bytes:
        """Takes whole events; returns those that may be sent now."""
        if self._held:
            self._held += data
            return b""
        if not _tells_counts(data):
            return data
        sent = 0
        for event in _events(data):
            if self._is_last(event):
                self._held = data[sent:]
                break
            sent += len(event)
        return data[:sent]

    def direct(self, write: Callable[[bytes], bool] | None) -> Callable[[bytes], bool] | None:
        """Returns a function like `write` that writes nothing, and returns false, where counts of tokens are told."""
        if write is None or self._held:
            return None

        def write_chunk(data: bytes) -> bool:
            return not _tells_counts(data) and write(data)

        return write_chunk

    def end(self, told: str) -> bytes:
        """Returns what was held back, with the outcome where `told` is not empty."""
        held, self._held = self._held, b""
        return b"".join([_with_told(event, told) for event in _events(held)]) if told else held

    def _is_last(self, event: bytes) -> bool:
        if not _tells_counts(event):
            return False
        return not event.startswith(_BEGIN) if self._named else any(mark in event for mark in _NO_CHOICES)


def _tells_counts(data: bytes) -> bool:
    return _USAGE[0] in data or _USAGE[1] in data


def _events(data: bytes) -> list[bytes]:
    """Returns the events of a piece of a stream, each with its blank line."""
    delimiter = b"\r\n\r\n" if b"\r\n\r\n" in data else b"\n\n"
    *whole, rest = data.split(delimiter)
    return [each + delimiter for each in whole] + ([rest] if rest else [])


def _with_told(event: bytes, told: str) -> bytes:
    document = event_object(event) if _tells_counts(event) else None
    if document is None:
        return event
    response = document.get("response")
    if not _added(response if isinstance(response, dict) else document, told):
        return event
    blank = b"\r\n\r\n" if event.endswith(b"\r\n\r\n") else b"\n\n"
    return event_of(event.removesuffix(blank), document) + blank
