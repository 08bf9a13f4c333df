"""Which calls are let go when others end."""

from hmas.laws.closed_loop import ClosedLoop


def test_a_call_goes_when_the_last_of_those_before_it_has_ended() -> None:
    loop = ClosedLoop({"plan": (), "a": ("plan",), "b": ("plan",), "merge": ("a", "b")})
    assert loop.ended("plan") == ["a", "b"]
    assert loop.ended("b") == []
    assert loop.ended("a") == ["merge"]
    assert loop.ended("merge") == []


def test_an_end_that_is_told_twice_lets_nothing_go_twice() -> None:
    loop = ClosedLoop({0: (), 1: (0,)})
    assert loop.ended(0) == [1]
    assert loop.ended(0) == []


def test_what_waits_for_a_lost_call_is_lost_with_all_that_waits_for_it_and_each_once() -> None:
    loop = ClosedLoop({0: (), 1: (0,), 2: (0,), 3: (1, 2), 4: (3,), 5: ()})
    assert loop.ended(0) == [1, 2]
    assert loop.lost(1) == [3, 4]
    assert loop.lost(2) == []
    assert loop.ended(5) == []


def test_the_end_of_another_lets_no_lost_call_go() -> None:
    loop = ClosedLoop({0: (), 1: (), 2: (0, 1)})
    assert loop.lost(0) == [2]
    assert loop.ended(1) == []
