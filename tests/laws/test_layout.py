"""Pace classes: to which class a request belongs, and who serves a class that has no engine."""

from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.control import MIXED, EngineClass, Layout, Split
from hmas.laws.layout import (
    assigned,
    bounds_ms,
    described,
    described_split,
    engine_classes,
    engine_path,
    pace_class,
    serving,
    split_of,
)


def test_an_slo_at_a_cut_belongs_below_it() -> None:
    cuts_s = (0.07, 0.11)
    assert [pace_class(cuts_s, tpot_s) for tpot_s in (0.05, 0.07, 0.0701, 0.11, 0.5)] == [0, 0, 1, 1, 2]
    assert pace_class((0.1 + 0.2,), 0.3) == 0  # the sum is 0.30000000000000004
    assert pace_class((), 0.3) == 0


def test_engines_are_dealt_out_from_the_strictest_class_on() -> None:
    layout = assigned(Split((0.07, 0.11), (1, 2, 1)), ["w/a", "w/b", "w/c", "w/d"])
    assert [each.pace_class for each in layout.engines] == [0, 1, 1, 2]
    more = assigned(Split((0.07,), (1, 1)), ["w/a", "w/b", "w/c"])
    assert [each.pace_class for each in more.engines] == [0, 1, 1]  # what is left is the last class's
    fewer = assigned(Split((0.07, 0.11), (2, 2, 1)), ["w/a", "w/b", "w/c"])
    assert [each.pace_class for each in fewer.engines] == [0, 1, 2]  # each class has an engine
    assert assigned(Split((0.07,), (1, 1)), ["w/a"]) == MIXED


def test_an_engine_that_is_not_named_is_in_the_last_class() -> None:
    layout = Layout((0.07,), (EngineClass("w/a", 0),))
    assert engine_classes(layout, ["w/a", "w/new"]) == {"w/a": 0, "w/new": 1}
    assert engine_classes(MIXED, ["w/a"]) == {"w/a": 0}


def test_a_class_without_engines_is_served_by_its_stricter_neighbour_or_else_the_laxer_one() -> None:
    assert serving(3, {0, 1, 2}) == (0, 1, 2)
    assert serving(3, {0, 2}) == (0, 0, 2)
    assert serving(3, {1}) == (1, 1, 1)
    assert serving(2, set()) == (0, 0)


@given(st.integers(1, 8), st.sets(st.integers(0, 7)))
def test_every_class_is_served_by_one_that_has_engines(classes: int, manned: set[int]) -> None:
    manned = {each for each in manned if each < classes}
    found = serving(classes, manned)
    assert len(found) == classes
    assert all(found[each] == each for each in manned)
    assert set(found) == (manned or {0})
    assert list(found) == sorted(found)


def test_layouts_in_words() -> None:
    assert (
        described(assigned(Split((0.07, 0.11), (1, 1, 1)), ["a", "b", "c"])) == "<= 70 ms: 1, 70-110 ms: 1, > 110 ms: 1"
    )
    assert described(MIXED) == "mixed"
    assert bounds_ms((), 0) == ""
    assert described_split(Split()) == "mixed"
    assert described_split(Split((0.07,), (2, 3))) == "<= 70 ms: 2, > 70 ms: 3"
    assert [bounds_ms((0.07, 0.11), number) for number in range(3)] == ["<= 70 ms", "70-110 ms", "> 110 ms"]
    assert described(Layout((0.07,), (EngineClass("a", 1),))) == "<= 70 ms: 0, > 70 ms: 1"


def test_an_assigned_layout_names_each_engine_once_and_keeps_its_cuts() -> None:
    layout = assigned(Split((0.07, 0.11), (2, 1, 1)), ["a", "b", "c", "d", "e"])
    assert layout.cuts_s == (0.07, 0.11)
    assert [(each.place, each.pace_class) for each in layout.engines] == [
        ("a", 0), ("b", 0), ("c", 1), ("d", 2), ("e", 2),
    ]  # fmt: skip
    assert assigned(Split(), ["a"]) == MIXED
    assert len(assigned(Split((0.07,), (1, 1)), ["a", "b"]).engines) == 2
    crowded = assigned(Split((0.07, 0.11), (5, 5, 1)), ["a", "b", "c", "d"])
    assert [each.pace_class for each in crowded.engines] == [0, 0, 1, 2]


def test_the_shape_of_a_layout_counts_the_engines_of_each_class() -> None:
    split = Split((0.07, 0.11), (2, 1, 1))
    assert split_of(assigned(split, ["a", "b", "c", "d"])) == split
    assert split_of(Layout((0.07,), (EngineClass("a", 1),))) == Split()
    assert split_of(MIXED) == Split()


def test_a_class_beyond_the_cuts_is_the_last() -> None:
    layout = Layout((0.07,), (EngineClass("w/a", 5),))
    assert engine_classes(layout, ["w/a"]) == {"w/a": 1}
    assert engine_path("w", "a") == "w/a"
