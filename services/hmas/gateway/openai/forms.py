"""The parts of the API that the gateway serves, one row of a table each, and how the prompt is read of a body."""

from collections.abc import Callable, Mapping
from typing import Any

from hmas.contracts.registry import CHAT_PATH, COMPLETIONS_PATH
from hmas.gateway.api_form import ApiForm, EventNames, PromptRead
from hmas.gateway.errors import ErrorShape, InvalidRequest
from hmas.laws.tokens import content_text, content_tokens, json_tokens, message_tokens, text_tokens

MAX_TEXTS = 4096  # texts or documents of one request, which all wait in the engine at once


# --- prompts ---


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _model(body: dict[str, Any]) -> str:
    """Returns the model's name as the body has it; whether the mesh serves such a model is checked later."""
    model = body.get("model")
    return model if isinstance(model, str) else ""


def _tools(body: dict[str, Any]) -> int:
    tools = body.get("tools")
    return json_tokens(tools) if isinstance(tools, list) and tools else 0


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("`messages` must be a list with at least one message", "messages")
    for i, message in enumerate(messages):
        if not isinstance(message, dict):
            raise InvalidRequest(f"`messages[{i}]` must be an object", f"messages[{i}]")
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise InvalidRequest(f"`messages[{i}].role` must be a text such as `user`", f"messages[{i}].role")
        if not isinstance(message.get("content"), str | list | None):
            raise InvalidRequest(f"`messages[{i}].content` must be a text or a list", f"messages[{i}].content")
    return messages


def _chat(body: dict[str, Any]) -> PromptRead:
    messages = _messages(body)
    texts, model = [content_text(message.get("content")) for message in messages], _model(body)
    return PromptRead(texts, sum(message_tokens(message, model) for message in messages) + _tools(body))


def _anthropic(body: dict[str, Any]) -> PromptRead:
    system = body.get("system")
    if not isinstance(system, str | list | None):
        raise InvalidRequest("`system` must be a text or a list of text blocks", "system")
    prompt = _chat(body)
    if not system:
        return prompt
    return PromptRead([content_text(system), *prompt.texts], prompt.tokens + message_tokens({"content": system}))


def _responses(body: dict[str, Any]) -> PromptRead:
    for name in ("previous_response_id", "conversation"):
        if body.get(name) is not None:
            raise InvalidRequest(f"`{name}` is not supported, as no responses are kept: send the whole `input`", name)
    if body.get("background"):
        raise InvalidRequest("`background` is not supported: leave it out", "background")
    given, instructions = body.get("input"), body.get("instructions")
    if not isinstance(instructions, str | None):
        raise InvalidRequest("`instructions` must be a text", "instructions")
    if not isinstance(given, str | list) or not given:
        raise InvalidRequest("`input` must be a text or a list of items", "input")
    items = [{"content": given}] if isinstance(given, str) else given
    if not all(isinstance(item, dict) for item in items):
        raise InvalidRequest("each item of `input` must be an object", "input")
    if instructions:
        items = [{"content": instructions}, *items]
    model = _model(body)
    tokens = sum(message_tokens(i, model) if "content" in i else json_tokens(i, model) for i in items)
    return PromptRead([content_text(item.get("content")) for item in items], tokens + _tools(body))


def _completion(body: dict[str, Any]) -> PromptRead:
    """A list of exactly one prompt is unpacked; with more than one, InvalidRequest is raised."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) > 1:
            raise InvalidRequest("several prompts in one request are not supported: send one request each", "prompt")
        prompt = prompt[0]
    if isinstance(prompt, str):
        return PromptRead([prompt], max(1, text_tokens(prompt)))
    if not isinstance(prompt, list) or not prompt or not all(map(_is_int, prompt)):
        raise InvalidRequest("`prompt` must be a text or a list of token ids", "prompt")
    return PromptRead([], len(prompt))


def _texts(value: Any, name: str, *, ids: bool = True) -> PromptRead:
    """Reads a text or list of texts and, with `ids`, a list of token ids or of such lists; in place of a text there may
    be an object with a `text` or with a list called `content`."""
    if ids and isinstance(value, list) and value and all(map(_is_int, value)):
        return PromptRead([], len(value))
    given = value if isinstance(value, list) else [value]
    if not 0 < len(given) <= MAX_TEXTS:
        raise InvalidRequest(f"`{name}` must hold 1 to {MAX_TEXTS} texts", name)
    texts, tokens = list[str](), 0
    for each in given:
        if isinstance(each, str):
            texts.append(each)
            tokens += max(1, text_tokens(each))
        elif isinstance(each, dict):
            content = each.get("content")
            texts.append(content_text(content if isinstance(content, list) else each.get("text")))
            tokens += content_tokens(content if isinstance(content, list) else [each])
        elif ids and isinstance(each, list) and each and all(map(_is_int, each)):
            tokens += len(each)
        else:
            raise InvalidRequest(f"`{name}` must be a text or a list of texts", name)
    return PromptRead(texts, tokens)


def _embeddings(body: dict[str, Any]) -> PromptRead:
    if body.get("encoding_format") not in (None, "float", "base64"):
        raise InvalidRequest("`encoding_format` must be `float` or `base64`", "encoding_format")
    return _chat(body) if "messages" in body and "input" not in body else _texts(body.get("input"), "input")


def _pairs(body: dict[str, Any], one: str, many: str) -> PromptRead:
    """Reads two sides that an engine compares; where the first is one text, it is computed with each of the others."""
    left, right = _texts(body.get(one), one, ids=False), _texts(body.get(many), many, ids=False)
    others = len(body[many]) if isinstance(body[many], list) else 1
    shared = not isinstance(body[one], list) or len(body[one]) == 1
    return PromptRead([*left.texts, *right.texts], left.tokens * (others if shared else 1) + right.tokens)


def _rerank(body: dict[str, Any]) -> PromptRead:
    if not isinstance(body.get("documents"), list):
        raise InvalidRequest("`documents` must be a list of texts", "documents")
    return _pairs(body, "query", "documents")


def _score(body: dict[str, Any]) -> PromptRead:
    """vLLM has had several names for the two sides; SGLang's are `query` and `items`."""
    names = (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("query", "items"),
             ("data_1", "data_2"))  # fmt: skip
    one, many = max(names, key=lambda pair: (pair[0] in body) + (pair[1] in body))
    return _pairs(body, one, many)


def _free(read: Callable[[dict[str, Any]], PromptRead]) -> Callable[[dict[str, Any]], PromptRead]:
    """Returns the reader for a path that only counts tokens: the engine computes nothing, so that the prompt costs as
    little as a request can."""

    def counted(body: dict[str, Any]) -> PromptRead:
        return PromptRead(read(body).texts, 1)

    return counted


def _tokenized(body: dict[str, Any]) -> PromptRead:
    return _chat(body) if "messages" in body else _completion(body)


# --- the table ---

MESSAGE_EVENTS = EventNames(frozenset({b"content_block_delta"}), frozenset({b"message_stop"}))
RESPONSE_EVENTS = EventNames(
    frozenset(), frozenset({b"response.completed", b"response.incomplete", b"response.failed"}), b".delta"
)

FORMS: Mapping[str, ApiForm] = {
    form.path: form
    for form in (
        ApiForm(
            path=CHAT_PATH,
            read=_chat,
            bounds=("max_completion_tokens", "max_tokens"),
            answers=("choices",),
            reason="finish_reason",
        ),
        ApiForm(
            path=COMPLETIONS_PATH,
            read=_completion,
            bounds=("max_completion_tokens", "max_tokens"),
            answers=("choices",),
            reason="finish_reason",
        ),
        ApiForm(
            path="/v1/responses",
            read=_responses,
            bounds=("max_output_tokens",),
            answers=("output",),
            reason="status",
            events=RESPONSE_EVENTS,
            errors=ErrorShape.RESPONSES,
            fixed={"store": False},
        ),
        ApiForm(
            path="/v1/messages",
            read=_anthropic,
            bounds=("max_tokens",),
            answers=("content",),
            reason="stop_reason",
            events=MESSAGE_EVENTS,
            errors=ErrorShape.ANTHROPIC,
        ),
        ApiForm(
            path="/v1/messages/count_tokens",
            read=_free(_anthropic),
            bounds=(),
            answers=("input_tokens",),
            errors=ErrorShape.ANTHROPIC,
        ),
        ApiForm(path="/v1/embeddings", read=_embeddings, bounds=(), answers=("data",)),
        ApiForm(path="/v1/rerank", read=_rerank, bounds=(), answers=("results",), listed=True),
        ApiForm(path="/v1/score", read=_score, bounds=(), answers=("data", "scores")),
        ApiForm(path="/tokenize", read=_free(_tokenized), bounds=(), answers=("tokens",)),
    )
}  # fmt: skip
