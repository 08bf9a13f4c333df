"""A real SGLang server of a tiny model on a CPU, and what its own metrics say. Not an environment that anybody uses:
`sglang_environment` tells what is real in it."""

from pathlib import Path

from tests.engines.engine_server import MODEL, EngineServer
from tests.engines.sglang_environment import SglangEnvironment

SLOTS = 32  # running requests
QUEUED = 24  # it refuses more than these behind them
CPU = (
    "--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--grammar-backend",
    "none", "--disable-overlap-schedule", "--skip-server-warmup", "--sleep-on-idle",
)  # fmt: skip


class SglangServer(EngineServer):
    """Started as the README says, apart from what a CPU needs. `by_priority`: with priority scheduling, which its
    metrics then count by."""

    def __init__(
        self, environment: SglangEnvironment, folder: Path, *, kv_tokens: int = 65_536, by_priority: bool = True
    ) -> None:
        super().__init__("SGLang", folder / "sglang.log", api_key="sglang-key")
        self._environment = environment
        self._kv_tokens = kv_tokens
        self._by_priority = by_priority

    def env(self) -> dict[str, str]:
        return self._environment.env()

    def command(self) -> list[str]:
        return [
            "nice", "-n", "10", str(self._environment.python), "-m", "sglang.launch_server",
            "--model-path", str(self._environment.model), "--served-model-name", MODEL, "--port", str(self.port),
            "--enable-metrics", "--max-running-requests", str(SLOTS), "--max-queued-requests", str(QUEUED),
            "--max-total-tokens", str(self._kv_tokens), "--decode-log-interval", "1", "--api-key", self.api_key,
            *(["--enable-priority-scheduling"] if self._by_priority else []), *CPU,
        ]  # fmt: skip

    @property
    def running(self) -> int:
        return self._count("sglang:num_running_reqs")

    @property
    def waiting(self) -> int:
        return self._count("sglang:num_queue_reqs")

    def _count(self, name: str) -> int:
        """All of them; by priority, the same metric tells them once more for each."""
        return int(sum(self.values(name, 'priority=""' if self._by_priority else "")))

    @property
    def cap(self) -> int:
        """The live cap on its running requests."""
        return int(self._server_info()["internal_states"][0]["pp_max_micro_batch_size"])

    @cap.setter
    def cap(self, value: int) -> None:
        body = {"server_args": {"pp_max_micro_batch_size": value}}
        assert self.ask("/set_internal_state", body).json() == [True]

    def _server_info(self) -> dict[str, list[dict[str, int]]]:
        return dict(self.ask("/server_info").json())
