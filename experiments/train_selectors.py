"""Trains the meta controller's classifier and change-point table (`learned.json` of the selectors) on simulated runs:
they map a view V_long to the topology that serves it best.

Each setting, a workload at a load, is run under every candidate topology. All views of these runs are labelled with the
topology that had the best goodput rate in the setting, and weighted by its gain over the worst. Seed and
duration differ from those of every experiment.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import hmas.meta.agent.selectors as selectors
from hmas.contracts.control import TopologyName
from hmas.engine.core.profile import builtin_profile
from hmas.meta.agent.selectors.features import FEATURES, features, settled
from hmas.sim.capacity import find_capacity
from hmas.sim.mesh import MeshSim
from hmas.sim.sources import WorkloadSpec, build
from hmas.sim.systems import NOISY

CANDIDATES = (
    TopologyName.MAX_ON_TIME,
    TopologyName.SJF,
    TopologyName.EDF,
    TopologyName.TWO_LANE,
    TopologyName.HYBRID,
    TopologyName.FCFS,
)
KINDS = ("mix", "burst", "drift", "shift", "semantic")
LOADS = (0.8, 1.5)
SEED = 7001
DURATION_S = 100.0
DEPTH = 4
MIN_LEAF = 0.04  # of the training weight
TIE = 0.005  # goodput rates closer than this are equal; ties go to the first candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """The training data of one setting, a workload `kind` at a `load` in λ*: the features of its views, one row each,
    the best topology, and by how much its goodput rate exceeds that of the worst."""

    kind: str
    load: float
    rows: tuple[tuple[float, ...], ...]
    best: TopologyName
    gain: float


def lessons(profile_name: str, engines: int, tell: Callable[[str], None]) -> Iterable[Lesson]:
    """Runs every setting under every candidate topology and yields its training data. `tell` gets one line of text per
    setting."""
    profile = builtin_profile(profile_name)
    for kind in KINDS:
        spec = WorkloadSpec(kind=kind, duration_s=DURATION_S)
        capacity = find_capacity(lambda rate, seed, w=spec: build(w, rate, seed), profile, engines, 8.0)  # type: ignore[misc]
        for load in LOADS:
            workload = build(spec, load * capacity.rate_rps, SEED).fitting(profile)
            rates: dict[TopologyName, float] = {}
            rows: list[tuple[float, ...]] = []
            for topology in CANDIDATES:
                mesh = MeshSim(replace(NOISY, pin=topology), profile, engines, workload, SEED, cutoff_s=60.0)
                rates[topology] = mesh.run().score.goodput_rate
                rows += [features(v) for v in mesh.views if settled(v) >= 30]
            top = max(rates.values())
            best = next(t for t in CANDIDATES if rates[t] >= top - TIE)
            tell(f"{kind} {load:g}: {best.value} " + ", ".join(f"{t.value} {r:.3f}" for t, r in rates.items()))
            yield Lesson(kind=kind, load=load, rows=tuple(rows), best=best, gain=top - min(rates.values()))


def train(found: list[Lesson]) -> dict[str, Any]:
    """Trains on the lessons `found` and returns the content of `learned.json`. Raises ImportError if scikit-learn is
    not installed."""
    try:
        from sklearn.tree import DecisionTreeClassifier
    except ImportError as error:
        raise ImportError("training selectors needs scikit-learn: pip install 'hmas[train]'") from error

    def fit(chosen: list[Lesson]) -> Any:
        x = np.array([row for lesson in chosen for row in lesson.rows])
        y = [lesson.best.value for lesson in chosen for _ in lesson.rows]
        weight = [(lesson.gain + TIE) / len(lesson.rows) for lesson in chosen for _ in lesson.rows]
        tree = DecisionTreeClassifier(max_depth=DEPTH, min_weight_fraction_leaf=MIN_LEAF, random_state=0)
        return tree.fit(x, y, sample_weight=weight)

    rows = np.array([row for lesson in found for row in lesson.rows])
    scale = [(float(m), float(d) or 1.0) for m, d in zip(rows.mean(0), rows.std(0), strict=True)]
    held_out = []
    for kind in dict.fromkeys(lesson.kind for lesson in found):
        tree = fit([lesson for lesson in found if lesson.kind != kind])
        held_out += [
            float(np.mean(tree.predict(np.array(lesson.rows)) == lesson.best.value))
            for lesson in found
            if lesson.kind == kind
        ]
    return {
        "features": list(FEATURES),
        "nodes": _nodes(fit(found)),
        "scale": scale,
        "regimes": [_regime(lesson, scale) for lesson in found],
        "trained": {
            "settings": len(found),
            "views": len(rows),
            "best": dict(Counter(lesson.best.value for lesson in found)),
            "accuracy_on_left_out_workloads": round(float(np.mean(held_out)), 3),
        },
    }


def _regime(lesson: Lesson, scale: list[tuple[float, float]]) -> dict[str, Any]:
    mean = np.array(lesson.rows).mean(0)
    centre = [round((float(v) - m) / d, 4) for v, (m, d) in zip(mean, scale, strict=True)]
    return {"name": f"{lesson.kind} at {lesson.load:g}", "centre": centre, "topology": lesson.best.value}


def _nodes(tree: Any) -> list[dict[str, Any]]:
    """Returns a scikit-learn tree as a list of nodes, each a split or a leaf, in the form of `learned.json`."""
    inner, found = tree.tree_, []
    for i in range(inner.node_count):
        if inner.children_left[i] == -1:
            shares = inner.value[i][0] / inner.value[i][0].sum()
            top = int(shares.argmax())
            found.append({"topology": str(tree.classes_[top]), "share": round(float(shares[top]), 4)})
        else:
            found.append(
                {
                    "feature": int(inner.feature[i]),
                    "threshold": round(float(inner.threshold[i]), 6),
                    "low": int(inner.children_left[i]),
                    "high": int(inner.children_right[i]),
                }
            )
    return found


def write(document: dict[str, Any], path: Path | None = None) -> Path:
    """Writes `learned.json` to `path`, or into the package `hmas.meta.agent.selectors` if it is None. Returns the
    path."""
    target = path or Path(str(selectors.__file__)).parent / "learned.json"
    target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return target
