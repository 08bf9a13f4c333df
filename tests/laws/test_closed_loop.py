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


def test_a_call_that_was_let_go_is_not_lost_again_with_one_that_it_waited_for() -> None:
    loop = ClosedLoop({0: (), 1: (0,), 2: (1,)})
    assert loop.ended(0) == [1]
    assert loop.lost(0) == []
    assert loop.lost(1) == [2]
    assert loop.lost(1) == []


def test_a_call_is_found_once_where_two_ways_lead_to_it() -> None:
    loop = ClosedLoop({0: (), 1: (0,), 2: (0,), 3: (1, 2, 0), 4: (3, 1)})
    assert sorted(loop.lost(0)) == [1, 2, 3, 4]
    assert loop.ended(1) == []


def test_calls_that_wait_for_none_are_let_go_by_nobody() -> None:
    loop = ClosedLoop({0: (), 1: ()})
    assert (loop.ended(0), loop.lost(1), loop.ended("x")) == ([], [], [])  # type: ignore[arg-type]
