"""Runs the real and the emulated engine as processes, each for the length of a `with` block."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.fidelity.scenario import ReplayScenario
from hmas.mesh.ports import free_port
from tests.engines.engine_server import MODEL
from tests.engines.environment import EngineEnvironment
from tests.engines.vllm_server import VllmServer

START_S = 60.0


@contextmanager
def real(environment: EngineEnvironment, scenario: ReplayScenario) -> Iterator[str]:
    """Runs a vLLM with its own scheduler and yields its URL."""
    model = environment.sized_model(scenario.hidden, scenario.layers)
    with tempfile.TemporaryDirectory(prefix="hmas-fidelity-") as folder:
        server = VllmServer(environment, Path(folder), *scenario.flags(), scheduler="", model=model, nice=0)
        try:
            server.start()
            yield server.url
        finally:
            server.kill()


@contextmanager
def emulated(profile_file: Path, profile: str) -> Iterator[str]:
    """Runs an emulated engine with the profile named `profile` of `profile_file`, and yields its URL. Raises
    RuntimeError if it does not start within 60 s."""
    port = free_port()
    command = [
        sys.executable, "-m", "hmas.engine", "--profile-file", str(profile_file), "--profile", profile,
        "--port", str(port), "--served-model-name", MODEL, "--no-enable-prefix-caching",
    ]  # fmt: skip
    process = subprocess.Popen(command)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(url, process)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            if httpx.get(f"{url}/health", timeout=2).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise RuntimeError(f"the emulated engine did not answer at {url}/health within {START_S:g} s; see its output above")
