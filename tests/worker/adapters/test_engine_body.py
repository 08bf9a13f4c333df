"""Fields that the adapter adds to a client's body."""

import math
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.gateway.engines.body import replay_fields, sglang_level, vllm_priority, with_fields


def test_a_body_without_additions_is_untouched() -> None:
    body = b'{"a" : 1}\n'
    assert with_fields(body, {}) is body
    assert with_fields(body, {"absent": None}) is body


@pytest.mark.parametrize(
    "body", [b'{"a":1}', b' {"a":1}\n', b"{}", b"{ }", b'{"priority":3,"a":1}', b'{"x":"priority"}']
)
def test_fields_are_set_once_whatever_the_body_looks_like(body: bytes) -> None:
    added = with_fields(body, {"priority": 5})
    assert added.count(b'"priority":') == 1
    assert orjson.loads(added) == {**orjson.loads(body), "priority": 5}


def test_a_replay_overrides_the_clients_bounds() -> None:
    body = orjson.dumps({"max_tokens": 4096, "max_completion_tokens": 4096, "stop": ["x"], "model": "m"})
    assert orjson.loads(with_fields(body, replay_fields(17))) == {
        "model": "m", "max_tokens": 17, "min_tokens": 17, "ignore_eos": True,
    }  # fmt: skip


@pytest.mark.parametrize("body", [b"[1]", b"nonsense", b'"}'])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        with_fields(body, {"priority": 1})


def test_vllms_priorities_are_lower_first_and_bounded() -> None:
    assert vllm_priority(1.5) == 1500
    assert vllm_priority(math.inf) == 2**31 - 1
    assert vllm_priority(-math.inf) == -(2**31 - 1)


def test_sglangs_levels_are_higher_first_and_few() -> None:
    assert sglang_level(3.0, []) == 5
    assert sglang_level(2.0, [(3.0, 5)]) == 8
    assert sglang_level(4.0, [(3.0, 5), (2.0, 8)]) == 2
    assert sglang_level(2.5, [(3.0, 5), (2.0, 8), (4.0, 2)]) == 6
    assert sglang_level(2.0, [(3.0, 5), (2.0, 8)]) == 8
    assert sglang_level(math.inf, [(3.0, 5)]) == 2
    assert sglang_level(-math.inf, [(3.0, 10)]) == 10


@given(st.lists(st.floats(allow_nan=False), max_size=40))
def test_no_level_puts_a_request_before_a_more_urgent_one(urgencies: list[float]) -> None:
    """Equals are possible, since levels are few; among them the engine serves who came first."""
    waiting: list[tuple[float, int]] = []
    for urgency in urgencies:
        waiting.append((urgency, sglang_level(urgency, waiting)))
    assert all(0 <= level <= 10 for _, level in waiting)
    ranked = sorted(waiting)
    assert all(earlier >= later for (_, earlier), (_, later) in pairwise(ranked))
