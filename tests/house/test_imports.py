"""The rules of import hold, and import-linter sees them broken."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

from tests.house.repository import PACKAGES, ROOT

PURE = "What decides has no clock, no I/O, no randomness of its own and no shell"
LAYERS = "A worker's order knows of its engines, these of requests, and nothing the other way round"
CONSOLE = "The console hears, asks and pins, and knows no room"
UNKNOWN = "No room, and nothing that a room stands on, knows the console"
PRODUCT = "The product never imports the laboratory"
LINT_IMPORTS = str(Path(sys.executable).parent / "lint-imports")
AGENTS = sorted(
    ".".join(path.relative_to(ROOT / "services").parts) for path in (ROOT / "services/hmas").glob("**/agent")
)


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of the packages and of their rules."""
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=lambda folder, names: _not_python(Path(folder), names)
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def _not_python(folder: Path, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__" or not ((folder / name).is_dir() or name.endswith(".py"))]


def plant(house: Path, module: str, statement: str) -> None:
    """Puts an import at the end of a module, or of a package's own."""
    path = house / "services" / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    path.write_text(f"{path.read_text()}\n{statement}\n")


def lint(house: Path) -> tuple[int, str]:
    """Exit status and report of import-linter, its lines joined."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (house / "services", house / "loadgen", house / "lab", house)))
    }
    done = subprocess.run(
        [LINT_IMPORTS, "--no-cache"], cwd=house, env=environment, capture_output=True, text=True, timeout=120
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_the_rules_hold(house: Path) -> None:
    status, report = lint(house)
    assert status == 0, report


def test_a_clock_is_refused_in_every_agent(house: Path) -> None:
    for agent in AGENTS:
        plant(house, agent, "import time")
    status, report = lint(house)
    assert status == 1
    assert f"{PURE} BROKEN" in report
    assert [agent for agent in AGENTS if f"{agent} -> time" not in report] == []
    assert len(AGENTS) >= 8


@pytest.mark.parametrize(
    ("module", "statement", "contract", "arrow"),
    [
        ("hmas.laws.slo", "import asyncio", PURE, "hmas.laws.slo -> asyncio"),
        ("hmas.contracts.request", "import random", PURE, "hmas.contracts.request -> random"),
        ("hmas.engine.core.step", "import logging", PURE, "hmas.engine.core.step -> logging"),
        ("hmas.worker.metrics", "import experiments", PRODUCT, "hmas.worker.metrics -> experiments"),
        ("hmas.console.state", "import hmas.qos.agent", CONSOLE, "hmas.console.state -> hmas.qos.agent"),
        ("hmas.runtime.bus", "import hmas.console.state", UNKNOWN, "hmas.runtime.bus -> hmas.console.state"),
        (
            "hmas.worker.agent.engines.flow",
            "import hmas.worker.agent.order.shares",
            LAYERS,
            "hmas.worker.agent.engines.flow -> hmas.worker.agent.order.shares",
        ),
        ("hmas.worker.metrics", "import hmas.qos", "Rooms never import one another", "hmas.worker.metrics -> hmas.qos"),
    ],
)
def test_a_forbidden_import_is_refused(house: Path, module: str, statement: str, contract: str, arrow: str) -> None:
    plant(house, module, statement)
    status, report = lint(house)
    assert status == 1
    assert f"{contract} BROKEN" in report
    assert arrow in report


def circle(imports: Mapping[str, set[str]]) -> list[str]:
    """The modules of one circle of imports, in order; empty where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """What each module imports, for types alone as well."""
    graph = grimp.build_graph("hmas", "hmas_loadgen", "hmas_lab", "experiments", "benchmarks", cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def test_no_modules_import_one_another_in_a_circle(imports: dict[str, set[str]]) -> None:
    assert circle(imports) == []


def test_a_circle_is_found() -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"b"}})) == {"b", "c"}


def test_the_product_knows_nothing_of_the_laboratory(imports: dict[str, set[str]]) -> None:
    laboratory = ("hmas_lab", "experiments", "benchmarks")
    assert [
        f"{module} -> {imported}"
        for module, found in imports.items()
        for imported in found
        if not module.startswith(laboratory) and imported.startswith(laboratory)
    ] == []
