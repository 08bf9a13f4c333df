"""Runs searches for plans, each in a process of its own that gives way to everything else on the machine."""

import asyncio
import sys
from collections.abc import Callable

import orjson
import structlog
from pydantic import TypeAdapter

from hmas.contracts.control_agents import PlansSearched, SearchPlans
from hmas.contracts.pool_plan import PlanCandidate
from hmas.laws.request_rows import row_line
from hmas.runtime.bus import Bus
from hmas.runtime.past_client import PastUnavailable, past_blocks, rows_of
from hmas.runtime.solver import Solver, SolverFailed, solve

log = structlog.get_logger()
COMMAND = (sys.executable, "-m", "hmas.sim.searched_plans")  # by its name, because no room imports the simulator
MAX_TOLD_CHARS = 300
_EFFECT, _ANSWER = TypeAdapter(SearchPlans), TypeAdapter(tuple[PlanCandidate, ...])


class PlanSearchRunner:
    """Carries out `SearchPlans`, one at a time; the outcome is posted as `PlansSearched`."""

    def __init__(self, bus: Bus, post: Callable[[object], None]) -> None:
        self._bus, self._post = bus, post
        self._task: asyncio.Task[None] | None = None

    def start(self, effect: SearchPlans) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()  # the agent no longer waits for it
        self._task = asyncio.create_task(self._run(effect))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, effect: SearchPlans) -> None:
        found: tuple[PlanCandidate, ...] = ()
        error, cpu_s = "", 0.0
        try:
            async with asyncio.timeout(effect.timeout_s):
                question = await self._question(effect)
            solved = await solve(Solver(command=COMMAND, limit_s=effect.timeout_s), question)
            found, cpu_s = _ANSWER.validate_json(solved.answer), solved.cpu_s
        except SolverFailed as failed:
            error, cpu_s = str(failed), failed.cpu_s
        except TimeoutError:
            error = f"it took longer than {effect.timeout_s:g} s"
        except (PastUnavailable, OSError, ValueError) as failed:
            error = str(failed)
        if error:
            log.warning("plan_search_failed", reason=error[:MAX_TOLD_CHARS])
        self._post(PlansSearched(effect.number, found, error[:MAX_TOLD_CHARS], cpu_s))

    async def _question(self, effect: SearchPlans) -> bytes:
        pasts = [rows_of(await past_blocks(self._bus, plan.pool, effect.window_s)) for plan in effect.standing]
        told = _EFFECT.dump_python(effect, mode="json")
        question = {name: told[name] for name in ("standing", "catalogue", "budgets", "window_s")}
        head = orjson.dumps(question | {"rows": [len(rows) for rows in pasts]})
        lines = await asyncio.to_thread(lambda: b"".join(row_line(row) for rows in pasts for row in rows))
        return head + b"\n" + lines
