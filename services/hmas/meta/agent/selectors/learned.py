"""What the learned selectors know from simulated runs: it is read from `learned.json`, which `python -m experiments
train-selectors` writes."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from hmas.contracts.control import TopologyName
from hmas.meta.agent.selectors.features import FEATURES


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of the decision tree: `topology` was the best one for `share` of the training weight that fell here."""

    topology: TopologyName
    share: float


@dataclass(frozen=True, slots=True)
class Fork:
    """An inner node of the decision tree: leads to the node `low` if the feature is at most `threshold`, otherwise to
    `high`. Both are indices in the list of nodes; `feature` is an index in `FEATURES`."""

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

    nodes: tuple[Leaf | Fork, ...]
    scale: tuple[tuple[float, float], ...]
    regimes: tuple[Regime, ...]

    def classify(self, values: tuple[float, ...]) -> Leaf:
        node = self.nodes[0]
        while isinstance(node, Fork):
            node = self.nodes[node.low if values[node.feature] <= node.threshold else node.high]
        return node

    def scaled(self, values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple((v - mean) / deviation for v, (mean, deviation) in zip(values, self.scale, strict=True))

    def nearest(self, values: tuple[float, ...]) -> Regime:
        """The regime whose centre is closest in scaled features."""
        point = self.scaled(values)
        return min(self.regimes, key=lambda r: sum((a - b) ** 2 for a, b in zip(point, r.centre, strict=True)))


def parse_learned(document: dict[str, Any]) -> Learned:
    """Reads the content of `learned.json`. Raises ValueError if it was made for other features."""
    if tuple(document["features"]) != FEATURES:
        raise ValueError("learned.json was made for other features: run `python -m experiments train-selectors` again")
    nodes = tuple(
        Leaf(TopologyName(n["topology"]), n["share"]) if "topology" in n else Fork(**n) for n in document["nodes"]
    )
    regimes = tuple(Regime(r["name"], tuple(r["centre"]), TopologyName(r["topology"])) for r in document["regimes"])
    return Learned(nodes, tuple((m, d) for m, d in document["scale"]), regimes)


@cache
def learned() -> Learned:
    """Returns what `learned.json` of this package holds."""
    text = (files("hmas.meta.agent.selectors") / "learned.json").read_text(encoding="utf-8")
    return parse_learned(json.loads(text))
