"""Fields that the gateway adds to a client's body."""

import math
from dataclasses import replace
from typing import Any

import orjson
import pytest

from hmas.gateway.engines.body import run_body
from tests.gateway.gateway_script import grant

REST = orjson.dumps({"messages": [], "x": '"priority": 3, "vllm_xargs"'})[1:]


@pytest.mark.parametrize(
    ("changes", "xargs", "added"),
    [
        ({}, {}, {}),
        ({"priority": 0}, {}, {"priority": 0}),
        ({"priority": -7}, {"own": 1}, {"priority": -7, "vllm_xargs": {"own": 1}}),
        ({"plugin": True, "urgency": 2.5}, {}, {"vllm_xargs": {"hmas_urgency": 2.5}}),
        ({"plugin": True, "urgency": 2.5, "pace_s": 0.05}, {"own": 1},
         {"vllm_xargs": {"own": 1, "hmas_urgency": 2.5, "hmas_tpot_ms": 50.0}}),
        ({"plugin": True, "urgency": math.inf}, {}, {}),
    ],
)  # fmt: skip
def test_a_run_adds_to_the_body_and_does_not_copy_it(
    changes: dict[str, Any], xargs: dict[str, Any], added: dict[str, Any]
) -> None:
    start, rest = run_body('the "pool"', REST, replace(grant("r1"), **changes), xargs)
    assert rest is REST
    assert orjson.loads(start + rest) == {"model": 'the "pool"', **added, **orjson.loads(b"{" + REST)}


def test_a_run_in_bypass_has_no_grant() -> None:
    assert orjson.loads(b"".join(run_body("m", REST, None, {})))["model"] == "m"
