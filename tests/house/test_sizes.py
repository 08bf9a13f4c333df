"""Classes, functions and modules of the product and the laboratory stay small enough to read.

What was longer before these tests is listed with its lines, so that it can only shrink.
"""

import ast
from collections.abc import Iterator, Mapping
from textwrap import dedent

import pytest

from tests.house.repository import trees, written

MOST_CLASS_LINES, MOST_FUNCTION_LINES, MOST_MODULE_LINES = 250, 60, 400
BELOW = ("services/", "loadgen/", "lab/")
KNOWN_CLASSES = {"services/hmas/engine/core/core.py EngineCore": 362}
KNOWN_FUNCTIONS: dict[str, int] = {}
KNOWN_MODULES = {"lab/hmas_lab/perception/training/loop.py": 444}

_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a class or function from its name on: decorators are not counted."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def definitions(tree: ast.AST, owner: str = "") -> Iterator[tuple[str, ast.AST, int]]:
    """(name with its owners, node, lines) of each class and function, at any depth."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.ClassDef, *_Function)):
            name = f"{owner}{node.name}"
            yield name, node, lines_of(node)
            yield from definitions(node, f"{name}.")
        else:
            yield from definitions(node, owner)


def long_classes(tree: ast.Module, most: int = MOST_CLASS_LINES) -> dict[str, int]:
    return {n: lines for n, node, lines in definitions(tree) if isinstance(node, ast.ClassDef) and lines > most}


def long_functions(tree: ast.Module, most: int = MOST_FUNCTION_LINES) -> dict[str, int]:
    return {n: lines for n, node, lines in definitions(tree) if isinstance(node, _Function) and lines > most}


def grown(found: Mapping[str, int], known: Mapping[str, int]) -> list[str]:
    """Tells what is long and unknown, longer than its listed lines, or shorter than the list says."""
    told = [f"{name}: {lines} lines, split it" for name, lines in found.items() if lines > known.get(name, 0)]
    return told + [f"{n}: write {found.get(n, 'nothing')} in the list" for n in known if found.get(n, 0) < known[n]]


def read() -> list[tuple[str, ast.Module]]:
    return [(path, tree) for path, tree in trees() if path.startswith(BELOW)]


def test_every_folder_is_read() -> None:
    assert {folder for folder in BELOW for path, _ in read() if path.startswith(folder)} == set(BELOW)
    assert len(read()) > 600


def test_no_class_is_too_long() -> None:
    found = {f"{path} {name}": lines for path, tree in read() for name, lines in long_classes(tree).items()}
    assert grown(found, KNOWN_CLASSES) == []


def test_no_function_is_too_long() -> None:
    found = {f"{path} {name}": lines for path, tree in read() for name, lines in long_functions(tree).items()}
    assert grown(found, KNOWN_FUNCTIONS) == []


def test_no_module_is_too_long() -> None:
    lines = {path: len(text.splitlines()) for path, text in written(".py", below=BELOW)}
    found = {path: count for path, count in lines.items() if count > MOST_MODULE_LINES}
    assert grown(found, KNOWN_MODULES) == []


MODULE = """
    class Long:
        first = 1
        @property
        def method(self):
            if self:
                async def inner():
                    return 1
                return inner
"""


@pytest.mark.parametrize(("most", "found"), [(7, {"Long": 8}), (8, {})])
def test_a_long_class_is_found(most: int, found: dict[str, int]) -> None:
    assert long_classes(ast.parse(dedent(MODULE)), most) == found


@pytest.mark.parametrize(
    ("most", "found"),
    [(1, {"Long.method": 5, "Long.method.inner": 2}), (2, {"Long.method": 5}), (4, {"Long.method": 5}), (5, {})],
)
def test_a_long_function_is_found(most: int, found: dict[str, int]) -> None:
    assert long_functions(ast.parse(dedent(MODULE)), most) == found


def test_a_listed_size_can_only_shrink() -> None:
    assert grown({"a": 70}, {"a": 70}) == []
    assert grown({"a": 71}, {"a": 70}) == ["a: 71 lines, split it"]
    assert grown({"a": 69}, {"a": 70}) == ["a: write 69 in the list"]
    assert grown({}, {"a": 70}) == ["a: write nothing in the list"]
