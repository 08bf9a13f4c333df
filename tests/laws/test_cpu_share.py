"""Whatever items cost, they get their share of the CPU and no more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.laws.cpu_share import FIRST_COST_S, SAVED_S, CpuShare


def test_what_was_saved_up_is_spent_and_comes_back() -> None:
    share = CpuShare(0.1)
    assert share.room(0.0) == round(0.1 / FIRST_COST_S)
    share.take(20)
    assert share.room(0.0) == 0
    share.settle(20, 0.1)
    assert share.room(0.0) == 0
    assert share.room(0.5) == 10
    assert share.room(60.0) == 20  # a second's share at most


def test_a_debt_is_paid_first() -> None:
    share = CpuShare(0.1)
    assert share.room(0.0) > 1
    share.take(1)
    share.settle(1, 0.5)
    assert share.room(3.0) == 0
    assert share.room(10.0) >= 1


def test_an_item_that_costs_more_than_a_second_s_share_has_its_turn() -> None:
    share = CpuShare(0.1)
    for now_s in (0.0, 21.0, 42.0):  # each waits until the debt of the one before is paid
        assert share.room(now_s) >= 1
        share.take(1)
        share.settle(1, 2.0)
        assert share.room(now_s + 18.0) == 0
    assert CpuShare(0.001).room(0.0) == 1


def test_items_that_were_never_worked_on_are_free() -> None:
    share = CpuShare(0.1)
    share.take(20)
    share.release(20)
    assert share.room(0.0) == 20


@given(
    st.floats(0.01, 1.0),
    st.lists(st.tuples(st.floats(0.0, 0.3), st.integers(1, 40), st.floats(1e-4, 0.05)), min_size=1, max_size=200),
)
def test_no_more_is_taken_than_the_share_and_what_was_saved(part: float, steps: list[tuple[float, int, float]]) -> None:
    """But for the last batch, whose cost nobody knew."""
    share, now_s, spent_s, last_s = CpuShare(part), 0.0, 0.0, 0.0
    for pause_s, asked, cost_s in steps:
        now_s += pause_s
        taken = min(asked, share.room(now_s))
        if taken:
            assert spent_s <= part * (now_s + SAVED_S) + 1e-9
            share.take(taken)
            last_s = taken * cost_s
            spent_s += last_s
            share.settle(taken, last_s)
    assert spent_s - last_s <= part * (now_s + SAVED_S) + 1e-9


@pytest.mark.parametrize("part", [0.1, 0.3])
def test_a_steady_load_gets_the_whole_share(part: float) -> None:
    share, spent_s = CpuShare(part), 0.0
    for step in range(3000):
        taken = min(8, share.room(step / 50))
        if taken:
            share.take(taken)
            share.settle(taken, taken * 0.004)
            spent_s += taken * 0.004
    assert spent_s / 60 == pytest.approx(part, rel=0.05)


def test_the_cost_of_an_item_follows_what_was_measured() -> None:
    share = CpuShare(1.0)
    assert share.room(0.0) == 200
    share.take(2)
    assert share.room(0.0) == 198  # two are taken
    share.settle(2, 0.05)  # 25 ms each: the mean rises from 5 to 7 ms
    assert share.room(0.0) == int(0.95 / 0.007)
    assert share.room(100.0) == int(1.0 / 0.007)
    for _ in range(300):
        share.take(1)
        share.settle(1, 0.0)
    assert share.room(0.0) > 10_000


def test_time_that_runs_backwards_gives_nothing_and_takes_nothing() -> None:
    share = CpuShare(0.1)
    share.room(10.0)
    share.take(1)
    share.settle(1, 0.1)
    left = share.room(10.0)
    assert share.room(5.0) == left == 0
    assert share.room(10.0) == 0
    assert share.room(10.4) > 0


def test_an_item_that_is_open_leaves_no_turn_to_another_costly_one() -> None:
    share = CpuShare(0.001)  # not one item's worth
    assert share.room(0.0) == 1
    share.take(1)
    assert share.room(0.0) == 0
    share.release(1)
    assert share.room(0.0) == 1
