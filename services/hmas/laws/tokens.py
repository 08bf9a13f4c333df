"""The mesh's estimate of prompt tokens, which gateway and emulated engine share and which needs no tokenizer.

Four UTF-8 bytes count as one token, rounded up: for English text that is within a few percent of a production BPE; a
CJK character counts as three quarters of a token. A text of N three-letter words joined by single spaces therefore
counts exactly N, and so the load generator builds a prompt of a given length. A chat message costs `MESSAGE_OVERHEAD`
tokens for its role and delimiters. Images, tool schemas and other structured parts are not counted.
"""

BYTES_PER_TOKEN = 4
MESSAGE_OVERHEAD = 4


def text_tokens(text: str) -> int:
    """Returns the estimated tokens of a plain text, in O(1) for ASCII and otherwise by encoding it once."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // BYTES_PER_TOKEN)


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
            total += MESSAGE_OVERHEAD + text_tokens(content_text(item.get("content")))
        elif isinstance(item, str):
            total += text_tokens(item)
        else:
            total += 1
    return max(1, total)
