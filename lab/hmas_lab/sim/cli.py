"""The commands of `hmas sim`: run an experiment once, find lambda*, replay a recording."""

import re
from collections.abc import Iterable, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hmas.entry_points import known_topology
from hmas.laws.recording import RecordingError
from hmas.sim.effect_log import EffectLog
from hmas.sim.processes.worker_shell import OrderFailed
from hmas.sim.recordings import RecordingFolder, replay
from hmas.sim.result import EngineExcess, SimResult
from hmas.sim.workload import Workload
from hmas_lab.sim.baselines.systems import loosest
from hmas_lab.sim.bound import upper_bound
from hmas_lab.sim.capacity import find_capacity
from hmas_lab.sim.cells import GUESS_RPS, Cell, compute
from hmas_lab.sim.experiment import Experiment, ExperimentError, load_experiment
from hmas_lab.sim.sources import WorkloadSpec, build
from hmas_lab.sim.systems import FIXED_PREFIX, HMAS, needs_prompts, read_by, run_system

app = typer.Typer(help="The mesh in virtual time: baselines, limits, the paper's experiments.", no_args_is_help=True)
console = Console()
SMOKE = Path(__file__).with_name("smoke.yaml")

Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder that holds traces/ and prompts/. Default: ./data, if it exists.",
        envvar="HMAS_DATA",
        file_okay=False,
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(help="Simulate engines of this profile: a file of `hmas calibrate`, or a name; its own token budget."),
]
COLUMNS = (  # two lines each, so that all of them fit into 80 characters
    "", "ok /\noffered", "of\nbound", "TTFT\nok", "TPOT\nok", "ok\n/s", "ESG\n/s", "TTFT\np95 s", "pre-\nempted",
    "Jain\nindex",
)  # fmt: skip

EXCESS_COLUMNS = ("", "engine", "above\nN_run", "for\ns", "of KV above\nthe fence", "for\ns")


def data_folder(data: Path | None) -> Path | None:
    """Returns the folder that was given; if none was, `./data` if it exists, otherwise None."""
    here = Path("data")
    return here if data is None and here.is_dir() else data


def load(path: Path) -> Experiment:
    """Reads an experiment file. Raises BadParameter, with what to correct, if it cannot be run."""
    try:
        return load_experiment(path)
    except ExperimentError as error:
        raise typer.BadParameter(str(error)) from error


def engines_of(experiment: Experiment, profile: str | None, engines: int | None) -> Experiment:
    """Returns the experiment on engines of `profile` and as many as `engines` says; None keeps what the file says.
    Raises BadParameter if there is no such profile."""
    if engines is not None:
        experiment = replace(experiment, engines=engines)
    if profile is None:
        return experiment
    experiment = replace(experiment, profile=profile, chunk_tokens=None)
    try:
        _ = experiment.engine
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--profile") from error
    return experiment


@app.command()
def run(
    file: Annotated[
        Path,
        typer.Argument(help="An experiment file. Default: a smoke run of one minute.", exists=True, dir_okay=False),
    ] = SMOKE,
    seed: Annotated[int, typer.Option(help="Random seed of the workload, the predictions and the policies.")] = 1,
    print_hash: Annotated[
        bool, typer.Option("--print-hash", help="Print the SHA-256 of all effects of all agents at the end.")
    ] = False,
    trace: Annotated[Path | None, typer.Option(help="Offer this trace file instead of the file's workloads.")] = None,
    profile: Profile = None,
    engines: Annotated[int | None, typer.Option(min=1, help="Number of engines instead of the file's.")] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.01, help="Requests per second instead of the file's loads.")
    ] = None,
    topology: Annotated[
        list[str] | None,
        typer.Option(
            help="Run the mesh as it ships, and pinned to this topology, in place of the file's systems; repeat the "
            "option for several. Installed packages may add topologies."
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="Write a recording of every step of every agent to this folder.", file_okay=False),
    ] = None,
    data: Data = None,
) -> None:
    """Runs an experiment's systems for one seed and prints their scores."""
    experiment = engines_of(load(file), profile, engines)
    if rate is not None:
        experiment = replace(experiment, rate_rps=rate)
    if topology:
        experiment = replace(experiment, systems=_pinned_to(topology))
    if trace is not None:
        duration_s = experiment.workloads[0].duration_s
        spec = WorkloadSpec(
            kind="trace", duration_s=duration_s, file=str(trace), tenants=experiment.workloads[0].tenants
        ).labelled(data_folder(data))
        experiment = replace(experiment, workloads=(spec,))
    experiment = experiment.within(data_folder(data)) if trace is None else experiment
    hashes = sha256()
    for spec in experiment.workloads:
        for rate, title in _rates(experiment, spec):
            prompts = any(map(needs_prompts, experiment.systems))
            workload = build(spec, rate, seed, prompts=prompts).fitting(experiment.engine)
            try:
                digests = _run_all(experiment, workload, title, seed, print_hash, record)
            except OrderFailed as error:
                raise typer.BadParameter(str(error), param_hint="--topology") from error
            for digest in digests:
                hashes.update(digest.encode())
    if print_hash:
        typer.echo(hashes.hexdigest())


def _pinned_to(topologies: Sequence[str]) -> tuple[str, ...]:
    """Returns the systems of `--topology`. Raises BadParameter if one is not known here."""
    try:
        return (HMAS, *(f"{FIXED_PREFIX}{known_topology(name)}" for name in dict.fromkeys(topologies)))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--topology") from error


def _rates(experiment: Experiment, spec: WorkloadSpec) -> list[tuple[float, str]]:
    if experiment.rate_rps is not None:
        return [(experiment.rate_rps, f"{experiment.rate_rps:g} requests/s")]
    cell = Cell(
        kind="capacity",
        profile=experiment.profile,
        engines=experiment.engines,
        workload=spec,
        chunk_tokens=experiment.chunk_tokens,
    )
    capacity = compute(cell)["rate_rps"]
    return [(load * capacity, f"{load:g} λ* = {load * capacity:.2f} requests/s") for load in experiment.loads]


def _run_all(
    experiment: Experiment, workload: Workload, title: str, seed: int, hashed: bool, record: Path | None
) -> list[str]:
    """Runs each system of the experiment on one workload and prints a table with one row per system. Returns the
    hashes of their effects if `hashed`, otherwise an empty list."""
    profile, engines = experiment.engine, experiment.engines
    limit = upper_bound(workload, loosest(profile), engines)
    rows, excesses, digests = [], [], []
    for system in experiment.systems:
        workload = read_by(system, workload)
        log = EffectLog() if hashed else None
        name = re.sub(r"[^\w.]+", "-", f"{workload.name} {title} seed {seed} {system}")
        folder = record / name if record is not None else None
        with closing(RecordingFolder(folder)) if folder is not None else nullcontext() as recording:
            result = run_system(
                system, workload, profile, engines, seed, log, experiment.workers, recording,
                gateways=experiment.gateways, faults=experiment.faults,
            )  # fmt: skip
        rows.append(_row(result, limit.goodput_rate))
        excesses += [[result.system, *_excess(engine)] for engine in result.run.engines]
        if log is not None:
            digests.append(log.digest())
    console.print(
        score_table(f"{workload.name}, {title}, {len(workload.requests)} requests, seed {seed}", rows), highlight=False
    )
    if experiment.faults:
        title = "the most by which each engine was above N_run and the fence, and the longest time"
        console.print(score_table(title, excesses, EXCESS_COLUMNS), highlight=False)
    return digests


def _excess(run: EngineExcess) -> list[str]:
    return [
        run.engine, str(run.over_n_run), f"{run.over_n_run_s:.2f}", f"{run.over_fence:.1%}", f"{run.over_fence_s:.2f}"
    ]  # fmt: skip


def score_table(title: str, rows: Iterable[Sequence[str]], columns: Sequence[str] = COLUMNS) -> Table:
    """Returns a table with one row per system or engine, whose cells are in the order of `columns`."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, collapse_padding=True)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _row(result: SimResult, limit: float) -> list[str]:
    s = result.score
    share = s.goodput_rate / limit if limit else 0.0
    return [
        result.system, f"{s.goodput_rate:.3f}", f"{share:.3f}", f"{s.ttft_compliance:.3f}", f"{s.tpot_compliance:.3f}",
        f"{s.goodput:.2f}", f"{s.esg_rate:.0f}", f"{s.ttft_p95_s:.2f}", str(result.run.preemptions),
        f"{s.jain_index:.3f}",
    ]  # fmt: skip


@app.command()
def capacity(
    file: Annotated[
        Path,
        typer.Argument(help="An experiment file. Default: a smoke run of one minute.", exists=True, dir_okay=False),
    ] = SMOKE,
    profile: Profile = None,
    engines: Annotated[int | None, typer.Option(min=1, help="Number of engines instead of the file's.")] = None,
    data: Data = None,
) -> None:
    """Prints λ* of every workload of an experiment file: the highest rate at which plain FCFS keeps a goodput rate of
    0.95."""
    experiment = engines_of(load(file), profile, engines).within(data_folder(data))
    for spec in experiment.workloads:
        found = find_capacity(lambda r, s, w=spec: build(w, r, s), experiment.engine, experiment.engines, GUESS_RPS)  # type: ignore[misc]
        typer.echo(f"{spec.name}: λ* = {found.rate_rps:.2f} requests/s (FCFS keeps {found.goodput_rate:.3f})")


@app.command("replay-log")
def replay_log(
    file: Annotated[Path, typer.Argument(help="The recording of one agent (.jsonl).", exists=True, dir_okay=False)],
) -> None:
    """Steps a fresh agent through a recording and compares its effects; on the first difference it prints both and ends
    with status 1."""
    try:
        done = replay(file)
    except (RecordingError, OSError) as error:
        raise typer.BadParameter(f"{file}: {error}") from error
    what = f"{done.origin.role} {done.origin.name}"
    if done.difference is None:
        console.print(f"{what}: {done.steps} steps, {done.effects} effects, all equal", highlight=False)
        return
    first = done.difference
    typer.echo(f"{what}: step {first.step} at {first.now_s!r} s differs")
    for name, value in (("event", first.event), ("expected", first.expected), ("got", first.got)):
        typer.echo(f"  {name}: {'nothing' if value is None else value}")
    raise typer.Exit(1)
