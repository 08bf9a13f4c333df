"""The chained hash of a prompt: equal prompts have equal nodes up to where they part, within one tenant.

A node stands at the end of each message and, in a long one, after every `BLOCK_BYTES` of it. It is BLAKE2b (RFC 7693)
of all bytes before it, keyed by the tenant, so that no node of one tenant is ever found by another. A message's bytes
are its role, its name, its text and its calls of tools. At most `MAX_NODES` nodes are kept, the shortest and the
longest ones; after `MAX_BYTES` the chain ends.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from struct import unpack
from typing import Any

import orjson

from hmas.contracts.job import NO_CHAIN, PrefixChain
from hmas.laws.tokens import BYTES_PER_TOKEN

BLOCK_BYTES = 4096
HEAD_NODES = 8  # what many prompts share, such as a system prompt, ends early
TAIL_NODES = 24  # where the former prompt of the same job ended
MAX_NODES = HEAD_NODES + TAIL_NODES
MAX_BYTES = 1 << 20
_DIGEST_BYTES = 8
_END = "\0\x1e"
_SYSTEM = ("system", "developer")  # a tuple, because what a client calls a role may be no text


def tenant_key(tenant: str) -> bytes:
    """Returns the key of a tenant's chains."""
    return blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def digest_of(key: bytes, *parts: bytes) -> int:
    """Returns the digest of 64 bits of `parts` under a tenant's key."""
    state = blake2b(key=key, digest_size=_DIGEST_BYTES)
    for part in parts:
        state.update(part)
        state.update(len(part).to_bytes(8, "big"))
    return int.from_bytes(state.digest(), "big")


def chain_of_messages(key: bytes, root: bytes, messages: Sequence[Mapping[str, Any]]) -> PrefixChain:
    """Returns the chain of a chat. `root`: what the engine computes differently for, which is the model, and what it
    puts before the messages, such as the schemas of tools."""
    talk = (m for m in messages if m.get("role") not in _SYSTEM)
    first = next((m for m in talk if m.get("role") == "user"), None)
    second = next(talk, None)
    thread = 0 if first is None else digest_of(key, _body(first))
    turn = 0 if second is None else digest_of(key, _body(second))
    pieces, size = list[bytes](), 0
    for message in messages:
        pieces.append(piece_of(message))
        size += len(pieces[-1])
        if size > MAX_BYTES:
            break
    return _chain(key, root, pieces, thread, turn)


def chain_of_bytes(key: bytes, root: bytes, prompt: bytes) -> PrefixChain:
    """Returns the chain of a prompt without messages; it has no thread."""
    return _chain(key, root, [prompt], 0, 0) if prompt else NO_CHAIN


def piece_of(message: Mapping[str, Any]) -> bytes:
    """Returns the bytes of a message that belong to a chain. They are hashed once and not kept."""
    role, content = message.get("role"), message.get("content")
    if isinstance(content, str) and "tool_calls" not in message and "name" not in message:
        return f"{role}\0{content}{_END}".encode("utf-8", "surrogatepass")
    head = f"{role}\x1f{message['name']}" if message.get("name") else f"{role}"
    return head.encode("utf-8", "surrogatepass") + b"\0" + _body(message) + _END.encode()


def _body(message: Mapping[str, Any]) -> bytes:
    content, calls = message.get("content"), message.get("tool_calls")
    if isinstance(content, str):
        body = content.encode("utf-8", "surrogatepass")
    elif content is not None:
        body = _written(content)
    else:  # an item of another kind, such as a call of the Responses API
        body = _written(message) if "role" not in message else b""
    return body + b"\0" + _written(calls) if calls else body


def _written(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # nested more deeply than the JSON writer allows; the gateway refuses such a body
        return b""


def _chain(key: bytes, root: bytes, pieces: list[bytes], thread: int, turn: int) -> PrefixChain:
    ends, size, whole = list[int](), 0, bool(pieces)
    for piece in pieces:
        end = size + len(piece)
        if len(piece) > BLOCK_BYTES:
            ends += range(size + BLOCK_BYTES, min(end, MAX_BYTES + 1), BLOCK_BYTES)
        if end > MAX_BYTES:
            whole = False
            break
        ends.append(end)
        size = end
    if len(ends) > MAX_NODES:
        ends = ends[:HEAD_NODES] + ends[-TAIL_NODES:]
    prompt, state, digests, begin = b"".join(pieces), blake2b(root, key=key, digest_size=_DIGEST_BYTES), [], 0
    for end in ends:
        state.update(prompt[begin:end])
        digests.append(state.digest())
        begin = end
    nodes = unpack(f">{len(ends)}Q", b"".join(digests))
    return PrefixChain(nodes, tuple([-(-end // BYTES_PER_TOKEN) for end in ends]), whole, thread, turn)
