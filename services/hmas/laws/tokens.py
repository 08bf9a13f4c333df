"""The mesh's estimate of prompt tokens, which gateway and emulated engine share and which needs no tokenizer.

Four UTF-8 bytes count as one token, rounded up: for English text that is within a few percent of a production BPE; a
CJK character counts as three quarters of a token. A text of N three-letter words joined by single spaces therefore
counts exactly N, and so the load generator builds a prompt of a given length. A chat message costs `MESSAGE_OVERHEAD`
tokens for its role and delimiters. Schemas of tools, their calls and results are counted by the bytes of their texts
and, for what is written as JSON, of their punctuation. Images and audio count by `hmas.laws.media`.
"""

from typing import Any

from hmas.laws.media import is_media, media_tokens

BYTES_PER_TOKEN = 4
MESSAGE_OVERHEAD = 4
_IDS = frozenset({"id", "call_id", "tool_use_id", "tool_call_id", "signature"})
_JSON_BYTES = 4  # quotes, colon and comma of a JSON field; an item of a list has its comma in it


def text_tokens(text: str) -> int:
    """Returns the estimated tokens of a plain text, in O(1) for ASCII and otherwise by encoding it once."""
    return -(-text_bytes(text) // BYTES_PER_TOKEN)


def text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def content_text(content: object) -> str:
    """Returns the text of a chat message's `content`: a string as it is, the text parts of a list joined by newlines,
    and an empty string for anything else."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def flatten_messages(messages: object) -> str:
    """Returns the texts of chat messages joined by newlines; what is not a message is skipped."""
    if not isinstance(messages, list):
        return ""
    return "\n".join(content_text(m.get("content")) for m in messages if isinstance(m, dict))


def content_tokens(content: object, model: str = "") -> int:
    """Returns the estimated tokens of a message's `content`, of any API: a text, or a list of parts, in which media and
    the results and calls of tools count as well. `model`: its name, by which images count."""
    if isinstance(content, str):
        return text_tokens(content)
    if not isinstance(content, list):
        return 0
    total = 0
    for part in content:
        if not isinstance(part, dict):
            continue
        text = part.get("text")
        if isinstance(text, str):
            total += text_tokens(text)
        elif is_media(part):
            total += media_tokens(part, model)
        else:
            total += json_tokens(part, model)
    return total


def json_tokens(value: object, model: str = "") -> int:
    """Returns the estimated tokens of a JSON value that a chat template writes into the prompt, such as the schema of a
    tool. Ids do not count."""
    size, open_values = 0, [value]
    while open_values:
        each = open_values.pop()
        if isinstance(each, str):
            size += text_bytes(each)
        elif isinstance(each, dict):
            if is_media(each):
                size += BYTES_PER_TOKEN * media_tokens(each, model)
                continue
            for name, inner in each.items():
                if name not in _IDS or not isinstance(inner, str):
                    size += len(name) + _JSON_BYTES
                    open_values.append(inner)
        elif isinstance(each, list):
            size += 2 * len(each)
            open_values += each
        else:
            size += 4  # a number, true, false or null
    return -(-size // BYTES_PER_TOKEN)


def message_tokens(message: dict[str, Any], model: str = "") -> int:
    """Returns the estimated tokens of one message of a chat, with the calls of tools in it."""
    calls = message.get("tool_calls")
    return (
        MESSAGE_OVERHEAD
        + content_tokens(message.get("content"), model)
        + (json_tokens(calls) if isinstance(calls, list) and calls else 0)
    )


def estimate_prompt_tokens(prompt: object) -> int:
    """Returns the estimated tokens, at least 1, of the `messages` or the `prompt` of an OpenAI request's body.

    `messages` is a list of objects. `prompt` is a string, a list of strings or a list of token ids; each id
    counts 1.
    """
    if isinstance(prompt, str):
        return max(1, text_tokens(prompt))
    if not isinstance(prompt, list):
        return 1
    total = 0
    for item in prompt:
        if isinstance(item, dict):
            total += message_tokens(item)
        elif isinstance(item, str):
            total += text_tokens(item)
        else:
            total += 1
    return max(1, total)
