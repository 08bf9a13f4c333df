"""Rehearsals: what their process is asked, and what is told of its answer."""

import asyncio
import sys
from collections.abc import Callable

import orjson
from pydantic import TypeAdapter

from hmas.contracts.control_agents import RehearsalAnswered, Rehearse
from hmas.contracts.rehearsal import LEARN_S, WARM_S, Rehearsal
from hmas.laws.request_rows import row_line
from hmas.meta.solver_runs import SolverRuns
from hmas.runtime.bus import Bus
from hmas.runtime.past_client import past_blocks, rows_of

COMMAND = (sys.executable, "-m", "hmas.sim.past.rehearse")  # by its name, because no room imports the simulator
_EFFECT, _ANSWER = TypeAdapter(Rehearse), TypeAdapter(Rehearsal)


def rehearsal_runs(bus: Bus, profile: str, post: Callable[[object], None]) -> SolverRuns[Rehearse, Rehearsal]:
    """Returns what carries out `Rehearse`; the outcome is posted as `RehearsalAnswered`. `profile` names the engines'
    profile, or a file of it; empty: fitted to their measured pace."""

    async def question(effect: Rehearse) -> bytes:
        rows = rows_of(await past_blocks(bus, effect.pool, effect.window_s + WARM_S + LEARN_S))
        lines = await asyncio.to_thread(lambda: b"".join(map(row_line, rows)))
        told = _EFFECT.dump_python(effect, mode="json")
        fields = {name: told[name] for name in ("window_s", "facts", "in_force", "candidates")}
        return orjson.dumps(fields | {"profile_name": profile}) + b"\n" + lines

    def answered(effect: Rehearse, found: Rehearsal | None, error: str, cpu_s: float) -> None:
        post(RehearsalAnswered(number=effect.number, rehearsal=found, error=error, cpu_s=cpu_s))

    return SolverRuns(COMMAND, question, _ANSWER.validate_json, answered)
