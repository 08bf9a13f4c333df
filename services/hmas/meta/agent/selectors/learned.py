"""What was learned from simulated runs, in `learned.json` (written by `python -m experiments train-selectors`)."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from hmas.contracts.control import TopologyName
from hmas.meta.agent.selectors.features import FEATURES


@dataclass(frozen=True, slots=True)
class Leaf:
    """`share` of the training weight here for which `topology` was best."""

    topology: TopologyName
    share: float


@dataclass(frozen=True, slots=True)
class Split:
    """To `low` where the feature is at most `threshold`, else to `high`; both are places in the list of nodes."""

    feature: int
    threshold: float
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Regime:
    """A kind of workload: its mean scaled features and the topology that served it best."""

    name: str
    centre: tuple[float, ...]
    topology: TopologyName


@dataclass(frozen=True, slots=True)
class Learned:
    """A decision tree, and a table of regimes with the scale (mean, deviation) of each feature."""

    nodes: tuple[Leaf | Split, ...]
    scale: tuple[tuple[float, float], ...]
    regimes: tuple[Regime, ...]

    def classify(self, values: tuple[float, ...]) -> Leaf:
        node = self.nodes[0]
        while isinstance(node, Split):
            node = self.nodes[node.low if values[node.feature] <= node.threshold else node.high]
        return node

    def scaled(self, values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple((v - mean) / deviation for v, (mean, deviation) in zip(values, self.scale, strict=True))

    def nearest(self, values: tuple[float, ...]) -> Regime:
        """The regime whose centre is closest in scaled features."""
        point = self.scaled(values)
        return min(self.regimes, key=lambda r: sum((a - b) ** 2 for a, b in zip(point, r.centre, strict=True)))


def parse_learned(document: dict[str, Any]) -> Learned:
    """ValueError if it was made for other features."""
    if tuple(document["features"]) != FEATURES:
        raise ValueError("learned.json was made for other features: run `python -m experiments train-selectors` again")
    nodes = tuple(
        Leaf(TopologyName(n["topology"]), n["share"]) if "topology" in n else Split(**n) for n in document["nodes"]
    )
    regimes = tuple(Regime(r["name"], tuple(r["centre"]), TopologyName(r["topology"])) for r in document["regimes"])
    return Learned(nodes, tuple((m, d) for m, d in document["scale"]), regimes)


@cache
def learned() -> Learned:
    """The one that comes with the package."""
    text = (files("hmas.meta.agent.selectors") / "learned.json").read_text(encoding="utf-8")
    return parse_learned(json.loads(text))
