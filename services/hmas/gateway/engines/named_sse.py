"""Decodes streams whose events have names (`event: NAME`), as those of the Responses API and of Anthropic's.

As with OpenAI's chunks a token is counted on bytes: an event of one token is known by its name, and only others are
parsed."""

from typing import Any

from hmas.gateway.api_form import EventNames
from hmas.gateway.engines.answer_checks import Usage, fault_of_end, is_lost, usage_of
from hmas.gateway.engines.retold import event_of, retold
from hmas.gateway.engines.sse import SseDecoder, event_object

_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_NAME = b"event: "
_RESPONSE = b"response."


class NamedSseDecoder(SseDecoder):
    """Decodes one stream of named events; `done` is true once an event came that ends it, or says that the engine gave
    the answer up."""

    def __init__(self, names: EventNames) -> None:
        super().__init__(strip_usage=False)
        self._names = names

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

    def fault(self) -> str:
        return fault_of_end(self._reason)

    def _is_whole(self, event: bytes) -> bool:
        return event_object(event) is not None

    def _take(self, event: bytes) -> tuple[bytes, int]:
        name = next((line[6:].strip() for line in event.splitlines() if line.startswith(b"event:")), b"")
        if self._names.is_token(name):
            self._started = True
            return event, 1
        document = event_object(event)
        if document is None:
            return event, 0  # a comment, or nothing that is known
        if not name:
            name = str(document.get("type", "")).encode()
            if self._names.is_token(name):
                self._started = True
                return event, 1
        return self._take_named(event, name, document)

    def _take_named(self, event: bytes, name: bytes, document: dict[str, Any]) -> tuple[bytes, int]:
        answer = _inner(document, "response") or _inner(document, "message") or document
        error = document.get("error") or answer.get("error")
        if name == b"error" or error:
            self._ended = True
            fault = error or {each: document.get(each) for each in ("message", "code", "param")}
            self.error = fault if isinstance(fault, dict) else {"message": str(fault)}
            return b"", 0
        if retold(answer, self.prompt_cached):
            event = event_of(event, document)
        self._learn(answer)
        ends = name in self._names.ends
        self._reason = self._reason_of(name, document, answer) or self._reason
        if ends or (self._reason and is_lost(self._reason)):
            self.done = self._ended = True
        return b"" if self.done and self.fault() else event, 0

    def _reason_of(self, name: bytes, document: dict[str, Any], answer: dict[str, Any]) -> str:
        """Returns why the answer ended, empty if the event does not say so. The last event of the Responses API does by
        its name, and by the status of the response that it holds."""
        reason: object = _inner(document, "delta").get("stop_reason") or answer.get("stop_reason")
        if name in self._names.ends and name.startswith(_RESPONSE):
            named = name.removeprefix(_RESPONSE).decode()
            reason = named if is_lost(named) else answer.get("status", named)
        return reason if isinstance(reason, str) else ""

    def _learn(self, answer: dict[str, Any]) -> None:
        """Anthropic's counts come in two events, of which the last may lack the prompt's or tell it as 0."""
        counts, known = _inner(answer, "usage"), self.usage
        if not counts:
            return
        usage = usage_of({"usage": {"input_tokens": 0, **counts}})
        if usage is not None and known is not None and usage.prompt_tokens is None:
            usage = Usage(known.prompt_tokens, usage.output_tokens, known.cached_tokens)
        self.usage = usage


def _inner(document: dict[str, Any], name: str) -> dict[str, Any]:
    inner = document.get(name)
    return inner if isinstance(inner, dict) else {}
