"""Topologies and selectors that packages outside the repository add, by their entry points (docs/plugins.md).

Shells, commands and the simulator's setup read entry points; an agent is given a mapping of names to makers. What is
installed is imported only where a setting, an option or a simulated decision names it.
"""

from collections.abc import Iterable, Iterator, Mapping
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


class PluginMakers(Mapping[str, Maker]):
    """The built-in makers of a group and those of installed packages, by name. A package is imported when its name is
    looked up, and never because it is installed; a name that is built in stays what it is.

    Looking up a name raises KeyError if nothing here has it, and ValueError, which names the package, if that cannot be
    imported or if two packages have the name.
    """

    def __init__(self, group: str, built_in: Mapping[str, Maker]) -> None:
        self._group, self._made = group, dict(built_in)

    def __getitem__(self, name: str) -> Maker:
        if name not in self._made:
            self._made[name] = self._load(name)
        return self._made[name]

    def _load(self, name: str) -> Maker:
        found = [each for each in installed(self._group) if each.name == name]
        if not found:
            raise KeyError(name)
        if len(found) > 1:
            raise ValueError(f"two installed packages have {name}: {' and '.join(map(_where, found))}; remove one")
        try:
            if self._group == TOPOLOGIES:
                TopologyName(name)
            maker: Maker = found[0].load()
        except Exception as error:
            raise ValueError(f"{_where(found[0])} cannot be loaded: {error!r}") from error
        return maker

    def __contains__(self, name: object) -> bool:
        return name in self._made or any(each.name == name for each in installed(self._group))

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._made, *(each.name for each in installed(self._group))]))

    def __len__(self) -> int:
        return len(list(iter(self)))


def loaded(group: str, built_in: Mapping[str, Maker], names: Iterable[str]) -> dict[str, Maker]:
    """Returns the built-in makers and those of installed packages that are named.

    Raises ValueError, with what to do, if a name is built in, is not installed, or is of a package that cannot be
    imported.
    """
    makers = PluginMakers(group, built_in)
    for name in names:
        if name in built_in:
            raise ValueError(f"{name} is built in: name only what installed packages add")
        if name not in makers:
            added = ", ".join(each.name for each in installed(group)) or "nothing"
            raise ValueError(
                f"no installed package adds {name!r} (packages here add {added}): install the one that does"
            )
    return {**built_in, **{name: makers[name] for name in names}}


def _where(entry_point: EntryPoint) -> str:
    package = entry_point.dist.name if entry_point.dist else "a package"
    return f"the entry point {entry_point.name} = {entry_point.value} of {package}"
