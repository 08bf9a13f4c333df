"""The forecast against stepping through the future token by token."""

from hypothesis import given
from hypothesis import strategies as st

from hmas.worker.agent.engines.memory_peak import MemoryPeak

SEQUENCES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 500)), max_size=12)


def stepped(rows: list[tuple[int, int]]) -> int:
    return max((sum(held + t for left, held in rows if left >= t) for t in range(41)), default=0)


@given(SEQUENCES)
def test_peak_is_what_stepping_finds(rows: list[tuple[int, int]]) -> None:
    assert MemoryPeak(rows).tokens == stepped(rows)


@given(SEQUENCES, st.integers(0, 40), st.integers(1, 500))
def test_another_sequence_is_as_if_it_had_been_there(rows: list[tuple[int, int]], left: int, held: int) -> None:
    assert MemoryPeak(rows).with_another(left, held) == stepped([*rows, (left, held)])


def test_those_who_leave_first_make_room() -> None:
    peak = MemoryPeak([(100, 10), (5, 500)])
    assert peak.tokens == 10 + 500 + 2 * 5  # not 110 + 505
    assert peak.with_another(100, 300) == 10 + 500 + 300 + 3 * 5
    assert peak.with_another(200, 400) == 10 + 500 + 400 + 3 * 5
    assert peak.with_another(600, 400) == 400 + 600
    assert MemoryPeak([]).tokens == 0


@given(SEQUENCES, st.integers(0, 40), st.integers(1, 500), st.booleans())
def test_one_that_is_added_counts_from_then_on(rows: list[tuple[int, int]], left: int, held: int, asked: bool) -> None:
    peak = MemoryPeak(rows)
    if asked:
        peak.with_another(left, held)
    peak.add(left, held)
    assert peak.tokens == stepped([*rows, (left, held)])
    assert peak.with_another(left, held) == stepped([*rows, (left, held), (left, held)])
