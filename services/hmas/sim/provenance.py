"""Which code a cell's figures depend on: all modules that its roots import, directly or not, and the data beside them.

Baselines, limits and lambda* do not pass through the mesh, so that a change of its agents leaves their results valid.
"""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import hmas
import hmas_loadgen

# The folders that hold our packages.
SOURCES = (Path(hmas.__file__).parents[1], Path(hmas_loadgen.__file__).parents[1])
ENGINES_ONLY = tuple(f"hmas.sim.{name}" for name in ("analysis", "baselines.run", "bound", "capacity", "sources"))
WITH_MESH = (*ENGINES_ONLY, "hmas.sim.systems")
DATA = (".json", ".yaml")


@cache
def source_digest(roots: tuple[str, ...], sources: tuple[Path, ...] = SOURCES) -> str:
    """Of every file that the modules `roots` depend on. ValueError if one of them is not there."""
    if unknown := [name for name in roots if _file(sources, name) is None]:
        raise ValueError(f"no modules {', '.join(unknown)} under {', '.join(map(str, sources))}")
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
    """Every name that could be a module, with the packages on the way to it."""
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
    """None for what is not ours, and for names inside a module."""
    places = [source / Path(*name.split(".")) for source in sources]
    files = (file for place in places for file in (place.with_suffix(".py"), place / "__init__.py"))
    return next((file for file in files if file.is_file()), None)


def _with_data(modules: set[Path], sources: tuple[Path, ...]) -> list[tuple[str, Path]]:
    """Each with its path below the folder that holds its package."""
    beside = {path for folder in {m.parent for m in modules} for path in folder.iterdir() if path.suffix in DATA}
    return [
        (next(str(path.relative_to(s)) for s in sources if path.is_relative_to(s)), path) for path in modules | beside
    ]
