"""Topologies and selectors that packages outside the repository add, by their entry points (docs/plugins.md).

Shells, commands and the simulator's setup read entry points; an agent is given a mapping of names to makers.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from hmas.contracts.control import TopologyName

TOPOLOGIES = "hmas.topologies"
SELECTORS = "hmas.selectors"
Maker = TypeVar("Maker")


@cache
def installed(group: str) -> tuple[EntryPoint, ...]:
    """Returns the entry points of a group, by name; what is installed while the process runs is not seen."""
    return tuple(sorted(entry_points(group=group), key=lambda each: each.name))


def topology_names() -> tuple[str, ...]:
    """Returns the names of the built-in topologies, then those of the installed ones, which are not imported."""
    return tuple(dict.fromkeys([*(name.value for name in TopologyName), *(e.name for e in installed(TOPOLOGIES))]))


def known_topology(name: str) -> TopologyName:
    """Returns the topology of that name. Raises ValueError, with the names that there are, if none is known here."""
    if name not in topology_names():
        known = ", ".join(topology_names())
        raise ValueError(f"{name!r} is not a topology: use one of {known}, or install the package that adds it")
    return TopologyName(name)


def with_plugins(group: str, built_in: Mapping[str, Maker]) -> dict[str, Maker]:
    """Returns the built-in makers and those of the installed packages, by name. Raises ValueError, and names the
    package, if one cannot be imported, takes a name that is taken, or has a name that is not a topology's."""
    makers = dict(built_in)
    for each in installed(group):
        where = f"the entry point {each.name} = {each.value} of {each.dist.name if each.dist else 'a package'}"
        if each.name in makers:
            raise ValueError(f"{where} has a name that is taken: give it another one")
        if group == TOPOLOGIES:
            TopologyName(each.name)
        try:
            makers[each.name] = each.load()
        except Exception as error:
            raise ValueError(f"{where} cannot be loaded: {error!r}") from error
    return makers
