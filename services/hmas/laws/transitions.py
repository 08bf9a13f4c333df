"""State machines as data: a table of what may follow what, and the one check of a step."""

from collections.abc import Mapping
from typing import TypeVar

S = TypeVar("S")


class IllegalTransition(RuntimeError):
    """A fault of the program: a state that may not follow the present one."""


def following(table: Mapping[S, frozenset[S]], before: S, after: S) -> S:
    """`after`, if the table lets it follow `before`. Raises IllegalTransition."""
    if after not in table[before]:
        raise IllegalTransition(f"{after} may not follow {before}")
    return after
