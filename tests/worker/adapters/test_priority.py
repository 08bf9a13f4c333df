"""Priorities in the engines' own conventions."""

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hmas.worker.adapters.priority import sglang_level, vllm_priority


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
