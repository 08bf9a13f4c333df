"""State machines as tables: for each state the states that may follow it, and the check of a transition."""

from collections.abc import Mapping
from typing import TypeVar

S = TypeVar("S")


class IllegalTransition(RuntimeError):
    """Raised for a transition that a state machine's table does not allow, which is a fault of the program."""


def following(table: Mapping[S, frozenset[S]], before: S, after: S) -> S:
    """Returns `after` if the table allows it to follow `before`. Raises IllegalTransition otherwise."""
    if after not in table[before]:
        raise IllegalTransition(f"illegal transition: {after} may not follow {before}")
    return after
