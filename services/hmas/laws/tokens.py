"""The one prompt-token estimate of the mesh: gateway and emulated engine count alike, without a tokenizer.

A token is four UTF-8 bytes, rounded up: within a few percent for English under a production BPE, three quarters of a
token for a CJK character. Hence text of N three-letter words joined by single spaces counts exactly N: that is how the
load generator builds a prompt of a given length. A chat message costs `MESSAGE_OVERHEAD` tokens for its role and
delimiters. Images, tool schemas and other structured parts are not counted.
"""

BYTES_PER_TOKEN = 4
MESSAGE_OVERHEAD = 4


def text_tokens(text: str) -> int:
    """Tokens of a plain text. O(1) for ASCII, one encoding otherwise."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // BYTES_PER_TOKEN)


def content_text(content: object) -> str:
    """The text of a chat message's `content`: a string, or the text parts of a list; anything else has none."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def flatten_messages(messages: object) -> str:
    """Chat messages as one text, one message after another; tolerant of any shape."""
    if not isinstance(messages, list):
        return ""
    return "\n".join(content_text(m.get("content")) for m in messages if isinstance(m, dict))


def estimate_prompt_tokens(prompt: object) -> int:
    """Tokens of what an OpenAI body calls `messages` or `prompt`; at least 1.

    `messages`: a list of objects. `prompt`: a string or a list of token ids (which count as they are).
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
