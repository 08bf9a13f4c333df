"""`hmas top`, `why`, `pin`, `doctor` against a running mesh."""

import json
import subprocess
import time
from typing import Any

import openai
import pytest

from hmas.contracts.routes import Role
from hmas.sim.recordings import AGENTS, replay
from tests.conftest import HMAS, PATIENCE_S

pytestmark = pytest.mark.e2e


def test_why_tells_a_requests_walk(mesh: Any, client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="emulated", messages=[{"role": "user", "content": "Translate 'good day' into French."}], max_tokens=5
    )
    request_id = raw.headers["x-request-id"]
    shown = mesh.hmas("why", request_id)
    assert shown.returncode == 0, shown.stderr
    timeline = json.loads(mesh.hmas("why", request_id, "--json").stdout)
    text = json.dumps(timeline)
    for word in (request_id, "finished", "worker", "engine", "topology"):
        assert word in text
    (attempt,), (run,) = timeline["attempts"], timeline["runs"]
    assert attempt["worker"] == run["worker"]
    assert run["outcome"] == "finished"
    assert not run["bypass"]
    assert run["timeline"]["queued_s"] <= run["started_s"] <= run["ended_s"]
    messages: list[openai.types.chat.ChatCompletionMessageParam] = [
        {"role": "user", "content": "Translate 'good day' into French."},
        {"role": "assistant", "content": "Bonjour."},
        {"role": "user", "content": "And 'good night'?"},
    ]
    later = client.chat.completions.with_raw_response.create(model="emulated", messages=messages, max_tokens=5)
    job = json.loads(mesh.hmas("why", later.headers["x-request-id"], "--json").stdout)["job"]
    assert (job["index"], job["linked"]) == (timeline["job"]["index"] + 1, "prefix")
    assert job["job"] == timeline["job"]["job"]
    unknown = mesh.hmas("why", "req-nobody")
    assert unknown.returncode == 1
    assert "no gateway remembers" in unknown.stderr


def test_a_pin_is_seen_in_top_and_lifted(mesh: Any, client: openai.OpenAI) -> None:
    assert mesh.hmas("pin", "wfq").returncode == 0
    client.chat.completions.create(model="emulated", messages=[{"role": "user", "content": "x"}], max_tokens=2)
    deadline, shown = time.monotonic() + PATIENCE_S, ""
    while not all(word in shown for word in ("emulated", "worker-1", "N_run", "B_token", "wfq")):
        assert time.monotonic() < deadline, shown
        shown = mesh.hmas("top", "--once", "1.5").stdout
    assert mesh.hmas("pin", "off").returncode == 0
    wrong = mesh.hmas("pin", "bogosort")
    assert wrong.returncode == 1
    assert "bogosort" in wrong.stderr


def test_a_misspelt_variable_is_named_once_and_kept_from_the_services(mesh: Any) -> None:
    told = [line for line in mesh.output.read_text().splitlines() if "HMAS_STREM_PORT" in line]
    assert len(told) == 1
    assert "did you mean HMAS_STREAM_PORT?" in told[0]
    logs = [path.read_text() for path in (mesh.directory / "logs").glob("*.log")]
    assert len(logs) >= 10
    assert not any("HMAS_STREM_PORT" in text for text in logs)


def test_doctor_finds_the_mesh_well(mesh: Any) -> None:
    port = mesh.url.rsplit(":", 1)[1]
    shown = mesh.hmas("doctor", "--port", port)
    assert shown.returncode == 0, shown.stdout
    bad = mesh.hmas("doctor", "--port", port, "--engine", "http://127.0.0.1:9")
    assert bad.returncode == 1
    assert "start the engine" in bad.stdout.replace("\n", " ")


def test_commands_without_a_mesh_say_what_to_do(mesh: Any, tmp_path: Any) -> None:
    done = subprocess.run([HMAS, "top", "--data-dir", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "hmas up" in done.stderr
    assert "Traceback" not in done.stderr


def test_why_shows_what_each_agent_heard_of_a_request_and_did(mesh: Any, client: openai.OpenAI) -> None:
    secret = "the password of the harbour is swordfish"
    raw = client.chat.completions.with_raw_response.create(
        model="emulated", messages=[{"role": "user", "content": secret}], max_tokens=5
    )
    request_id = raw.headers["x-request-id"]
    deadline = time.monotonic() + PATIENCE_S
    roles: set[str] = set()
    while not roles >= {"gateway", "worker", "qos", "statera", "perception", "prediction"}:  # telemetry is on its way
        assert time.monotonic() < deadline, roles
        done = mesh.hmas("why", request_id, "--effects", "--json")
        assert done.returncode == 0, done.stderr
        steps = json.loads(done.stdout)
        roles = {step["role"] for step in steps}
    assert "swordfish" not in done.stdout
    told = {(step["role"], effect["$"]) for step in steps for effect in step["effects"]}
    assert told >= {("gateway", "ToWorker"), ("worker", "ToGateway"), ("gateway", "StartRun"), ("gateway", "Settle")}
    ages = [step["age_s"] for step in steps]
    assert ages == sorted(ages, reverse=True)
    shown = mesh.hmas("why", request_id, "--effects").stdout
    for word in ("RequestReceived", "Submit(", "Grant(", "Started(", "Settle", "worker-1", "steps of the last"):
        assert word in shown


def test_what_the_live_agents_recorded_replays_equal(mesh: Any, client: openai.OpenAI) -> None:
    secret = "the password of the lighthouse is angelfish"
    client.chat.completions.create(model="emulated", messages=[{"role": "user", "content": secret}], max_tokens=5)
    deadline = time.monotonic() + PATIENCE_S
    while True:  # a mesh that has just begun has told little yet
        replayed: dict[Role, int] = {}  # effects in all recordings of a role: a process that came again has several
        for path in sorted((mesh.directory / "recorded").iterdir()):
            assert "angelfish" not in path.read_text()
            done = replay(path)
            assert done.difference is None
            replayed[done.origin.role] = replayed.get(done.origin.role, 0) + done.effects
        silent = set(AGENTS) - {role for role, effects in replayed.items() if effects} - {Role.META}
        if not silent or time.monotonic() > deadline:
            break
        time.sleep(1.0)
    assert set(replayed) == set(AGENTS)
    assert not silent
