"""Searches for plans: what their process is asked, and what is told of its answer."""

import asyncio
import sys
from collections.abc import Callable

import orjson
from pydantic import TypeAdapter

from hmas.contracts.control_agents import PlansSearched, SearchPlans
from hmas.contracts.pool_plan import PlanCandidate
from hmas.laws.request_rows import row_line
from hmas.meta.solver_runs import SolverRuns
from hmas.runtime.bus import Bus
from hmas.runtime.past_client import past_blocks, rows_of

COMMAND = (sys.executable, "-m", "hmas.sim.searched_plans")  # by its name, because no room imports the simulator
Candidates = tuple[PlanCandidate, ...]
_EFFECT, _ANSWER = TypeAdapter(SearchPlans), TypeAdapter(Candidates)


def plan_search_runs(bus: Bus, post: Callable[[object], None]) -> SolverRuns[SearchPlans, Candidates]:
    """Returns what carries out `SearchPlans`; the outcome is posted as `PlansSearched`."""

    async def question(effect: SearchPlans) -> bytes:
        pasts = [rows_of(await past_blocks(bus, plan.pool, effect.window_s)) for plan in effect.standing]
        lines = await asyncio.to_thread(lambda: b"".join(row_line(row) for rows in pasts for row in rows))
        told = _EFFECT.dump_python(effect, mode="json")
        fields = {name: told[name] for name in ("standing", "catalogue", "budgets", "window_s")}
        return orjson.dumps(fields | {"rows": [len(rows) for rows in pasts]}) + b"\n" + lines

    def answered(effect: SearchPlans, found: Candidates | None, error: str, cpu_s: float) -> None:
        post(PlansSearched(effect.number, found or (), error, cpu_s))

    return SolverRuns(COMMAND, question, _ANSWER.validate_json, answered)
