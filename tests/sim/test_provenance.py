"""Which code a result depends on."""

from pathlib import Path

import pytest

from hmas_lab.sim.provenance import ENGINES_ONLY, SOURCES, WITH_MESH, _reached, source_digest

FILES = {
    "ours/__init__.py": "",
    "ours/run.py": "import json\nfrom ours.core import step\n\n\ndef late():\n    from ours import lazy\n",
    "ours/core.py": "step = 1\n",
    "ours/lazy.py": "",
    "ours/table.yaml": "a: 1\n",
    "ours/other.py": "from ours.core import step\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "matters"), [("core.py", True), ("lazy.py", True), ("table.yaml", True), ("other.py", False)]
)
def test_only_what_is_reached_matters(root: Path, changed: str, matters: bool) -> None:
    before = source_digest(("ours.run",), (root,))
    (root / "ours" / changed).write_text("b = 2\n")
    source_digest.cache_clear()
    assert (source_digest(("ours.run",), (root,)) != before) is matters


def test_an_unknown_root_is_an_error(root: Path) -> None:
    with pytest.raises(ValueError, match=r"modules ours\.gone are not under"):
        source_digest(("ours.gone",), (root,))


def test_baselines_do_not_depend_on_the_mesh() -> None:
    def rooms(roots: tuple[str, ...]) -> set[str]:
        room = SOURCES[0] / "hmas"
        return {p.relative_to(room).parts[0] for p in _reached(SOURCES, roots) if p.is_relative_to(room)}

    agents = {"gateway", "worker", "qos", "meta", "statera", "perception"}  # a rival with costs gets our predictions
    assert agents | {"prediction"} <= rooms(WITH_MESH)
    assert not agents & rooms(ENGINES_ONLY)
    assert {"engine", "contracts", "sim"} <= rooms(ENGINES_ONLY)
