"""`python -m benchmarks.vllm.memory` measures a real vLLM whose cache holds few blocks, so that it preempts.

Measured are plain vLLM, the mesh as it ships, the mesh whose regulator moves limits, and the mesh whose regulator is
frozen. Beside each run stands what the emulated engine, calibrated on this vLLM, predicts of it. Finished runs are
kept: call again to continue.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean

from rich.console import Console

from benchmarks.fidelity.replays import preemptions
from benchmarks.fidelity.speed import scaled
from benchmarks.vllm import systems
from benchmarks.vllm.pace import slo_factors
from experiments.pages.paired import paired
from experiments.pages.template import render
from hmas.contracts.outcome import Outcome
from hmas.engine.core.profile import EngineProfile, parse_profiles
from hmas.mesh.compare.commands import Comparison
from hmas.mesh.compare.simulated import Turn, simulated
from hmas.mesh.compare.workload import ReplayWorkload, SloFactors
from hmas.mesh.options import MeshOptions
from hmas.mesh.state import MeshState
from hmas.mesh.supervisor import Mesh
from hmas.sim.processes.fleet import Baseline
from hmas.sim.setup import MeshSetup
from hmas.sim.vllm import VLLM
from hmas.statera.agent.config import StateraConfig
from hmas_lab.sim.systems import MESHES
from hmas_loadgen.search import find_rate
from tests.engines.engine_server import MODEL
from tests.engines.environment import VERSION, ready
from tests.engines.vllm_server import VllmServer

BLOCKS, BLOCK_SIZE = 160, 32
# The model: its steps take longer than what all other processes, which share one processor, do for its tokens.
HIDDEN, LAYERS = 256, 4
FLAGS = (
    "--max-num-seqs", str(systems.MAX_NUM_SEQS), "--max-model-len", str(systems.CONTEXT),
    "--max-num-batched-tokens", str(systems.MAX_NUM_BATCHED_TOKENS), "--block-size", str(BLOCK_SIZE),
    "--num-gpu-blocks-override", str(BLOCKS), "--no-enable-prefix-caching",
)  # fmt: skip
# Each system by name, with its name in the simulator.
PLAIN, SHIPPED, MOVING, FROZEN = "plain vLLM", "mesh", "mesh, moving", "mesh, frozen"
SIMULATED: dict[str, Baseline | MeshSetup] = {
    PLAIN: VLLM, SHIPPED: MESHES["hmas"], MOVING: MESHES["hmas-moving"], FROZEN: MESHES["hmas-frozen"]
}  # fmt: skip
LOADS = (1.2, 1.4)
FIRST_RPS = 2.0  # requests/s at which the search for λ* begins
WARM_S, WARM_LOAD, WARM_SEED = 10.0, 0.5, 1000
CLOSE = 0.05  # largest error of a predicted goodput rate
PROFILE = "few-blocks"
TEMPLATE = Path(__file__).with_name("memory.md.j2")
console = Console() if Console().is_terminal else Console(width=120)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRun:
    """One run and its prediction, as goodput rates. `slower` is how much slower than while it was calibrated the engine
    was, by probes before and after the run, and `preemptions` the engine's own count."""

    system: str
    load: float
    seed: int
    goodput_rate: float
    tpot_compliance: float
    ttft_p50_s: float
    preemptions: int
    slower: float
    predicted: float
    valid: bool


@dataclass(frozen=True, slots=True)
class MemorySetting:
    """What is fixed before the first run: the SLOs' factors and λ* of plain vLLM."""

    slo_factors: SloFactors
    rate_rps: float


class MemoryStudy:
    """Makes all runs that are not stored yet, seed by seed."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._seeds = range(args.seed, args.seed + args.seeds)
        self._work: Path = args.work
        self._work.mkdir(parents=True, exist_ok=True)

    async def all(self, folder: Path) -> None:
        if len(self.runs()) == len(SIMULATED) * len(LOADS) * len(self._seeds):
            return
        environment = ready()
        model = environment.sized_model(HIDDEN, LAYERS)
        with systems.vllm(environment, folder / "engine", plugin=False, flags=FLAGS, model=model) as engine:
            profile = await self._calibrated(engine)
            setting = await self._setting(engine, profile)
            for seed in self._seeds:
                for system in SIMULATED:
                    missing = [load for load in LOADS if not self._file(system, load, seed).exists()]
                    if missing:
                        async with serving(system, engine, folder / f"{system} {seed}") as state:
                            await self._measure(system, missing, seed, engine, state, profile, setting)

    def runs(self) -> list[MemoryRun]:
        """Returns the runs that are stored, seed by seed."""
        files = [self._file(s, load, seed) for seed in self._seeds for load in LOADS for s in SIMULATED]
        return [MemoryRun(**json.loads(file.read_text())) for file in files if file.exists()]

    def setting(self) -> MemorySetting:
        body = json.loads((self._work / "setting.json").read_text())
        return MemorySetting(SloFactors(**body["slo_factors"]), body["rate_rps"])

    def _file(self, system: str, load: float, seed: int) -> Path:
        return self._work / f"{SIMULATED[system].name}-{load:g}-{seed}.json"

    async def _calibrated(self, engine: VllmServer) -> EngineProfile:
        """Returns the profile that `hmas calibrate` fits to the engine, whose pace is taken before and after it."""
        file = self._work / "profile.yaml"
        if not file.exists():
            draft = file.with_suffix(".part")
            command = [
                str(Path(sys.executable).with_name("hmas")), "calibrate", engine.url, "--out", str(draft), "--name",
                PROFILE, "--max-batch", str(systems.MAX_NUM_SEQS), "--max-num-seqs", str(systems.MAX_NUM_SEQS),
                "--max-num-batched-tokens", str(systems.MAX_NUM_BATCHED_TOKENS),
            ]  # fmt: skip
            before = await pace_of(engine)
            await asyncio.to_thread(subprocess.run, command, check=True)
            after = await pace_of(engine)
            mean = SloFactors((before.ttft + after.ttft) / 2.0, (before.tpot + after.tpot) / 2.0)
            (self._work / "pace.json").write_text(json.dumps(asdict(mean)))
            draft.rename(file)
        (profile,) = parse_profiles(file.read_text()).values()
        return profile

    async def _setting(self, engine: VllmServer, profile: EngineProfile) -> MemorySetting:
        """Sets the SLOs by the engine's pace while it was calibrated, then the rate by λ* of plain vLLM under these
        SLOs."""
        file = self._work / "setting.json"
        if not file.exists():
            factors = SloFactors(**json.loads((self._work / "pace.json").read_text()))
            rate_rps = self._args.rate or await self._capacity(profile, factors)
            file.write_text(json.dumps({"slo_factors": asdict(factors), "rate_rps": rate_rps}))
        return self.setting()

    async def _capacity(self, profile: EngineProfile, factors: SloFactors) -> float:
        """Returns λ* of plain vLLM on the emulated engine that was calibrated on this one: a search of several live
        runs finds the machine's slow minutes as well."""
        workload, seconds = ReplayWorkload(self._args.trace, systems.CONTEXT, factors), self._args.seconds

        async def goodput_rate(rate_rps: float) -> float:
            turn = Turn(workload.at(rate_rps, seconds, WARM_SEED), WARM_SEED)
            return simulated(VLLM, turn, profile, 1, seconds).score.goodput_rate

        return (await find_rate(goodput_rate, FIRST_RPS, tolerance=0.05, max_runs=20)).rate_rps

    def _comparison(self, state: MeshState, factors: SloFactors, seconds: float) -> Comparison:
        return Comparison(state, ReplayWorkload(self._args.trace, systems.CONTEXT, factors), console, seconds)

    async def _measure(
        self, system: str, loads: list[float], seed: int, engine: VllmServer, state: MeshState, profile: EngineProfile,
        setting: MemorySetting,
    ) -> None:  # fmt: skip
        seconds, factors = self._args.seconds, setting.slo_factors
        warm, comparison = self._comparison(state, factors, WARM_S), self._comparison(state, factors, seconds)
        await (warm.mesh if state.gateway_url else warm.direct)(WARM_LOAD * setting.rate_rps, WARM_SEED)
        before = await pace_of(engine)
        for load in loads:
            rate_rps, counted = load * setting.rate_rps, preemptions(engine.url)
            replay = await (comparison.mesh if state.gateway_url else comparison.direct)(rate_rps, seed)
            counted = preemptions(engine.url) - counted
            after = await pace_of(engine)
            slower = fmean(p.ttft / factors.ttft + p.tpot / factors.tpot for p in (before, after)) / 2.0
            turn = Turn(comparison.trace(rate_rps, seed), seed)
            told = await asyncio.to_thread(simulated, SIMULATED[system], turn, scaled(profile, slower), 1, seconds)
            score = replay.score
            # The simulation serves what the engine refuses.
            refused = any(each.outcome is Outcome.INVALID_REQUEST for each in replay.settlements)
            run = MemoryRun(
                system=system, load=load, seed=seed, goodput_rate=score.goodput_rate,
                tpot_compliance=score.tpot_compliance, ttft_p50_s=score.ttft_p50_s, preemptions=counted,
                slower=slower, predicted=told.score.goodput_rate, valid=not replay.reasons and not refused,
            )  # fmt: skip
            self._file(system, load, seed).write_text(json.dumps(asdict(run)))
            console.print(f"  {run}", style="dim")
            before = after


async def pace_of(engine: VllmServer) -> SloFactors:
    return await slo_factors(engine.url, systems.MAX_NUM_SEQS, systems.MAX_NUM_BATCHED_TOKENS)


@asynccontextmanager
async def serving(system: str, engine: VllmServer, folder: Path) -> AsyncIterator[MeshState]:
    """Runs what the system puts in front of the engine. A frozen regulator is a stopped process: its last word runs
    out, so that N_run and B_token stand at the engine's limits while the fence goes on."""
    if system == PLAIN:
        yield systems.plain(engine)
        return
    options = MeshOptions(
        port=0, engine_urls=(engine.url,), model=MODEL, max_num_seqs=systems.MAX_NUM_SEQS, data_dir=folder, replay=True,
        log_level="error", extra_env={"HMAS_N_RUN_RULE": "band"} if system == MOVING else {},
    )  # fmt: skip
    mesh = await Mesh(options, lambda name, line: print(name, line, flush=True)).__aenter__()
    statera = mesh.processes["statera"].pid
    try:
        if system == FROZEN and statera is not None:
            os.kill(statera, signal.SIGSTOP)
            await asyncio.sleep(StateraConfig().valid_for_s)
        yield mesh.plan.state({})
    finally:
        if system == FROZEN and statera is not None:
            os.kill(statera, signal.SIGCONT)
        await mesh.stop()


def page(setting: MemorySetting, seconds: float, runs: list[MemoryRun]) -> str:
    """Returns the page. Means are over the seeds for which every system has a valid run at a load."""
    return render(
        TEMPLATE,
        setting=setting,
        seconds=seconds,
        seeds=sorted({run.seed for run in runs}),
        rows=[(f"{load:g} λ*", name, f"{m:.3f}", f"{p:.3f}", f"{n:.0f}") for load, name, m, p, n in means(runs)],
        each=[_cells(run) for run in runs],
        verdicts=[*differences(runs), *verdicts(runs)],
        invalid=[f"{run.system} at {run.load:g} λ*, seed {run.seed}" for run in runs if not run.valid],
        FLAGS=FLAGS,
        LAYERS=LAYERS,
        HIDDEN=HIDDEN,
        VERSION=VERSION,
    )


def _cells(run: MemoryRun) -> tuple[str, ...]:
    return (
        f"{run.load:g} λ*", str(run.seed), run.system, f"{run.goodput_rate:.3f}", f"{run.predicted:.3f}",
        f"{run.tpot_compliance:.3f}", f"{run.ttft_p50_s:.2f}", str(run.preemptions), f"× {run.slower:.2f}",
    )  # fmt: skip


def whole(runs: list[MemoryRun]) -> dict[float, list[MemoryRun]]:
    """Returns the runs of each load, of the seeds for which every system has a valid one."""
    found = {}
    for load in LOADS:
        own = [run for run in runs if run.load == load and run.valid]
        seeds = set.intersection(*({run.seed for run in own if run.system == system} for system in SIMULATED))
        if seeds:
            found[load] = [run for run in own if run.seed in seeds]
    return found


def means(runs: list[MemoryRun]) -> list[tuple[float, str, float, float, float]]:
    """Returns rows of load, system, measured and predicted goodput rate, and preemptions, over the seeds for which
    every system has a valid run."""
    found = []
    for load, valid in whole(runs).items():
        for system in SIMULATED:
            own = [run for run in valid if run.system == system]
            rates = fmean(r.goodput_rate for r in own), fmean(r.predicted for r in own)
            found.append((load, system, *rates, fmean(r.preemptions for r in own)))
    return found


def differences(runs: list[MemoryRun]) -> list[str]:
    """Says of each load by how many points the mesh is ahead of the frozen one and of plain vLLM, seed by seed, and
    whether plain vLLM preempts there: else memory is not short."""
    lines = []
    for load, valid in whole(runs).items():
        rates = {system: [r.goodput_rate for r in valid if r.system == system] for system in SIMULATED}
        told = []
        for other in (FROZEN, PLAIN):
            gain = paired(rates[SHIPPED], rates[other])
            level = ", within chance" if gain.noise else ""
            told.append(f"{100 * gain.mean:+.1f} ± {100 * gain.half:.1f} points against {other}{level}")
        preempted = fmean(run.preemptions for run in valid if run.system == PLAIN)
        short = f"plain vLLM preempts {preempted:.0f} times a run"
        if not preempted:
            short = "**plain vLLM never preempts: memory is not short here**"
        lines.append(f"{load:g} λ*, {len(rates[PLAIN])} seeds: the mesh {' and '.join(told)}; {short}.")
    return lines


def verdicts(runs: list[MemoryRun]) -> list[str]:
    """Says of each load whether the emulated engine predicted the order and each value."""
    lines = []
    for load in LOADS:
        rows = [row for row in means(runs) if row[0] == load]
        if not rows:
            continue
        measured = [row[1] for row in sorted(rows, key=lambda row: -row[2])]
        predicted = [row[1] for row in sorted(rows, key=lambda row: -row[3])]
        worst = max(rows, key=lambda row: abs(row[3] - row[2]))
        error = worst[3] - worst[2]
        lines.append(
            f"{load:g} λ*: measured order {' > '.join(measured)}; predicted {' > '.join(predicted)}: "
            f"{'the same' if measured == predicted else 'another one'}. {clear_pairs(whole(runs)[load])} "
            f"Largest error of a value: {100 * error:+.1f} "
            f"points ({worst[1]}; goal at most {100 * CLOSE:g}: {'holds' if abs(error) <= CLOSE else 'does not hold'})."
        )
    return lines


def clear_pairs(runs: list[MemoryRun]) -> str:
    """Says of one load's runs in how many of the pairs of systems that differ by more than chance, seed by seed, the
    prediction has the same one ahead."""
    clear = right = 0
    for a, b in combinations(SIMULATED, 2):
        of_a, of_b = ([run for run in runs if run.system == system] for system in (a, b))
        gain = paired([r.goodput_rate for r in of_a], [r.goodput_rate for r in of_b])
        if not gain.noise:
            clear += 1
            told = fmean(r.predicted for r in of_a) - fmean(r.predicted for r in of_b)
            right += told * gain.mean > 0.0
    if not clear:
        return "No two systems differ by more than chance, seed by seed."
    pairs = "1 pair differs" if clear == 1 else f"{clear} pairs differ"
    return f"{pairs} by more than chance, seed by seed; of these, {right} predicted with the same one ahead."


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m benchmarks.vllm.memory", description=__doc__)
    p.add_argument("--trace", type=Path, help="trace file; default: a trace made from the statistics of Azure's")
    p.add_argument("--seconds", type=float, default=60.0, help="length of each replay")
    p.add_argument("--seed", type=int, default=1, help="first seed")
    p.add_argument("--seeds", type=int, default=3, help="number of seeds, from --seed on")
    p.add_argument(
        "--rate", type=float, default=0.0, help="λ* of plain vLLM in requests/s; default: of the emulated one"
    )
    p.add_argument("--work", type=Path, default=Path("out/vllm-memory"), help="folder in which runs are kept")
    p.add_argument("--out", type=Path, default=Path("docs/results/vllm-memory.md"), help="page to write")
    return p


def main() -> int:
    args = parser().parse_args()
    study = MemoryStudy(args)
    status = systems.carried_out(study.all)
    if status == 130:
        console.print("interrupted; call again to continue")
    if status:
        return status
    args.out.write_text(page(study.setting(), args.seconds, study.runs()), encoding="utf-8")
    args.out.with_suffix(".json").write_text(json.dumps([asdict(run) for run in study.runs()], indent=1) + "\n")
    print(f"wrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
