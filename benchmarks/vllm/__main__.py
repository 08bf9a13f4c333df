"""`python -m benchmarks.vllm`: lambda* of plain vLLM, then three systems at 1.4, 0.5 and 0.1 times it, in one table."""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.vllm import systems
from benchmarks.vllm.pace import slo_factor
from services.mesh.compare.commands import LIGHT, OVERLOAD, Comparison, report_problems, write
from services.mesh.compare.runs import Replay
from services.mesh.compare.table import comparison_table, scores_json
from services.mesh.compare.workload import Workload
from services.mesh.state import MeshState
from tests.engines.environment import Unavailable, ready

PLAIN, MESH, PLUGIN = SYSTEMS = "plain vLLM", "mesh", "mesh + plug-in"
GOALS = {OVERLOAD: 1.5, LIGHT: 0.98}
IDLE = 0.1  # of lambda*: what the mesh adds to a TTFT, where nobody waits
MOST_RPS = 10.0
FIRST_RPS = 0.5  # of the search, for an engine of the pace that Table 6 was written for; a faster one begins higher
Runs = dict[float, dict[str, list[Replay]]]
console = Console() if Console().is_terminal else Console(width=120)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m benchmarks.vllm", description=__doc__)
    p.add_argument("--trace", type=Path, help="trace file; else one is made from the Azure trace's statistics")
    p.add_argument("--seconds", type=float, default=60.0, help="length of a replay, also of those of the search")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    p.add_argument("--rate", type=float, help="lambda*, if known: no search")
    p.add_argument("--slo-factor", type=float, help="of Table 6, if known; else the engine's own pace")
    p.add_argument("--loads", type=float, nargs="+", default=[OVERLOAD, LIGHT, IDLE], help="in lambda*")
    p.add_argument("--json", type=Path, default=Path("out/bench-vllm.json"))
    return p


class Bench:
    """Measures one system after the other; nothing else runs meanwhile."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self.slo_factor: float = args.slo_factor or 0.0
        self.rate_rps: float = args.rate or 0.0
        self.runs: Runs = defaultdict(lambda: defaultdict(list))

    async def all(self, folder: Path) -> None:
        environment = ready()
        with systems.vllm(environment, folder / "plain", plugin=False) as engine:
            direct = systems.plain(engine)
            self.slo_factor = self.slo_factor or await slo_factor(engine.url, systems.MAX_NUM_SEQS)
            console.print(f"SLOs of Table 6 times {self.slo_factor:.3f}")
            if not self.rate_rps:
                search = self._comparison(direct)
                self.rate_rps = await capacity(search, self._args.seed, FIRST_RPS / self.slo_factor)
            await self._measure(PLAIN, self._comparison(direct))
            async with systems.mesh_over(engine, folder / "mesh", plugin=False) as state:
                await self._measure(MESH, self._comparison(state))
        with systems.vllm(environment, folder / "plugin", plugin=True) as engine:
            async with systems.mesh_over(engine, folder / "mesh-plugin", plugin=True) as state:
                await self._measure(PLUGIN, self._comparison(state))

    def _comparison(self, state: MeshState) -> Comparison:
        workload = Workload(self._args.trace, systems.CONTEXT, self.slo_factor)
        return Comparison(state, workload, console, self._args.seconds)

    async def _measure(self, system: str, comparison: Comparison) -> None:
        for load in self._args.loads:
            for seed in range(self._args.seed, self._args.seed + self._args.seeds):
                run = comparison.direct if system == PLAIN else comparison.mesh
                replay = await run(load * self.rate_rps, seed)
                self.runs[load][system].append(replay)
                score = replay.score
                console.print(
                    f"  {system} at {load:g}: goodput rate {score.goodput_rate:.1%}, TTFT p50 {score.ttft_p50_s:.3f}, "
                    f"{score.completed} of {score.offered}",
                    style="dim",
                )

    def report(self) -> bool:
        """Prints the tables; true if the goals hold and every run is valid."""
        page: dict[str, Any] = {"capacity_rps": self.rate_rps, "slo_factor": self.slo_factor, "loads": {}}
        met = self.rate_rps <= MOST_RPS
        for load, runs in sorted(self.runs.items(), reverse=True):
            title = f"{load:g} of the capacity of plain vLLM: {load * self.rate_rps:.2f} req/s"
            console.print(comparison_table(title, runs))
            report_problems(console, runs)
            scores = {name: scores_json(of) for name, of in runs.items()}
            page["loads"][f"{load:g}"] = scores
            ratios = {
                name: score["goodput_rate"] / max(scores[PLAIN]["goodput_rate"], 1e-9) for name, score in scores.items()
            }
            goal = GOALS.get(load, 0.0)
            for name in list(scores)[1:]:
                added = [1e3 * (scores[name][q] - scores[PLAIN][q]) for q in ("ttft_p50_s", "ttft_p99_s")]
                console.print(
                    f"{name} against plain vLLM: goodput rate {ratios[name]:.2f} (goal at least {goal:g}: "
                    f"{ratios[name] >= goal}), TTFT p50 {added[0]:+.1f} ms, p99 {added[1]:+.1f} ms"
                )
                met = met and ratios[name] >= goal
            met = met and len(scores) == len(SYSTEMS) and all(score["valid"] for score in scores.values())
            console.print()
        write(self._args.json, page)
        return met


async def capacity(comparison: Comparison, seed: int, start_rps: float) -> float:
    search = await comparison.capacity(seed, start_rps)
    console.print(f"capacity of plain vLLM: {search.rate_rps:.2f} req/s (fails at {search.failing_rps})")
    return search.rate_rps


def main() -> int:
    args = parser().parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # engines and mesh are stopped as on Ctrl-C
    bench = Bench(args)
    try:
        with tempfile.TemporaryDirectory(prefix="hmas-vllm-") as folder:
            asyncio.run(bench.all(Path(folder)))
    except KeyboardInterrupt:
        console.print("interrupted: what was measured so far")
        bench.report()
        return 130
    except Unavailable as reason:
        print(f"real vLLM cannot be had here: {reason}", file=sys.stderr)
        return 3
    return 0 if bench.report() else 2


if __name__ == "__main__":
    sys.exit(main())
