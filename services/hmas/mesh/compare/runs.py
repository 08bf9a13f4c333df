"""Replays a trace at the mesh or directly at its engines, with live progress."""

import asyncio
import time
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from hmas.laws.scoring import Score, Settlement
from hmas.mesh.compare.engines import EngineLag, read_lag, reset_lag
from hmas.mesh.state import MeshState
from hmas_loadgen.plan import Lengths, LoadPlan, Target
from hmas_loadgen.record import RunProgress
from hmas_loadgen.result import LoadResult
from hmas_loadgen.runner.run import run_load
from hmas_loadgen.traces.row import Trace

DRAIN_S = 20.0


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of a replay, with the engines' lag during it; `lag` is None for real engines. `began_s` is when it
    began, on a clock that counts from anywhere."""

    result: LoadResult
    lag: EngineLag | None
    began_s: float = 0.0

    @property
    def score(self) -> Score:
        return self.result.score()

    @property
    def settlements(self) -> list[Settlement]:
        return self.result.settlements()

    @property
    def reasons(self) -> list[str]:
        """The reasons why the run is invalid; empty if it is valid."""
        late = [] if self.lag is None or self.lag.valid else [f"engine steps lag {self.lag.p99_s * 1e3:.1f} ms at p99"]
        return [*self.result.reasons, *late]


def mesh_target(state: MeshState) -> Target:
    return Target(
        base_urls=(state.gateway_url,), model=state.pool, lengths=Lengths.REPLAY_FIELD, api_key="unused", send_slo=True
    )


def direct_target(state: MeshState, api_key: str = "") -> Target:
    return Target(base_urls=state.engine_urls, model=state.pool, lengths=Lengths.DIRECT, api_key=api_key or "unused")


async def replay(
    name: str, trace: Trace, target: Target, state: MeshState, console: Console, *, seed: int, window_s: float,
    stop: asyncio.Event | None = None,
) -> Replay:  # fmt: skip
    """Sends the trace's requests for `window_s` seconds, waits up to `DRAIN_S` more for answers, and scores the run.

    Requests still open after that count as not completed. Setting `stop` ends the run early.
    """
    plan = LoadPlan(name=name, trace=trace, target=target, seed=seed, window_s=window_s, drain_s=DRAIN_S)
    reset_lag(state.engine_urls)
    bar = Bar(
        TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.fields[rates]}"), TimeElapsedColumn(),
        console=console, transient=True,
    )  # fmt: skip
    began_s = time.monotonic()
    with bar:
        task = bar.add_task(name, total=window_s, rates="")

        def show(p: RunProgress) -> None:
            rates = (
                f"{p.sent}/{p.planned} sent, {p.in_flight} open, {p.finished} done ({p.ok} OK), {p.failed} failed, "
                f"{p.finish_rps:.1f} req/s, {p.token_rps:.0f} tok/s"
            )
            bar.update(task, completed=min(p.elapsed_s, window_s), rates=rates)

        result = await run_load(plan, show, stop=stop)
    return Replay(result, read_lag(state.engine_urls), began_s)
