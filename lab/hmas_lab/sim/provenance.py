"""Finds the code that the figures of an experiment depend on: all modules that given root modules import, directly or
not, and the data files in their folders.

Baselines, bounds and lambda* do not pass through the mesh, so a change of the mesh's agents leaves their results valid.
"""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import hmas
import hmas_lab
import hmas_loadgen

# The folders that hold our packages.
SOURCES = tuple(Path(str(package.__file__)).parents[1] for package in (hmas, hmas_loadgen, hmas_lab))
ENGINES_ONLY = tuple(
    f"hmas_lab.sim.{name}" for name in ("analysis", "baselines.systems", "bound", "capacity", "sources")
)
WITH_MESH = (*ENGINES_ONLY, "hmas_lab.sim.systems")
DATA = (".json", ".yaml")


@cache
def source_digest(roots: tuple[str, ...], sources: tuple[Path, ...] = SOURCES) -> str:
    """Returns a digest over every file that the modules `roots` depend on. Raises ValueError if a root is not found."""
    if unknown := [name for name in roots if _file(sources, name) is None]:
        raise ValueError(
            f"modules {', '.join(unknown)} are not under {', '.join(map(str, sources))}: correct the list of roots"
        )
    digest = sha256()
    for name, path in sorted(_with_data(_reached(sources, roots), sources)):
        digest.update(name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _reached(sources: tuple[Path, ...], names: Iterable[str]) -> set[Path]:
    found: set[Path] = set()
    waiting = list(names)
    while waiting:
        path = _file(sources, waiting.pop())
        if path is not None and path not in found:
            found.add(path)
            waiting += _imported(path)
    return found


def _imported(path: Path) -> Iterator[str]:
    """Yields every imported name that could be a module, and the packages that contain it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1))


def _file(sources: tuple[Path, ...], name: str) -> Path | None:
    """Returns the file of the module `name`, or None for a foreign module and for a name inside a module."""
    places = [source / Path(*name.split(".")) for source in sources]
    files = (file for place in places for file in (place.with_suffix(".py"), place / "__init__.py"))
    return next((file for file in files if file.is_file()), None)


def _with_data(modules: set[Path], sources: tuple[Path, ...]) -> list[tuple[str, Path]]:
    """Returns the modules and the data files beside them, each with its path relative to its source folder."""
    beside = {path for folder in {m.parent for m in modules} for path in folder.iterdir() if path.suffix in DATA}
    return [
        (next(str(path.relative_to(s)) for s in sources if path.is_relative_to(s)), path) for path in modules | beside
    ]
