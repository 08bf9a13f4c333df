"""Runs rehearsals, one at a time, each in a process of its own that gives way to everything else on the machine."""

import asyncio
import sys
from collections.abc import Callable

import orjson
import structlog
from pydantic import TypeAdapter

from hmas.contracts.control_agents import RehearsalAnswered, Rehearse
from hmas.contracts.rehearsal import LEARN_S, WARM_S, Rehearsal
from hmas.laws.request_rows import row_line
from hmas.runtime.bus import Bus
from hmas.runtime.past_client import PastUnavailable, past_blocks, rows_of
from hmas.runtime.solver import Solver, SolverFailed, solve

log = structlog.get_logger()
COMMAND = (sys.executable, "-m", "hmas.sim.past.rehearse")  # by its name, because no room imports the simulator
MAX_TOLD_CHARS = 300
_EFFECT, _ANSWER = TypeAdapter(Rehearse), TypeAdapter(Rehearsal)


class RehearsalRunner:
    """Carries out `Rehearse`; the outcome is posted as `RehearsalAnswered`. `profile` names the engines' profile, or a
    file of it; empty: fitted to their measured pace."""

    def __init__(self, bus: Bus, profile: str, post: Callable[[object], None]) -> None:
        self._bus, self._profile, self._post = bus, profile, post
        self._task: asyncio.Task[None] | None = None

    def start(self, effect: Rehearse) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()  # the agent no longer waits for it
        self._task = asyncio.create_task(self._run(effect))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, effect: Rehearse) -> None:
        found, error, cpu_s = None, "", 0.0
        try:
            async with asyncio.timeout(effect.timeout_s):
                rows = rows_of(await past_blocks(self._bus, effect.pool, effect.window_s + WARM_S + LEARN_S))
                lines = await asyncio.to_thread(lambda: b"".join(map(row_line, rows)))
            solver = Solver(command=COMMAND, limit_s=effect.timeout_s)
            solved = await solve(solver, self._question(effect) + b"\n" + lines)
            found, cpu_s = _ANSWER.validate_json(solved.answer), solved.cpu_s
        except SolverFailed as failed:
            error, cpu_s = str(failed), failed.cpu_s
        except TimeoutError:
            error = f"it took longer than {effect.timeout_s:g} s"
        except (PastUnavailable, OSError, ValueError) as failed:
            error = str(failed)
        if error:
            log.warning("rehearsal_failed", pool=effect.pool, reason=error[:MAX_TOLD_CHARS])
        answered = RehearsalAnswered(number=effect.number, rehearsal=found, error=error[:MAX_TOLD_CHARS], cpu_s=cpu_s)
        self._post(answered)

    def _question(self, effect: Rehearse) -> bytes:
        told = _EFFECT.dump_python(effect, mode="json")
        question = {name: told[name] for name in ("window_s", "facts", "in_force", "candidates")}
        return orjson.dumps(question | {"profile_name": self._profile})
