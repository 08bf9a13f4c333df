"""`make mutants ROOM=worker N=50 SEED=1` draws mutants of a room's decisions, and runs on each those of the room's unit
tests that reach its line. It prints the share that they found and every mutant that survived."""

import argparse
import ast
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import coverage

from tests.mutants.drawing import ROOT, Mutant, draw, files_of
from tests.rooms import TESTS

ROOMS = ("contracts", "gateway", "laws", "meta", "perception", "prediction", "qos", "statera", "worker")
PYTEST = [
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-m",
    os.environ.get("UNIT", "not e2e and not chaos"),
]
LIMIT_S = 120.0  # a mutant that runs longer has been found
# Imports one module from another file than its own.
HOOK = """
import importlib.abc, importlib.util, os, sys
class Mutated(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["MUTANT_MODULE"]:
            file, origin = os.environ["MUTANT_FILE"], os.environ["MUTANT_ORIGIN"]
            packages = [os.path.dirname(origin)] if origin.endswith("__init__.py") else None
            return importlib.util.spec_from_file_location(name, file, submodule_search_locations=packages)
if "MUTANT_MODULE" in os.environ:
    sys.meta_path.insert(0, Mutated())
"""
Tests = Mapping[tuple[str, int], Sequence[str]]


def environment() -> dict[str, str]:
    return os.environ | {"HMAS_HYPOTHESIS_PROFILE": "quick", "PYTHONHASHSEED": "0"}


def reached(room: str, folder: Path) -> Tests:
    """Runs the room's tests once; returns, for each line of its decisions, the tests that reach it."""
    data = folder / "coverage"
    config = folder / "coveragerc"
    config.write_text(f"[run]\ndata_file = {data}\nsource =\n    {ROOT / 'services' / 'hmas'}\n")
    done = subprocess.run(
        [*PYTEST, f"--cov-config={config}", "--cov", "--cov-context=test", "--cov-report=", *TESTS[room]],
        cwd=ROOT, env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"the tests fail without a mutant:\n{done.stdout[-3000:]}")
    found: dict[tuple[str, int], list[str]] = {}
    measured = coverage.CoverageData(str(data))
    measured.read()
    for file in measured.measured_files():
        by_line = measured.contexts_by_lineno(file)
        for lines in statements(Path(file)):
            contexts = {context.partition("|")[0] for line in lines for context in by_line.get(line, ())}
            found |= {(file, line): sorted(contexts - {""}) for line in lines}
        for line in jumps(Path(file)):
            found[file, line] = found[file, line] or found.get((file, line - 1), [])
    return found


def statements(path: Path) -> Iterator[range]:
    """Yields the lines of each statement without those of the statements inside it, outer ones first. What begins a
    case or a handler is a statement, too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.match_case(pattern=pattern, body=[first, *_]):
                yield range(pattern.lineno, max(first.lineno, pattern.lineno + 1))
            case ast.Match(cases=[first, *_]):
                yield range(node.lineno, first.pattern.lineno)
            case ast.stmt() | ast.ExceptHandler():
                body = getattr(node, "body", None)
                assert node.end_lineno is not None
                yield range(node.lineno, max(body[0].lineno, node.lineno + 1) if body else node.end_lineno + 1)


def jumps(path: Path) -> Iterator[int]:
    """Yields the lines of `continue` and `break`. The compiler may jump past them, so that no test seems to reach
    them; those that reach the line above do."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    yield from (node.lineno for node in nodes if isinstance(node, ast.Continue | ast.Break))


def is_found(mutant: Mutant, tests: Sequence[str], folder: Path) -> bool:
    """Tells whether one of the tests fails on the mutant, or none ends."""
    if not tests:
        return False
    own = folder / f"{abs(hash(mutant))}"
    own.mkdir()
    (own / "mutant.py").write_text(mutant.source(), encoding="utf-8")
    (own / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    named = {
        "MUTANT_MODULE": mutant.module,
        "MUTANT_FILE": str(own / "mutant.py"),
        "MUTANT_ORIGIN": str(mutant.path),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(own), os.environ.get("PYTHONPATH")))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        done = subprocess.run(
            [*PYTEST, "-x", f"@{_written(own, tests)}"],
            cwd=ROOT, env=environment() | named, capture_output=True, timeout=LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def _written(folder: Path, tests: Iterable[str]) -> Path:
    path = folder / "tests.txt"
    path.write_text("\n".join(tests), encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--room", choices=ROOMS, required=True)
    parser.add_argument("--n", type=int, default=50, help="mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="write what was drawn and found")
    options = parser.parse_args()
    drawn = draw(files_of(options.room), options.n, options.seed)
    started = time.monotonic()
    with TemporaryDirectory() as name, ThreadPoolExecutor(options.jobs) as pool:
        tests = reached(options.room, Path(name))
        found = list(pool.map(lambda m: is_found(m, tests.get((str(m.path), m.line), ()), Path(name)), drawn))
    for mutant, hit in zip(drawn, found, strict=True):
        if not hit:
            count = len(tests.get((str(mutant.path), mutant.line), ()))
            print(f"survived ({count} tests reach it): {mutant.told()}")
    share = f"{sum(found)} of {len(drawn)} mutants found ({sum(found) / len(drawn):.0%})"
    print(f"{options.room}: {share}, seed {options.seed}, {time.monotonic() - started:.0f} s")
    if options.json:
        rows = [{"mutant": m.told(), "found": hit} for m, hit in zip(drawn, found, strict=True)]
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
