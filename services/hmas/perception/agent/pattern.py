"""Regular expressions that are tried only on texts which hold the words they need. Pure.

A prompt matches few of many patterns. To look for a word is a tenth of the price of a search, and most patterns need
one.
"""

import re
from collections.abc import Callable, Iterable

Literals = tuple[str, ...]
_MARKED = re.compile(r"<([^<>]+)>")


class Pattern:
    """Any of `alternatives`: regular expressions in either case, `.` matching newlines too, in which `<a|b>` stands
    for any of the literals between the brackets. A text without one of them is not searched, so that they must not
    stand in an optional part."""

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


def needed(alternative: str) -> tuple[Literals, ...]:
    """The literals of each pair of brackets: of each group, one stands in every text that matches."""
    return tuple(tuple(group.lower().split("|")) for group in _MARKED.findall(alternative))


def expression(alternative: str) -> str:
    """The regular expression without brackets."""
    return _MARKED.sub(lambda mark: f"(?:{'|'.join(map(re.escape, mark[1].split('|')))})", alternative)


def _finder(alternative: str) -> Callable[[str], re.Match[str] | None]:
    compiled = re.compile(expression(alternative), re.IGNORECASE | re.DOTALL)
    return compiled.match if alternative.startswith("^") else compiled.search
