"""What the emulated engine reads of a body as its prompt, for each path of the API that it serves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hmas.contracts.registry import CHAT_PATH, COMPLETIONS_PATH
from hmas.laws.tokens import BYTES_PER_TOKEN, content_text, flatten_messages, json_tokens, message_tokens, text_tokens

RESPONSES_PATH = "/v1/responses"
MESSAGES_PATH = "/v1/messages"
COUNT_PATH = "/v1/messages/count_tokens"
EMBEDDINGS_PATH = "/v1/embeddings"
RERANK_PATH = "/v1/rerank"
SCORE_PATH = "/v1/score"
TOKENIZE_PATH = "/tokenize"


@dataclass(frozen=True, slots=True)
class EnginePrompt:
    """A prompt: its tokens, its bytes, of which every `BYTES_PER_TOKEN` count as one token, and into how many texts it
    is divided, for which there is an answer each."""

    tokens: int
    content: bytes
    parts: int = 1


class BadPrompt(ValueError):
    """A body has no usable prompt; `param` names the field at fault."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _tools(body: dict[str, Any]) -> int:
    tools = body.get("tools")
    return json_tokens(tools) if isinstance(tools, list) and tools else 0


def _chat(body: dict[str, Any]) -> EnginePrompt:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise BadPrompt("messages must be a non-empty list of objects", "messages")
    model = str(body.get("model", ""))
    return EnginePrompt(
        sum(message_tokens(message, model) for message in messages) + _tools(body), _encoded(flatten_messages(messages))
    )


def _anthropic(body: dict[str, Any]) -> EnginePrompt:
    system, prompt = body.get("system"), _chat(body)
    if not system:
        return prompt
    text = _encoded(content_text(system) + "\n")
    return EnginePrompt(message_tokens({"content": system}) + prompt.tokens, text + prompt.content)


def _responses(body: dict[str, Any]) -> EnginePrompt:
    given, instructions = body.get("input"), body.get("instructions")
    items = [{"content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
        raise BadPrompt("input must be a text or a non-empty list of objects", "input")
    if instructions:
        items = [{"content": instructions}, *items]
    model = str(body.get("model", ""))
    tokens = sum(message_tokens(i, model) if "content" in i else json_tokens(i, model) for i in items)
    return EnginePrompt(tokens + _tools(body), _encoded(flatten_messages(items)))


def _completion(body: dict[str, Any]) -> EnginePrompt:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return EnginePrompt(text_tokens(prompt), _encoded(prompt))
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return EnginePrompt(len(prompt), _bytes_of(prompt))
    raise BadPrompt(
        "prompt must be one non-empty string or one list of token ids; send one prompt per request", "prompt"
    )


def _bytes_of(tokens: list[int]) -> bytes:
    return b"".join((token & 0xFFFFFFFF).to_bytes(BYTES_PER_TOKEN, "big") for token in tokens)


def _texts(value: Any, param: str) -> list[EnginePrompt]:
    if isinstance(value, list) and value and all(type(token) is int for token in value):
        value = [value]
    given = value if isinstance(value, list) else [value]
    prompts = []
    for each in given:
        if isinstance(each, str) and each:
            prompts.append(EnginePrompt(text_tokens(each), _encoded(each)))
        elif isinstance(each, list) and each and all(type(token) is int for token in each):
            prompts.append(EnginePrompt(len(each), _bytes_of(each)))
        else:
            raise BadPrompt(f"{param} must be a text or a list of texts", param)
    if not prompts:
        raise BadPrompt(f"{param} must not be empty", param)
    return prompts


def _embeddings(body: dict[str, Any]) -> EnginePrompt:
    prompts = _texts(body.get("input"), "input")
    return EnginePrompt(sum(p.tokens for p in prompts), b"\n".join(p.content for p in prompts), len(prompts))


def _pairs(one: str, many: str) -> Callable[[dict[str, Any]], EnginePrompt]:
    def read(body: dict[str, Any]) -> EnginePrompt:
        left, right = _texts(body.get(one), one), _texts(body.get(many), many)
        if len(left) not in (1, len(right)):
            raise BadPrompt(f"{one} must be one text, or as many as {many}", one)
        shared = len(right) if len(left) == 1 else 1
        tokens = shared * sum(p.tokens for p in left) + sum(p.tokens for p in right)
        return EnginePrompt(tokens, b"\n".join(p.content for p in [*left, *right]), len(right))

    return read


def _tokenized(body: dict[str, Any]) -> EnginePrompt:
    return _chat(body) if "messages" in body else _completion(body)


PROMPTS: Mapping[str, Callable[[dict[str, Any]], EnginePrompt]] = {
    CHAT_PATH: _chat,
    COMPLETIONS_PATH: _completion,
    RESPONSES_PATH: _responses,
    MESSAGES_PATH: _anthropic,
    COUNT_PATH: _anthropic,
    EMBEDDINGS_PATH: _embeddings,
    RERANK_PATH: _pairs("query", "documents"),
    SCORE_PATH: _pairs("text_1", "text_2"),
    TOKENIZE_PATH: _tokenized,
}
# What bounds an answer, by path; the paths that are not here generate nothing.
BOUNDS: Mapping[str, tuple[str, ...]] = {
    CHAT_PATH: ("max_completion_tokens", "max_tokens"),
    COMPLETIONS_PATH: ("max_completion_tokens", "max_tokens"),
    RESPONSES_PATH: ("max_output_tokens",),
    MESSAGES_PATH: ("max_tokens",),
}
COUNTED = frozenset({COUNT_PATH, TOKENIZE_PATH})  # whose tokens are counted and not computed
