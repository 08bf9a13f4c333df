"""A worker that follows an engine's KV events: what it promises of a prompt is what the engine then finds, to a block,
and nothing is promised once the engine's cache was reset."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hmas.mesh.ports import free_port
from tests.conftest import eventually
from tests.engine_farm import is_healthy
from tests.engines.agent_loops import Call, Loops, client_of, jobs, learn_promises

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), pytest.mark.long]
LOOPS = Loops(seed=5, model="emulated", stages=3, pause_s=0.01, answer=(4, 8))
BLOCK = 16


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Starts an emulated engine; gives its URL, and the settings of a worker that follows it."""
    port, events, replay = free_port(), free_port(), free_port()
    told = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://127.0.0.1:{events}",
            "replay_endpoint": f"tcp://127.0.0.1:{replay}"}  # fmt: skip
    argv = [sys.executable, "-m", "hmas.engine", "--profile", "tiny-emulated", "--port", str(port),
            "--served-model-name", "emulated", "--enable-prefix-caching",
            "--kv-events-config", json.dumps(told)]  # fmt: skip
    env = {k: v for k, v in os.environ.items() if not k.startswith("HMAS_")}
    with (tmp_path / "engine.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, env=env)
    try:
        yield f"http://127.0.0.1:{port}", {
            "HMAS_KV_EVENTS": f"tcp://{{host}}:{events}", "HMAS_KV_EVENTS_REPLAY": f"tcp://{{host}}:{replay}"
        }  # fmt: skip
    finally:
        process.kill()
        process.wait()


async def asked(mesh: Any, prefix: str) -> list[Call]:
    """Runs the same two agents, one after the other, and asks what was promised of their calls."""
    async with client_of(mesh.url) as client:
        calls = await jobs(client.chat.completions.create, LOOPS, range(2), 1, prefix)
    await learn_promises(mesh, calls)
    return calls


async def test_promises_are_true_before_and_after_a_reset(engine: Any, tmp_path: Path, start_mesh: Any) -> None:
    url, env = engine
    await eventually(lambda: is_healthy(url), 60)
    with start_mesh(tmp_path / "mesh", "--engine", url, env=env) as mesh:
        new, again = await asked(mesh, "new-"), await asked(mesh, "again-")
        assert httpx.post(f"{url}/reset_prefix_cache").status_code == 200
        after = await asked(mesh, "after-")
    for call in [*new, *again, *after]:
        assert abs(call.promised - call.cached) <= BLOCK, call
    assert [call.cached > 0 for call in new] == [False, True, True] * 2
    assert all(call.promised > 0.9 * call.prompt_tokens - BLOCK for call in again)
    firsts = [call for call in after if call.name.endswith("-0")]
    assert [(call.promised, call.cached) for call in firsts] == [(0, 0)] * 2
