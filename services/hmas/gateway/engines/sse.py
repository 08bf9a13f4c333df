"""Splits an OpenAI stream into server-sent events and counts its tokens on bytes, without parsing JSON per token.

An event is parsed only before the first token, or if a quick scan says that it may be a special one: usage, error, or
the end. The result does not depend on how the bytes were cut into reads.
"""

from typing import Any

import orjson

from hmas.gateway.engines.answer_checks import Usage, fault_of_end, is_lost, reason_of, usage_of
from hmas.gateway.engines.retold import event_of, retold

MAX_EVENT_BYTES = 8 * 2**20
_CONTENT_FIELDS = ("content", "reasoning_content", "reasoning", "tool_calls", "function_call", "refusal", "text")


_DONE = b"data: [DONE]\n\n"
_REASON, _SPACED_REASON = b'"finish_reason":"', b'"finish_reason": "'  # in no text, whose quotes are escaped
_NO_OBJECT: dict[str, Any] = {"error": {"message": "the stream has an event that is not a JSON object"}}


class SseDecoder:
    """Decodes one stream of server-sent events.

    `done` is true once `[DONE]` came, or a reason by which the engine gave the answer up; `fault` then tells whether
    the answer is whole. `error` is the object of an error event, and `usage` the token counts that are believed, each
    None until it came. `strip_usage`: usage events are not relayed to the client. `prompt_cached`: tokens of the prompt
    that the engine which computed it had cached, None if that is the one that answers.
    """

    prompt_cached: int | None = None

    def __init__(self, *, strip_usage: bool) -> None:
        self._strip_usage = strip_usage
        self._carry = b""
        self._delimiter = b""  # b"\n\n" or b"\r\n\r\n", known at the first line end
        self._started = False  # a token was seen
        self._ended = False  # nothing that comes now counts
        self._latest = b""  # the last events that count as tokens
        self._reason = ""  # why the answer ended, if an event that was parsed has said so
        self.done = False
        self.error: dict[str, Any] | None = None
        self.usage: Usage | None = None

    def feed(self, data: bytes) -> tuple[bytes, int]:
        """Takes the bytes of one read. Returns the whole events to relay and the number of token events among them.

        Raises ValueError if an event is longer than `MAX_EVENT_BYTES`.
        """
        if self._ended:
            return b"", 0
        if self._carry:
            data = self._carry + data
        if self._started and self._delimiter == b"\n\n" and data.endswith(b"\n\n") and data.startswith(b"data:"):
            events = data.count(b"\n\n")
            # A quick check for nearly every token.
            if events == 1 and b'"choices":[{' in data and b'"error"' not in data and _REASON not in data:
                self._carry = b""
                self._latest = data
                return data, 1
            if (events == 1 or data.count(b"\n\ndata:") == events - 1) and not _may_be_special(data):
                self._carry = b""
                self._latest = data
                return data, events
        return self._split(data)

    @property
    def missing_end(self) -> bytes:
        """What an engine left out that ended an answer without the stream's last event."""
        return _DONE

    def close(self) -> tuple[bytes, int]:
        """Ends the stream. Returns like `feed` what is left, if it is a whole event that lacks only its blank line."""
        data, self._carry = self._carry, b""
        if self._ended or not data.strip():
            return b"", 0
        data = data.rstrip(b"\r\n")
        if not self._is_whole(data):
            return b"", 0
        self._delimiter = self._delimiter or b"\n\n"
        return self._split(data + self._delimiter)

    def fault(self) -> str:
        """Returns what is wrong with the answer if it ends now, empty if it is whole: it was said why it ended, by one
        of its events or by the last token's however that is written."""
        last = self._latest.removesuffix(self._delimiter).rpartition(self._delimiter or b"\n\n")[2]
        return fault_of_end(self._reason or _named_reason(last))

    def _split(self, data: bytes) -> tuple[bytes, int]:
        if not self._delimiter:
            end = data.find(b"\n")
            if end >= 0:
                self._delimiter = b"\r\n\r\n" if data[:end].endswith(b"\r") else b"\n\n"
        events = data.split(self._delimiter) if self._delimiter else [data]
        self._carry = events.pop()
        if len(self._carry) > MAX_EVENT_BYTES:
            raise ValueError(f"the engine sent a stream event of more than {MAX_EVENT_BYTES} bytes")
        relayed: list[bytes] = []
        tokens = 0
        for event in events:
            if self._ended:
                break
            relay, token = self._take(event)
            tokens += token
            if relay:
                relayed.append(relay + self._delimiter)
        return b"".join(relayed), tokens

    def _take(self, event: bytes) -> tuple[bytes, int]:
        """Returns what to relay of an event, and the number of tokens that it counts for, 0 or 1."""
        if self._started and event.startswith(b"data:") and not _may_be_special(event):
            self._latest = event
            return event, 1
        payload = _payload(event)
        if payload == b"[DONE]":
            self.done = self._ended = True
            return b"" if self.fault() else event, 0
        if not payload:
            return event, 0  # a comment, or a field that is not data
        return self._take_chunk(event, _object(payload) or _NO_OBJECT)

    def _is_whole(self, event: bytes) -> bool:
        """Returns whether an event that no blank line ends may be used: it is the end, or a JSON object."""
        payload = _payload(event)
        return payload == b"[DONE]" or bool(_object(payload))

    def _take_chunk(self, event: bytes, chunk: dict[str, Any]) -> tuple[bytes, int]:
        error = chunk.get("error") or (chunk if chunk.get("object") == "error" else None)
        if error:
            self._ended = True
            self.error = error if isinstance(error, dict) else {"message": str(error)}
            return b"", 0
        if retold(chunk, self.prompt_cached):
            event = event_of(event, chunk)
        if not chunk.get("choices"):
            has_usage = isinstance(chunk.get("usage"), dict)
            self.usage = usage_of(chunk) if has_usage else self.usage
            stripped = self._strip_usage and (has_usage or self.usage is not None)
            return b"" if stripped else event, 0
        self._reason = reason_of(chunk["choices"]) or self._reason
        if self._reason and is_lost(self._reason):
            self.done = self._ended = True
            return b"", 0
        if self._started or _is_token(chunk["choices"]):
            self._started = True
            self._latest = event
            return event, 1
        return event, 0


def _object(payload: bytes) -> dict[str, Any] | None:
    """Returns the JSON object in an event, None if it is none, or one without fields."""
    try:
        document = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) and document else None


def _named_reason(event: bytes) -> str:
    return reason_of((event_object(event) or {}).get("choices")) if b"finish_reason" in event else ""


def _may_be_special(data: bytes) -> bool:
    if b'"choices":[]' in data or b'"choices": []' in data or b"[DONE]" in data or b'"error"' in data:
        return True
    return _REASON in data or _SPACED_REASON in data


def event_object(event: bytes) -> dict[str, Any] | None:
    """Returns the JSON object that an event holds, None if it holds none, or one without fields."""
    return _object(_payload(event))


def _payload(event: bytes) -> bytes:
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)


def _is_token(choices: Any) -> bool:
    """Returns whether a chunk's choices hold a generated token; false if they only announce the role."""
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            return True
        delta = choice.get("delta")
        content = delta if isinstance(delta, dict) else choice
        if choice.get("finish_reason") or any(content.get(name) for name in _CONTENT_FIELDS):
            return True
        if "role" not in content:
            return True  # a generated token that is only part of a character
    return False
