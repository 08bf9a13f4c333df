"""The chain of a body's prompt: what it shares with the tenant's other prompts, in the order in which chat templates
write it: the schemas of tools first, then the messages."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from hmas.contracts.job import PrefixChain
from hmas.contracts.registry import CHAT_PATH, COMPLETIONS_PATH
from hmas.laws.prefix_chain import chain_of_bytes, chain_of_messages, tenant_key

MESSAGES_PATH = "/v1/messages"

_key = lru_cache(maxsize=4096)(tenant_key)


def chain_of(path: str, body: Mapping[str, Any], tenant: str) -> PrefixChain:
    """Returns the chain of a body that was checked as one of this path. Token ids count by their digits."""
    key, tools = _key(tenant), body.get("tools")
    root = f"{body.get('model')}\0".encode("utf-8", "surrogatepass")
    if isinstance(tools, list) and tools:
        root += _written(tools)
    if path == COMPLETIONS_PATH:
        prompt = body.get("prompt")
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str):
            return chain_of_bytes(key, root, prompt.encode("utf-8", "surrogatepass"))
        return chain_of_bytes(key, root, _written(prompt)[:-1])
    if path == CHAT_PATH:
        return chain_of_messages(key, root, body["messages"])
    if path == MESSAGES_PATH:
        first, items = body.get("system"), body["messages"]
    else:
        first, items = body.get("instructions"), body.get("input")
    if not isinstance(items, list):
        items = [{"role": "user", "content": items}]
    return chain_of_messages(key, root, [{"role": "system", "content": first}, *items] if first else items)


def _written(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # nested more deeply than the JSON writer allows; the body is refused when it is written
        return b""
