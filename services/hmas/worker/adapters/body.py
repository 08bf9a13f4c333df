"""The engine's request body: the client's JSON with the few fields that the adapter adds after dispatch."""

from collections.abc import Iterable, Mapping

import orjson

PRIORITY_BOUND = 2**31 - 1
TOP_LEVEL = 10  # SGLang's default --priority-scheduling-preemption-threshold


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


def vllm_priority(urgency: float) -> int:
    """A rank in milliseconds as vLLM's integer priority: lower first."""
    return int(max(-PRIORITY_BOUND, min(PRIORITY_BOUND, urgency * 1000.0)))


def sglang_level(urgency: float, waiting: Iterable[tuple[float, int]]) -> int:
    """A level, 0 to `TOP_LEVEL`, higher first, that puts a request between the less and the more urgent ones that wait
    in the engine (urgency and level of each); where no level is left between them it is an equal of one side.

    Few levels, because SGLang keeps metrics for each priority it ever saw; and none so far above another that the
    engine would throw a running request out for it, which it does beyond a difference of 10.
    """
    below, above = -1, TOP_LEVEL + 1
    for other, level in waiting:
        if other == urgency:
            return level
        if other > urgency:
            below = max(below, level)
        else:
            above = min(above, level)
    return max(0, min(TOP_LEVEL, (below + above) // 2))


def _mentions(body: bytes, name: str) -> bool:
    return b'"%s"' % name.encode() in body
