"""A browser holds what the console shows, whatever changed in between."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hmas.console.patch import diff, merge

VALUES = st.recursive(
    st.booleans() | st.integers(-3, 3) | st.text(max_size=2) | st.lists(st.integers(0, 2), max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc__proto__"), inner, max_size=3),
    max_leaves=8,
)
VIEWS = st.dictionaries(st.sampled_from(["pools", "engines", "load"]), VALUES, max_size=3)


@given(VIEWS, VIEWS)
def test_a_patch_makes_the_new_view_of_the_old(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert merge(old, diff(old, new)) == new


@given(VIEWS)
def test_nothing_is_sent_where_nothing_changed(view: dict[str, Any]) -> None:
    assert diff(view, view) == {}


def test_only_what_changed_is_sent() -> None:
    old = {"engines": {"e1": {"kv": 0.1, "up": True}, "e2": {"kv": 0.2}}, "pool": "m"}
    new = {"engines": {"e1": {"kv": 0.3, "up": True}}, "pool": "m"}
    assert diff(old, new) == {"engines": {"e1": {"kv": 0.3}, "e2": None}}
