"""What docs/python.md shows runs as it stands, and its names are those of `hmas.api`."""

import ast
import doctest
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import hmas.api
from hmas.entry_points import installed
from tests.house.repository import ROOT

PAGE = ROOT / "docs/python.md"
SESSION = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def ran(text: str) -> doctest.TestResults:
    """Runs all sessions of a page as one."""
    sessions = "\n".join(SESSION.findall(text))
    parsed = doctest.DocTestParser().get_doctest(sessions, {}, PAGE.name, str(PAGE), 0)
    return doctest.DocTestRunner().run(parsed)


def imported(source: str) -> set[str]:
    found = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom))
    return {alias.name for node in found if node.module == "hmas.api" for alias in node.names}


def test_the_page_s_sessions_say_what_they_say() -> None:
    result = ran(PAGE.read_text())
    assert result.failed == 0
    assert result.attempted >= 15


def test_a_session_that_says_another_thing_is_found() -> None:
    assert ran("```pycon\n>>> 1 + 1\n3\n\n```\n").failed == 1


def test_every_public_name_is_there_and_is_what_type_checkers_see() -> None:
    tree = ast.parse(Path(hmas.api.__file__).read_text())
    typed = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert dir(hmas.api) == sorted(typed)
    for name, module in typed.items():
        assert getattr(hmas.api, name) is getattr(import_module(str(module)), name)


def test_the_page_imports_public_names_only_and_names_each() -> None:
    text = PAGE.read_text()
    (program,) = PROGRAM.findall(text)
    sessions = "\n".join(
        line[4:] for found in SESSION.findall(text) for line in found.splitlines() if line[:4] == ">>> "
    )
    assert imported(program) | set(re.findall(r"\w+", sessions)) >= {
        name
        for name in dir(hmas.api)
        if name not in ("Hints", "LoadResult", "SimulatedRequest", "SimulatedTable", "MeshFailed")
    }
    assert imported(program) <= set(dir(hmas.api))
    assert re.search(r"\bMeshFailed\b", text)


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(AttributeError, match=r"hmas\.api has no 'Cluster': use one of EngineInfo, "):
        _: Any = hmas.api.Cluster


def test_a_simulation_lets_an_order_of_a_package_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "hmas_shortest_prompt-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hmas-shortest-prompt\nVersion: 0.1.0\n")
    line = "shortest_prompt = hmas_shortest_prompt:make_shortest_prompt"
    (info / "entry_points.txt").write_text(f"[hmas.topologies]\n{line}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT / "examples/policy"))
    installed.cache_clear()
    source = hmas.api.Source(trace="poisson", duration_s=10.0, rate_rps=3.0, seed=1)
    table = hmas.api.simulate(source, "tiny-emulated", "shortest_prompt", estimator="none")
    installed.cache_clear()
    assert table.topologies[-1] == "shortest_prompt"
