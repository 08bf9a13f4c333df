"""Runs what the agent asks of other processes, one at a time: each gives way to everything else on the machine."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

import structlog

from hmas.runtime.past_client import PastUnavailable
from hmas.runtime.solver import Solver, SolverFailed, solve

log = structlog.get_logger()
MAX_TOLD_CHARS = 300


class Asking(Protocol):
    """An effect that asks for an answer within `timeout_s`."""

    @property
    def timeout_s(self) -> float: ...


E = TypeVar("E", bound=Asking)
A = TypeVar("A")


class SolverRuns(Generic[E, A]):
    """Runs a kind of solver for effects of a type. A new one takes the place of one that is not answered yet, for which
    the agent no longer waits. `question` makes what its process reads, `parse` reads what it wrote; both may raise
    ValueError. `answered` gets the answer, None with the reason where there is none, and the CPU time in s."""

    def __init__(
        self,
        command: Sequence[str],
        question: Callable[[E], Awaitable[bytes]],
        parse: Callable[[bytes], A],
        answered: Callable[[E, A | None, str, float], None],
    ) -> None:
        self._command, self._question, self._parse, self._answered = command, question, parse, answered
        self._task: asyncio.Task[None] | None = None

    def start(self, effect: E) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
        self._task = asyncio.create_task(self._run(effect))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, effect: E) -> None:
        found, error, cpu_s = None, "", 0.0
        try:
            async with asyncio.timeout(effect.timeout_s):
                question = await self._question(effect)
            solved = await solve(Solver(command=self._command, limit_s=effect.timeout_s), question)
            cpu_s = solved.cpu_s
            found = self._parse(solved.answer)
        except SolverFailed as failed:
            error, cpu_s = str(failed), failed.cpu_s
        except TimeoutError:
            error = f"it took longer than {effect.timeout_s:g} s"
        except (PastUnavailable, OSError, ValueError) as failed:
            error = str(failed)
        if error:
            log.warning("solver_failed", asked=type(effect).__name__, reason=error[:MAX_TOLD_CHARS])
        self._answered(effect, found, error[:MAX_TOLD_CHARS], cpu_s)
