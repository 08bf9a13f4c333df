"""Splits an OpenAI stream into server-sent events and counts its tokens on bytes, without parsing JSON per token.

An event is parsed only before the first token, or if a quick scan says that it may be a special one: usage, error, or
the end. The result does not depend on how the bytes were cut into reads.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from hmas.laws.figures import MOST_TOKENS, sane_int

MAX_EVENT_BYTES = 8 * 2**20
_CONTENT_FIELDS = ("content", "reasoning_content", "reasoning", "tool_calls", "function_call", "refusal", "text")


@dataclass(frozen=True, slots=True)
class Usage:
    """The engine's own counts of tokens, each None if it reports none. `cached_tokens`: those of the prompt that it had
    in its cache."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


NO_USAGE = Usage()
_DONE = b"data: [DONE]\n\n"
_NO_OBJECT: dict[str, Any] = {"error": {"message": "the stream has an event that is no JSON object"}}


def usage_of(document: Any, *, generated: int | None = None) -> Usage | None:
    """Returns the token counts of an answer or a chunk of any form of the API; None if it has no complete `usage`
    object, or counts that cannot be true. `generated`: the output's count where it may be left out."""
    usage = document.get("usage") if isinstance(document, dict) else None
    if not isinstance(usage, dict):
        return None
    if "input_tokens" in usage:  # of the Responses API, and of Anthropic's, where it is only what was not in the cache
        prompt, output = _count(usage["input_tokens"]), _count(usage.get("output_tokens", generated))
        details, beside = usage.get("input_tokens_details"), _count(usage.get("cache_read_input_tokens")) or 0
        if prompt is not None and beside:
            prompt, details = prompt + beside, {"cached_tokens": beside}
    else:
        prompt, output = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens", generated))
        details = usage.get("prompt_tokens_details")
    if prompt is None or output is None:
        return None
    return Usage(prompt, output, _count(details.get("cached_tokens")) if isinstance(details, dict) else None)


def _count(value: object) -> int | None:
    return sane_int(value, MOST_TOKENS) if isinstance(value, int) else None


class SseDecoder:
    """Decodes one stream of server-sent events.

    `done` is true once `[DONE]` came; `error` is the object of an error event, and `usage` the token counts, each None
    until it came. `strip_usage`: usage events are not relayed to the client.
    """

    def __init__(self, *, strip_usage: bool) -> None:
        self._strip_usage = strip_usage
        self._carry = b""
        self._delimiter = b""  # b"\n\n" or b"\r\n\r\n", known at the first line end
        self._started = False  # a token was seen
        self._ended = False  # nothing that comes now counts
        self._latest = b""  # the last events that count as tokens
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
            if events == 1 and b'"choices":[{' in data and b'"error"' not in data:  # quick check for nearly every token
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

    def finished(self) -> bool:
        """Returns whether the last token event named a reason for the end, so that the answer is whole."""
        return any(map(_names_a_reason, self._latest.split(self._delimiter or b"\n\n")))

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
                relayed.append(event + self._delimiter)
        return b"".join(relayed), tokens

    def _take(self, event: bytes) -> tuple[bool, int]:
        """Returns whether to relay an event, and the number of tokens that it counts for, 0 or 1."""
        if self._started and event.startswith(b"data:") and not _may_be_special(event):
            self._latest = event
            return True, 1
        payload = _payload(event)
        if payload == b"[DONE]":
            self.done = self._ended = True
            return True, 0
        if not payload:
            return True, 0  # a comment, or a field that is not data
        return self._take_chunk(event, _object(payload) or _NO_OBJECT)

    def _is_whole(self, event: bytes) -> bool:
        """Returns whether an event that no blank line ends may be used: it is the end, or a JSON object."""
        payload = _payload(event)
        return payload == b"[DONE]" or bool(_object(payload))

    def _take_chunk(self, event: bytes, chunk: dict[str, Any]) -> tuple[bool, int]:
        error = chunk.get("error") or (chunk if chunk.get("object") == "error" else None)
        if error:
            self._ended = True
            self.error = error if isinstance(error, dict) else {"message": str(error)}
            return False, 0
        if not chunk.get("choices"):
            self.usage = usage_of(chunk) or self.usage
            return not (self._strip_usage and self.usage is not None), 0
        if self._started or _is_token(chunk["choices"]):
            self._started = True
            self._latest = event
            return True, 1
        return True, 0


def _object(payload: bytes) -> dict[str, Any] | None:
    """Returns the JSON object in an event, None if it is none, or one without fields."""
    try:
        document = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) and document else None


def _names_a_reason(event: bytes) -> bool:
    if b"finish_reason" not in event:
        return False
    choices = (event_object(event) or {}).get("choices")
    choices = choices if isinstance(choices, list) else []
    return any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)


def _may_be_special(data: bytes) -> bool:
    return b'"choices":[]' in data or b'"choices": []' in data or b"[DONE]" in data or b'"error"' in data


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
