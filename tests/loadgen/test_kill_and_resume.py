"""The command as a process: killed half-way it leaves what it had, stopped it ends clean, and both go on."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from pathlib import Path

import pytest

from hmas.contracts.outcome import Outcome
from hmas_loadgen.output import PARTIAL, SUMMARY, load_run
from tests.loadgen.runner.openai_server import FakeEngine, fake_engine

pytestmark = pytest.mark.e2e
COUNT = 200


async def start(engine: FakeEngine, folder: Path, *more: str) -> Process:
    trace = folder / "own.csv"
    rows = "".join(f"{i / 100},9,2\n" for i in range(COUNT))
    trace.write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    args = ("run", str(trace), "--url", engine.url, "--model", "m", "--out", str(folder / "run"), *more)
    environment = os.environ | {"COLUMNS": "160"}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hmas_loadgen", *args, stdout=PIPE, stderr=STDOUT, env=environment
    )


async def wait_for_records(folder: Path, count: int) -> None:
    partial = folder / "run" / PARTIAL
    async with asyncio.timeout(60):
        while not partial.exists() or partial.read_bytes().count(b"\n") < count:
            await asyncio.sleep(0.02)


async def output(process: Process) -> str:
    async with asyncio.timeout(60):
        text, _ = await process.communicate()
    return text.decode()


@pytest.mark.parametrize(("how", "processes"), [(signal.SIGKILL, "2"), (signal.SIGINT, "1")])
async def test_what_was_done_stays_and_resume_does_the_rest(
    how: signal.Signals, processes: str, tmp_path: Path
) -> None:
    async with fake_engine() as engine:
        process = await start(engine, tmp_path, "--processes", processes)
        await wait_for_records(tmp_path, 20)
        process.send_signal(how)
        told = await output(process)
        assert "Traceback" not in told
        if how == signal.SIGINT:
            assert process.returncode == 130
            assert "the same command with --resume" in told
        left = [r for r in load_run(tmp_path / "run").records if r.outcome is Outcome.FINISHED]
        assert 20 <= len(left) < COUNT
        assert not (tmp_path / "run" / SUMMARY).exists()

        again = await start(engine, tmp_path, "--processes", processes, "--resume")
        told = await output(again)
        assert again.returncode == 0, told
        assert "of 200 requests are done; continuing" in told
    whole = load_run(tmp_path / "run")
    assert [r.index for r in whole.records] == list(range(COUNT))
    assert whole.score().completed == COUNT
    assert {r.request_id for r in left} <= {r.request_id for r in whole.records}
