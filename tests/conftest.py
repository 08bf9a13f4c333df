"""Helpers that several suites share: a mesh started by the real command, and polling."""

import asyncio
import gc
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes says nothing on a busy machine. `make quick` takes the profile `quick`, `make test` takes
# `short`, and `make test-long` runs the same properties in the default profile.
settings.register_profile("default", deadline=None)
settings.register_profile("short", deadline=None, max_examples=20, stateful_step_count=30)
settings.register_profile("quick", deadline=None, max_examples=10, stateful_step_count=20)
settings.register_profile("soak", deadline=None, max_examples=3000, stateful_step_count=100)
settings.load_profile(os.environ.get("HMAS_HYPOTHESIS_PROFILE", "default"))


def examples(most: int) -> int:
    """`most`, or what another profile says: for `max_examples` of a test that wants another number. A smaller profile
    only lowers it, and `soak` only raises it."""
    profile, said = settings.get_current_profile_name(), settings().max_examples
    return most if profile == "default" else max(most, said) if profile == "soak" else min(most, said)


# The test files that depend on what else the machine does, and why. `make e2e` runs them after all others, one by one.
# No other test does: each passes beside two busy processes of the same priority.
QUIET = {
    "tests/e2e/test_meta_llm.py": "a question to the language model is given up after a second and a half",
    "tests/e2e/test_switches_by_itself.py": "what the mesh can serve decides when it switches, and rehearsals take CPU",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.partition("::")[0] in QUIET:
            item.add_marker(pytest.mark.quiet)


def pytest_collection_finish() -> None:
    """Thousands of tests and all that they import stay to the end: looking through them at each full collection of the
    garbage took half of the time of the unit tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_logs_of_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that a test calls in this process does not set up logging for all tests after it."""
    monkeypatch.setattr("hmas.mesh.command.configure_logs", lambda *_: None)


DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
if DATA.is_dir():
    os.environ.setdefault("HMAS_DATA", str(DATA))

# Its tests read PromQL and Kubernetes schemas with packages that only the extra `deploy` brings.
collect_ignore: list[str] = [] if importlib.util.find_spec("promql_parser") else ["deploy"]

HMAS = str(Path(sys.executable).parent / "hmas")
START_TIMEOUT_S = 90.0
# How long a test waits for what must happen. A busy machine may need much of it; only a failure waits until its end.
PATIENCE_S = 60.0
# By the URL of an ops port of a running mesh: what its pages ask for.
OPS_HEADERS: dict[str, dict[str, str]] = {}


class RunningMesh:
    """`hmas up` as a user starts it, on free ports, with its own data directory.

    Its output goes to the file `output`, or to the file descriptor `terminal`.
    """

    def __init__(
        self, directory: Path, args: Sequence[str], env: dict[str, str] | None = None, terminal: int | None = None
    ) -> None:
        self.directory = directory
        self.output = directory / "up.log"
        console = () if "--console-port" in args else ("--no-console",)
        clean = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [HMAS, "up", "--port", "0", "--data-dir", str(directory), *console, *args],
                stdout=out if terminal is None else terminal, stderr=subprocess.STDOUT, env={**clean, **(env or {})},
            )  # fmt: skip

    @property
    def state(self) -> dict[str, Any]:
        return dict(json.loads((self.directory / "mesh.json").read_text()))

    def wait_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (self.directory / "mesh.json").exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the mesh did not start:\n{self.output.read_text()}")
            time.sleep(0.05)
        token = Path(self.state["ops_token_file"]).read_text()
        OPS_HEADERS.update({url: {"authorization": f"Bearer {token}"} for url in self.state["ops_urls"].values()})

    @property
    def url(self) -> str:
        return str(self.state["gateway_url"])

    @property
    def gateway_ops_url(self) -> str:
        return str(self.state["ops_urls"]["gateway"])

    def pid(self, name: str) -> int:
        """The process's pid now (the supervisor may have restarted it)."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        wanted = {"nats": "nats-server"}.get(name, f"HMAS_PROCESS={name}")
        for child in children:
            try:
                environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
                command = Path(f"/proc/{child}/cmdline").read_bytes()
            except OSError:
                continue
            if wanted.encode() in environment or (name == "nats" and wanted.encode() in command):
                return int(child)
        raise LookupError(name)

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid(name), number)

    def hmas(self, *args: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
        """Runs another `hmas` command against this mesh."""
        return subprocess.run(
            [HMAS, *args, "--data-dir", str(self.directory)],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@contextmanager
def running_mesh(
    directory: Path, *args: str, env: dict[str, str] | None = None, terminal: int | None = None
) -> Iterator[RunningMesh]:
    directory.mkdir(parents=True, exist_ok=True)
    mesh = RunningMesh(directory, args, env, terminal)
    try:
        mesh.wait_ready()
        yield mesh
    finally:
        mesh.stop()


@pytest.fixture(scope="session")
def start_mesh() -> Callable[..., Any]:
    return running_mesh


async def eventually(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Polls until the condition holds; fails after the time-out."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.05)
