"""`python -m experiments.live.prediction` sends typed prompts through a mesh in front of each engine, compares the
predicted costs with the measured ones, and writes docs/results/live-prediction.md. With --engine it does so in front of
an engine that runs already, and adds that to the page."""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path

from rich.console import Console

from benchmarks.fidelity.engines import real
from benchmarks.fidelity.scenario import ReplayScenario
from experiments.live.measure import ANSWERS, by_label, prediction_errors, samples
from experiments.live.prediction_page import PredictionResults, PredictionRun, write_page
from experiments.live.settled import SettledRequest, settled_requests
from experiments.pages.carried import present_commit
from hmas.mesh.compare.cli import MAX_MODEL_LEN, interruptible
from hmas.mesh.compare.commands import LIGHT, OVERLOAD
from hmas.mesh.compare.runs import direct_target, mesh_target
from hmas.mesh.compare.workload import ReplayWorkload
from hmas.mesh.options import MeshOptions
from hmas.mesh.state import MeshState
from hmas.mesh.supervisor import Mesh
from hmas.mesh.up import card_of, with_model
from hmas_loadgen.plan import LoadPlan
from hmas_loadgen.runner.run import run_load
from tests.engines.engine_server import MODEL
from tests.engines.environment import VERSION, Unavailable, ready

OUT = Path("docs/results")
EMULATED, VLLM = ENGINES = "tiny-emulated", "vLLM"
# The vLLM of `make fidelity`, with memory for all sequences. Its tokenizer may make more tokens of a prompt than the
# mesh estimates, so that the context is twice what the requests are chosen for.
CONTEXT = 4096
SCENARIO = ReplayScenario(max_model_len=2 * CONTEXT, num_gpu_blocks=2048)
SHARES = (LIGHT, OVERLOAD)
REQUESTS = 400  # per worker; in overload most of them are predicted before 50 have settled
FILLING = 96  # requests per engine that come at once, to see how many a full engine serves
DRAIN_S = 120.0


class PredictionStudy:
    """Runs every load and seed in front of one engine after another."""

    def __init__(self, requests: int, seeds: tuple[int, ...], say: Callable[[str], None]) -> None:
        self._requests = requests
        self._seeds = seeds
        self._say = say
        self.found = PredictionResults(engines={})

    async def emulated(self, folder: Path) -> None:
        options = MeshOptions()
        self.found.engines[EMULATED] = f"{options.emulated} emulated engines, as `make run` starts them"
        await self._engine(EMULATED, options, MAX_MODEL_LEN, folder)

    async def vllm(self, folder: Path) -> None:
        """Raises Unavailable where real vLLM cannot run."""
        flags = " ".join(SCENARIO.flags())
        with real(ready(), SCENARIO) as url:
            self.found.engines[VLLM] = (
                f"vLLM {VERSION} on a CPU, Qwen3 with {SCENARIO.layers} layers of width {SCENARIO.hidden} and random "
                f"weights, `{flags}`; no card is named"
            )
            options = MeshOptions(engine_urls=(url,), model=MODEL, max_num_seqs=SCENARIO.max_num_seqs)
            await self._engine(VLLM, options, CONTEXT, folder)

    async def running(self, name: str, what: str, options: MeshOptions, folder: Path) -> None:
        """Measures the engine that `options` name, for half of its context."""
        self.found.engines[name] = what
        context = int(card_of(options.engine_urls[0], "").get("max_model_len") or MAX_MODEL_LEN)
        await self._engine(name, options, min(context // 2, MAX_MODEL_LEN), folder)

    async def _engine(self, name: str, options: MeshOptions, context: int, folder: Path) -> None:
        self.found.engines[name] += f". Its machine has {os.cpu_count()} cores."
        workload = ReplayWorkload(None, context)
        async with _started(options, folder / name) as (mesh, _):
            full_rps = await _full_rps(mesh.plan.state({}), workload)
        for seed, share in product(self._seeds, SHARES):
            load, rate_rps = os.getloadavg()[0], share * full_rps
            async with _started(options, folder / f"{name}-{share:g}-{seed}") as (mesh, recordings):
                state = mesh.plan.state({})
                trace = workload.at(rate_rps, self._requests * len(state.engine_urls) / rate_rps, seed)
                target = replace(mesh_target(state), send_slo=False)
                result = await run_load(LoadPlan(name=name, trace=trace, target=target, seed=seed, drain_s=DRAIN_S))
                told = await asyncio.to_thread(samples, state, "prediction")
                answers = by_label(told, ANSWERS, "model")
            run = PredictionRun(
                engine=name, share=share, seed=seed, full_rps=full_rps, sent=len(trace.rows),
                answers={model: count / sum(answers.values()) for model, count in answers.items() if count},
                by_model=prediction_errors(told), commit=present_commit(), unfinished=result.errors(), load=load,
                reasons=result.reasons,
                requests=await asyncio.to_thread(_recorded, recordings),
            )  # fmt: skip
            self.found.runs.append(run)
            self._say(
                f"{name} at {rate_rps:.1f} req/s, seed {seed}: {len(run.requests)} of {run.sent} finished, "
                f"load average {load:.1f} {' '.join(run.reasons)}"
            )


def _recorded(recordings: Path) -> list[SettledRequest]:
    (recording,) = recordings.glob("*.jsonl")
    with recording.open(encoding="utf-8") as lines:
        return settled_requests(lines)


@asynccontextmanager
async def _started(options: MeshOptions, folder: Path) -> AsyncIterator[tuple[Mesh, Path]]:
    """Runs a mesh whose prediction service records its steps, and yields it with the folder of the recording."""
    recordings = folder / "recordings"
    mesh = Mesh(replace(options, port=0, data_dir=folder, replay=True, log_level="error"))
    mesh.plan = replace(
        mesh.plan,
        processes=tuple(
            replace(spec, env={**spec.env, "HMAS_RECORD_DIR": str(recordings)}) if spec.name == "prediction" else spec
            for spec in mesh.plan.processes
        ),
    )
    async with mesh:
        yield mesh, recordings


async def _full_rps(state: MeshState, workload: ReplayWorkload) -> float:
    """Returns how many requests/s the engines serve while they are full: those of a burst that end between its first
    quarter and its last. The first burst warms the engines up."""
    rate_rps = 0.0
    count = FILLING * len(state.engine_urls)
    for seed in (1001, 1002):
        trace = workload.at(float(count), 1.0, seed)
        rows = [replace(row, arrival_s=0.0) for row in trace.rows]
        plan = LoadPlan(
            name="full", trace=trace.derived(rows, "all at once", 1.0), target=direct_target(state), seed=seed,
            window_s=1.0, drain_s=DRAIN_S,
        )  # fmt: skip
        ends_s = sorted(r.last_token_s for r in (await run_load(plan)).records if r.last_token_s is not None)
        first, last = len(ends_s) // 4, 3 * len(ends_s) // 4
        rate_rps = (last - first) / (ends_s[last] - ends_s[first])
    return rate_rps


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.live.prediction", description=__doc__)
    parser.add_argument(
        "--engines", nargs="+", choices=ENGINES, default=ENGINES, help="engines to measure; figures of others are kept"
    )
    parser.add_argument("--engine", metavar="URL", help="measure this running engine instead")
    parser.add_argument("--name", default="", help="its name on the page")
    parser.add_argument("--what", default="", help="a sentence that says what it is: version, model, card, flags")
    parser.add_argument("--max-num-seqs", type=int, help="its --max-num-seqs")
    parser.add_argument("--hardware", default="", help="its card and how many, e.g. H100x2")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="requests of a run for each worker")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from 1 on")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the page and its figures")
    args = parser.parse_args(argv)
    if args.engine and not (args.name and args.what and args.max_num_seqs):
        parser.error("--engine goes with --name, --what and --max-num-seqs")
    console = Console(width=120)
    study = PredictionStudy(
        args.requests, tuple(range(1, args.seeds + 1)), lambda line: console.print(line, highlight=False)
    )

    async def run() -> None:
        async with interruptible():
            with tempfile.TemporaryDirectory(prefix="hmas-live-") as folder:
                if args.engine:
                    options = MeshOptions(
                        engine_urls=(args.engine,), max_num_seqs=args.max_num_seqs, hardware=args.hardware
                    )
                    await study.running(args.name, args.what, with_model(options), Path(folder))
                    return
                for name, measure in ((EMULATED, study.emulated), (VLLM, study.vllm)):
                    if name in args.engines:
                        await measure(Path(folder))

    status = 0
    try:
        asyncio.run(run())
    except asyncio.CancelledError:
        status = 130
    except Unavailable as reason:
        print(f"real vLLM cannot run on this machine: {reason}", file=sys.stderr)
        status = 3
    measured = study.found.only_measured()
    if measured.runs:
        for path in write_page(measured, args.out):
            console.print(f"wrote {path}")
    return status


if __name__ == "__main__":
    sys.exit(main())
