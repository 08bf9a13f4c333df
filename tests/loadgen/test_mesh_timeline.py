"""What a target that is our mesh decided during a run."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import orjson
import pytest

from hmas_loadgen.timeline import during, fetch_timeline

TOLD = {"topology": [{"unix_s": 5.0, "pool": "m", "topology": "sjf"}], "control": []}


class _Mesh(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.path == "/hmas/timeline?model=a%2Fb" and self.headers["authorization"] == "Bearer k"
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(orjson.dumps(TOLD if known else {}))

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def mesh() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Mesh) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_mesh_is_asked_for_the_model_of_the_run(mesh: str) -> None:
    assert fetch_timeline(mesh, "a/b", "k") == TOLD
    assert fetch_timeline(mesh, "other", "k") is None


def test_a_run_begins_with_what_was_in_force() -> None:
    topology = [{"unix_s": t, "pool": "m", "topology": name} for t, name in ((10, "fcfs"), (90, "sjf"), (130, "edf"))]
    control = [{"unix_s": t, "worker": w, "n_run": t} for t, w in ((20, "w1"), (30, "w2"), (60, "w1"), (170, "w1"))]
    found = during({"topology": topology, "control": control}, 100.0, 50.0)
    assert [(e["at_s"], e["topology"]) for e in found["topology"]] == [(0.0, "sjf"), (30.0, "edf")]
    assert [(e["at_s"], e["worker"], e["n_run"]) for e in found["control"]] == [(0.0, "w2", 30), (0.0, "w1", 60)]


def test_a_run_before_all_decisions_has_none() -> None:
    assert during({"topology": TOLD["topology"], "control": []}, -50.0, 20.0) == {"topology": [], "control": []}
