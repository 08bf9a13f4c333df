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


def root_of(body: Mapping[str, Any]) -> bytes:
    """Returns what comes before a body's prompt: its model and the schemas of tools."""
    root, tools = f"{body.get('model')}\0".encode("utf-8", "surrogatepass"), body.get("tools")
    return root + _written(tools) if isinstance(tools, list) and tools else root


def chain_of(path: str, body: Mapping[str, Any], tenant: str, root: bytes | None = None) -> PrefixChain:
    """Returns the chain of a body that was checked as one of this path. Token ids count by their digits. `root` is
    `root_of` the body, if that is known."""
    key = _key(tenant)
    if root is None:
        root = root_of(body)
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
