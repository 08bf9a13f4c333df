"""A policy of one's own in a live mesh: it serves while it is pinned, and one that fails is taken out."""

import json
import os
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import OPS_HEADERS, PATIENCE_S
from tests.examples.installed_policy import add_topology, install_policy

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

RAISES = """
from hmas_shortest_prompt import ShortestPrompt

class Raises(ShortestPrompt):
    def pop(self):
        raise RuntimeError("not today")

def make(hints):
    return Raises()
"""
ENDLESS = RAISES.replace('raise RuntimeError("not today")', "while True: pass")


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("own")
    site = install_policy(folder)
    add_topology(site, "raises", RAISES)
    add_topology(site, "endless", ENDLESS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")])))
        patch.setenv("HMAS_TOPOLOGIES", "shortest_prompt,raises,endless")
        with start_mesh(folder / "mesh", "--emulated", "1") as running:
            yield running


def served_by(mesh: Any) -> str:
    """Sends a request and returns the topology by which the worker ordered it."""
    body = json.dumps({"model": mesh.state["pool"], "prompt": "Hello", "max_tokens": 2}).encode()
    ask = urllib.request.Request(f"{mesh.url}/v1/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(ask, timeout=PATIENCE_S) as reply:
        request_id = reply.headers["x-request-id"]
    told = mesh.hmas("why", request_id, "--json", timeout=PATIENCE_S)
    assert told.returncode == 0, told.stderr
    return str(json.loads(told.stdout)["runs"][-1]["timeline"]["topology"])


def pin(mesh: Any, name: str) -> None:
    done = mesh.hmas("pin", name, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr


def serves(mesh: Any, name: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while (served := served_by(mesh)) != name:
        assert time.monotonic() < deadline_s, served


def taken_out(mesh: Any) -> int:
    """How many topologies the worker has taken out."""
    url = mesh.state["ops_urls"]["worker-1"]
    with urllib.request.urlopen(urllib.request.Request(f"{url}/metrics", headers=OPS_HEADERS[url]), timeout=30) as page:
        lines = page.read().decode().splitlines()
    return int(
        sum(float(line.split()[-1]) for line in lines if line.startswith("hmas_worker_failed_topologies_total "))
    )


def test_it_serves_while_it_is_pinned_and_not_before_or_after(mesh: Any) -> None:
    serves(mesh, "max_on_time")
    pin(mesh, "shortest_prompt")
    serves(mesh, "shortest_prompt")
    pin(mesh, "off")
    serves(mesh, "max_on_time")
    assert taken_out(mesh) == 0


@pytest.mark.parametrize(("name", "reason"), [("raises", "RuntimeError: not today"), ("endless", "OrderTooSlow")])
def test_one_that_fails_is_taken_out_and_the_mesh_serves_on(mesh: Any, name: str, reason: str) -> None:
    before = taken_out(mesh)
    pin(mesh, name)
    deadline_s = time.monotonic() + PATIENCE_S
    while taken_out(mesh) == before:
        assert time.monotonic() < deadline_s
        served_by(mesh)  # an answer comes; the request at which it fails still names it
    serves(mesh, "max_on_time")
    log = (mesh.directory / "logs" / "worker-1.log").read_text()
    (failed,) = [line for line in log.splitlines() if "topology_failed" in line and f"topology={name}" in line]
    assert "instead=max_on_time" in failed
    assert reason in failed
    assert f"in {name}.py, line 6" in failed
    pin(mesh, "off")
    pin(mesh, "shortest_prompt")
    serves(mesh, "shortest_prompt")
    pin(mesh, "off")
