"""The embedded mesh: starts the processes of a plan in order, waits until it serves, stops them in reverse order."""

import asyncio
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from hmas.mesh.options import MeshOptions
from hmas.mesh.plan import MeshPlan, make_plan
from hmas.mesh.process import SupervisedProcess
from hmas.mesh.state import forget_state
from hmas.runtime.settings import wrong_variables

log = structlog.get_logger()

READY_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 5.0
LOG_BYTES = 8 * 2**20
ALARMS = ("warning", "error", "critical", "traceback")


class MeshFailed(Exception):
    """A process of the mesh did not become ready."""


class ProcessLogs:
    """Writes one rotating log file per process; lines with a word of ALARMS also go to `alarm(process, line)`."""

    def __init__(self, directory: Path, alarm: Callable[[str, str], None]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._alarm = alarm
        self._files: dict[str, RotatingFileHandler] = {}

    def write(self, name: str, line: str) -> None:
        handler = self._files.get(name)
        if handler is None:
            path = self._directory / f"{name}.log"
            path.unlink(missing_ok=True)
            handler = self._files[name] = RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=1)
        handler.emit(logging.LogRecord(name, logging.INFO, "", 0, line, None, None))
        if any(word in line.lower() for word in ALARMS):
            self._alarm(name, line)

    def tail(self, name: str, lines: int = 15) -> str:
        path = self._directory / f"{name}.log"
        return "\n".join(path.read_text().splitlines()[-lines:]) if path.exists() else ""

    def close(self) -> None:
        for handler in self._files.values():
            handler.close()


class Mesh:
    """An embedded mesh: inside `async with Mesh(options, alarm) as mesh:` it serves at `mesh.plan.gateway_url`.

    `alarm(process, line)` gets log lines that look like warnings or errors. Entering raises MeshFailed.
    """

    def __init__(self, options: MeshOptions, alarm: Callable[[str, str], None] = lambda name, line: None) -> None:
        self.options = options
        self.plan: MeshPlan = make_plan(options)
        self.logs = ProcessLogs(options.data_dir / "logs", alarm)
        self._alarm = alarm
        self.processes: dict[str, SupervisedProcess] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _start(self) -> None:
        wrong = wrong_variables(os.environ)
        for variable, advice in wrong.items():
            self._alarm("settings", f"{variable}: {advice}")
        unset = {*wrong, "PYTHONDONTWRITEBYTECODE"}  # what was told here needs no telling by every process
        env = {k: v for k, v in os.environ.items() if k not in unset}
        for spec in self.plan.processes:
            process = SupervisedProcess(spec, env, self.logs.write)
            self.processes[spec.name] = process
            self._tasks[spec.name] = asyncio.create_task(process.run())
            if spec.name in self.plan.first:
                await self._wait_ready(spec.name, self.plan.ready_urls[spec.name])
        await asyncio.gather(*(self._wait_ready(n, url) for n, url in self.plan.ready_urls.items()))
        await self._wait_connected()
        pids = {name: p.pid for name, p in self.processes.items() if p.pid is not None}
        self.plan.state(pids).write(self.options.data_dir)

    async def _wait_ready(self, name: str, url: str) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + READY_TIMEOUT_S
        while not await asyncio.to_thread(_answers, url):
            if self.processes[name].refused:
                raise MeshFailed(self.logs.tail(name, 1))
            if loop.time() > deadline_s or self.processes[name].restarts > 2:
                raise MeshFailed(
                    f"the process {name} did not become ready ({url}); its last log lines:\n{self.logs.tail(name)}"
                )
            await asyncio.sleep(0.1)

    async def _wait_connected(self) -> None:
        """Waits until the gateway is connected to all workers, known by their heartbeats.

        The wait ends without an error after `CONNECT_TIMEOUT_S`, because the gateway serves with fewer workers as well.
        """
        wanted = sum(name.startswith("worker") for name in self.processes)
        deadline_s = asyncio.get_running_loop().time() + CONNECT_TIMEOUT_S
        while asyncio.get_running_loop().time() < deadline_s:
            if await asyncio.to_thread(_workers_connected, self.plan.gateway_url) >= wanted:
                return
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        """Stops the processes: the gateway first, so that its open requests still complete, and NATS last."""
        for name in reversed(self.processes):
            await self.processes[name].stop()
            await asyncio.gather(self._tasks[name], return_exceptions=True)
        forget_state(self.options.data_dir)
        self.logs.close()


def _answers(url: str) -> bool:
    """Tells whether `url` answers with a status below 300; for `tcp://host:port` a connection is enough."""
    if url.startswith("tcp://"):
        import socket

        host, port = url.removeprefix("tcp://").split(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0
    try:
        with urllib.request.urlopen(url, timeout=1.0) as reply:
            return bool(reply.status < 300)
    except (urllib.error.URLError, OSError):
        return False


def _workers_connected(gateway_url: str) -> int:
    """Returns the number of workers connected, from the gateway's metrics; 0 if these cannot be read."""
    try:
        with urllib.request.urlopen(f"{gateway_url}/metrics", timeout=1.0) as reply:
            lines = reply.read().decode().splitlines()
    except (urllib.error.URLError, OSError):
        return 0
    return int(sum(float(line.split()[-1]) for line in lines if line.startswith("hmas_gateway_workers_connected ")))
