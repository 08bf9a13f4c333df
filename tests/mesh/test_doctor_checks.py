"""What `hmas doctor` says of each door."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from hmas.mesh import doctor_checks
from hmas.mesh.certificates import make_certificates
from hmas.mesh.doctor import Finding


class Engine(BaseHTTPRequestHandler):
    """An engine that asks for a key and may show metrics."""

    metrics = b""

    def do_GET(self) -> None:
        body = b"" if self.path == "/health" else self.metrics
        if self.path == "/v1/models":
            if self.headers["authorization"] != "Bearer swordfish":
                self.send_error(401)
                return
            body = json.dumps({"data": [{"id": "qwen", "max_model_len": 4096}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def verdicts(findings: list[Finding]) -> list[str]:
    return [finding.verdict for finding in findings]


def test_an_engine_is_asked_for_its_model_and_metrics(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdicts(doctor_checks.your_engines([engine])) == ["ok", "fail"]  # it asks for a key
    without = doctor_checks.your_engines([engine], "swordfish")
    assert verdicts(without) == ["ok", "ok", "warn"]
    assert "4096" in without[1].detail
    monkeypatch.setattr(Engine, "metrics", b"vllm:num_requests_running 0\n")
    found = doctor_checks.your_engines([engine], "swordfish")
    assert verdicts(found) == ["ok", "ok", "ok"]
    assert "--max-num-seqs" in found[2].detail


def test_no_engine_is_no_fault() -> None:
    assert verdicts(doctor_checks.your_engines([])) == ["warn"]
    assert verdicts(doctor_checks.your_engines(["http://127.0.0.1:9"])) == ["fail"]


def test_a_source_of_engines_is_read(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "engines.yaml"
    file.write_text(f"- {engine}\n")
    assert verdicts(doctor_checks.your_engines([f"file+{file}"], "swordfish")) == ["ok", "ok", "ok", "warn"]
    file.write_text("- not a url\n")
    assert verdicts(doctor_checks.your_engines([f"file+{file}"])) == ["fail"]
    assert verdicts(doctor_checks.your_engines(["dns+http://localhost:8000"])) == ["ok"]
    assert verdicts(doctor_checks.your_engines(["dns+http://none.invalid:8000"])) == ["fail"]
    assert verdicts(doctor_checks.your_engines(["dns+nonsense"])) == ["fail"]
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert verdicts(doctor_checks.your_engines(["kubernetes+http://:8000/app=vllm"])) == ["fail"]


def test_certificates_must_belong_together(tmp_path: Path) -> None:
    make_certificates(tmp_path, 90.0)
    make_certificates(tmp_path / "short", 3.0)
    certs = sorted(tmp_path.glob("gateway/*.pem"))
    cert, key = (next(path for path in certs if word in path.name) for word in ("cert", "key"))
    assert verdicts(doctor_checks.tls_check(cert, key)) == ["ok"]
    short = tmp_path / "short" / "gateway"
    assert verdicts(doctor_checks.tls_check(short / cert.name, short / key.name)) == ["warn"]  # renew it
    assert verdicts(doctor_checks.tls_check(cert, short / key.name)) == ["fail"]
    assert verdicts(doctor_checks.tls_check(cert, None)) == ["fail"]
    assert verdicts(doctor_checks.tls_check(tmp_path / "no", tmp_path / "no")) == ["fail"]
    assert verdicts(doctor_checks.tls_check(None, None)) == ["ok"]


def test_a_taken_console_port_is_no_fault(engine: str, tmp_path: Path) -> None:
    (finding,) = doctor_checks.console_check(int(engine.rpartition(":")[2]), tmp_path)
    assert (finding.verdict, "any free port" in finding.advice) == ("warn", True)


def test_traces_are_counted(tmp_path: Path) -> None:
    assert verdicts(doctor_checks.load_check(tmp_path)) == ["ok", "ok", "warn"]
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "mine.csv").write_text("")
    assert verdicts(doctor_checks.load_check(tmp_path)) == ["ok", "ok", "ok"]


def test_tools_that_are_missing_or_stopped_say_what_to_do() -> None:
    for door in (doctor_checks.containers, doctor_checks.kubernetes):
        assert verdicts(door(lambda command: (0, "v1"))) == ["ok", "ok"]
        missing = door(lambda command: (127, "not found"))
        assert verdicts(missing) == ["warn", "warn"]
        assert all(finding.advice.startswith("install") for finding in missing)
        assert verdicts(door(lambda command: (1, "refused"))) == ["warn", "warn"]
    assert doctor_checks.runs(["no-such-command"]) == (127, "not found")
    assert doctor_checks.runs(["sh", "-c", "echo one; echo two"]) == (0, "two")
    assert doctor_checks.runs(["sh", "-c", "echo one; echo no such command >&2; echo help >&2; exit 1"]) == (
        1,
        "no such command",
    )
