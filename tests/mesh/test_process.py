"""The supervisor's child processes: restarted, stopped, logged, and never left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hmas.mesh.process import MAX_LINE_BYTES, LineSplitter, ProcessSpec, SupervisedProcess
from hmas.mesh.supervisor import ProcessLogs
from tests.conftest import eventually


def python(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", code]


async def test_what_dies_is_restarted_and_what_is_stopped_stays_down() -> None:
    lines: list[str] = []
    spec = ProcessSpec("p", python("import os, time; print(os.environ['X'], os.getpid()); time.sleep(60)"), {"X": "hi"})
    process = SupervisedProcess(spec, dict(os.environ), lambda name, line: lines.append(line))
    task = asyncio.create_task(process.run())
    await eventually(lambda: len(lines) == 1)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    await eventually(lambda: len(lines) == 2)
    assert process.restarts == 1
    assert lines[0].startswith("hi ")
    assert lines[0] != lines[1]
    await process.stop()
    await asyncio.wait_for(task, 5)
    assert process.pid is None


async def test_one_that_ignores_sigterm_is_killed_after_its_grace() -> None:
    ready: list[str] = []
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(60)"
    process = SupervisedProcess(
        ProcessSpec("p", python(code), stop_grace_s=0.2), dict(os.environ), lambda name, line: ready.append(line)
    )
    task = asyncio.create_task(process.run())
    await eventually(lambda: bool(ready))
    await process.stop()
    await asyncio.wait_for(task, 5)
    assert process.pid is None


def test_a_killed_supervisor_leaves_nothing_behind(tmp_path: Path) -> None:
    code = (
        "import asyncio, os, sys; from hmas.mesh.process import ProcessSpec, SupervisedProcess\n"
        "spec = ProcessSpec('p', [sys.executable, '-u', '-c', 'import os, time; print(os.getpid()); time.sleep(60)'])\n"
        "asyncio.run(SupervisedProcess(spec, dict(os.environ), lambda n, line: print(line, flush=True)).run())"
    )
    parent = subprocess.Popen(python(code), stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1][:3]:
        assert time.monotonic() < deadline, "the child outlived its supervisor"
        time.sleep(0.05)


def test_logs_go_to_a_file_each_and_alarms_to_the_operator(tmp_path: Path) -> None:
    alarms: list[tuple[str, str]] = []
    logs = ProcessLogs(tmp_path / "logs", lambda name, line: alarms.append((name, line)))
    logs.write("a", "all is well")
    logs.write("a", "[warning  ] not so well")
    logs.write("b", "hello")
    logs.close()
    assert (tmp_path / "logs" / "a.log").read_text().splitlines() == ["all is well", "[warning  ] not so well"]
    assert alarms == [("a", "[warning  ] not so well")]
    assert logs.tail("b") == "hello"


async def test_a_line_without_measure_is_cut_and_the_next_ones_are_read() -> None:
    lines: list[str] = []
    code = "import time; print('x' * 1_000_000); print('after'); time.sleep(60)"
    process = SupervisedProcess(ProcessSpec("p", python(code)), dict(os.environ), lambda _, line: lines.append(line))
    task = asyncio.create_task(process.run())
    await eventually(lambda: len(lines) == 2)
    assert lines == ["x" * MAX_LINE_BYTES, "after"]
    await process.stop()
    await asyncio.wait_for(task, 5)


async def test_a_sink_that_fails_does_not_stop_the_process() -> None:
    """Its output goes on being read, else its next line would block it for ever."""
    lines: list[str] = []

    def sink(_: str, line: str) -> None:
        if line == "0":
            raise OSError("no space left on device")
        lines.append(line)

    code = "import time\nfor i in range(200_000): print(i)\ntime.sleep(60)"
    process = SupervisedProcess(ProcessSpec("p", python(code)), dict(os.environ), sink)
    task = asyncio.create_task(process.run())
    await eventually(lambda: bool(lines) and lines[-1] == "199999")
    assert process.lines_dropped == 1
    await process.stop()
    await asyncio.wait_for(task, 5)


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=30))
def test_lines_are_the_same_however_the_output_arrives(output: bytes, sizes: list[int]) -> None:
    splitter, found, rest = LineSplitter(), [], output
    for size in sizes:
        found += splitter.feed(rest[:size])
        rest = rest[size:]
    found += splitter.feed(rest) + splitter.close()
    assert found == (output[:-1] if output.endswith(b"\n") else output).split(b"\n") * bool(output)
