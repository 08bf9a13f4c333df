"""The request body for an engine: what the gateway adds to it once the request was granted, and the client's JSON."""

import math
from collections.abc import Mapping
from typing import Any

import orjson

from hmas.contracts.execution import Grant


def run_body(
    model: str, rest: bytes, grant: Grant | None, xargs: Mapping[str, Any], seed: int | None = None
) -> tuple[bytes, bytes]:
    """Returns an engine's body in two parts, of which the second is `rest` itself.

    `rest` is a JSON object of at least one field without its opening brace, and without the fields that are added
    here: the `model`; the `seed`, if the answer has one of its own; the priority, urgency and pace that the worker's
    grant names; and the client's extra arguments for vLLM, `xargs`.
    """
    fields: dict[str, Any] = {"model": model}
    if seed is not None:
        fields["seed"] = seed
    if grant is not None and grant.priority is not None:
        fields["priority"] = grant.priority
    if grant is not None and grant.plugin:
        xargs = {**xargs, **_xargs(grant)}
    if xargs:
        fields["vllm_xargs"] = xargs
    return orjson.dumps(fields)[:-1] + b",", rest


def _xargs(grant: Grant) -> dict[str, float]:
    """Returns the extra arguments that tell the scheduler plug-in in vLLM a request's urgency and its pace in
    milliseconds; one that is infinite or unknown is left out."""
    pace_ms = math.inf if grant.pace_s is None else grant.pace_s * 1000.0
    named = {"hmas_urgency": grant.urgency, "hmas_tpot_ms": pace_ms}
    return {name: value for name, value in named.items() if math.isfinite(value)}
