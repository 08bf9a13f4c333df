"""What a release holds is the same byte for byte wherever and whenever it is built."""

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.release import ROOT, chart, image, sbom, sums, wheel
from docs.version import project_version

pytestmark = pytest.mark.package

EPOCH_S = 1_750_000_000
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "locks", "services", "loadgen", "deploy/helm/hmas",
          "deploy/grafana/dashboards")  # fmt: skip


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources in another folder, with the dates of now and other rights, written in the opposite order."""
    copy = tmp_path_factory.mktemp("elsewhere")
    listed = subprocess.check_output(["git", "ls-files", *NEEDED], cwd=ROOT, text=True).splitlines()
    for name in sorted(listed, reverse=True):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name, follow_symlinks=False)
        if not (copy / name).is_symlink():
            (copy / name).chmod(0o600)
    return copy


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("far_away")
def test_wheel_chart_and_bill_of_materials_are_the_same_twice(elsewhere: Path, tmp_path: Path) -> None:
    built = []
    for number, root in enumerate((ROOT, elsewhere)):
        out = tmp_path / str(number)
        out.mkdir()
        for part in (wheel, chart, sbom):
            part(root, out, EPOCH_S)
        built.append(sums(out))
    assert built[0] == built[1]
    version = project_version()
    named = [f"hmas-{version}-py3-none-any.whl", f"hmas-{version}.tgz", "sbom.cdx.json"]
    assert [line.split("  ")[1] for line in built[0].splitlines()] == named


def test_they_show_the_version_and_the_date_of_the_commit(tmp_path: Path) -> None:
    chart(ROOT, tmp_path, EPOCH_S)
    sbom(ROOT, tmp_path, EPOCH_S)
    with tarfile.open(tmp_path / f"hmas-{project_version()}.tgz") as archive:
        entries = archive.getmembers()
        assert {entry.mtime for entry in entries} == {EPOCH_S}
        assert entries[0].name == "hmas/Chart.yaml"
        assert all(entry.isreg() for entry in entries)
        dashboards = [entry for entry in entries if entry.name.startswith("hmas/files/dashboards/")]
        assert len(dashboards) == len(list((ROOT / "deploy/grafana/dashboards").iterdir())) > 0
    root = json.loads((tmp_path / "sbom.cdx.json").read_text())["metadata"]["component"]
    assert (root["name"], root["version"]) == ("hmas", project_version())


def test_without_an_engine_of_docker_the_image_is_left_out_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    image(ROOT, tmp_path, EPOCH_S)
    assert list(tmp_path.iterdir()) == []
    assert f"no Docker engine runs here: hmas:{project_version()} is left out" in capsys.readouterr().err
