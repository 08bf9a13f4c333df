"""Keys, limits and hot reload, on a mesh with a tenants file made by `hmas keys`."""

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
    file.write_text("tenants:\n  chat:\n    weight: 2\n  slow:\n    requests_per_min: 2\n")
    keys = {tenant: make_key(HMAS, tenant, file)[0] for tenant in ("chat", "slow")}
    assert keys["chat"] not in file.read_text()
    with start_mesh(directory / "mesh", "--tenants", str(file), "--emulated", "1") as running:
        yield running, keys, file


def post(mesh: Any, key: str | None, **headers: str) -> httpx.Response:
    auth = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.post(f"{mesh.url}/v1/chat/completions", json=BODY, headers={**auth, **headers}, timeout=30)


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


def wait_for(condition: Any, timeout_s: float = 15) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true"
        time.sleep(0.2)
