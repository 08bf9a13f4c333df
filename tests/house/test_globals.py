"""The laboratory sets nothing in the product: what an experiment changes is a setting that the product takes."""

import ast
from collections.abc import Iterator

import pytest

from tests.house.repository import written

LABORATORY = ("lab", "experiments", "benchmarks")
PRODUCT = ("hmas", "hmas_loadgen")
CHANGING = ("append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update")


def _imported(tree: ast.AST) -> set[str]:
    """The names by which a module knows modules of the product and what is in them."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PRODUCT:
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            ours = [alias for alias in node.names if alias.name.split(".")[0] in PRODUCT]
            found |= {alias.asname or alias.name.split(".")[0] for alias in ours}
    return found


def _root(node: ast.expr) -> str:
    """The first name of `a.b[c].d`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _set_by(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement or call sets, deletes or changes in place."""
    if isinstance(node, ast.Assign | ast.Delete):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple | ast.List) else (target,)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        yield node.target
    elif isinstance(node, ast.Call):
        called = node.func
        if isinstance(called, ast.Name) and called.id in ("setattr", "delattr") and node.args:
            yield ast.Attribute(node.args[0], "")
        elif isinstance(called, ast.Attribute) and called.attr in CHANGING:
            yield called


def patched(source: str) -> list[str]:
    """The statements of a module that set an attribute or an item of the product."""
    tree = ast.parse(source)
    names = _imported(tree)
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        for target in _set_by(node)
        if isinstance(target, ast.Attribute | ast.Subscript) and _root(target) in names
    ]


def test_the_laboratory_sets_nothing_in_the_product() -> None:
    found = {path: lines for path, text in written(".py", below=LABORATORY) if (lines := patched(text))}
    assert found == {}


@pytest.mark.parametrize(
    "statement",
    [
        'SELECTORS["fixed"] = None',
        'del SELECTORS["fixed"]',
        "SELECTORS.update(fixed=None)",
        "scripted_llm.ANSWER_S = 9.0",
        "scripted_llm.answer, kept = None, scripted_llm.answer",
        'setattr(scripted_llm, "ANSWER_S", 9.0)',
        "hmas.laws.slo.DEFAULT_IMPORTANCE += 1",
        'SELECTORS["rules"].name: str = "other"',
    ],
)
def test_what_is_set_in_the_product_is_found(statement: str) -> None:
    head = "import hmas.laws.slo\nfrom hmas.meta.agent.selectors.table import SELECTORS\n"
    head += "from hmas.sim import scripted_llm\n"
    assert len(patched(head + statement)) == 1
    assert patched(head + "own = {}\nown['fixed'] = SELECTORS['rules']\nown.update(SELECTORS)") == []
