"""The request body for an engine: the client's JSON with the few fields that the adapter adds after dispatch."""

from collections.abc import Mapping

import orjson


def with_fields(body: bytes, fields: Mapping[str, object]) -> bytes:
    """Returns `body`, a JSON object, with `fields` set; the value None removes a field.

    Fields that do not occur in `body` are appended without parsing it. Raises ValueError if `body` must be parsed and
    is not a JSON object.
    """
    added = {name: value for name, value in fields.items() if value is not None or _mentions(body, name)}
    if not added:
        return body
    stripped = body.rstrip()
    if any(_mentions(body, name) for name in added) or not stripped.endswith(b"}") or len(stripped) < 4:
        document = orjson.loads(body)
        if not isinstance(document, dict):
            raise ValueError("it must be a JSON object")
        document.update(added)
        return orjson.dumps({name: value for name, value in document.items() if value is not None})
    return stripped[:-1] + b"," + orjson.dumps(added)[1:]


def with_xargs(body: bytes, xargs: Mapping[str, float]) -> bytes:
    """Returns `body` with `xargs` added to vLLM's extra arguments (`vllm_xargs`); they override the client's."""
    given = orjson.loads(body).get("vllm_xargs") if _mentions(body, "vllm_xargs") else None
    return with_fields(body, {"vllm_xargs": {**(given if isinstance(given, dict) else {}), **xargs}})


def replay_fields(output_tokens: int) -> dict[str, object]:
    """Returns the fields that make vLLM and SGLang generate exactly `output_tokens`, whatever limits the client set."""
    return {
        "max_tokens": output_tokens,
        "max_completion_tokens": None,
        "min_tokens": output_tokens,
        "ignore_eos": True,
        "stop": None,
    }


def _mentions(body: bytes, name: str) -> bool:
    return b'"%s"' % name.encode() in body
