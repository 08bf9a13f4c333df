"""`hmas sim`: one run, all experiments, lambda*."""

import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from services.sim.bound import upper_bound
from services.sim.capacity import find_capacity
from services.sim.cells import GUESS_RPS, Cell, CellStore, compute
from services.sim.effect_log import EffectLog
from services.sim.execute import execute
from services.sim.experiment import Experiment, ExperimentError, load_experiment
from services.sim.recording import attach
from services.sim.recording import record as write_record
from services.sim.result import RunResult
from services.sim.sources import WorkloadSpec, build
from services.sim.systems import needs_prompts, run_system
from services.sim.workload import Workload

app = typer.Typer(help="The mesh in virtual time: baselines, limits, the paper's experiments.", no_args_is_help=True)
console = Console()

Data = Annotated[
    Path | None,
    typer.Option(help="Folder with traces/ and prompts/; ./data if there is one.", envvar="HMAS_DATA", file_okay=False),
]
COLUMNS = (
    *("system", "ok/offered", "of bound", "TTFT ok", "TPOT ok", "goodput/s", "ESG/s", "TTFT p95 s", "preempted"),
    "Jain index of service",
)


def _folder(data: Path | None) -> Path | None:
    here = Path("data")
    return here if data is None and here.is_dir() else data


def _load(path: Path) -> Experiment:
    try:
        return load_experiment(path)
    except ExperimentError as error:
        raise typer.BadParameter(str(error)) from error


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="An experiment file.", exists=True, dir_okay=False)],
    seed: Annotated[int, typer.Option(help="Of workload, predictions and policies.")] = 1,
    print_hash: Annotated[bool, typer.Option("--print-hash", help="End with the SHA-256 of all effects.")] = False,
    trace: Annotated[Path | None, typer.Option(help="Offer this trace instead of the file's workloads.")] = None,
    recorded: Annotated[
        Path | None, typer.Option(help="Outputs of `hmas sim record`, for system hmas-recorded.")
    ] = None,
    data: Data = None,
) -> None:
    """Runs an experiment's systems for one seed and prints their scores."""
    experiment = _load(file)
    if trace is not None:
        duration_s = experiment.workloads[0].duration_s
        spec = WorkloadSpec("trace", duration_s, str(trace), tenants=experiment.workloads[0].tenants)
        experiment = replace(experiment, workloads=(spec,))
    experiment = experiment.within(_folder(data)) if trace is None else experiment
    hashes = sha256()
    for spec in experiment.workloads:
        for rate, title in _rates(experiment, spec):
            workload = build(spec, rate, seed).fitting(experiment.engine)
            workload = workload if recorded is None else attach(workload, recorded)
            for digest in _run_all(experiment, workload, title, seed, print_hash):
                hashes.update(digest.encode())
    if print_hash:
        typer.echo(hashes.hexdigest())


def _rates(experiment: Experiment, spec: WorkloadSpec) -> list[tuple[float, str]]:
    if experiment.rate_rps is not None:
        return [(experiment.rate_rps, f"{experiment.rate_rps:g} requests/s")]
    plain = replace(spec, prompts="")
    cell = Cell("capacity", experiment.profile, experiment.engines, plain, chunk_tokens=experiment.chunk_tokens)
    capacity = compute(cell)["rate_rps"]
    return [(load * capacity, f"{load:g} λ* = {load * capacity:.2f} requests/s") for load in experiment.loads]


def _run_all(experiment: Experiment, workload: Workload, title: str, seed: int, hashed: bool) -> list[str]:
    """Prints a table with a row a system; returns the hashes of their effects."""
    profile, engines = experiment.engine, experiment.engines
    limit = upper_bound(workload, profile, engines)
    table = Table(*COLUMNS, title=f"{workload.name}, {title}, {len(workload.requests)} requests, seed {seed}")
    digests = []
    for system in experiment.systems:
        if needs_prompts(system) and not any(r.prompt for r in workload.requests):
            continue
        log = EffectLog() if hashed else None
        result = run_system(system, workload, profile, engines, seed, log, experiment.workers)
        table.add_row(*_row(result, limit.goodput_rate))
        if log is not None:
            digests.append(log.digest())
    console.print(table)
    return digests


def _row(result: RunResult, limit: float) -> list[str]:
    s = result.score
    share = s.goodput_rate / limit if limit else 0.0
    return [
        result.system, f"{s.goodput_rate:.3f}", f"{share:.3f}", f"{s.ttft_compliance:.3f}", f"{s.tpot_compliance:.3f}",
        f"{s.goodput:.2f}", f"{s.esg_rate:.0f}", f"{s.ttft_p95_s:.2f}", str(result.run.preemptions),
        f"{s.jain_index:.3f}",
    ]  # fmt: skip


@app.command()
def record(
    file: Annotated[Path, typer.Argument(help="An experiment file with one workload and rate_rps.", exists=True)],
    out: Annotated[Path, typer.Argument(help="Where the model's outputs go (CSV).", dir_okay=False)],
    seed: Annotated[int, typer.Option(help="Of the workload.")] = 1,
    data: Data = None,
) -> None:
    """Records the trained perception model's outputs for a workload; `run --recorded` uses them."""
    from hmas.perception.backends.model import ModelBackend

    experiment = _load(file).within(_folder(data))
    spec = experiment.workloads[0]
    if experiment.rate_rps is None or not spec.prompts:
        raise typer.BadParameter("the file needs rate_rps, and its workload prompts (with --data)")
    workload = build(spec, experiment.rate_rps, seed).fitting(experiment.engine)
    typer.echo(f"{out}: {write_record(workload, ModelBackend(), out)} of {len(workload.requests)} requests tagged")


@app.command()
def capacity(
    file: Annotated[Path, typer.Argument(help="An experiment file.", exists=True, dir_okay=False)],
    data: Data = None,
) -> None:
    """Prints λ* of every workload of a file."""
    experiment = _load(file).within(_folder(data))
    for spec in experiment.workloads:
        found = find_capacity(lambda r, s, w=spec: build(w, r, s), experiment.engine, experiment.engines, GUESS_RPS)  # type: ignore[misc]
        typer.echo(f"{spec.name}: λ* = {found.rate_rps:.2f} requests/s (FCFS keeps {found.goodput_rate:.3f})")


@app.command()
def experiments(
    folder: Annotated[Path, typer.Option(help="Where the experiment files are.", file_okay=False)] = Path(
        "experiments"
    ),
    out: Annotated[Path, typer.Option(help="Where the pages go.", file_okay=False)] = Path("docs/results"),
    quick: Annotated[bool, typer.Option("--quick", help="One seed, 300 s slices.")] = False,
    full: Annotated[list[str] | None, typer.Option(help="With --quick: names of experiments to run whole.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Names of experiments; all by default.")] = None,
    processes: Annotated[int, typer.Option(min=1, help="How many runs at once.")] = os.cpu_count() or 1,
    cells: Annotated[Path, typer.Option(help="Where finished runs are kept.")] = Path("out/sim-cells"),
    data: Data = None,
    pages_only: Annotated[bool, typer.Option("--pages-only", help="Write pages from what is there.")] = False,
) -> None:
    """Runs every experiment and writes its page. A run that was stopped goes on where it was."""
    from services.sim.report.pages import write_pages

    files = sorted(p for p in folder.glob("*.yaml") if p.stem != "smoke")
    chosen = [_load(p) for p in files if not only or p.stem in only]
    data = _folder(data)
    if unknown := set(full or ()) - {e.name for e in chosen}:
        raise typer.BadParameter(f"no experiment {', '.join(sorted(unknown))} to run whole")
    whole = {e.name for e in chosen if not quick or e.name in (full or ())}
    chosen = [(e if e.name in whole else e.quick()).within(data) for e in chosen]
    if not chosen:
        raise typer.BadParameter(f"no experiment files in {folder}")
    store = CellStore(cells)
    if not pages_only:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("cells", total=None)
            execute(chosen, store, processes, lambda done, total, text: progress.update(
                task, completed=done, total=total, description=text
            ))  # fmt: skip
    written = write_pages(chosen, store, out, whole=whole, data=data)
    for path in written:
        typer.echo(f"wrote {path}")


@app.command()
def niyama(
    out: Annotated[Path, typer.Option(help="Where the page goes.", file_okay=False)] = Path("docs/results"),
    hours: Annotated[float, typer.Option(min=0.1, help="Offered time of a run; Fig. 10 takes 4.")] = 2.0,
    processes: Annotated[int, typer.Option(min=1, help="At most one for each source of lengths.")] = 1,
    cells: Annotated[Path, typer.Option(help="Where finished runs are kept.")] = Path("out/niyama-cells"),
    data: Data = None,
) -> None:
    """Niyama's evaluation beside ours: Table 3, Fig. 7b, 9 and 10. About 20 minutes of one core at 2 hours; a run that
    was stopped goes on where it was. Without --data, synthetic lengths only."""
    from services.sim.niyama.evaluation import evaluate_all
    from services.sim.report.niyama import write_page

    found, seconds = evaluate_all(cells, _folder(data), hours * 3600.0, processes, typer.echo)
    for path in write_page(found, seconds, hours * 3600.0, out):
        typer.echo(f"wrote {path}")


@app.command()
def admission(
    out: Annotated[Path, typer.Option(help="Where the page goes.", file_okay=False)] = Path("docs/results"),
    seeds: Annotated[int, typer.Option(min=1, help="How many.")] = 5,
    sample: Annotated[int, typer.Option(min=1, help="Refusals tried after other waits, a seed and scenario.")] = 40,
) -> None:
    """Is `Retry-After` right? Refused requests sent again when told, and after other waits. About 10 minutes."""
    from services.sim.admission import CHUNK_TOKENS, PROFILE, SCENARIOS, measure
    from services.sim.report.admission import write_page

    cell = Cell("capacity", PROFILE, 1, WorkloadSpec("poisson", 300.0, stated=True), chunk_tokens=CHUNK_TOKENS)
    capacity_rps = compute(cell)["rate_rps"]
    found = [measure(s, capacity_rps, range(1, seeds + 1), sample, typer.echo) for s in SCENARIOS]
    for path in write_page(found, capacity_rps, seeds, out):
        typer.echo(f"wrote {path}")


@app.command(name="train-selectors")
def train_selectors(
    profile: Annotated[str, typer.Option(help="Engine profile of the runs.")] = "qwen3-32b-h100x2",
    engines: Annotated[int, typer.Option(min=1)] = 2,
    out: Annotated[Path | None, typer.Option(help="By default into the package.", dir_okay=False)] = None,
) -> None:
    """Trains the meta controller's classifier and regime table on simulated runs."""
    from services.sim.train_selectors import lessons, train, write

    document = train(list(lessons(profile, engines, typer.echo)))
    typer.echo(f"wrote {write(document, out)}: {document['trained']}")
