"""What is told to install an extra works where it is told, and names no package that a stranger may have."""

import json
import re
import shlex
import subprocess
import sys
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

from hmas import installation
from hmas.installation import install_command, packages_of

ROOT = Path(__file__).resolve().parents[2]
METADATA = """Metadata-Version: 2.4
Name: hmas
Version: 1
Requires-Dist: httptools>=0.6
Requires-Dist: numpy>=2.0; extra == 'sim'
Requires-Dist: hmas[sim,load]; extra == 'all'
Requires-Dist: pyarrow>=18; (python_version > "3") and extra == "load"
Requires-Dist: numpy>=2.0; extra == 'load'
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of metadata, which is taken for that of this installation."""
    folder = tmp_path / "installed.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(METADATA)
    monkeypatch.setattr(installation, "distribution", lambda name: PathDistribution(folder))
    return folder


def told(installed: Path, url: str = "", *, editable: bool = False) -> list[str]:
    """Returns the words of the command, where the installation came from `url`."""
    if url:
        (installed / "direct_url.json").write_text(json.dumps({"url": url, "dir_info": {"editable": editable}}))
    return shlex.split(install_command("load"))


def test_a_clone_or_a_wheel_that_is_there_is_named_by_its_path(installed: Path, tmp_path: Path) -> None:
    clone = tmp_path / "a clone"
    clone.mkdir()
    assert told(installed, clone.as_uri())[-1] == f"{clone}[load]"
    assert told(installed, clone.as_uri(), editable=True)[-2:] == ["-e", f"{clone}[load]"]


@pytest.mark.parametrize("url", ["", "file:///gone", "git+https://host/repository", "https://host/hmas-1.whl"])
def test_without_it_the_packages_themselves_are_named(installed: Path, url: str) -> None:
    words = told(installed, url)
    assert words[words.index("install") + 1 :][-2:] == ["pyarrow>=18", "numpy>=2.0"]
    assert "hmas" not in " ".join(words).replace(sys.executable, "")


def test_an_extra_of_extras_has_the_packages_of_all(installed: Path) -> None:
    assert packages_of(Distribution.at(installed), "all") == ["numpy>=2.0", "pyarrow>=18"]
    assert packages_of(Distribution.at(installed), "other") == []


def test_the_installer_is_one_that_this_python_has() -> None:
    words = shlex.split(install_command("kv-events"))
    assert sys.executable in words
    if "-m" in words:
        assert subprocess.run([*words[:3], "--version"], capture_output=True, timeout=120).returncode == 0


def test_nothing_advises_to_install_the_name_from_an_index() -> None:
    pages = [path for folder in ("services", "docs", "loadgen", "lab") for path in (ROOT / folder).rglob("*.[pm][yd]")]
    pages += ROOT.glob("*.md")
    advice = re.compile(r"pip install(?: -\S+)* ['\"]?hmas(?![-\w/])")
    assert advice.search("pip install --no-deps hmas")
    assert advice.search("pip install 'hmas[sim]'")
    assert [str(page) for page in pages if advice.search(page.read_text(encoding="utf-8"))] == []
