"""Runs solvers: processes that read a question, compute for seconds or minutes, write one answer and end."""

import asyncio
import os
import resource
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from hmas.runtime.priority import LOWEST, weigh_session


@dataclass(frozen=True, slots=True, kw_only=True)
class Solver:
    """A kind of solver. Its process has the lowest priority of its session. `weight`: the niceness of the session
    among others. `answers`: the exit codes with which it has answered. With `own_session` it ends with all that it
    started; without, it belongs to the session and the process group of this process, as a command at a terminal does,
    and ends with them."""

    command: Sequence[str]
    limit_s: float
    max_bytes: int = 2**24  # of an answer, and of what is said on the error stream
    weight: int = LOWEST
    answers: tuple[int, ...] = (0,)
    own_session: bool = True


@dataclass(frozen=True, slots=True)
class Solved:
    """What a solver answered, and the CPU time of its process in s."""

    answer: bytes
    cpu_s: float


class SolverFailed(ValueError):
    """A solver gave no answer. The message is the last line that it said, or what ended it; `cpu_s` is what it took."""

    def __init__(self, reason: str, cpu_s: float) -> None:
        super().__init__(reason)
        self.cpu_s = cpu_s


class SolverLate(SolverFailed):
    """A solver was ended at its limit."""


async def solve(solver: Solver, lines: bytes = b"") -> Solved:
    """Runs a solver on the lines of a question. Its process has ended whenever this returns, raises or is cancelled.

    Raises SolverFailed, SolverLate included; OSError or ValueError if it cannot be started.
    """
    before_s = _children_s()
    process = await asyncio.create_subprocess_exec(
        *solver.command,
        stdin=PIPE if lines else DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=solver.own_session,
    )
    try:
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, process.pid, LOWEST)
        weigh_session(process.pid, solver.weight)
        async with asyncio.timeout(solver.limit_s):
            answer, said = await _exchanged(solver, process, lines)
    except TimeoutError:
        await _ended(solver, process)
        raise SolverLate(f"it took longer than {solver.limit_s:g} s", _children_s() - before_s) from None
    finally:
        await _ended(solver, process)
    cpu_s = _children_s() - before_s
    if max(len(answer), len(said)) > solver.max_bytes:
        raise SolverFailed(f"its answer has more than {solver.max_bytes} bytes", cpu_s)
    if process.returncode not in solver.answers:
        message = said.decode(errors="replace").strip().rpartition("\n")[2].removeprefix("hmas: ")
        raise SolverFailed(message or f"its process ended with status {process.returncode}", cpu_s)
    return Solved(answer, cpu_s)


async def _exchanged(solver: Solver, process: Process, lines: bytes) -> tuple[bytes, bytes]:
    """Writes the question and returns what came on both streams, once the process has ended."""
    assert process.stdout is not None
    assert process.stderr is not None
    answer, said, _ = await asyncio.gather(
        _read(solver, process, process.stdout), _read(solver, process, process.stderr), _write(process, lines)
    )
    await process.wait()
    return answer, said


async def _write(process: Process, lines: bytes) -> None:
    if process.stdin is not None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it has ended early, and says why
            process.stdin.write(lines)
            await process.stdin.drain()
        process.stdin.close()


async def _read(solver: Solver, process: Process, stream: asyncio.StreamReader) -> bytes:
    """Returns all of a stream, or a little more than is allowed of one that is too long. That ends the process, and is
    read to its end all the same, because a process counts as ended only once its pipes are."""
    read = bytearray()
    while chunk := await stream.read(2**16):
        if len(read) <= solver.max_bytes:
            read += chunk
        if len(read) > solver.max_bytes:
            _kill(solver, process)
    return bytes(read)


def _kill(solver: Solver, process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            if solver.own_session:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()


async def _ended(solver: Solver, process: Process) -> None:
    _kill(solver, process)
    await process.wait()


def _children_s() -> float:
    """Returns the CPU time of all ended child processes of this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # in microseconds, where os.times() counts ticks of 10 ms
    return used.ru_utime + used.ru_stime
