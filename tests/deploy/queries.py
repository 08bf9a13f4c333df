"""PromQL of dashboards and alerts, against the metrics and labels that a running mesh shows."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import promql_parser as promql
import yaml
from prometheus_client.parser import text_string_to_metric_families

# Added by Prometheus itself, to every series.
TARGET_LABELS = {"job", "instance", "__name__"}
PROMETHEUS_METRICS = {"up": set[str]()}
VARIABLES = {"$__rate_interval": "1m", "$__interval": "1m", "$__range": "1h", "$pool": "x"}
_LEGEND = re.compile(r"{{\s*(\w+)\s*}}")
_ALERT_LABEL = re.compile(r"\$labels\.(\w+)")


@dataclass(frozen=True)
class Query:
    """`labels`: those that a legend or a text shows of the result."""

    where: str
    expr: str
    labels: frozenset[str]


class Catalogue:
    """Sample names and their label names. A labelled metric that has no sample yet is known with any label."""

    def __init__(self) -> None:
        self.labels: dict[str, set[str] | None] = dict(PROMETHEUS_METRICS)

    def add(self, text: str) -> None:
        """Takes one page of /metrics."""
        for family in text_string_to_metric_families(text):
            for name in _sample_names(family.name, family.type):
                self.labels.setdefault(name, None)
            for sample in family.samples:
                self.labels[sample.name] = (self.labels.get(sample.name) or set()) | set(sample.labels)


def _sample_names(family: str, kind: str) -> list[str]:
    match kind:
        case "counter":
            return [f"{family}_total"]
        case "histogram":
            return [f"{family}_bucket", f"{family}_sum", f"{family}_count"]
        case _:
            return [family]


def dashboard_queries(path: Path) -> Iterator[Query]:
    board = json.loads(path.read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield Query(
                f"{path.name}: {panel['title']}", target["expr"], frozenset(_LEGEND.findall(target["legendFormat"]))
            )
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
            yield Query(f"{path.name}: ${variable['name']}", metric, frozenset({label}))


def alert_queries(path: Path) -> Iterator[Query]:
    for group in yaml.safe_load(path.read_text())["groups"]:
        for rule in group["rules"]:
            texts = " ".join(rule["annotations"].values())
            yield Query(f"{path.name}: {rule['alert']}", rule["expr"], frozenset(_ALERT_LABEL.findall(texts)))


def faults(query: Query, catalogue: Catalogue) -> list[str]:
    """What is wrong with it; empty if every metric and label it names exists."""
    expr = query.expr
    for variable, value in VARIABLES.items():
        expr = expr.replace(variable, value)
    try:
        tree = promql.parse(expr)
    except ValueError as error:
        return [f"{query.where}: no PromQL: {error}"]
    found, shown = [], set[str]()
    for selector in _selectors(tree):
        name = selector.name or ""
        if name not in catalogue.labels:
            found.append(f"{query.where}: nothing shows the metric {name}")
            continue
        known = catalogue.labels[name]
        if known is None:
            shown |= query.labels
            continue
        known = known | TARGET_LABELS
        shown |= known
        found += [
            f"{query.where}: {name} has no label {matcher.name}"
            for matcher in selector.matchers.matchers
            if matcher.name not in known
        ]
    wanted = query.labels | {label for labels in _groupings(tree) for label in labels} - {"le"}
    return found + [f"{query.where}: no label {label} in what it selects" for label in sorted(wanted - shown)]


def _nodes(node: object) -> Iterator[object]:
    """The expression and everything in it."""
    yield node
    for name in ("expr", "lhs", "rhs", "vector_selector", "param"):
        child = getattr(node, name, None)
        if isinstance(child, promql.Expr | promql.VectorSelector):
            yield from _nodes(child)
    for child in getattr(node, "args", None) or ():
        yield from _nodes(child)


def _selectors(tree: object) -> Iterator[promql.VectorSelector]:
    return (node for node in _nodes(tree) if isinstance(node, promql.VectorSelector))


def _groupings(tree: object) -> Iterator[list[str]]:
    for node in _nodes(tree):
        if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            yield list(node.modifier.labels)
