"""The comparisons of `hmas compare`: pairs of replays, or a search for the capacity and pairs at multiples of it."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from hmas.engine.core.profile import EngineProfile
from hmas.mesh.compare.picture import picture
from hmas.mesh.compare.rows import rows_csv
from hmas.mesh.compare.runs import Replay, direct_target, mesh_target, replay
from hmas.mesh.compare.simulated import SYSTEMS, Turn, in_turn
from hmas.mesh.compare.table import Scored, comparison_table, scores_json
from hmas.mesh.compare.workload import ReplayWorkload
from hmas.mesh.state import MeshState
from hmas_loadgen.search import RateSearch, find_rate
from hmas_loadgen.traces.row import Trace

OVERLOAD, LIGHT = 1.4, 0.5
SEARCH_FROM_RPS = 5.0
PICTURED = {"direct": "the engines alone", "mesh": "the same engines behind H-MAS"}


@dataclass(slots=True)
class Comparison:
    """Replays a workload through the mesh and directly at its engines, for `window_s` seconds each; `api_key` is that
    of the engines."""

    state: MeshState
    workload: ReplayWorkload
    console: Console
    window_s: float
    api_key: str = ""

    def trace(self, rate_rps: float, seed: int) -> Trace:
        return self.workload.at(rate_rps, self.window_s, seed)

    async def direct(self, rate_rps: float, seed: int, name: str = "direct") -> Replay:
        return await self._run(name, rate_rps, seed, mesh=False)

    async def mesh(self, rate_rps: float, seed: int) -> Replay:
        return await self._run("mesh", rate_rps, seed, mesh=True)

    async def _run(self, name: str, rate_rps: float, seed: int, *, mesh: bool) -> Replay:
        trace = self.trace(rate_rps, seed)
        target = mesh_target(self.state) if mesh else direct_target(self.state, self.api_key)
        return await replay(name, trace, target, self.state, self.console, seed=seed, window_s=self.window_s)

    async def pair(self, rate_rps: float, seed: int) -> tuple[Replay, Replay]:
        return await self.direct(rate_rps, seed), await self.mesh(rate_rps, seed)

    async def capacity(self, seed: int, start_rps: float = SEARCH_FROM_RPS) -> RateSearch:
        """Searches for λ*: the highest rate at which the direct replay still has a goodput rate of 0.95."""

        async def measure(rate_rps: float) -> float:
            run = await self.direct(rate_rps, seed, f"direct at {rate_rps:.2f} req/s")
            rate = run.score.goodput_rate
            self.console.print(f"  direct at {rate_rps:.2f} req/s: goodput rate {rate:.1%}", style="dim")
            return rate

        return await find_rate(measure, start_rps, tolerance=0.1, max_runs=7, step=1.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The files that a comparison writes; None: not written."""

    json: Path | None = None
    rows: Path | None = None
    picture: Path | None = None


async def at_rate(
    comparison: Comparison, rate_rps: float, seeds: Sequence[int], to: Written, profile: EngineProfile | None = None
) -> None:
    """Runs one pair of replays (direct, mesh) for each seed and prints their table.

    With `profile`, columns beside them tell what the simulator makes of the same requests on engines of that profile.
    The picture is of the first pair. Raises ValueError if the simulator lacks a package.
    """
    pairs = [await comparison.pair(rate_rps, seed) for seed in seeds]
    live = {"direct": [d for d, _ in pairs], "mesh": [m for _, m in pairs]}
    runs: dict[str, Sequence[Scored]] = {**live}
    if profile is not None:
        with comparison.console.status("simulating the same requests ..."):
            for name in live:
                turns = [
                    Turn(comparison.trace(rate_rps, seed), seed, run.began_s)
                    for seed, run in zip(seeds, live[name], strict=True)
                ]
                runs[f"{name}, simulated"] = await asyncio.to_thread(
                    in_turn, SYSTEMS[name], turns, profile, len(comparison.state.engine_urls), comparison.window_s
                )
    title = f"{comparison.workload.name}, {rate_rps:g} req/s for {comparison.window_s:g} s"
    comparison.console.print(comparison_table(title, runs))
    report_problems(comparison.console, live)
    if profile is not None:
        for line in refused_only_live(live):
            comparison.console.print(line, soft_wrap=True)
    if to.json is not None:
        page: dict[str, Any] = {"rate_rps": rate_rps, "window_s": comparison.window_s, "seeds": list(seeds)}
        write(to.json, page | {name: scores_json(of) for name, of in runs.items()})
    if to.rows is not None:
        await asyncio.to_thread(_write_text, to.rows, rows_csv(live, seeds))
    if to.picture is not None:
        sides = {label: live[name][0].settlements for name, label in PICTURED.items()}
        await asyncio.to_thread(_write_text, to.picture, picture(title, sides, comparison.window_s))


async def at_capacity(comparison: Comparison, seeds: tuple[int, ...], json_path: Path | None) -> bool:
    """Searches for λ*, then replays pairs at 1.4 and 0.5 times λ* for each seed.

    Returns whether the goals for the ratio of goodput rates are met and all runs are valid.
    """
    search = await comparison.capacity(seeds[0])
    console = comparison.console
    console.print(
        f"capacity of the engines without the mesh: {search.rate_rps:.2f} req/s (fails at {search.failing_rps})"
    )
    page: dict[str, Any] = {
        "capacity_rps": search.rate_rps,
        "search": [{"rate_rps": p.rate_rps, "goodput_rate": p.goodput_rate} for p in search.points],
        "seeds": list(seeds),
        "window_s": comparison.window_s,
    }
    met = True
    for name, load, goal in (("overload", OVERLOAD, 1.5), ("light", LIGHT, 0.98)):
        rate_rps = search.rate_rps * load
        pairs = [await comparison.pair(rate_rps, seed) for seed in seeds]
        runs = {"direct": [d for d, _ in pairs], "mesh": [m for _, m in pairs]}
        console.print(comparison_table(f"{name}: {load} times the capacity, {rate_rps:.2f} req/s", runs))
        report_problems(console, runs)
        ratios = [m.score.goodput_rate / max(d.score.goodput_rate, 1e-9) for d, m in pairs]
        direct, mesh = scores_json(runs["direct"]), scores_json(runs["mesh"])
        ratio = mesh["goodput_rate"] / max(direct["goodput_rate"], 1e-9)
        holds = ratio >= goal
        spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
        console.print(f"goodput rate, mesh / direct: {ratio:.2f} ({spread}); goal at least {goal}: {holds}\n")
        met = met and holds and direct["valid"] and mesh["valid"]
        page[name] = {
            "rate_rps": rate_rps,
            "direct": direct,
            "mesh": mesh,
            "ratio": ratio,
            "ratios": ratios,
            "goal": goal,
        }
        if json_path is not None:
            write(json_path, page)
    return met


def refused_only_live(live: Mapping[str, Sequence[Replay]]) -> list[str]:
    """Returns a line for each side on which requests were refused as they are (status 400), because the simulator
    serves them."""
    lines = []
    for name, runs in live.items():
        errors = [item for run in runs for item in run.result.errors().items()]
        refused = sum(count for error, count in errors if "400" in error.split())
        if refused:
            offered = sum(run.score.offered for run in runs)
            lines.append(
                f"{name}: {refused} of {offered} requests got status 400 and are served in the simulated column; if "
                "they are too long, the engine's tokenizer makes more tokens of them than one for four bytes"
            )
    return lines


def report_problems(console: Console, runs: dict[str, list[Replay]]) -> None:
    for name, replays in runs.items():
        for run in replays:
            for reason in run.reasons:
                console.print(f"[yellow]{name} is invalid:[/yellow] {reason}")
            for error, count in run.result.errors().items():
                example = run.result.example(error)
                said = f": {example}" if example else ""
                console.print(f"{name}: {count} × {error}{said}", style="dim", markup=False, soft_wrap=True)


def write(path: Path, page: dict[str, Any]) -> None:
    _write_text(path, json.dumps(page, indent=2) + "\n")


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
