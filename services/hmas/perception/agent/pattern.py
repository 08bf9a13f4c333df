"""Regular expressions that are tried only on texts that hold the words which they need.

A prompt matches few of many patterns. Looking for a word takes a tenth of the time of a search, and most patterns need
at least one word.
"""

import re
from collections.abc import Callable, Iterable

Literals = tuple[str, ...]
_MARKED = re.compile(r"<([^<>]+)>")


class Pattern:
    """Matches any of `alternatives`. They are regular expressions that ignore case and whose `.` matches newlines too;
    `<a|b>` stands for any of the literals between the brackets. A text without any of these literals is not searched,
    so they must not stand in an optional part."""

    def __init__(self, *alternatives: str) -> None:
        self.sources = alternatives
        self._alternatives = tuple((needed(each), _finder(each)) for each in alternatives)

    def start(self, text: str, lower: str) -> int | None:
        """Returns where the leftmost match begins, None if there is none. `lower` is the text in lower case."""
        starts = [
            match.start()
            for groups, search in self._alternatives
            if _may_match(groups, lower) and (match := search(text))
        ]
        return min(starts, default=None)


def _may_match(groups: Iterable[Literals], lower: str) -> bool:
    """Tells whether the text holds a literal of each group. Plain loops take half the time of generators."""
    for group in groups:
        for literal in group:
            if literal in lower:
                break
        else:
            return False
    return True


def needed(alternative: str) -> tuple[Literals, ...]:
    """Returns the literals of each pair of brackets, in lower case. Every text that matches holds at least one literal
    of each group."""
    return tuple(tuple(group.lower().split("|")) for group in _MARKED.findall(alternative))


def expression(alternative: str) -> str:
    """Returns the regular expression in which the brackets are replaced by groups of alternatives."""
    return _MARKED.sub(lambda mark: f"(?:{'|'.join(map(re.escape, mark[1].split('|')))})", alternative)


def _finder(alternative: str) -> Callable[[str], re.Match[str] | None]:
    compiled = re.compile(expression(alternative), re.IGNORECASE | re.DOTALL)
    return compiled.match if alternative.startswith("^") else compiled.search
