"""Answers in the form that a client asks for, in vLLM's format: calls of tools, JSON, log probabilities."""

from typing import Any

import orjson

from hmas.engine.answer import AnswerText
from hmas.engine.api import Generation
from hmas.engine.asked_form import AnswerForm
from hmas.engine.words import word

# Constants that could be a model's: of a token that it was sure of, and of what it would have said instead, each with
# less. The probabilities of one token and of all its alternatives add up to less than 1.
CHOSEN_LOGPROB, NEXT_LOGPROB, LOGPROB_STEP = -0.1, -4.0, 0.5


class FormedAnswer(AnswerText):
    """One answer with an `AnswerForm`, as a whole or as the events of a stream."""

    def __init__(self, generation: Generation, response_id: str, model: str, created_s: int, form: AnswerForm) -> None:
        super().__init__(generation, response_id, model, created_s)
        self._form = form
        self._call_id = f"chatcmpl-tool-{response_id.removeprefix('chatcmpl-')}"

    @property
    def told_reason(self) -> bytes:
        if self._form.tool and not self._form.named and self._generation.stops:
            return b"tool_calls"  # in vLLM the answer to a named tool ends as one without tools does
        return self.finish_reason

    def event(self, index: int) -> bytes:
        piece = self._form.piece(index)
        if not self._chat:
            choice: dict[str, Any] = {"index": 0, "text": piece}
        elif self._form.tool:
            call: dict[str, Any] = {"index": 0, "function": {"arguments": piece}}
            if index == 0:
                function = {"name": self._form.tool, "arguments": piece}
                call = {"index": 0, "id": self._call_id, "type": "function", "function": function}
            choice = {"index": 0, "delta": {"tool_calls": [call]}}
        else:
            choice = {"index": 0, "delta": {"content": piece}}
        choice |= {"logprobs": self._logprobs(index, index + 1), "finish_reason": None}
        return self._head + orjson.dumps(choice) + b"]" + self._usage_field(index + 1) + b"}\n\n"

    def _choice(self, count: int, finish_reason: str) -> dict[str, Any]:
        text = "".join(map(self._form.piece, range(count)))
        choice: dict[str, Any] = {"index": 0, "logprobs": self._logprobs(0, count), "finish_reason": finish_reason}
        if not self._chat:
            return {**choice, "text": text}
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None, "tool_calls": []}
        if self._form.tool:
            function = {"name": self._form.tool, "arguments": text}
            message |= {"content": "", "tool_calls": [{"id": self._call_id, "type": "function", "function": function}]}
        return {**choice, "message": message}

    def _logprobs(self, first: int, end: int) -> dict[str, Any] | None:
        """Returns the log probabilities of the tokens from `first` to before `end`."""
        asked = self._form.logprobs
        if asked is None:
            return None
        tokens = [self._form.piece(index) for index in range(first, end)]
        if self._chat:
            told = [_told(token, CHOSEN_LOGPROB) for token in tokens]
            ranked = [self._ranked(first + n, max(asked, 0))[:asked] for n in range(len(tokens))]
            return {
                "content": [
                    {**each, "top_logprobs": [_told(*one) for one in top]}
                    for each, top in zip(told, ranked, strict=True)
                ]
            }
        offset, offsets = sum(len(self._form.piece(index)) for index in range(first)), []
        for token in tokens:
            offsets.append(offset)
            offset += len(token)
        return {
            "text_offset": offsets,
            "token_logprobs": [CHOSEN_LOGPROB] * len(tokens),
            "tokens": tokens,
            "top_logprobs": [dict(self._ranked(first + n, max(asked, 1))) for n in range(len(tokens))],
        }

    def _ranked(self, index: int, count: int) -> list[tuple[str, float]]:
        """Returns a token and what could have stood in its place, the most probable first."""
        chosen = self._form.piece(index)
        others = [other for n in range(count + 1) if (other := word(index + 1 + n).decode()) != chosen][: count - 1]
        return [(chosen, CHOSEN_LOGPROB), *((o, NEXT_LOGPROB - LOGPROB_STEP * n) for n, o in enumerate(others))]


def _told(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def chat_or_completion(generation: Generation, response_id: str, model: str, created_s: int) -> AnswerText:
    """Returns what writes the answer of a chat or a completion, in the form that was asked for."""
    if generation.form is None:
        return AnswerText(generation, response_id, model, created_s)
    return FormedAnswer(generation, response_id, model, created_s, generation.form)
