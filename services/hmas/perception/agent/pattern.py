"""Regular expressions that are tried only on texts which hold the words they need. Pure.

A prompt matches few of many patterns. To look for a word is a tenth of the price of a search, and most patterns need
one.
"""

import re
from collections.abc import Callable, Iterable
from re import _parser as grammar  # type: ignore[attr-defined]  # the parse tree, which `re` itself compiles
from typing import Any

Literals = tuple[str, ...]


class Pattern:
    """Any of `alternatives`, in either case, `.` matching newlines too."""

    def __init__(self, *alternatives: str) -> None:
        self.sources = alternatives
        self._alternatives = tuple((needed(each), _finder(each)) for each in alternatives)

    def start(self, text: str, lower: str) -> int | None:
        """Where the leftmost match begins, None without one. `lower` is the text in lower case."""
        starts = [
            match.start()
            for groups, search in self._alternatives
            if _may_match(groups, lower) and (match := search(text))
        ]
        return min(starts, default=None)


def _may_match(groups: Iterable[Literals], lower: str) -> bool:
    """Whether a literal of each group is there. Plain loops take half the time of generators."""
    for group in groups:
        for literal in group:
            if literal in lower:
                break
        else:
            return False
    return True


def _finder(alternative: str) -> Callable[[str], re.Match[str] | None]:
    expression = re.compile(alternative, re.IGNORECASE | re.DOTALL)
    return expression.match if alternative.startswith("^") else expression.search


def needed(pattern: str) -> tuple[Literals, ...]:
    """Groups of lower-case literals: of each group, one stands in every text that matches."""
    return tuple(dict.fromkeys(tuple(map(str.lower, group)) for group in _groups(grammar.parse(pattern))))


def _groups(tree: Iterable[tuple[Any, Any]]) -> list[Literals]:
    """Of a sequence: its runs of letters, and what each of its parts needs."""
    groups: list[Literals] = []
    run = ""
    for kind, argument in tree:
        if kind is grammar.LITERAL:
            run += chr(argument)
            continue
        groups += [(run,)] if run else []
        run = ""
        if kind is grammar.SUBPATTERN:
            groups += _groups(argument[-1])
        elif kind is grammar.MAX_REPEAT and argument[0] > 0:
            groups += _groups(argument[2])
        elif kind is grammar.BRANCH:
            best = [max(_groups(branch), key=_firmness, default=()) for branch in argument[1]]
            groups += [tuple(literal for group in best for literal in group)] if all(best) else []
    return [*groups, (run,)] if run else groups


def _firmness(group: Literals) -> int:
    """Long literals stand in few texts."""
    return min(map(len, group))
