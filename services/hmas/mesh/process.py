"""One supervised child process: it is started, watched, restarted with backoff, and stopped gracefully."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

FIRST_BACKOFF_S = 0.3
MAX_BACKOFF_S = 5.0
STEADY_AFTER_S = 10.0  # a process that ran this long restarts with the first backoff again
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to run. `env` is added to the parent's environment; `stop_grace_s` is the time between SIGTERM and SIGKILL.

    `prompt` asks for real-time scheduling, so that the process runs as soon as it wakes; it has no effect without root
    or CAP_SYS_NICE.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    stop_grace_s: float = 10.0
    prompt: bool = False


def _prepare_child(prompt: bool) -> None:
    """Runs in the child before its program: tells the kernel to end the child when its parent dies.

    Thus not even kill -9 of the supervisor leaves processes behind.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if prompt:
            with suppress(PermissionError):
                os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))


class SupervisedProcess:
    """Runs a process and restarts it when it dies, until it is stopped.

    The process writes its output to the file `log` by itself, so that it goes on whatever happens to the supervisor.
    `report(name, text)` gets one line for each start, death and refusal. `refused` is true once the process ended with
    EX_CONFIG at its first start, after which another would be useless; its last line says why.
    """

    def __init__(
        self, spec: ProcessSpec, env: Mapping[str, str], log: Path, report: Callable[[str, str], None]
    ) -> None:
        self.spec = spec
        self.restarts = 0
        self.refused = False
        self._env = {**env, **spec.env, "HMAS_PROCESS": spec.name}
        self._log = log
        self._report = report
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.returncode is None else None

    async def run(self) -> None:
        """Starts the process and restarts it when it dies, until `stop` is called or it refuses its configuration."""
        backoff_s = FIRST_BACKOFF_S
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            started_s = loop.time()
            end = await self._run_once()
            ran_s = loop.time() - started_s
            self.refused = self.refused and ran_s <= STEADY_AFTER_S  # what served for long had a sound configuration
            if self._stopping.is_set() or self.refused:
                return
            backoff_s = FIRST_BACKOFF_S if ran_s > STEADY_AFTER_S else backoff_s
            self._report(self.spec.name, f"{end} after {ran_s:.1f} s; it starts again in {backoff_s:.1f} s")
            self.restarts += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), backoff_s)
            backoff_s = min(backoff_s * 2, MAX_BACKOFF_S)

    async def stop(self) -> None:
        """Ends the process with SIGTERM, or with SIGKILL if it still runs after `stop_grace_s`."""
        self._stopping.set()
        await self._end()

    async def restart(self, reason: str, env: Mapping[str, str] | None = None) -> None:
        """Ends the process as `stop` does; `run` starts it again, with `env` in its environment from now on."""
        self._env |= env or {}
        self._report(self.spec.name, f"it is restarted: {reason}")
        await self._end()

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self.spec.stop_grace_s)
        except TimeoutError:
            self._report(self.spec.name, f"it did not end within {self.spec.stop_grace_s:g} s of SIGTERM and is killed")
            process.kill()
            await process.wait()

    async def _run_once(self) -> str:
        """Runs the process until it ends, and returns how it ended in words."""
        output = self._open_log()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self.spec.argv,
                env=self._env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C reaches only the supervisor, which stops the processes in order
                preexec_fn=partial(_prepare_child, self.spec.prompt),
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"it could not be started: {error}"
        finally:
            os.close(output)
        if self.restarts:
            self._report(self.spec.name, f"it runs again as process {self._process.pid}")
        if self._stopping.is_set():  # meanwhile
            await self._end()
        code = await self._process.wait()
        self.refused = code == os.EX_CONFIG and not self.restarts
        return f"it died of {signal.Signals(-code).name}" if code < 0 else f"it ended with status {code}"

    def _open_log(self) -> int:
        """Returns a file descriptor for the process's output: nothing is kept of it if its file cannot be made."""
        try:
            return os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError:
            return os.open(os.devnull, os.O_WRONLY)
