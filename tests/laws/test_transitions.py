"""State machines as tables."""

import pytest

from hmas.laws.transitions import IllegalTransition, following

TABLE = {"new": frozenset({"open"}), "open": frozenset({"open", "shut"}), "shut": frozenset[str]()}


@pytest.mark.parametrize(("before", "after"), [("new", "open"), ("open", "open"), ("open", "shut")])
def test_a_state_may_be_followed_by_those_of_its_row(before: str, after: str) -> None:
    assert following(TABLE, before, after) == after


@pytest.mark.parametrize(("before", "after"), [("new", "new"), ("new", "shut"), ("shut", "open")])
def test_any_other_transition_is_a_fault(before: str, after: str) -> None:
    with pytest.raises(IllegalTransition, match=f"{after} may not follow {before}"):
        following(TABLE, before, after)
