"""Makes one answer of those to several requests, into which the gateway divides a request for several answers (`n`) or
with several prompts: the choices get the index that the client expects, and the counts of tokens are summed."""

from dataclasses import dataclass, field
from typing import Any

import orjson

from hmas.gateway.engines.answer_checks import NO_USAGE, usage_of

_DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class AnswerMerger:
    """`answers` is the number of answers to each prompt (`n`): parts follow one another prompt by prompt. `usage`: the
    client asked for the counts of tokens in a stream."""

    answers: int
    usage: bool
    _head: dict[str, Any] = field(default_factory=dict)
    _counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0)
    )

    def events(self, part: int, data: bytes) -> bytes:
        """Returns the events of a part's stream as events of the whole one. `data` holds whole events."""
        merged: list[bytes] = []
        for event in data.replace(b"\r\n", b"\n").split(b"\n\n"):
            payload = event.removeprefix(b"data:").strip()
            if not event.startswith(b"data:") or payload == b"[DONE]":
                continue
            try:
                chunk = orjson.loads(payload)
                if not isinstance(chunk, dict):
                    continue
                self._count(part, chunk)
                if isinstance(chunk.get("choices"), list) and chunk["choices"]:
                    merged.append(b"data: %b\n\n" % orjson.dumps(self._placed(part, chunk)))
            except (orjson.JSONDecodeError, TypeError):
                pass  # it is no JSON, or nested more deeply than can be written
        return b"".join(merged)

    def end(self) -> bytes:
        """Returns the last events of the stream."""
        usage = b"data: %b\n\n" % orjson.dumps({**self._head, "choices": [], "usage": self._counts})
        return (usage if self.usage else b"") + _DONE

    def whole(self, bodies: list[bytes]) -> bytes:
        """Returns the answer of which these are the parts."""
        choices: list[Any] = []
        for part, body in enumerate(bodies):
            answer = orjson.loads(body)
            self._count(part, answer)
            choices += self._placed(part, answer)["choices"]
        return orjson.dumps({**self._head, "choices": choices, "usage": self._counts})

    def _placed(self, part: int, document: dict[str, Any]) -> dict[str, Any]:
        choices = [{**c, "index": part} if isinstance(c, dict) else c for c in document["choices"]]
        if not self._head:
            self._head = {name: value for name, value in document.items() if name != "choices"}
        return {**self._head, "choices": choices}

    def _count(self, part: int, document: dict[str, Any]) -> None:
        """Takes the counts out of a part, and adds them if they are believed. A prompt counts once, however many
        answers it has."""
        usage = usage_of(document) or NO_USAGE
        document.pop("usage", None)
        prompt = (usage.prompt_tokens or 0) if part % self.answers == 0 else 0
        output = usage.output_tokens or 0
        for name, count in zip(self._counts, (prompt, output, prompt + output), strict=True):
            self._counts[name] += count
