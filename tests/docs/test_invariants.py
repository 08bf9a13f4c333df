"""An invariant that a package's docstring states names the test that holds it, and that test exists."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.repository import PACKAGES, ROOT, written

_HEADING = re.compile(r"^Invariants\b.*$", re.MULTILINE)
_TEST = re.compile(r"\[(?P<path>tests/[\w/]+\.py)::(?P<name>\w+)\]")


def invariants(docstring: str) -> list[str]:
    """The items of the list below the line `Invariants:`, each with the tests that it names."""
    heading = _HEADING.search(docstring)
    return re.split(r"^- ", docstring[heading.end() :], flags=re.MULTILINE)[1:] if heading else []


def defined(path: str) -> set[str]:
    """The functions and classes of a test module, by name."""
    if not (ROOT / path).exists():
        return set()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, kinds)}


def faults(docstring: str) -> Iterator[str]:
    """The invariants without a test, and the tests that do not exist."""
    for item in invariants(docstring):
        named = list(_TEST.finditer(item))
        if not named:
            yield f"no test: {' '.join(item.split())}"
        yield from (f"not there: {test[0]}" for test in named if test["name"] not in defined(test["path"]))


def test_each_invariant_names_the_test_that_holds_it() -> None:
    found, stated = [], 0
    for path, text in written("__init__.py", below=PACKAGES):
        docstring = ast.get_docstring(ast.parse(text)) or ""
        found += [f"{path}: {fault}" for fault in faults(docstring)]
        stated += len(invariants(docstring))
    assert found == [], "\n".join(found)
    assert stated > 60


@pytest.mark.parametrize(
    "item",
    [
        "- Nothing is lost.",
        "- Nothing is lost. [tests/nowhere.py::test_a]",
        "- Nothing is lost. [tests/docs/test_invariants.py::test_nothing_of_the_kind]",
    ],
)
@pytest.mark.parametrize("heading", ["Invariants", "Invariants:"])
def test_an_invariant_without_a_test_is_found(heading: str, item: str) -> None:
    assert len(list(faults(f"A room.\n\n{heading}\n{item}\n"))) == 1


def test_an_invariant_with_its_test_is_left_alone() -> None:
    here = "[tests/docs/test_invariants.py::test_an_invariant_with_its_test_is_left_alone]"
    assert list(faults(f"A room.\n\nInvariants:\n- Nothing is\n  lost. {here}\n- Nor this. {here} {here}\n")) == []
