"""A real SGLang server of a tiny model on a CPU, and what its own metrics say. Not an environment that anybody uses:
`sglang_environment` tells what is real in it."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import httpx

from tests.engines.sglang_environment import SglangEnvironment
from tests.engines.vllm_server import MODEL, free_port

START_TIMEOUT_S = 300.0
SLOTS = 32  # running requests
QUEUED = 24  # it refuses more than these behind them
CPU = (
    "--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--grammar-backend",
    "none", "--disable-overlap-schedule", "--skip-server-warmup", "--sleep-on-idle",
)  # fmt: skip


class SglangServer:
    """Started as the README says, apart from what a CPU needs. Killed and started again by tests."""

    def __init__(self, environment: SglangEnvironment, folder: Path) -> None:
        self._environment = environment
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "sglang.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            "nice", "-n", "10", str(self._environment.python), "-m", "sglang.launch_server",
            "--model-path", str(self._environment.model), "--served-model-name", MODEL, "--port", str(self.port),
            "--enable-metrics", "--enable-priority-scheduling", "--max-running-requests", str(SLOTS),
            "--max-queued-requests", str(QUEUED), "--max-total-tokens", "65536", "--decode-log-interval", "1", *CPU,
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=self._environment.env(), stdout=log, stderr=log, start_new_session=True
            )
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self.healthy():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                last = [line[:300] for line in self.log.read_text(errors="replace").splitlines()[-30:]]
                raise RuntimeError("SGLang did not start:\n" + "\n".join(last))
            time.sleep(0.2)

    def healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=30).status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
            self._process = None

    def metric(self, name: str) -> float:
        """Sum over the label sets of a metric; 0 where it is not there yet."""
        return sum(self._values(name))

    def _values(self, name: str, label: str = "") -> list[float]:
        page = httpx.get(f"{self.url}/metrics", timeout=30).text
        lines = (line for line in page.splitlines() if line.startswith((f"{name}{{", f"{name} ")) and label in line)
        return [float(line.rsplit(" ", 1)[1]) for line in lines]

    @property
    def running(self) -> int:
        return self._count("sglang:num_running_reqs")

    @property
    def waiting(self) -> int:
        return self._count("sglang:num_queue_reqs")

    def _count(self, name: str) -> int:
        """All of them; beside it, the same metric tells them by priority."""
        return int(sum(self._values(name, 'priority=""')))

    @property
    def cap(self) -> int:
        """The live cap on its running requests."""
        return int(self._server_info()["internal_states"][0]["pp_max_micro_batch_size"])

    @cap.setter
    def cap(self, value: int) -> None:
        body = {"server_args": {"pp_max_micro_batch_size": value}}
        assert httpx.post(f"{self.url}/set_internal_state", json=body, timeout=30).json() == [True]

    def _server_info(self) -> dict[str, list[dict[str, int]]]:
        return dict(httpx.get(f"{self.url}/server_info", timeout=30).json())
