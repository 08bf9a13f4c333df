"""The rates of flows that share links: the least key first, and max-min fair among those with equal keys."""

from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from math import inf
from typing import Protocol, TypeVar


class LinkUser(Protocol):
    """A flow over the links of its `path`, each at most once; flows with less `key` take what they can first."""

    @property
    def path(self) -> tuple[int, ...]: ...

    @property
    def key(self) -> tuple[float, ...]: ...


User = TypeVar("User", bound=LinkUser)


def by_key(flows: Sequence[User], capacities: Sequence[float]) -> Iterator[tuple[User, float]]:
    """Gives the rate of each flow. `flows` are in the order of their keys: those of a key get no more than the ones
    before them leave."""
    free: dict[int, float] = {}
    begin, number = 0, len(flows)
    while begin < number:
        flow, end = flows[begin], begin + 1
        while end < number and flows[end].key == flow.key:
            end += 1
        if end == begin + 1:
            rate = min([free.get(link, capacities[link]) for link in flow.path])
            if rate:
                for link in flow.path:
                    free[link] = free.get(link, capacities[link]) - rate
            yield flow, rate
        else:
            yield from _of_one_key(flows[begin:end], free, capacities)
        begin = end


def _of_one_key(
    flows: Sequence[User], free: dict[int, float], capacities: Sequence[float]
) -> Iterable[tuple[User, float]]:
    on: dict[int, list[User]] = {}
    for flow in flows:
        for link in flow.path:
            on.setdefault(link, []).append(flow)
            free.setdefault(link, capacities[link])
    return max_min(on, free).items()


def max_min(on: Mapping[int, Collection[User]], free: MutableMapping[int, float]) -> dict[User, float]:
    """Returns the max-min fair rates of flows, and takes them from what is `free` on each link. `on` has the flows of
    each link, and every link of each flow.

    All grow alike until a link is full, whose flows then keep what they have (Bertsekas and Gallager, Data Networks,
    1992, section 6.5.2).
    """
    growing = {link: len(flows) for link, flows in on.items() if flows}
    rates: dict[User, float] = {}
    while growing:
        least, full = inf, -1
        for link, number in growing.items():
            share = free[link] / number
            if share < least:
                least, full = share, link
        for flow in on[full]:
            if flow not in rates:
                rates[flow] = least
                for link in flow.path:
                    free[link] -= least
                    if growing[link] > 1:
                        growing[link] -= 1
                    else:
                        del growing[link]
        free[full] = 0.0
    return rates
