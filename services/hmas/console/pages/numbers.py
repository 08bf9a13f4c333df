"""Numbers as the pages carry them."""

from collections.abc import Iterable
from math import isfinite


def rounded(value: float, digits: int = 3) -> float:
    """Returns a number that JSON can hold: one without end is -1."""
    return round(value, digits) if isfinite(value) else -1.0


def curve(points: Iterable[tuple[float, ...]]) -> dict[str, list[float]]:
    """Returns points (time in Unix s, values) by their second. A browser sorts such keys by their number."""
    return {str(int(at_s)): [rounded(value) for value in values] for at_s, *values in points}


def chosen(names: Iterable[str], choice: str) -> str:
    """Returns `choice` if it is among the names, otherwise the first of them in order; empty if there is none."""
    ordered = sorted(names)
    return choice if choice in ordered else next(iter(ordered), "")
