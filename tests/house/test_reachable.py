"""Everything in the wheel is there for somebody: each module is reached from the `hmas` command or from a service."""

import ast
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from hmas.mesh.cli import PARTS
from tests.house.repository import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
GENERATED = "hmas.wire.v1"
LABORATORY = "hmas_lab"
# What is imported, or started as a process, by a name in the text of the module on the left.
BY_NAME: dict[str, tuple[str, ...]] = {
    "hmas.mesh.cli": tuple(part.module for part in PARTS.values() if not part.module.startswith(LABORATORY)),
    "hmas.meta.rehearsals": ("hmas.sim.past.rehearse",),
    "hmas.meta.plan_searches": ("hmas.sim.searched_plans",),
    "hmas.console.rehearsals": ("hmas.mesh.whatif_cli",),
}
# What another program imports by a name in its own configuration, and the page that says how.
BY_OTHERS = {"hmas.plugins.vllm_kv.connector": "docs/two-engines.md"}

# What only a study runs so far, and which: the arbiter of a host has no process yet (ADR 64).
BY_STUDIES = {"hmas.host.agent.arbiter": "experiments/residency/fleet.py"}


def wheel() -> dict[str, Path]:
    """The modules of the wheel by their names."""
    found = {}
    for package in PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        folder = ROOT / package
        for path in folder.rglob("*.py"):
            found[".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__")] = path
    return found


def entries(modules: Iterable[str]) -> set[str]:
    """The modules of console scripts, and what `python -m` starts: each service, and the load generator."""
    scripts = {target.partition(":")[0] for target in PYPROJECT["project"]["scripts"].values()}
    return scripts | {name for name in modules if name.endswith(".__main__")}


def imported(source: str, modules: Iterable[str]) -> set[str]:
    """Which of `modules` a text imports when it runs, in functions too, with the packages around them."""
    names: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        waiting += ast.iter_child_nodes(node)
    parts = [name.split(".") for name in names]
    return {".".join(part[:n]) for part in parts for n in range(1, len(part) + 1)} & set(modules)


def unreachable(sources: Mapping[str, str], starts: Iterable[str], by_name: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The modules among `sources` (texts by name) that no start leads to."""
    reached: set[str] = set()
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            parts = name.split(".")
            waiting += [".".join(parts[:n]) for n in range(1, len(parts))]
            waiting += [*imported(sources[name], sources), *by_name.get(name, ())]
    return sorted(set(sources) - reached)


def test_every_module_of_the_wheel_is_reached_from_a_command_or_a_service() -> None:
    sources = {name: path.read_text() for name, path in wheel().items()}
    assert len(entries(sources)) >= 10
    starts = entries(sources) | BY_OTHERS.keys() | BY_STUDIES.keys()
    assert [name for name in unreachable(sources, starts, BY_NAME) if not name.startswith(GENERATED)] == []


@pytest.mark.parametrize("module", BY_OTHERS)
def test_what_another_program_imports_is_named_on_its_page(module: str) -> None:
    assert f'"{module}"' in (ROOT / BY_OTHERS[module]).read_text()


@pytest.mark.parametrize("module", BY_STUDIES)
def test_what_only_a_study_runs_is_run_by_it(module: str) -> None:
    assert module in imported((ROOT / BY_STUDIES[module]).read_text(), wheel())


@pytest.mark.parametrize("module", BY_NAME)
def test_what_is_reached_by_its_name_is_named_there(module: str) -> None:
    text = wheel()[module].read_text()
    assert [name for name in BY_NAME[module] if f'"{name}"' not in text] == []


def test_a_module_that_nobody_starts_is_found() -> None:
    sources = {
        "a": "", "a.__main__": "from a import used", "a.used": "def f():\n    import a.late", "a.late": "",
        "a.typed": "", "a.named": "", "a.lost": "from a import used",
    }  # fmt: skip
    sources["a.used"] += "\nif TYPE_CHECKING:\n    from a import typed"
    assert unreachable(sources, ["a.__main__"], {"a.late": ("a.named",)}) == ["a.lost", "a.typed"]
