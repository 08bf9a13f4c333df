"""The files of the repository, as the tests about its own house read them."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("services", "loadgen", "experiments", "benchmarks")  # where our own classes live
_FOLDERS = (*PACKAGES, "tests", "docs", "deploy", "protos", ".ci")
_GENERATED = ("services/hmas/wire/v1/", "docs/results/")


@cache
def files() -> tuple[str, ...]:
    """Every file of the repository by its path from the root, without caches and what other files do not name."""
    found = [path for folder in _FOLDERS for path in (ROOT / folder).rglob("*")] + list(ROOT.iterdir())
    names = (p.relative_to(ROOT).as_posix() for p in found if p.is_file() and "__pycache__" not in p.parts)
    return tuple(sorted(names))


@cache
def folders() -> frozenset[str]:
    """Every folder that holds a file, at any depth."""
    return frozenset(parent.as_posix() for name in files() for parent in Path(name).parents)


def written(*suffixes: str, below: tuple[str, ...] = ("",)) -> Iterator[tuple[str, str]]:
    """(path, text) of the files with one of `suffixes` that people write, in a folder of `below`."""
    for name in files():
        if name.endswith(suffixes) and name.startswith(below) and not name.startswith(_GENERATED):
            yield name, (ROOT / name).read_text()


def classes() -> Iterator[tuple[str, str]]:
    """(name, path) of each public class in the packages."""
    for path, text in written(".py", below=PACKAGES):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, path
