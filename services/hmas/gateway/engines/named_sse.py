"""Decodes streams whose events have names (`event: NAME`), as those of the Responses API and of Anthropic's.

As with OpenAI's chunks a token is counted on bytes: an event of one token is known by its name, and only others are
parsed."""

from typing import Any

from hmas.gateway.engines.sse import SseDecoder, Usage, event_object, usage_of
from hmas.gateway.openai.forms import EventNames

_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_NAME = b"event: "


class NamedSseDecoder(SseDecoder):
    """Decodes one stream of named events; `done` is true once an event came that ends it."""

    def __init__(self, names: EventNames) -> None:
        super().__init__(strip_usage=False)
        self._names = names
        self._stopped = False  # a reason for the end was named

    def feed(self, data: bytes) -> tuple[bytes, int]:
        if self._ended:
            return b"", 0
        if self._carry:
            data = self._carry + data
        single = self._started and data.startswith(_NAME) and data.endswith(b"\n\n") and data.count(b"\n\n") == 1
        if single and self._names.is_token(data[len(_NAME) : data.find(b"\n")]):
            self._carry = b""
            return data, 1
        return self._split(data)

    @property
    def missing_end(self) -> bytes:
        return _STOP

    def finished(self) -> bool:
        return self._stopped

    def _is_whole(self, event: bytes) -> bool:
        return event_object(event) is not None

    def _take(self, event: bytes) -> tuple[bool, int]:
        name = next((line[6:].strip() for line in event.splitlines() if line.startswith(b"event:")), b"")
        if self._names.is_token(name):
            self._started = True
            return True, 1
        document = event_object(event)
        if document is None:
            return True, 0  # a comment, or nothing that is known
        if not name:
            name = str(document.get("type", "")).encode()
            if self._names.is_token(name):
                self._started = True
                return True, 1
        return self._take_named(name, document)

    def _take_named(self, name: bytes, document: dict[str, Any]) -> tuple[bool, int]:
        answer = _inner(document, "response") or _inner(document, "message") or document
        error = document.get("error") or answer.get("error")
        if name == b"error" or error:
            self._ended = True
            told = error or {each: document.get(each) for each in ("message", "code", "param")}
            self.error = told if isinstance(told, dict) else {"message": str(told)}
            return False, 0
        self._learn(answer)
        self._stopped = self._stopped or bool(_inner(document, "delta").get("stop_reason"))
        if name in self._names.ends:
            self.done = self._ended = True
        return True, 0

    def _learn(self, answer: dict[str, Any]) -> None:
        """Anthropic's counts come in two events, of which the last may lack the prompt's or tell it as 0."""
        counts, known = _inner(answer, "usage"), self.usage
        usage = usage_of({"usage": {"input_tokens": 0, **counts}}) if counts else None
        if usage is not None and known is not None and not usage.prompt_tokens:
            usage = Usage(known.prompt_tokens, usage.output_tokens, known.cached_tokens)
        self.usage = usage or known


def _inner(document: dict[str, Any], name: str) -> dict[str, Any]:
    inner = document.get(name)
    return inner if isinstance(inner, dict) else {}
