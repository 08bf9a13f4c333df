"""A real `vllm serve` of a tiny model, and what its own metrics and records say."""

import json
import os
import re
from pathlib import Path
from typing import Any

import psutil

from tests.engines.engine_server import MODEL, EngineServer
from tests.engines.environment import EngineEnvironment

PLUGIN = "hmas.plugins.vllm.HmasScheduler"
RECORDING = "tests.engines.recording_scheduler.RecordingScheduler"


def _is_core(process: psutil.Process) -> bool:
    return "EngineCor" in process.name()


class VllmServer(EngineServer):
    """With a scheduler class of ours, or with vLLM's own (`scheduler` empty); `control` is its control block.

    Later flags win over earlier ones.
    """

    def __init__(
        self, environment: EngineEnvironment, folder: Path, *flags: str, scheduler: str = RECORDING,
        model: Path | None = None, nice: int = 10, api_key: str = "",
    ) -> None:  # fmt: skip
        super().__init__("vLLM", folder / "vllm.log", api_key)
        self._environment = environment
        self._model = model or environment.model
        self._flags = (
            *flags, *(("--scheduler-cls", scheduler) if scheduler else ()), *(("--api-key", api_key) if api_key else ())
        )  # fmt: skip
        self._nice = nice
        self.name = f"127.0.0.1:{self.port}"
        self.control = folder / self.name

    def env(self) -> dict[str, str]:
        return self._environment.env() | {"HMAS_CONTROL_BLOCK": str(self.control)}

    def command(self) -> list[str]:
        return [
            "nice", "-n", str(self._nice), str(self._environment.python), "-m", "vllm.entrypoints.cli.main",
            "serve", str(self._model), "--served-model-name", MODEL, "--host", "127.0.0.1",
            "--port", str(self.port), "--max-model-len", "2048", "--max-num-seqs", "64", "--enforce-eager",
            "--distributed-executor-backend", "uni",
            "--dtype", "float32",  # with bfloat16, some processors with AMX get an illegal instruction in its attention
            *self._flags,
        ]  # fmt: skip

    def pin(self, core_cpus: set[int], other_cpus: set[int]) -> None:
        """Gives the engine core processors of its own, and the API server others."""
        for process in self.processes():
            cpus = core_cpus if _is_core(process) else other_cpus
            for thread in process.threads():
                os.sched_setaffinity(thread.id, cpus)

    @property
    def core_pid(self) -> int:
        """Of the process that runs scheduler and model."""
        return next(process.pid for process in self.processes() if _is_core(process))

    def metric(self, name: str) -> float:
        """Sum over the label sets of a metric, which vLLM has from its start on."""
        values = self.values(name)
        assert values, f"no metric {name}"
        return sum(values)

    @property
    def running(self) -> int:
        return int(self.metric("vllm:num_requests_running"))

    @property
    def waiting(self) -> int:
        return int(self.metric("vllm:num_requests_waiting"))

    def scheduled(self) -> list[dict[str, Any]]:
        """What `RecordingScheduler` wrote of each request, in the order in which the engine first ran them."""
        record = self.control.with_name(self.control.name + ".scheduled")
        return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []

    @property
    def cache_tokens(self) -> int:
        """Size of the KV cache, by its own metrics."""
        page = self.ask("/metrics").text
        info = next(line for line in page.splitlines() if line.startswith("vllm:cache_config_info{"))
        label = {name: int(re.search(rf'{name}="(\d+)"', info)[1]) for name in ("block_size", "num_gpu_blocks")}  # type: ignore[index]
        return label["block_size"] * label["num_gpu_blocks"]
