"""Runs `hmas whatif` for browsers: one at a time, as a process that gives way to everything else on the machine."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec

import structlog
from fastapi import HTTPException
from pydantic import TypeAdapter

from hmas.console.question import WhatIfBook, WhatIfQuestion, WhatIfTold
from hmas.contracts.rehearsal import Rehearsal
from hmas.runtime.priority import LOW, LOWEST, weigh_session

log = structlog.get_logger()
COMMAND = (sys.executable, "-m", "hmas.mesh.whatif_cli")  # by its name, because the console knows no simulator
LIMIT_S = 120.0
MAX_ANSWER_BYTES = 2**20
MAX_TOLD_CHARS = 300
ANSWERED = (0, 3)  # exit codes; 3: it abstains
_ANSWER = TypeAdapter(Rehearsal)


def lacking(packages: Sequence[str] = ("numpy", "onnxruntime", "tokenizers")) -> str:
    """Says which package of the extra `sim` is not installed; empty if all are."""
    missing = [name for name in packages if find_spec(name) is None]
    return f"the Python package {missing[0]} is missing: pip install 'hmas[sim]'" if missing else ""


class WhatIfRunner:
    """Answers one question at a time into the book. `options` go to every command."""

    def __init__(
        self, book: WhatIfBook, clock: Callable[[], float], options: Sequence[str], command: Sequence[str] = COMMAND
    ) -> None:
        self._book, self._clock = book, clock
        self._command = (*command, "--json", *options)
        self._task: asyncio.Task[None] | None = None

    def start(self, question: WhatIfQuestion) -> None:
        """Begins to answer. Raises HTTPException: 501 if the simulator is not installed, 429 if a question is being
        answered already."""
        if self._book.lacks:
            raise HTTPException(501, self._book.lacks)
        if self._book.running is not None:
            raise HTTPException(429, f"one what-if runs already: it ends within {LIMIT_S:.0f} s")
        self._book.begin(self._clock(), question)
        self._task = asyncio.create_task(self._run(question))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, question: WhatIfQuestion) -> None:
        found, in_force, error = None, "", "the console was stopped meanwhile"
        try:
            async with asyncio.timeout(LIMIT_S):
                found, in_force = await self._answered(question)
            error = ""
        except TimeoutError:
            error = f"it took longer than {LIMIT_S:.0f} s: choose fewer minutes"
        except (OSError, ValueError) as failed:
            error = str(failed)[:MAX_TOLD_CHARS]
            log.warning("whatif_failed", pool=question.pool, reason=error)
        finally:
            self._book.end(WhatIfTold(self._clock(), found, in_force, error))

    async def _answered(self, question: WhatIfQuestion) -> tuple[Rehearsal, str]:
        """Returns the outcome, and what is in force in words. Raises ValueError with what the command said if it
        failed."""
        process = await asyncio.create_subprocess_exec(
            *self._command, *question.options(), stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        try:
            with suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PGRP, process.pid, LOWEST)
            weigh_session(process.pid, LOW)
            assert process.stdout is not None
            assert process.stderr is not None
            out, complaint = await asyncio.gather(_read(process.stdout, process), _read(process.stderr, process))
            status = await process.wait()
        finally:
            await _end(process)
        if status not in ANSWERED:
            said = complaint.decode(errors="replace").strip().rpartition("\n")[2].removeprefix("hmas: ")
            raise ValueError(said or f"its process ended with status {status}")
        return _ANSWER.validate_json(out), str(json.loads(out).get("in_force_policy", ""))[:MAX_TOLD_CHARS]


async def _read(stream: asyncio.StreamReader, process: Process) -> bytes:
    """Returns all of a stream of the command. One that is too long ends the command, and is read to its end all the
    same, because a command counts as ended only once its pipes are. Raises ValueError then."""
    read = bytearray()
    while chunk := await stream.read(2**16):
        if len(read) <= MAX_ANSWER_BYTES:
            read += chunk
        if len(read) > MAX_ANSWER_BYTES:
            _kill(process)
    if len(read) > MAX_ANSWER_BYTES:
        raise ValueError(f"its answer has more than {MAX_ANSWER_BYTES} bytes")
    return bytes(read)


def _kill(process: Process) -> None:
    """Ends the command with the simulation that it started, if it runs yet."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def _end(process: Process) -> None:
    _kill(process)
    await process.wait()
