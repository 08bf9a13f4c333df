"""The example packages, built and installed beside the wheel: every edge knows what they add by its name."""

import json
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.package.conftest import ROOT, Installed, build

pytestmark = [pytest.mark.package, pytest.mark.timeout(900)]

EXAMPLES = ("hmas-last-first", "hmas-classic-orders")
PIP = ("python", "-m", "pip", "--quiet", "--disable-pip-version-check")
START_S = 180.0


@pytest.fixture(scope="module")
def extended(common: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The environment of the other tests, with both packages in it until those here have ended."""
    built = [str(build(ROOT / "examples" / "plugins" / name, tmp_path_factory.mktemp(name))) for name in EXAMPLES]
    done = common.run(*PIP, "install", "--no-deps", "--no-index", *built)
    assert done.returncode == 0, done.stderr
    yield common
    done = common.run(*PIP, "uninstall", "--yes", *EXAMPLES)
    assert done.returncode == 0, done.stderr


def test_before_they_are_installed_a_name_of_theirs_is_refused_with_those_that_there_are(common: Installed) -> None:
    """The first test of the file, because the others install them."""
    refused = common.run("hmas", "pin", "last_first")
    assert refused.returncode != 0
    assert "'last_first' is not a topology: use one of fcfs, edf" in refused.stderr


SIMULATE = """
from hmas.contracts.control import TopologyName
from hmas.engine.core.profile import builtin_profile
from hmas.mesh.compare.workload import ReplayWorkload
from hmas.meta.agent.config import MetaConfig
from hmas.sim.offered import offered
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import MeshSetup

profile = builtin_profile("tiny-emulated")
trace = ReplayWorkload(None, 4096).at(30.0, 30.0, seed=1)
workload = offered(trace, trace.name, 30.0, 1, stated=True, prompts=False).fitting(profile)
for setup in (
    MeshSetup(estimator="none", pin=TopologyName("last_first")),
    MeshSetup(estimator="none", pin=TopologyName("llf")),
    MeshSetup(estimator="none", meta_config=MetaConfig(selector="last_first_when_late")),
):
    mesh = MeshSim(setup, profile, 1, workload, 1)
    mesh.run()
    print(*dict.fromkeys(span.topology for span in mesh.workers["w0"].spans))
"""


def test_the_simulator_serves_by_their_orders_and_their_selector_chooses_one(extended: Installed) -> None:
    done = extended.run("python", "-c", SIMULATE, timeout_s=600)
    assert done.returncode == 0, done.stderr
    pinned, classic, chosen = (line.split() for line in done.stdout.splitlines())
    assert (pinned[-1], classic[-1]) == ("last_first", "llf")
    assert "last_first" in chosen


def test_a_rehearsal_tells_what_their_orders_would_have_done(extended: Installed, tmp_path: Path) -> None:
    past = tmp_path / "past.jsonl"
    rows = [{"timestamp": 20 * i, "input_length": 300, "output_length": 40, "hash_ids": []} for i in range(120)]
    past.write_text("".join(json.dumps(row) + "\n" for row in rows))
    question = ("--last", "30m", "--engines", "1", "--profile", "tiny-emulated", "--json")
    orders = ("--topology", "last_first", "--topology", "llf")
    done = extended.run("hmas", "whatif", str(past), *question, *orders, timeout_s=600)
    assert done.stdout, done.stderr
    first, second = json.loads(done.stdout)["candidates"]
    assert [each["policy"]["topology"] for each in (first, second)] == ["last_first", "llf"]
    assert first["figures"]["requests"] == second["figures"]["requests"] == len(rows)
    assert first["figures"]["ttft_p50_s"] != second["figures"]["ttft_p50_s"]


def test_a_mesh_takes_their_selector_and_a_pin_to_their_order(extended: Installed) -> None:
    env = {"PATH": "/usr/bin:/bin", "HMAS_SELECTOR": "last_first_when_late", "HMAS_TOPOLOGIES": "last_first"}
    command = [str(extended.venv / "bin" / "hmas"), "up", "--port", "0", "--data-dir", "extended"]
    with (extended.folder / "extended.log").open("wb") as log:
        mesh = subprocess.Popen(command, cwd=extended.folder, env=env, stdout=log, stderr=log)
    try:
        state, deadline_s = extended.folder / "extended" / "mesh.json", time.monotonic() + START_S
        while not state.exists():
            assert mesh.poll() is None, (extended.folder / "extended.log").read_text()
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        facts = json.loads(state.read_text())
        pinned = extended.run("hmas", "pin", "last_first", "--data-dir", "extended")
        assert (pinned.returncode, pinned.stdout.strip()) == (0, f"{facts['pool']}: pinned to last_first"), pinned
        while served_by(extended, facts) != "last_first":
            assert time.monotonic() < deadline_s
    finally:
        mesh.send_signal(signal.SIGINT)
        mesh.wait(60)


def served_by(installed: Installed, facts: dict[str, str]) -> str:
    """Sends a request and returns the topology by which a worker ordered it."""
    body = json.dumps({"model": facts["pool"], "prompt": "Hello", "max_tokens": 2}).encode()
    ask = urllib.request.Request(f"{facts['gateway_url']}/v1/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(ask, timeout=30) as reply:
        request_id = reply.headers["x-request-id"]
    told = installed.run("hmas", "why", request_id, "--json", "--data-dir", "extended")
    assert told.returncode == 0, told.stderr
    return str(json.loads(told.stdout)["runs"][-1]["timeline"]["topology"])
