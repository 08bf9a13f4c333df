"""pyproject.toml alone holds the version: command, package, image, chart and changelog show the same one."""

import re
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from docs.version import PLACES, project_version, stamped
from hmas.mesh.cli import app
from tests.house.repository import ROOT

HEADING = re.compile(r"^## (\d+)\.(\d+)\.(\d+) \((\d{4}-\d{2}-\d{2})\)$", re.MULTILINE)


def headings() -> list[tuple[tuple[int, ...], str]]:
    """The versions of the changelog as they stand in it, with their days."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## .*$", text, re.MULTILINE)) == {"## Unreleased"} | {
        found[0] for found in HEADING.finditer(text)
    }
    return [(tuple(map(int, numbers)), day) for *numbers, day in HEADING.findall(text)]


def test_the_command_and_the_package_show_it() -> None:
    told = "what is installed is older than pyproject.toml: make .venv/.installed"
    assert version("hmas") == project_version(), told
    assert CliRunner().invoke(app, ["--version"]).stdout.strip() == project_version()


def test_the_chart_and_the_image_show_it() -> None:
    chart = yaml.safe_load((ROOT / "deploy/helm/hmas/Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (project_version(),) * 2
    label = re.compile(r'^LABEL .*org\.opencontainers\.image\.version="([^"]+)"', re.MULTILINE)
    assert label.findall((ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")) == [project_version()]


def test_the_changelog_begins_with_it_and_goes_back() -> None:
    versions = headings()
    assert ".".join(map(str, versions[0][0])) == project_version()
    assert versions == sorted(versions, reverse=True)
    assert [day for _, day in versions] == sorted((day for _, day in versions), reverse=True)
    assert len({number for number, _ in versions}) == len(versions)


@pytest.mark.parametrize("place", PLACES)
def test_a_new_version_is_written_and_a_lost_place_is_refused(place: str, tmp_path: Path) -> None:
    (tmp_path / place).parent.mkdir(parents=True)
    shutil.copy(ROOT / place, tmp_path / place)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "12.3.4"\n')
    assert stamped(place, tmp_path).count("12.3.4") == len(PLACES[place])
    assert stamped(place, tmp_path).replace("12.3.4", project_version()) == stamped(place)
    (tmp_path / place).write_text("no version\n")
    with pytest.raises(ValueError, match="must show the version once"):
        stamped(place, tmp_path)
