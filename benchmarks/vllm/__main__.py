"""`python -m benchmarks.vllm` measures λ* of plain vLLM, then plain vLLM, the mesh, and the mesh with the vLLM plug-in
at 1.4, 0.5 and 0.1 times that rate.

With `--topologies` it measures plain vLLM and the mesh pinned to each of the given topologies instead.
"""

import argparse
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks.vllm import systems
from benchmarks.vllm.pace import slo_factors
from benchmarks.vllm.page import Measured, VllmResults, page
from benchmarks.vllm.processors import Processors
from hmas.contracts.control import TopologyName
from hmas.mesh.compare.commands import LIGHT, OVERLOAD, Comparison, report_problems, write
from hmas.mesh.compare.ranking import pinned
from hmas.mesh.compare.table import comparison_table, scores_json
from hmas.mesh.compare.workload import ReplayWorkload, SloFactors
from hmas.mesh.state import MeshState
from hmas_loadgen.search import RateSearch
from tests.engines.environment import ready
from tests.engines.vllm_server import VllmServer

IDLE = 0.1  # in λ*: at this load no request waits, so TTFT shows what the mesh adds
FIRST_RPS = 4.5  # requests/s at which the search for λ* begins, divided by the TTFT factor of the engine
WARM_S, WARM_SEED = 10.0, 1000  # length of the warm-up at the load LIGHT before each system, and its seed
console = Console() if Console().is_terminal else Console(width=120)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m benchmarks.vllm", description=__doc__)
    p.add_argument("--trace", type=Path, help="trace file; default: a trace made from the statistics of Azure's")
    p.add_argument(
        "--seconds", type=float, default=60.0, help="length of each replay, also in the search for the capacity"
    )
    p.add_argument("--seed", type=int, default=1, help="first seed")
    p.add_argument("--seeds", type=int, default=1, help="number of seeds, from --seed on")
    p.add_argument("--rate", type=float, help="λ* of plain vLLM in requests/s, if known; default: search it")
    p.add_argument(
        "--slo-factors",
        type=float,
        nargs=2,
        metavar=("TTFT", "TPOT"),
        help="factors on the SLOs of Table 6, if known; default: by the engine's pace",
    )
    p.add_argument("--loads", type=float, nargs="+", default=[OVERLOAD, LIGHT, IDLE], help="loads to measure, in λ*")
    p.add_argument(
        "--topologies",
        type=TopologyName,
        nargs="+",
        default=[],
        help="topologies to compare: " + " ".join(TopologyName),
    )
    p.add_argument("--json", type=Path, default=Path("out/bench-vllm.json"), help="file for the results")
    p.add_argument("--page", type=Path, help="also write the results to this file as Markdown")
    return p


class Bench:
    """Measures the systems one after another and collects the results."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self.results = VllmResults(
            workload=ReplayWorkload(args.trace, systems.CONTEXT).name,
            seconds=args.seconds,
            seeds=tuple(range(args.seed, args.seed + args.seeds)),
            slo_factors=SloFactors(*args.slo_factors) if args.slo_factors else None,
            rate_rps=args.rate or 0.0,
            loads=defaultdict(lambda: defaultdict(list)),
        )

    async def all(self, folder: Path) -> None:
        environment = ready()
        with systems.vllm(environment, folder / "plain", plugin=False) as engine:
            await self._prepare(engine)
            await self._measure(systems.PLAIN, engine, systems.plain(engine))
            async with systems.mesh_over(engine, folder / "mesh", plugin=False) as state:
                for topology in self._args.topologies:
                    await pinned(state, topology)
                    await self._measure(f"mesh: {topology}", engine, state)
                if not self._args.topologies:
                    await self._measure(systems.MESH, engine, state)
        if self._args.topologies:
            return
        with systems.vllm(environment, folder / "plugin", plugin=True) as engine:
            async with systems.mesh_over(engine, folder / "mesh-plugin", plugin=True) as state:
                await self._measure(systems.WITH_PLUGIN, engine, state)

    async def _prepare(self, engine: VllmServer) -> None:
        """Sets the SLOs by the engine's pace, then the rate by λ* of plain vLLM under these SLOs."""
        results = self.results
        pace = await slo_factors(engine.url, systems.MAX_NUM_SEQS, systems.MAX_NUM_BATCHED_TOKENS)
        results.slo_factors = results.slo_factors or pace
        console.print(f"SLOs of Table 6: TTFT times {results.factors.ttft:.3f}, TPOT times {results.factors.tpot:.3f}")
        if not results.rate_rps:
            comparison = self._comparison(systems.plain(engine))
            results.search = await comparison.capacity(self._args.seed, FIRST_RPS / results.factors.ttft)
            results.rate_rps = results.search.rate_rps
            console.print(f"capacity of plain vLLM: {results.rate_rps:.2f} req/s ({_limit(results.search)})")

    def _comparison(self, state: MeshState, window_s: float = 0.0) -> Comparison:
        workload = ReplayWorkload(self._args.trace, systems.CONTEXT, self.results.factors)
        return Comparison(state, workload, console, window_s or self._args.seconds)

    async def _measure(self, system: str, engine: VllmServer, state: MeshState) -> None:
        results = self.results
        warm, comparison = self._comparison(state, WARM_S), self._comparison(state)
        await (warm.mesh if state.gateway_url else warm.direct)(LIGHT * results.rate_rps, WARM_SEED)
        run = comparison.mesh if state.gateway_url else comparison.direct
        for load in self._args.loads:
            for seed in results.seeds:
                processors = Processors(engine.core_pid, systems.other_cores())
                measured = Measured(await run(load * results.rate_rps, seed), processors.busy())
                results.loads[load][system].append(measured)
                score = measured.replay.score
                console.print(
                    f"  {system} at {load:g}: goodput rate {score.goodput_rate:.1%}, TTFT p50 {score.ttft_p50_s:.3f}, "
                    f"{score.completed} of {score.offered}; engine core busy {measured.busy.core:.0%}, "
                    f"the other processors {measured.busy.others:.0%}",
                    style="dim",
                )
        results.paces[system] = await slo_factors(engine.url, systems.MAX_NUM_SEQS, systems.MAX_NUM_BATCHED_TOKENS)

    def report(self) -> bool:
        """Prints and writes the results. Returns whether all runs are valid and the goals hold."""
        results = self.results
        for load, systems_at in results.by_load():
            runs = {name: [m.replay for m in measured] for name, measured in systems_at.items()}
            console.print(comparison_table(results.title(load), runs))
            report_problems(console, runs)
            for line in results.verdicts(load, ranking=bool(self._args.topologies)):
                console.print(line)
            console.print()
        loads = {
            f"{load:g}": {
                name: scores_json([m.replay for m in measured])
                | {"core_busy": [m.busy.core for m in measured], "others_busy": [m.busy.others for m in measured]}
                for name, measured in systems_at.items()
            }
            for load, systems_at in results.by_load()
        }
        write(
            self._args.json,
            {
                "capacity_rps": results.rate_rps,
                "slo_factors": asdict(results.factors),
                "paces": {system: asdict(pace) for system, pace in results.paces.items()},
                "loads": loads,
            },
        )
        if self._args.page is not None and results.loads:
            self._args.page.parent.mkdir(parents=True, exist_ok=True)
            self._args.page.write_text(page(results, ranking=bool(self._args.topologies)))
        return results.good(ranking=bool(self._args.topologies))


def _limit(search: RateSearch) -> str:
    return "no rate tried failed" if search.failing_rps is None else f"fails at {search.failing_rps:.2f}"


def main() -> int:
    args = parser().parse_args()
    bench = Bench(args)
    status = systems.carried_out(bench.all)
    if status == 130:
        console.print("interrupted; the results so far:")
        bench.report()
    if status:
        return status
    return 0 if bench.report() else 2


if __name__ == "__main__":
    sys.exit(main())
