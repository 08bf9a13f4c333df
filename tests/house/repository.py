"""The files of the repository, as the tests about its own house read them."""

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("services", "loadgen", "lab", "experiments", "benchmarks")  # where our own classes live
_FOLDERS = (*PACKAGES, "examples", "tests", "docs", "deploy", "protos", ".ci")
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


@cache
def trees() -> tuple[tuple[str, ast.Module], ...]:
    """(path, syntax tree) of each module in the packages."""
    found = tuple((path, ast.parse(text)) for path, text in written(".py", below=PACKAGES))
    gc.freeze()  # a million nodes that stay to the end: no collection looks through them
    return found


def classes() -> Iterator[tuple[str, str]]:
    """(name, path) of each public class in the packages."""
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, path


def aliases() -> Iterator[tuple[str, str]]:
    """(name, path) of each public type alias and type variable at the top of a module. Declarations of a command's
    options, which only their own command reads, are left out."""
    for path, node in _statements():
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=value) | ast.AnnAssign(target=ast.Name(name), value=value):
                if _is_type_name(name) and value is not None and "typer." not in ast.unparse(value):
                    yield name, path
            case _:
                pass


def functions() -> Iterator[tuple[str, str]]:
    """(name, path) of each public function at the top of a module."""
    for path, node in _statements():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_"):
            yield node.name, path


def stems() -> Iterator[tuple[str, str]]:
    """(name without .py, path) of each module in the packages."""
    for path, _ in trees():
        yield Path(path).stem, path


def room(path: str) -> str:
    """The room of a file of the packages: services/hmas/<room>, or a folder such as loadgen or experiments."""
    parts = path.split("/")
    return "/".join(parts[:3]) if parts[0] == "services" else parts[0]


def _statements() -> Iterator[tuple[str, ast.stmt]]:
    """(path, statement) of each statement at the top of a module in the packages."""
    for path, tree in trees():
        yield from ((path, node) for node in tree.body)


def _is_type_name(name: str) -> bool:
    """Whether a name is written as types are: `Pace`, `TpotSlo`; neither `_Pace`, `PACE` nor the variable `T`."""
    return name[0].isupper() and not name.isupper() and "_" not in name
