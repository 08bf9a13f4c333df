"""Runs `hmas whatif` for browsers: one at a time, as a process that gives way to everything else on the machine."""

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import structlog
from fastapi import HTTPException
from pydantic import TypeAdapter

from hmas.console.question import WhatIfAnswer, WhatIfBook, WhatIfQuestion
from hmas.contracts.rehearsal import Rehearsal
from hmas.installation import install_command
from hmas.runtime.priority import LOW
from hmas.runtime.solver import Solver, SolverLate, solve

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
    return f"the Python package {missing[0]} is missing: {install_command('sim')}" if missing else ""


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
        solver = Solver(
            command=(*self._command, *question.options()), limit_s=LIMIT_S, max_bytes=MAX_ANSWER_BYTES, weight=LOW,
            answers=ANSWERED,
        )  # fmt: skip
        try:
            answer = (await solve(solver)).answer
            found = _ANSWER.validate_json(answer)
            in_force, error = str(json.loads(answer).get("in_force_policy", ""))[:MAX_TOLD_CHARS], ""
        except SolverLate as late:
            error = f"{late}: choose fewer minutes"
        except (OSError, ValueError) as failed:
            error = str(failed)[:MAX_TOLD_CHARS]
            log.warning("whatif_failed", pool=question.pool, reason=error)
        finally:
            self._book.end(WhatIfAnswer(self._clock(), found, in_force, error))
