"""Solver processes: within a time limit and a size, at the lowest priority, and ended with all that they started."""

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from hmas.runtime.priority import LOW, LOWEST
from hmas.runtime.solver import Solver, SolverFailed, SolverLate, solve


def solver(source: str, limit_s: float = 600.0, max_bytes: int = 2**20, *, own_session: bool = True) -> Solver:
    """A solver of that source, whose session weighs as much as this one's, so that the test need not wait."""
    return Solver(
        command=(sys.executable, "-S", "-c", source), limit_s=limit_s, max_bytes=max_bytes, weight=0, answers=(0, 3),
        own_session=own_session,
    )  # fmt: skip


ENDLESS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"


def starting(path: Path) -> str:
    """Source of a process that starts another one without end, which writes its number to the file."""
    return f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ENDLESS!r}, {str(path)!r}])"


async def written(path: Path) -> int:
    async with asyncio.timeout(60.0):
        while not path.exists() or not path.read_text():
            await asyncio.sleep(0.01)
    return int(path.read_text())


async def gone(pid: int) -> None:
    async with asyncio.timeout(60.0):
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("status", [0, 3])
async def test_it_reads_lines_and_its_answer_and_cpu_time_are_returned(status: int) -> None:
    source = (
        "import sys, time\n"
        "lines = sys.stdin.readlines()\n"
        "while time.process_time() < 0.3: pass\n"
        f"print(len(lines), lines[-1], end=''); sys.exit({status})"
    )
    solved = await solve(solver(source), b"question\n" + b"row\n" * 100_000)
    assert solved.answer == b"100001 row\n"
    assert solved.cpu_s > 0.25


async def test_it_need_not_read_its_lines() -> None:
    assert (await solve(solver("print('no')"), b"row\n" * 500_000)).answer == b"no\n"
    assert (await solve(solver("import sys; print(len(sys.stdin.read()))"))).answer == b"0\n"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import sys; print('first', file=sys.stderr); sys.exit('hmas: no engines')", "no engines"),
        ("import sys; print('an answer'); sys.exit(7)", "its process ended with status 7"),
    ],
)
async def test_a_failure_is_told_in_its_last_words(source: str, told: str) -> None:
    with pytest.raises(SolverFailed, match=f"^{told}$") as failed:
        await solve(solver(source))
    assert failed.value.cpu_s > 0.0


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_output_without_end_is_not_read(stream: str) -> None:
    source = f"import sys\nwhile True: print('x' * 4096, file=sys.{stream})"
    with pytest.raises(SolverFailed, match="its answer has more than 10000 bytes"):
        await solve(solver(source, max_bytes=10_000))


@pytest.mark.parametrize("own_session", [True, False])
async def test_at_its_limit_it_is_ended(own_session: bool) -> None:
    before = set(psutil.Process().children())
    with pytest.raises(SolverLate, match=r"it took longer than 0\.5 s"):
        await solve(solver("import time; time.sleep(600)", limit_s=0.5, own_session=own_session))
    assert set(psutil.Process().children()) <= before


async def test_it_ends_with_all_that_it_started(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    running = asyncio.create_task(solve(solver(starting(path))))
    pid = await written(path)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await gone(pid)


@pytest.mark.parametrize("own_session", [True, False])
async def test_a_cancelled_one_has_ended(tmp_path: Path, own_session: bool) -> None:
    path = tmp_path / "pid"
    source = f"import sys; sys.argv[1:] = [{str(path)!r}]; {ENDLESS}"
    running = asyncio.create_task(solve(solver(source, own_session=own_session)))
    pid = await written(path)
    assert (os.getsid(pid) == pid) is own_session
    async with asyncio.timeout(60.0):
        while os.getpriority(os.PRIO_PROCESS, pid) != LOWEST:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not psutil.pid_exists(pid)


async def test_what_cannot_be_started_is_said() -> None:
    with pytest.raises(FileNotFoundError):
        await solve(Solver(command=("no-such-program",), limit_s=1.0))


@pytest.mark.skipif(not os.access("/proc/self/autogroup", os.W_OK), reason="no autogroups that can be set here")
async def test_its_session_has_the_weight_that_is_asked_for() -> None:
    source = f"import time\nwhile 'nice {LOW}' not in open('/proc/self/autogroup').read(): time.sleep(0.01)"
    assert (await solve(replace(solver(source), weight=LOW))).answer == b""
    assert f"nice {LOW}" not in Path("/proc/self/autogroup").read_text()
