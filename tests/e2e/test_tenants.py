"""Keys, limits and hot reload, on a mesh with a tenants file made by `hmas keys`."""

import csv
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.e2e
BODY = {"model": "emulated", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}


def make_key(hmas: str, tenant: str, file: Path) -> tuple[str, str]:
    """The key and its id."""
    argv = [hmas, "keys", "make", tenant, "--file", str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    key_id = done.stderr.split("key ", 1)[1].split()[0]
    return done.stdout.strip(), key_id


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    from tests.conftest import HMAS

    directory = tmp_path_factory.mktemp("guarded")
    file = directory / "tenants.yaml"
    file.write_text(
        "tenants:\n  chat:\n    weight: 2\n  slow:\n    requests_per_min: 2\n  strict:\n    on_miss: refuse\n"
    )
    keys = {tenant: make_key(HMAS, tenant, file)[0] for tenant in ("chat", "slow", "strict")}
    assert keys["chat"] not in file.read_text()
    env = {"HMAS_END_REVOKED": "true"}
    with start_mesh(directory / "mesh", "--tenants", str(file), "--emulated", "1", "--replay", env=env) as running:
        yield running, keys, file


def post(mesh: Any, key: str | None, **headers: str) -> httpx.Response:
    auth = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.post(f"{mesh.url}/v1/chat/completions", json=BODY, headers={**auth, **headers}, timeout=30)


def post_streamed(mesh: Any, key: str, headers: dict[str, str]) -> httpx.Response:
    auth, body = {"authorization": f"Bearer {key}"}, {**BODY, "stream": True}
    return httpx.post(f"{mesh.url}/v1/chat/completions", json=body, headers={**auth, **headers}, timeout=30)


def test_a_key_is_needed_and_must_be_right(guarded: Any) -> None:
    mesh, keys, _ = guarded
    assert post(mesh, keys["chat"]).status_code == 200
    for key in (None, "hmas-wrong", keys["chat"] + "x"):
        answer = post(mesh, key)
        assert answer.status_code == 401
        assert answer.json()["error"]["type"] == "authentication_error"
        assert answer.headers["x-should-retry"] == "false"


def test_the_request_rate_is_bounded_with_an_honest_retry_after(guarded: Any) -> None:
    mesh, keys, _ = guarded
    statuses = [post(mesh, keys["slow"]) for _ in range(4)]
    refused = [a for a in statuses if a.status_code == 429]
    assert len(refused) >= 2
    assert 1 <= int(refused[0].headers["retry-after"]) <= 60
    assert refused[0].headers["x-hmas-reason"] == "tenant_request_rate"


def test_a_ttlt_that_an_idle_engine_cannot_keep_is_refused_with_the_time_that_it_takes(guarded: Any) -> None:
    mesh, keys, _ = guarded
    assert post(mesh, keys["strict"], **{"x-slo-ttlt-ms": "60000"}).status_code == 200
    assert post(mesh, keys["chat"], **{"x-slo-ttlt-ms": "1"}).status_code == 200, "this tenant takes a late answer"
    answer = post(mesh, keys["strict"], **{"x-slo-ttlt-ms": "1", "x-request-id": "hopeless"})
    assert (answer.status_code, answer.headers["x-hmas-reason"]) == (429, "slo_unreachable")
    assert answer.headers["x-should-retry"] == "false"
    assert "retry-after" not in answer.headers
    message = answer.json()["error"]["message"]
    told = re.search(r"would come (\S+) s after .* is due after 0.001 s\. Ask for a TTLT of at least (\S+) s", message)
    assert told is not None, message
    assert 0.0 < float(told[2]) <= float(told[1]) < 30.0
    assert json.loads(mesh.hmas("why", "hopeless", "--json").stdout)["message"] == message


def test_a_first_token_that_an_idle_engine_cannot_have_in_time_is_refused_to_whoever_asks_for_it(guarded: Any) -> None:
    mesh, keys, _ = guarded
    answer = post_streamed(mesh, keys["chat"], {"x-slo-ttft-ms": "1", "x-slo-on-miss": "refuse"})
    assert (answer.status_code, answer.headers["x-hmas-reason"]) == (429, "slo_unreachable")
    assert "its first token would come" in answer.json()["error"]["message"]
    assert post_streamed(mesh, keys["chat"], {"x-slo-ttft-ms": "1"}).status_code == 200


def test_keys_are_revoked_and_a_wrong_file_is_ignored_while_running(guarded: Any) -> None:
    from tests.conftest import HMAS

    mesh, keys, file = guarded
    fresh, fresh_id = make_key(HMAS, "chat", file)
    wait_for(lambda: post(mesh, fresh).status_code == 200)
    good = file.read_text()
    file.write_text("tenants: [this is wrong")
    time.sleep(2.5)
    assert post(mesh, fresh).status_code == 200
    file.write_text(good)
    subprocess.run([HMAS, "keys", "revoke", fresh_id, "--file", str(file)], check=True, capture_output=True)
    wait_for(lambda: post(mesh, fresh).status_code == 401)
    assert post(mesh, keys["chat"]).status_code == 200


def test_the_open_stream_of_a_revoked_key_ends_and_its_use_is_booked(guarded: Any, tmp_path: Path) -> None:
    from tests.conftest import HMAS

    mesh, keys, file = guarded
    fresh, fresh_id = make_key(HMAS, "chat", file)
    wait_for(lambda: post(mesh, fresh).status_code == 200)
    long = {**BODY, "stream": True, "hmas_replay": {"output_tokens": 2000}}
    with httpx.stream(
        "POST",
        f"{mesh.url}/v1/chat/completions",
        json=long,
        headers={"authorization": f"Bearer {fresh}"},
        timeout=30,
    ) as answer:
        lines = answer.iter_lines()
        next(lines)
        subprocess.run([HMAS, "keys", "revoke", fresh_id, "--file", str(file)], check=True, capture_output=True)
        revoked_s = time.monotonic()
        rest = "\n".join(lines)
    assert '"reason":"unauthenticated"' in rest
    assert rest.endswith("data: [DONE]\n")
    print(f"the stream ended {time.monotonic() - revoked_s:.2f} s after the file had changed")
    assert post(mesh, keys["chat"]).status_code == 200
    out, pid = tmp_path / "usage.csv", mesh.pid("gateway")
    folder = str(mesh.directory / "usage")

    def booked() -> dict[str, int]:
        subprocess.run([HMAS, "usage", "export", "--dir", folder, "--out", str(out)], check=True)
        with out.open() as lines:
            return {row["key"]: int(row["requests"]) for row in csv.DictReader(lines)}

    wait_for(lambda: booked().get(fresh_id, 0) >= 2, 30)
    before = booked()
    mesh.kill("gateway")
    wait_for(lambda: restarted(mesh, pid) and post(mesh, keys["chat"]).status_code == 200, 60)
    wait_for(lambda: sum(booked().values()) > sum(before.values()), 30)
    assert all(booked()[key] >= number for key, number in before.items())


def restarted(mesh: Any, pid: int) -> bool:
    try:
        return bool(mesh.pid("gateway") != pid) and httpx.get(f"{mesh.url}/ready").status_code == 200
    except (LookupError, httpx.TransportError):
        return False


def wait_for(condition: Any, timeout_s: float = 15) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true"
        time.sleep(0.2)
