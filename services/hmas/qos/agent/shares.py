"""Counts of requests and tokens by tenant or by task type, for a bounded number of names."""

from collections.abc import Iterable
from dataclasses import dataclass

from hmas.contracts.views import ShareView
from hmas.laws.scoring import Verdict

OTHER = "other"
_NAMES_PER_BUCKET = 4  # a bucket keeps this many times as many names as a view, which picks the largest


@dataclass(slots=True, kw_only=True)
class ShareCounts:
    offered: int = 0
    settled: int = 0
    ok: int = 0
    ttft_ok: int = 0
    tpot_ok: int = 0
    tokens: int = 0
    weight: float = 1.0

    def settle(self, verdict: Verdict, tokens: int) -> None:
        self.settled += 1
        self.ok += verdict.ok
        self.ttft_ok += verdict.ttft_ok
        self.tpot_ok += verdict.tpot_ok
        self.tokens += tokens

    def merge(self, other: "ShareCounts") -> None:
        self.offered += other.offered
        self.settled += other.settled
        self.ok += other.ok
        self.ttft_ok += other.ttft_ok
        self.tpot_ok += other.tpot_ok
        self.tokens += other.tokens
        if other.offered:  # only an offer tells the weight
            self.weight = other.weight


class Shares:
    """The counts of one bucket by name; names beyond a bound are counted together as `other`."""

    __slots__ = ("_bound", "_by_name")

    def __init__(self, max_names: int) -> None:
        self._by_name: dict[str, ShareCounts] = {}
        self._bound = max_names * _NAMES_PER_BUCKET

    def of(self, name: str) -> ShareCounts:
        if name not in self._by_name and len(self._by_name) >= self._bound:
            name = OTHER
        return self._by_name.setdefault(name, ShareCounts())

    def items(self) -> Iterable[tuple[str, ShareCounts]]:
        return self._by_name.items()


def merged_shares(parts: Iterable[Shares]) -> dict[str, ShareCounts]:
    """Returns the sums of several buckets' counts by name; the weight of a name is the latest one."""
    result: dict[str, ShareCounts] = {}
    for part in parts:
        for name, share in part.items():
            result.setdefault(name, ShareCounts()).merge(share)
    return result


def share_views(totals: dict[str, ShareCounts], max_names: int) -> tuple[ShareView, ...]:
    """Returns the counts of the `max_names` names with the most demand, ties in order of name, and then those of all
    others together as `other`."""
    named = sorted((n for n in totals if n != OTHER), key=lambda n: (-totals[n].offered - totals[n].settled, n))
    rest = ShareCounts()
    for name in [*named[max_names:], *([OTHER] if OTHER in totals else [])]:
        rest.merge(totals[name])
    rest.weight = 1.0
    rows = [_view(name, totals[name]) for name in named[:max_names]]
    return tuple([*rows, _view(OTHER, rest)] if rest.offered or rest.settled else rows)


def _view(name: str, s: ShareCounts) -> ShareView:
    return ShareView(
        name=name,
        offered=s.offered,
        settled=s.settled,
        ok=s.ok,
        ttft_ok=s.ttft_ok,
        tpot_ok=s.tpot_ok,
        tokens_served=s.tokens,
        weight=s.weight,
    )
