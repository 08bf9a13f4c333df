"""The request body for an engine: the client's JSON with the few fields that the gateway adds once it was granted."""

import math
from collections.abc import Mapping

import orjson

from hmas.contracts.execution import Grant


def run_body(body: bytes, grant: Grant | None, replay_output_tokens: int | None) -> bytes:
    """Returns `body`, a JSON object, with what a run adds to it: the priority, urgency and pace that the worker's grant
    names, and the output length that a replayed trace prescribes."""
    fields = {} if replay_output_tokens is None else replay_fields(replay_output_tokens)
    if grant is not None and grant.priority is not None:
        fields["priority"] = grant.priority
    body = with_fields(body, fields)
    return body if grant is None or not grant.plugin else with_xargs(body, _xargs(grant))


def _xargs(grant: Grant) -> dict[str, float]:
    """Returns the extra arguments that tell the scheduler plug-in in vLLM a request's urgency and its pace in
    milliseconds; one that is infinite or unknown is left out."""
    pace_ms = math.inf if grant.pace_s is None else grant.pace_s * 1000.0
    named = {"hmas_urgency": grant.urgency, "hmas_tpot_ms": pace_ms}
    return {name: value for name, value in named.items() if math.isfinite(value)}


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
