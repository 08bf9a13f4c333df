"""Response bodies in vLLM's format: server-sent events from templates made once per request, and whole JSON answers."""

import orjson

from hmas.contracts.registry import CHAT_PATH
from hmas.engine.api import BadRequest, Generation
from hmas.engine.words import word, words

DONE = b"data: [DONE]\n\n"


class AnswerText:
    """Makes the bytes of one answer in vLLM's format. What all its streamed chunks share is encoded once, so that
    `event`, the chunk of one token, only joins bytes."""

    def __init__(self, generation: Generation, response_id: str, model: str, created_s: int) -> None:
        self.cached_tokens: int | None = None
        self._generation = generation
        self._chat = generation.path == CHAT_PATH
        self._id = response_id
        self._model = model
        self._created_s = created_s
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        stamp = {"id": response_id, "object": kind, "created": created_s, "model": model}
        self._head = b"data: " + orjson.dumps(stamp)[:-1] + b',"choices":['
        opening = b'{"index":0,"delta":{"content":"' if self._chat else b'{"index":0,"text":"'
        self._before = self._head + opening
        closing = b'"},"logprobs":null,' if self._chat else b'","logprobs":null,'
        self._after = closing + b'"finish_reason":null}]'

    def error_event(self, error: BadRequest) -> bytes:
        """Returns the event that ends an already started stream with an error, with the stream's end marker."""
        return b"data: " + error.json() + b"\n\n" + DONE

    def role_event(self) -> bytes:
        """Returns the chunk that opens a chat stream, sent with the first token; b"" for a plain completion."""
        if not self._chat:
            return b""
        choice = b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        return self._head + choice + self._usage_field(0) + b"}\n\n"

    def event(self, index: int) -> bytes:
        """Returns the streamed chunk of token number `index`."""
        if self._generation.continuous_usage:
            return self._before + word(index) + self._after + self._usage_field(index + 1) + b"}\n\n"
        return self._before + word(index) + self._after + b"}\n\n"

    def last_events(self, index: int) -> bytes:
        """Returns the last token's chunk with its finish reason, the usage chunk if requested, and the end marker."""
        last = self.event(index).replace(b'"finish_reason":null', b'"finish_reason":"%b"' % self.told_reason)
        if self._generation.include_usage:
            last += self._head + b"]" + self._usage(index + 1) + b"}\n\n"
        return last + DONE

    def given_up_events(self, count: int) -> bytes:
        """Returns the chunk without a token that ends a stream after `count` tokens because the engine aborted the
        request, the usage chunk if requested, and the end marker."""
        after = self._after.replace(b'"finish_reason":null', b'"finish_reason":"abort"')
        last = self._before + after + self._usage_field(count) + b"}\n\n"
        if self._generation.include_usage:
            last += self._head + b"]" + self._usage(count) + b"}\n\n"
        return last + DONE

    @property
    def finish_reason(self) -> bytes:
        return b"stop" if self._generation.stops else b"length"

    @property
    def told_reason(self) -> bytes:
        """Why the answer ended, in the words of its API: those of the engine's metrics, if there are no others."""
        return self.finish_reason

    def whole(self, tokens: int | None = None, reason: bytes | None = None) -> bytes:
        """Returns the whole JSON body that answers a request without `stream`, by default with all its tokens and its
        own reason for the end."""
        count = self._generation.output_tokens if tokens is None else tokens
        body = {
            "id": self._id,
            "object": "chat.completion" if self._chat else "text_completion",
            "created": self._created_s,
            "model": self._model,
            "choices": [self._choice(count, (reason or self.told_reason).decode())],
        }
        return orjson.dumps(body)[:-1] + self._usage(count) + b"}"

    def _choice(self, count: int, finish_reason: str) -> dict[str, object]:
        text = words(count).decode()
        choice: dict[str, object] = {"index": 0, "logprobs": None, "finish_reason": finish_reason}
        if self._chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None, "tool_calls": []}
        else:
            choice["text"] = text
        return choice

    def _usage_field(self, count: int) -> bytes:
        return self._usage(count) if self._generation.continuous_usage else b""

    def _usage(self, count: int) -> bytes:
        prompt, cached = self._generation.prompt_tokens, self.cached_tokens
        details = b"" if cached is None else b',"prompt_tokens_details":{"cached_tokens":%d}' % cached
        return b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d%b}' % (
            prompt,
            prompt + count,
            count,
            details,
        )
