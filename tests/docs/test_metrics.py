"""Every metric of a service is on a dashboard, in an alert, or named on a page with what it means."""

import ast
import re
from collections.abc import Iterator

from tests.house.repository import ROOT, written

KINDS = ("Counter", "Gauge", "Histogram", "Summary", "Info", "Enum")


def metrics(tree: ast.AST) -> Iterator[str]:
    """The names of the metrics that a module makes, as patterns: what a name has from a variable may be any word."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(kind), args=[ast.Constant(value=str(name)), *_]) if kind in KINDS:
                yield re.escape(name)
            case ast.Call(func=ast.Name(kind), args=[ast.JoinedStr(parts), *_]) if kind in KINDS:
                yield "".join(re.escape(str(p.value)) if isinstance(p, ast.Constant) else r"\w+" for p in parts)


def is_told(name: str, page: str) -> bool:
    """Whether a page names a metric by a whole word: that of one of its series, too."""
    plain = name.removesuffix("_total")
    return re.search(rf"\b{plain}(_total|_bucket|_sum|_count)?\b", page) is not None


def told() -> str:
    """All that an operator reads of metrics."""
    pages = [text for name, text in written(".md") if name.startswith("docs/") and name.count("/") == 1]
    return "\n".join([*pages, *((ROOT / path).read_text(encoding="utf-8") for path in
                                ("deploy/grafana/build.py", "deploy/prometheus/alerts.yml"))])  # fmt: skip


def test_each_metric_is_told() -> None:
    made = [name for _, text in written(".py", below=("services/",)) for name in metrics(ast.parse(text))]
    page = told()
    assert [name for name in made if not is_told(name, page)] == []
    assert len(made) > 70


def test_a_metric_is_found_where_it_is_made() -> None:
    module = (
        'A = Counter("hmas_a", "A")\nclass B:\n    def __init__(self): self.b = Gauge("hmas_b", "B", ["c"])\nprint("x")'
        '\nC = {name: Gauge(f"hmas_c_{name}_s", "C") for name in B}'
    )
    assert sorted(metrics(ast.parse(module))) == ["hmas_a", "hmas_b", r"hmas_c_\w+_s"]


def test_a_metric_is_told_by_its_whole_name_alone() -> None:
    page = "`hmas_a_total`, hmas_queued_tokens, hmas_c_wait_s"
    told = {name: is_told(name, page) for name in ("hmas_a", "hmas_queued", r"hmas_c_\w+_s", r"hmas_d_\w+", "as_a")}
    assert told == {"hmas_a": True, "hmas_queued": False, r"hmas_c_\w+_s": True, r"hmas_d_\w+": False, "as_a": False}
