"""The links between engines: one switch, or leaf switches below spines."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fabric:
    """How engines are wired. Each has a port whose two directions are links of their own. With `leaf` 0, one switch,
    which is never full, is between all of them. Otherwise each leaf switch has so many engines, and links to every one
    of the `spines`, all of which together carry 1 / `oversubscription` of what the leaf's ports do. Raises ValueError
    for anything that is no such network."""

    leaf: int = 0
    spines: int = 1
    oversubscription: float = 1.0

    def __post_init__(self) -> None:
        if self.leaf < 0 or self.spines < 1 or self.oversubscription < 1.0:
            raise ValueError(f"{self}: leaf must be at least 0, spines and oversubscription at least 1")


class Wiring:
    """The links of a fabric of so many `ports` of `bytes_s`, and the way from one port to another."""

    def __init__(self, fabric: Fabric, ports: int, bytes_s: float) -> None:
        self._fabric, self._ports = fabric, ports
        leaves = -(-ports // fabric.leaf) if fabric.leaf else 0
        uplink = fabric.leaf * bytes_s / (fabric.spines * fabric.oversubscription)
        self.capacities: Sequence[float] = [bytes_s] * (2 * ports) + [uplink] * (2 * leaves * fabric.spines)

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """Returns the links from one port to another: out of the source's, up to a spine that the pair alone decides
        and down to the other leaf if that is another one, and into the target's. Raises ValueError for a port to
        itself, and for one that is not there."""
        if source == target or not (0 <= source < self._ports and 0 <= target < self._ports):
            raise ValueError(f"there is no way from port {source} to {target} of {self._ports}")
        out, into, leaf = 2 * source, 2 * target + 1, self._fabric.leaf
        if not leaf or source // leaf == target // leaf:
            return out, into
        spines = self._fabric.spines
        spine = (0x9E3779B1 * (self._ports * source + target) % 2**32 >> 16) % spines
        up = 2 * (self._ports + spines * (source // leaf) + spine)
        down = 2 * (self._ports + spines * (target // leaf) + spine) + 1
        return out, up, down, into
