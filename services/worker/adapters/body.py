"""The engine's request body: the client's JSON with the few fields that the adapter adds after dispatch."""

from collections.abc import Mapping

import orjson

PRIORITY_BOUND = 2**31 - 1


def with_fields(body: bytes, fields: Mapping[str, object]) -> bytes:
    """`body`, a JSON object, with `fields` set; None removes a field.

    Fields that do not occur in it are spliced in at its end without parsing. Raises ValueError if it is no object.
    """
    added = {name: value for name, value in fields.items() if value is not None or _mentions(body, name)}
    if not added:
        return body
    stripped = body.rstrip()
    if any(_mentions(body, name) for name in added) or not stripped.endswith(b"}") or len(stripped) < 4:
        document = orjson.loads(body)
        if not isinstance(document, dict):
            raise ValueError("a request body must be a JSON object")
        document.update(added)
        return orjson.dumps({name: value for name, value in document.items() if value is not None})
    return stripped[:-1] + b"," + orjson.dumps(added)[1:]


def with_xargs(body: bytes, xargs: Mapping[str, float]) -> bytes:
    """`body` with vLLM's extra arguments added to those that the client gave, which they override."""
    given = orjson.loads(body).get("vllm_xargs") if _mentions(body, "vllm_xargs") else None
    return with_fields(body, {"vllm_xargs": {**(given if isinstance(given, dict) else {}), **xargs}})


def replay_fields(output_tokens: int) -> dict[str, object]:
    """What makes vLLM and SGLang generate exactly `output_tokens`, whatever the client's own bounds were."""
    return {
        "max_tokens": output_tokens,
        "max_completion_tokens": None,
        "min_tokens": output_tokens,
        "ignore_eos": True,
        "stop": None,
    }


def engine_priority(urgency: float, *, higher_first: bool) -> int:
    """A rank in milliseconds as the engine's integer priority: vLLM serves lower first, SGLang higher first."""
    rank = max(-PRIORITY_BOUND, min(PRIORITY_BOUND, urgency * 1000.0))
    return int(-rank if higher_first else rank)


def _mentions(body: bytes, name: str) -> bool:
    return b'"%s"' % name.encode() in body
