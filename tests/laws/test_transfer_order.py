"""The orders of transfers on a port, each by an example; the one that keeps the most on time against enumeration."""

from dataclasses import dataclass
from itertools import permutations
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.laws.transfer_order import ORDERS, TransferOrder, edf_late, max_on_time


@dataclass
class Waiting:
    number: int
    left: float
    due_s: float = inf
    stage: int = 3


def sequence(order: TransferOrder, waiting: list[Waiting], now_s: float = 0.0, bytes_s: float = 1.0) -> list[int]:
    keys = order(waiting, now_s, bytes_s)
    return [each.number for _, each in sorted(zip(keys, waiting, strict=True), key=lambda pair: pair[0])]


FOUR = [Waiting(0, 5.0, 30.0), Waiting(1, 3.0, 2.0), Waiting(2, 4.0, 8.0, stage=1), Waiting(3, 6.0)]


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("fifo", [0, 1, 2, 3]),
        ("edf", [1, 2, 0, 3]),
        ("edf-late", [2, 0, 3, 1]),
        ("sjf", [1, 2, 0, 3]),
        ("stages", [2, 0, 1, 3]),
        ("max-on-time", [2, 0, 3, 1]),
    ],
)
def test_what_goes_first(name: str, numbers: list[int]) -> None:
    assert sequence(ORDERS[name], FOUR) == numbers
    assert sequence(ORDERS[name], FOUR[::-1]) == numbers


def test_without_a_rate_those_past_their_due_times_are_late() -> None:
    waiting = [Waiting(0, 9.0, 1.0), Waiting(1, 9.0, 2.0), Waiting(2, 9.0, 3.0)]
    assert sequence(edf_late, waiting, 1.5, inf) == [1, 2, 0]
    assert sequence(edf_late, waiting, 1.0, inf) == [0, 1, 2]


def test_where_not_all_can_be_on_time_the_largest_steps_aside() -> None:
    waiting = [Waiting(0, 6.0, 7.0), Waiting(1, 3.0, 8.0), Waiting(2, 3.0, 9.0)]
    assert sequence(max_on_time, waiting) == [1, 2, 0]
    assert sequence(max_on_time, waiting, bytes_s=2.0) == [0, 1, 2]
    assert sequence(ORDERS["edf"], waiting) == [0, 1, 2]


transfers = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 30)), min_size=1, max_size=6)


@given(transfers, st.integers(0, 3), st.sampled_from([1.0, 2.0, 4.0]))
def test_no_order_of_a_port_has_more_on_time(rows: list[tuple[int, int]], now: int, bytes_s: float) -> None:
    waiting = [Waiting(number, float(size), float(due)) for number, (size, due) in enumerate(rows)]

    def on_time(numbers: tuple[int, ...]) -> int:
        done_s, count = float(now), 0
        for number in numbers:
            done_s += waiting[number].left / bytes_s
            count += done_s <= waiting[number].due_s
        return count

    ours = on_time(tuple(sequence(max_on_time, waiting, float(now), bytes_s)))
    assert ours == max(map(on_time, permutations(range(len(rows)))))
