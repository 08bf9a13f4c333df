"""A real engine's server process: started, killed and started again by tests; what its own metrics say."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from hmas.mesh.ports import free_port

START_TIMEOUT_S = 300.0
LAST_LINES, LINE = 30, 300
MODEL = "tiny"


class EngineServer:
    """`command` and `env` are those of one start; the port is in `command` as the caller put it there, and so is
    `api_key`, which the engine asks for ("": none)."""

    def __init__(self, name: str, log: Path, api_key: str = "") -> None:
        self.api_key = api_key
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def env(self) -> Mapping[str, str]:
        raise NotImplementedError

    def start(self) -> None:
        """Until it is healthy. RuntimeError with the end of its log."""
        self.launch()
        self.wait_healthy()

    def launch(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), env=self.env(), stdout=log, stderr=log, start_new_session=True
            )

    def wait_healthy(self) -> None:
        """RuntimeError with the end of its log."""
        assert self._process is not None
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self.healthy():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                lines = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
                raise RuntimeError(f"{self._name} did not start:\n" + "\n".join(line[:LINE] for line in lines))
            time.sleep(0.2)

    @property
    def running(self) -> int:
        raise NotImplementedError

    @property
    def waiting(self) -> int:
        raise NotImplementedError

    def ask(self, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        """The answer to a GET, or to a POST if there is a body, with the engine's key."""
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        method = "GET" if body is None else "POST"
        return httpx.request(method, f"{self.url}{path}", json=body, headers=headers, timeout=30)

    def healthy(self) -> bool:
        try:
            return self.ask("/health").status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
            self._process = None

    def processes(self) -> list[psutil.Process]:
        assert self._process is not None
        server = psutil.Process(self._process.pid)
        return [server, *server.children(recursive=True)]

    def values(self, name: str, label: str = "") -> list[float]:
        """Of a metric, those whose labels hold `label`."""
        page = self.ask("/metrics").text
        lines = (line for line in page.splitlines() if line.startswith((f"{name}{{", f"{name} ")) and label in line)
        return [float(line.rsplit(" ", 1)[1]) for line in lines]

    def metric(self, name: str) -> float:
        """Sum over the label sets of a metric; 0 where it is not there yet."""
        return sum(self.values(name))
