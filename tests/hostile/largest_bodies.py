"""Bodies of the largest size and of the shapes that cost most to read, of every form of the API."""

from collections.abc import Iterator

import orjson

from hmas.contracts.registry import CHAT_PATH, COMPLETIONS_PATH

LARGEST = 2 * 2**20  # the default of HMAS_MAX_BODY_BYTES
MODEL = b'{"model":"m",'
HELLO = b'"messages":[{"role":"user","content":"hi"}],"max_tokens":5,'
CONTENT = b'"max_tokens":5,"messages":[{"role":"user","content":'

# What stands where a form's prompt does, as the text before many pieces, a piece, and the text after them.
OF_MESSAGES: dict[str, tuple[bytes, bytes, bytes]] = {
    "messages": (b'"max_tokens":5,"messages":[', b'{"role":"user"},', b'{"role":"user"}]}'),
    "empty contents": (b'"max_tokens":5,"messages":[', b'{"role":"user","content":[]},', b'{"role":"user"}]}'),
    "parts": (CONTENT + b"[", b'{"text":""},', b"{}]}]}"),
    "parts of JSON": (CONTENT + b"[", b'{"a":"b"},', b"{}]}]}"),
    "images": (
        CONTENT + b"[",
        b'{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0K"}},',
        b"{}]}]}",
    ),
    "tools": (HELLO + b'"tools":[', b'{"a":"b"},', b"{}]}"),
    "one text": (CONTENT + b'"', b"abc ", b'"}]}'),
    "Chinese": (CONTENT + b'"', "语".encode(), b'"}]}'),
    "empty lists": (HELLO + b'"x":[', b"[],", b"[]]}"),
    "nested lists": (HELLO + b'"x":[', b"[" * 200 + b"]" * 200 + b",", b"[]]}"),
    "numbers": (HELLO + b'"x":[', b"1e3,", b"0]}"),
}
OTHERS: dict[str, dict[str, tuple[bytes, bytes, bytes]]] = {
    COMPLETIONS_PATH: {
        "token ids": (b'"prompt":[', b"1,", b"1]}"),
        "one text": (b'"prompt":"', b"abc ", b'"}'),
        "tools": (b'"prompt":["a","b"],"tools":[', b'{"a":"b"},', b"{}]}"),
    },
    "/v1/responses": {
        "items": (b'"input":[', b'{"a":"b"},', b"{}]}"),
        "contents": (b'"input":[', b'{"content":[]},', b"{}]}"),
        "one text": (b'"input":"', b"abc ", b'"}'),
    },
    "/v1/embeddings": {
        "token ids": (b'"input":[', b"1,", b"1]}"),
        "lists": (b'"input":[', b"[1],", b"[1]]}"),
        "parts": (b'"input":[{"content":[', b'{"text":""},', b"{}]}]}"),
    },
    "/v1/rerank": {"parts": (b'"query":"q","documents":[{"content":[', b'{"text":""},', b"{}]}]}")},
    "/v1/score": {"parts": (b'"text_1":"q","text_2":[{"content":[', b'{"text":""},', b"{}]}]}")},
    "/tokenize": {"token ids": (b'"prompt":[', b"1,", b"1]}")},
}


def of_shape(more: bytes, shape: tuple[bytes, bytes, bytes], size: int = LARGEST) -> bytes:
    """A body of `size` bytes at most, which begins with the fields `more`."""
    start, piece, end = shape
    begin = MODEL + more + start
    return begin + piece * ((size - len(begin) - len(end)) // len(piece)) + end


def largest_bodies() -> Iterator[tuple[str, str, bytes]]:
    """(path, shape, body) of each."""
    for path in (CHAT_PATH, "/v1/messages", "/v1/messages/count_tokens"):
        for name, shape in OF_MESSAGES.items():
            yield path, name, of_shape(b"", shape)
    for path, shapes in OTHERS.items():
        for name, shape in shapes.items():
            yield path, name, of_shape(b"", shape)
    for name, shape in OF_MESSAGES.items():
        yield CHAT_PATH, f"{name}, n=32", of_shape(b'"n":32,"seed":1,', shape)
    for name, shape in OTHERS[COMPLETIONS_PATH].items():
        yield COMPLETIONS_PATH, f"{name}, n=16", of_shape(b'"n":16,"seed":1,', shape)
    for size in (LARGEST // 4 - 1000, LARGEST // 8):  # the largest whose answers are made, and a smaller one
        yield CHAT_PATH, f"one text of {size} bytes, n=32", of_shape(b'"n":32,"seed":1,', OF_MESSAGES["one text"], size)
    yield COMPLETIONS_PATH, "32 texts", orjson.dumps({"model": "m", "prompt": ["abc " * (LARGEST // 136)] * 32})
    yield COMPLETIONS_PATH, "32 lists of ids", orjson.dumps({"model": "m", "prompt": [[1] * (LARGEST // 70)] * 32})
    fields = b",".join(b'"%x":0' % i for i in range(LARGEST // 11))
    yield CHAT_PATH, "fields", MODEL + HELLO + fields + b"}"
    objects = b",".join(b'{"%x":0}' % i for i in range(LARGEST // 13))
    yield CHAT_PATH, "parts with names of their own", MODEL + CONTENT + b"[" + objects + b"]}]}"
