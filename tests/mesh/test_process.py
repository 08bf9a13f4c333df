"""The supervisor's child processes: restarted, stopped, logged, and never left behind."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.mesh import process_logs
from hmas.mesh.process import ProcessSpec, SupervisedProcess
from hmas.mesh.process_logs import MAX_LINE_BYTES, LineSplitter, LogTail, ProcessLogs
from tests.conftest import PATIENCE_S, eventually


def python(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", code]


def supervised(spec: ProcessSpec, log: Path, told: list[str]) -> SupervisedProcess:
    return SupervisedProcess(spec, dict(os.environ), log, lambda name, text: told.append(f"{name}: {text}"))


async def test_what_dies_is_restarted_and_what_is_stopped_stays_down(tmp_path: Path) -> None:
    log, told = tmp_path / "p.log", list[str]()
    spec = ProcessSpec("p", python("import os, time; print(os.environ['X'], os.getpid()); time.sleep(60)"), {"X": "hi"})
    process = supervised(spec, log, told)
    task = asyncio.create_task(process.run())
    await eventually(lambda: log.exists() and log.read_text().count("\n") == 1)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    await eventually(lambda: log.read_text().count("\n") == 2)
    assert process.restarts == 1
    first, second = log.read_text().splitlines()
    assert first.startswith("hi ")
    assert first != second
    await process.stop()
    await asyncio.wait_for(task, PATIENCE_S)
    assert process.pid is None
    assert len(told) == 2
    assert told[0].startswith("p: it died of SIGKILL after ")
    assert told[1].startswith("p: it runs again as process ")


async def test_one_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    log, told = tmp_path / "p.log", list[str]()
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(60)"
    process = supervised(ProcessSpec("p", python(code), stop_grace_s=0.2), log, told)
    task = asyncio.create_task(process.run())
    await eventually(lambda: log.exists() and bool(log.read_text()))
    await process.stop()
    await asyncio.wait_for(task, PATIENCE_S)
    assert process.pid is None
    assert told == ["p: it did not end within 0.2 s of SIGTERM and is killed"]


async def test_ten_deaths_are_ten_lines_and_the_process_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hmas.mesh.process.FIRST_BACKOFF_S", 0.01)
    monkeypatch.setattr("hmas.mesh.process.MAX_BACKOFF_S", 0.01)
    log, told = tmp_path / "p.log", list[str]()
    process = supervised(ProcessSpec("p", [sys.executable, "-S", "-c", "raise SystemExit(3)"]), log, told)
    task = asyncio.create_task(process.run())
    await eventually(lambda: sum(line.startswith("p: it ended with status 3 after ") for line in told) >= 10)
    await process.stop()
    await asyncio.wait_for(task, PATIENCE_S)
    assert process.restarts >= 9  # the tenth death may not be made up for yet


async def test_a_program_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    told: list[str] = []
    process = supervised(ProcessSpec("p", [str(tmp_path / "missing")]), tmp_path / "p.log", told)
    task = asyncio.create_task(process.run())
    await eventually(lambda: process.restarts == 1)
    await process.stop()
    await asyncio.wait_for(task, PATIENCE_S)
    assert "it could not be started" in told[0]


async def test_a_configuration_is_refused_once_at_the_first_start_alone(tmp_path: Path) -> None:
    """Later its file may be mended while the process runs again and again."""
    mark = tmp_path / "mark"
    code = f"import os, pathlib, time; p = pathlib.Path({str(mark)!r}); n = len(p.read_text()) if p.exists() else 0\n"
    code += "p.write_text('x' * (n + 1)); time.sleep(0 if n in FAIL else 60); raise SystemExit(os.EX_CONFIG)"
    first = supervised(ProcessSpec("p", python(code.replace("FAIL", "(0,)"))), tmp_path / "p.log", [])
    await asyncio.wait_for(first.run(), PATIENCE_S)
    assert first.refused
    later = supervised(ProcessSpec("p", python(code.replace("FAIL", "(2,)"))), tmp_path / "p.log", [])
    task = asyncio.create_task(later.run())
    await eventually(lambda: mark.read_text() == "xx" and later.pid is not None)
    assert later.pid is not None
    os.kill(later.pid, signal.SIGKILL)
    await eventually(lambda: mark.read_text() == "xxxx")
    assert not later.refused
    await later.stop()
    await asyncio.wait_for(task, PATIENCE_S)


SUPERVISOR = (
    "import asyncio, os, sys; from pathlib import Path; from hmas.mesh.process import ProcessSpec, SupervisedProcess\n"
    "spec = ProcessSpec('p', [sys.executable, '-u', '-c', sys.argv[2]])\n"
    "asyncio.run(SupervisedProcess(spec, dict(os.environ), Path(sys.argv[1]), lambda name, text: None).run())"
)


@contextmanager
def supervisor(log: Path, code: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that supervises another, which runs `code`."""
    with subprocess.Popen([*python(SUPERVISOR), str(log), code]) as parent:
        try:
            yield parent
        finally:
            parent.kill()


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("suspended", [False, True], ids=["running", "suspended"])
async def test_a_killed_supervisor_leaves_nothing_behind(tmp_path: Path, suspended: bool) -> None:
    log = tmp_path / "p.log"
    with supervisor(log, "import os, time; print(os.getpid()); time.sleep(60)") as parent:
        await eventually(lambda: log.exists() and log.read_text().endswith("\n"))
        child = int(log.read_text())
        if suspended:
            parent.send_signal(signal.SIGSTOP)
        parent.kill()
        parent.wait()
        await eventually(lambda: is_gone(child))


async def test_a_process_writes_its_log_while_its_supervisor_is_suspended(tmp_path: Path) -> None:
    """Far more than a pipe holds."""
    log = tmp_path / "p.log"
    code = "import sys, time; sys.stdin.read(); print('up'); time.sleep(1)\n"
    code += "for i in range(20_000): print(i, 'x' * 100)\nprint('done'); time.sleep(60)"
    with supervisor(log, code) as parent:
        await eventually(lambda: log.exists() and log.read_text() == "up\n")
        parent.send_signal(signal.SIGSTOP)
        await eventually(lambda: log.read_text().endswith("done\n"))


def make_logs(directory: Path) -> tuple[ProcessLogs, list[tuple[str, str]]]:
    alarms: list[tuple[str, str]] = []
    return ProcessLogs(directory, lambda name, line: alarms.append((name, line))), alarms


def test_alarms_reach_the_operator_and_deaths_a_file_too(tmp_path: Path) -> None:
    logs, alarms = make_logs(tmp_path / "logs")
    path = logs.add("a")
    logs.add("b")
    path.write_text("all is well\n[warning  ] not so well\nan unfinished err")
    logs.poll()
    with path.open("a") as file:
        file.write("or\n")
    logs.poll()
    logs.poll()
    assert alarms == [("a", "[warning  ] not so well"), ("a", "an unfinished error")]
    logs.say("a", "it died of SIGKILL")
    assert alarms[-1] == ("a", "it died of SIGKILL")
    assert (tmp_path / "logs" / "supervisor.log").read_text().endswith(" a: it died of SIGKILL\n")
    assert logs.tail("a", 2) == "[warning  ] not so well\nan unfinished error"
    assert logs.tail("b") == ""


def test_the_logs_of_an_earlier_mesh_are_not_read(tmp_path: Path) -> None:
    logs, alarms = make_logs(tmp_path)
    logs.add("a").write_text("warning\n")
    logs, alarms = make_logs(tmp_path)
    logs.add("a")
    logs.poll()
    assert alarms == []


def test_a_large_log_is_put_aside_and_its_process_writes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_logs, "LOG_BYTES", 1000)
    path = tmp_path / "p.log"
    tail, lines = LogTail(path), list[bytes]()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for i in range(300):
        os.write(file, b"line %d\n" % i)
        if i % 7 == 0:
            lines += tail.read()
    lines += tail.read()
    os.close(file)
    assert lines == [b"line %d" % i for i in range(300)]
    assert path.stat().st_size <= 1000 + 7 * 9
    assert (tmp_path / "p.log.1").stat().st_size <= 1000 + 7 * 9


def test_a_full_disk_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, alarms = make_logs(tmp_path)
    logs._directory = Path("/dev/full")  # a file below it cannot be opened
    for i in range(50):
        logs.say("a", f"death {i}")
    told = [line for name, line in alarms if name == "logs"]
    assert len(told) == 1
    assert "left out" in told[0]
    assert [line for name, line in alarms if name == "a"] == [f"death {i}" for i in range(50)]
    logs._directory = tmp_path
    logs.say("a", "death 50")
    assert "death 50" in (tmp_path / "supervisor.log").read_text()


async def test_a_line_without_measure_is_cut_and_the_next_ones_are_read(tmp_path: Path) -> None:
    logs, alarms = make_logs(tmp_path)
    code = "import time; print('error' * 100_000); print('error after'); time.sleep(60)"
    process = supervised(ProcessSpec("p", python(code)), logs.add("p"), [])
    task = asyncio.create_task(process.run())

    def both() -> bool:
        logs.poll()
        return len(alarms) == 2

    await eventually(both)
    assert alarms == [("p", ("error" * MAX_LINE_BYTES)[:MAX_LINE_BYTES]), ("p", "error after")]
    await process.stop()
    await asyncio.wait_for(task, PATIENCE_S)


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=30))
def test_lines_are_the_same_however_the_output_arrives(output: bytes, sizes: list[int]) -> None:
    splitter, found, rest = LineSplitter(), [], output
    for size in sizes:
        found += splitter.feed(rest[:size])
        rest = rest[size:]
    found += splitter.feed(rest) + splitter.close()
    assert found == (output[:-1] if output.endswith(b"\n") else output).split(b"\n") * bool(output)
