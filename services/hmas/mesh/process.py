"""One supervised child process: it is started, watched, restarted with backoff, and stopped gracefully."""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import structlog

log = structlog.get_logger()

FIRST_BACKOFF_S = 0.3
MAX_BACKOFF_S = 5.0
STEADY_AFTER_S = 10.0  # a process that ran this long restarts with the first backoff again
READ_BYTES = 65_536
MAX_LINE_BYTES = 16_384
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


class LineSplitter:
    """Splits a process's output into lines; a line is cut off at `MAX_LINE_BYTES`."""

    def __init__(self) -> None:
        self._open = bytearray()  # the beginning of a line whose end has not come yet

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the lines that `data` completes, without their line ends."""
        *ends, rest = data.split(b"\n")
        done = []
        for end in ends:
            self._keep(end)
            done.append(bytes(self._open))
            self._open.clear()
        self._keep(rest)
        return done

    def close(self) -> list[bytes]:
        """Returns the last line if the output ended without a line end; otherwise an empty list."""
        return [bytes(self._open)] if self._open else []

    def _keep(self, part: bytes) -> None:
        self._open += part[: MAX_LINE_BYTES - len(self._open)]


class SupervisedProcess:
    """Runs a process and restarts it when it dies, until it is stopped.

    Each line of its output goes to `sink(name, line)`; lines for which `sink` raises are dropped and counted. `refused`
    is true once the process ended with EX_CONFIG, after which a restart would be useless; its last line says why.
    """

    def __init__(self, spec: ProcessSpec, env: Mapping[str, str], sink: Callable[[str, str], None]) -> None:
        self.spec = spec
        self.restarts = 0
        self.lines_dropped = 0
        self.refused = False
        self._env = {**env, **spec.env, "HMAS_PROCESS": spec.name}
        self._sink = sink
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
            code = await self._run_once()
            if self._stopping.is_set():
                return
            if code == os.EX_CONFIG:
                self.refused = True
                return
            log.warning("process_died", process=self.spec.name, code=code)
            self.restarts += 1
            backoff_s = FIRST_BACKOFF_S if loop.time() - started_s > STEADY_AFTER_S else backoff_s
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), backoff_s)
            backoff_s = min(backoff_s * 2, MAX_BACKOFF_S)

    async def stop(self) -> None:
        """Ends the process with SIGTERM, or with SIGKILL if it still runs after `stop_grace_s`."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self.spec.stop_grace_s)
        except TimeoutError:
            log.warning("process_killed", process=self.spec.name, grace_s=self.spec.stop_grace_s)
            process.kill()
            await process.wait()

    async def _run_once(self) -> int:
        self._process = await asyncio.create_subprocess_exec(
            *self.spec.argv,
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches only the supervisor, which stops the processes in order
            preexec_fn=partial(_prepare_child, self.spec.prompt),
        )
        assert self._process.stdout is not None
        lines = LineSplitter()
        while data := await self._process.stdout.read(READ_BYTES):
            for line in lines.feed(data):
                self._pass_on(line)
        for line in lines.close():
            self._pass_on(line)
        return await self._process.wait()

    def _pass_on(self, line: bytes) -> None:
        """Passes a line of output to the sink, and counts it if the sink raises.

        No exception may stop the reading, because a process whose output is not read would block.
        """
        try:
            self._sink(self.spec.name, line.decode(errors="replace"))
        except Exception as error:  # e.g. the disk of the log file is full
            self.lines_dropped += 1
            if self.lines_dropped == 1:
                log.warning("output_dropped", process=self.spec.name, error=repr(error))
