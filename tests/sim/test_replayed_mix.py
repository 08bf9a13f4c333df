"""The engines of a replay with another number of them: the same mix, the quickest before the others."""

from collections import Counter
from dataclasses import replace
from itertools import cycle, islice
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.laws.layout import natural
from hmas.sim.past.fitted import mix_of, numbered_profiles
from tests.sim.sim_cases import SMALL

KINDS = tuple(SMALL.with_limits(max_num_seqs=number) for number in (1, 2, 3))


@given(counts=st.lists(st.integers(0, 6), min_size=3, max_size=3).filter(any), engines=st.integers(1, 40))
def test_another_number_of_engines_has_each_kind_by_its_share_in_the_same_order(
    counts: list[int], engines: int
) -> None:
    profiles = [kind for kind, count in zip(KINDS, counts, strict=True) for _ in range(count)]
    found = mix_of(profiles, engines)
    assert len(found) == engines
    assert [KINDS.index(each) for each in found] == sorted(KINDS.index(each) for each in found)
    number = Counter(found)
    for kind, count in zip(KINDS, counts, strict=True):
        share = count * engines / len(profiles)
        assert floor(share) <= number[kind] <= ceil(share)
    assert mix_of(profiles, len(profiles)) == tuple(profiles)


@pytest.mark.parametrize(("engines", "expected"), [(1, "A"), (2, "AB"), (4, "AAAB"), (6, "AAAABB")])
def test_a_pool_of_two_and_one(engines: int, expected: str) -> None:
    kinds = {"A": KINDS[0], "B": KINDS[1]}
    assert mix_of([kinds["A"], kinds["A"], kinds["B"]], engines) == tuple(kinds[each] for each in expected)


def test_kinds_that_stand_mixed_keep_their_shares_and_their_order() -> None:
    a, b, _ = KINDS
    assert mix_of([b, a, b, a], 2) == (b, a)
    assert mix_of([b, a, b, a, b, b], 3) == (b, a, b)


@given(st.lists(st.floats(0.01, 0.011), min_size=1, max_size=8), st.integers(1, 20))
def test_engines_of_one_kind_with_steps_that_are_alike_come_in_turn(bases_s: list[float], engines: int) -> None:
    profiles = [replace(SMALL, cost=replace(SMALL.cost, c0_s=base_s)) for base_s in bases_s]
    assert mix_of(profiles, engines) == tuple(islice(cycle(profiles), engines))


@given(engines=st.integers(1, 30), workers=st.integers(1, 30))
def test_engines_that_workers_get_in_turn_have_the_profiles_in_the_order_of_their_names(
    engines: int, workers: int
) -> None:
    workers = min(workers, engines)
    profiles = [SMALL.with_limits(max_num_seqs=1 + number) for number in range(engines)]
    by_name = {f"w{i % workers}/e{i}": profile for i, profile in enumerate(numbered_profiles(profiles, workers))}
    assert [by_name[each] for each in sorted(by_name, key=natural)] == profiles
