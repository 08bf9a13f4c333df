"""A real `vllm serve` of a tiny model, and what its own metrics and records say."""

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx
import psutil

from tests.engines.environment import EngineEnvironment

START_TIMEOUT_S = 240.0
MODEL = "tiny"
PLUGIN = "services.worker.engines.vllm_scheduler.HmasScheduler"
RECORDING = "tests.engines.recording_scheduler.RecordingScheduler"


def _is_core(process: psutil.Process) -> bool:
    return "EngineCor" in process.name()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class VllmServer:
    """Started with a scheduler class of ours, or with vLLM's own (`scheduler` empty); `control` is its control block.

    Later flags win over earlier ones. Killed and started again by tests.
    """

    def __init__(
        self, environment: EngineEnvironment, folder: Path, *flags: str, scheduler: str = RECORDING,
        model: Path | None = None, nice: int = 10,
    ) -> None:  # fmt: skip
        self._environment = environment
        self._model = model or environment.model
        self._flags = (*flags, *(("--scheduler-cls", scheduler) if scheduler else ()))
        self._nice = nice
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.name = f"127.0.0.1:{self.port}"
        self.control = folder / self.name
        self.log = folder / "vllm.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            "nice", "-n", str(self._nice), str(self._environment.python), "-m", "vllm.entrypoints.cli.main",
            "serve", str(self._model), "--served-model-name", MODEL, "--host", "127.0.0.1",
            "--port", str(self.port), "--max-model-len", "2048", "--max-num-seqs", "64", "--enforce-eager",
            "--distributed-executor-backend", "uni", *self._flags,
        ]  # fmt: skip
        env = self._environment.env() | {"HMAS_CONTROL_BLOCK": str(self.control)}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self.healthy():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError("vLLM did not start:\n" + "\n".join(self.log.read_text().splitlines()[-30:]))
            time.sleep(0.2)

    def healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
            self._process = None

    def pin(self, core_cpus: set[int], other_cpus: set[int]) -> None:
        """Gives the engine core processors of its own, and the API server others."""
        for process in self._processes():
            cpus = core_cpus if _is_core(process) else other_cpus
            for thread in process.threads():
                os.sched_setaffinity(thread.id, cpus)

    @property
    def core_pid(self) -> int:
        """Of the process that runs scheduler and model."""
        return next(process.pid for process in self._processes() if _is_core(process))

    def _processes(self) -> list[psutil.Process]:
        assert self._process is not None
        server = psutil.Process(self._process.pid)
        return [server, *server.children(recursive=True)]

    def metric(self, name: str) -> float:
        """Sum over the label sets of a metric."""
        page = httpx.get(f"{self.url}/metrics", timeout=10).text
        lines = [line for line in page.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
        assert lines, f"no metric {name}"
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    @property
    def running(self) -> int:
        return int(self.metric("vllm:num_requests_running"))

    @property
    def waiting(self) -> int:
        return int(self.metric("vllm:num_requests_waiting"))

    def scheduled(self) -> list[tuple[str, int]]:
        """Request ids and prompt tokens, in the order in which the engine first ran them, since its first start."""
        record = self.control.with_name(self.control.name + ".scheduled")
        lines = record.read_text().splitlines() if record.exists() else []
        return [(line.split()[0], int(line.split()[1])) for line in lines]

    @property
    def cache_tokens(self) -> int:
        """Size of the KV cache, by its own metrics."""
        page = httpx.get(f"{self.url}/metrics", timeout=10).text
        info = next(line for line in page.splitlines() if line.startswith("vllm:cache_config_info{"))
        label = {name: int(re.search(rf'{name}="(\d+)"', info)[1]) for name in ("block_size", "num_gpu_blocks")}  # type: ignore[index]
        return label["block_size"] * label["num_gpu_blocks"]
