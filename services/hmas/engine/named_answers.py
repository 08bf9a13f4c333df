"""Answers of the Responses API and of Anthropic's Messages, whose streams consist of named events, in vLLM's format."""

from typing import Any

import orjson

from hmas.engine.api import BadRequest, Generation
from hmas.engine.words import word, words


def _event(name: str, **fields: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps({"type": name, **fields}))


class NamedAnswer:
    """What the two have in common: the text of an answer, and the bytes of one token's event around its word."""

    def __init__(self, generation: Generation, response_id: str, model: str, created_s: int) -> None:
        self.cached_tokens: int | None = None
        self._generation, self._id, self._model, self._created_s = generation, response_id, model, created_s

    @property
    def finish_reason(self) -> bytes:
        return b"stop" if self._generation.stops else b"length"

    def _text(self, count: int) -> str:
        return words(count).decode()


class MessageAnswer(NamedAnswer):
    """An answer of Anthropic's Messages."""

    _DELTA = (
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":"'
    )

    def error_event(self, error: BadRequest) -> bytes:
        return b"event: error\ndata: " + anthropic_error(error) + b"\n\n"

    def role_event(self) -> bytes:
        message = self._message([], None, 0)
        return _event("message_start", message=message) + _event(
            "content_block_start", index=0, content_block={"type": "text", "text": ""}
        )

    def event(self, index: int) -> bytes:
        return self._DELTA + word(index) + b'"}}\n\n'

    def last_events(self, index: int) -> bytes:
        usage = {"input_tokens": self._generation.prompt_tokens, "output_tokens": index + 1}
        return (
            self.event(index)
            + _event("content_block_stop", index=0)
            + _event("message_delta", delta={"stop_reason": self._stop_reason, "stop_sequence": None}, usage=usage)
            + _event("message_stop")
        )

    def whole(self) -> bytes:
        count = self._generation.output_tokens
        content = [{"type": "text", "text": self._text(count)}]
        return orjson.dumps(self._message(content, self._stop_reason, count))

    @property
    def _stop_reason(self) -> str:
        return "end_turn" if self._generation.stops else "max_tokens"

    def _message(self, content: list[Any], stop_reason: str | None, output_tokens: int) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self._model,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {"input_tokens": self._generation.prompt_tokens, "output_tokens": output_tokens},
        }


class ResponseAnswer(NamedAnswer):
    """An answer of the Responses API, of one message."""

    _OPENING = 4  # events before the first token's

    def __init__(self, generation: Generation, response_id: str, model: str, created_s: int) -> None:
        super().__init__(generation, response_id, model, created_s)
        self._item = {"item_id": f"msg_{response_id}", "output_index": 0, "content_index": 0}
        fields = orjson.dumps({"type": "response.output_text.delta", **self._item, "logprobs": []})[:-1]
        self._before = b"event: response.output_text.delta\ndata: " + fields + b',"sequence_number":'

    def error_event(self, error: BadRequest) -> bytes:
        return _event("error", code=str(error.status), message=error.message, param=None, sequence_number=0)

    def role_event(self) -> bytes:
        begun = self._response([], "in_progress", None)
        return (
            _event("response.created", sequence_number=0, response=begun)
            + _event("response.in_progress", sequence_number=1, response=begun)
            + _event("response.output_item.added", sequence_number=2, output_index=0, item=self._message("in_progress"))
            + _event("response.content_part.added", sequence_number=3, part=_part(""), **self._item)
        )

    def event(self, index: int) -> bytes:
        return self._before + b'%d,"delta":"%b"}\n\n' % (self._OPENING + index, word(index))

    def last_events(self, index: int) -> bytes:
        text, number = self._text(index + 1), self._OPENING + index
        whole = self._whole(index + 1)
        end = "response.completed" if self._generation.stops else "response.incomplete"
        return (
            self.event(index)
            + _event("response.output_text.done", sequence_number=number + 1, text=text, logprobs=[], **self._item)
            + _event("response.content_part.done", sequence_number=number + 2, part=_part(text), **self._item)
            + _event("response.output_item.done", sequence_number=number + 3, output_index=0, item=whole["output"][0])
            + _event(end, sequence_number=number + 4, response=whole)
        )

    def whole(self) -> bytes:
        return orjson.dumps(self._whole(self._generation.output_tokens))

    def _whole(self, count: int) -> dict[str, Any]:
        usage = {
            "input_tokens": self._generation.prompt_tokens,
            "input_tokens_details": {"cached_tokens": self.cached_tokens or 0},
            "output_tokens": count,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self._generation.prompt_tokens + count,
        }
        status = "completed" if self._generation.stops else "incomplete"
        return self._response([self._message(status, self._text(count))], status, usage)

    def _message(self, status: str, text: str | None = None) -> dict[str, Any]:
        content = [] if text is None else [_part(text)]
        return {
            "id": self._item["item_id"],
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _response(self, output: list[Any], status: str, usage: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created_s,
            "model": self._model,
            "status": status,
            "output": output,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": None,
            "metadata": None,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": usage,
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": None}


def anthropic_error(error: BadRequest) -> bytes:
    kinds = {400: "invalid_request_error", 404: "not_found_error"}
    told = {"type": kinds.get(error.status, "api_error"), "message": error.message}
    return orjson.dumps({"type": "error", "error": told})
