"""`python -m experiments` runs the experiments and writes their pages of results."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from experiments.execute import execute, execute_cells
from hmas.sim.cells import Cell, CellStore, compute
from hmas.sim.cli import Data, data_folder, load
from hmas.sim.experiment import Experiment
from hmas.sim.sources import WorkloadSpec
from hmas.sim.stored import Stored

app = typer.Typer(
    help="Runs experiments in virtual time and writes their pages.",
    no_args_is_help=True,
)
console = Console()
RESULTS, CORES = Path("docs/results"), os.cpu_count() or 1
Out = Annotated[Path, typer.Option(help="Folder that the pages are written to.", file_okay=False)]
Seeds = Annotated[int, typer.Option(min=1, help="Number of seeds, from the first on.")]
Processes = Annotated[int, typer.Option(min=1, help="Number of processes, each with one run at a time.")]
Cells = Annotated[Path, typer.Option(help="Folder of the results of finished runs.")]
PagesOnly = Annotated[
    bool, typer.Option("--pages-only", help="Run nothing; write the pages from the results of finished runs.")
]
Workloads = Annotated[
    list[str] | None, typer.Option(help="Names of the workloads to run anew, as on the page; default: all.")
]
Loads = Annotated[list[float] | None, typer.Option(help="Loads to run anew, in λ*; default: all.")]
UNPUBLISHED = ("faults", "fence", "smoke", "worth")  # run with `hmas sim run` or a command of their own


@app.command(name="run")
def run_all(
    folder: Annotated[Path, typer.Option(help="Folder of the experiment files (*.yaml).", file_okay=False)] = Path(
        "experiments"
    ),
    out: Out = RESULTS,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run only one seed, and at most 300 s of each workload.")
    ] = False,
    full: Annotated[
        list[str] | None, typer.Option(help="With --quick: names of experiments that are run in full.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Names of the experiments to run; default: all.")] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of each experiment's seeds, from the first on; default: all.")
    ] = None,
    processes: Processes = CORES,
    cells: Cells = Path("out/sim-cells"),
    data: Data = None,
    pages_only: PagesOnly = False,
) -> None:
    """Runs every experiment and writes its page. If interrupted, give the command again: finished runs are kept."""
    from experiments.report.pages import write_pages

    files = sorted(p for p in folder.glob("*.yaml") if p.stem not in UNPUBLISHED)
    chosen = [load(p) for p in files if not only or p.stem in only]
    data = data_folder(data)
    if unknown := set(full or ()) - {e.name for e in chosen}:
        raise typer.BadParameter(f"--full names experiments that are not run: {', '.join(sorted(unknown))}")
    whole = {e.name for e in chosen if not quick or e.name in (full or ())}
    chosen = [(e if e.name in whole else e.quick()).within(data) for e in chosen]
    chosen = [replace(e, seeds=e.seeds[:seeds]) for e in chosen]
    if not chosen:
        raise typer.BadParameter(f"no experiment to run: {folder} has no matching *.yaml file; see --folder and --only")
    store = CellStore(cells)
    if not pages_only:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("cells", total=None)
            execute(chosen, store, processes, lambda done, total, text: progress.update(
                task, completed=done, total=total, description=text
            ))  # fmt: skip
    written = write_pages(chosen, store, out, whole=whole, data=data)
    _told(written)


@app.command(name="data-figures")
def data_figures(
    out: Out = RESULTS,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds of what is generated.")] = 2,
    data: Data = None,
) -> None:
    """Writes the pages of H-MAS's Figures 11 and 13, which show data and no system: prompt lengths over time, and the
    SLOs of the task types. Without --data, no recorded traces are shown."""
    from experiments.report.data_figures import write_pages

    _told(write_pages(data_folder(data), range(1, seeds + 1), out))


@app.command()
def niyama(
    out: Out = RESULTS,
    hours: Annotated[
        float, typer.Option(min=0.1, help="Hours of offered load per run; those of Fig. 10 always take 4.")
    ] = 2.0,
    processes: Annotated[
        int, typer.Option(min=1, help="Number of processes; at most one per source of lengths is used.")
    ] = 1,
    cells: Cells = Path("out/niyama-cells"),
    data: Data = None,
) -> None:
    """Repeats Niyama's evaluation (Table 3, Fig. 7b, 9 and 10) and writes its page. It takes about 20 minutes of one
    core with --hours 2. If interrupted, give the command again: finished runs are kept. Without --data, only synthetic
    lengths are used."""
    from experiments.niyama.evaluation import evaluate_all
    from experiments.report.niyama import write_page

    found, seconds = evaluate_all(cells, data_folder(data), hours * 3600.0, processes, typer.echo)
    _told(write_page(found, seconds, hours * 3600.0, out))


@app.command()
def admission(
    out: Out = RESULTS,
    seeds: Seeds = 5,
    sample: Annotated[
        int, typer.Option(min=1, help="Refusals per seed and scenario that are retried after other waits.")
    ] = 40,
) -> None:
    """Measures how accurate `Retry-After` is: sends refused requests again when told, and after other waits. It takes
    about 10 minutes."""
    from experiments.admission import CHUNK_TOKENS, PROFILE, SCENARIOS, measure
    from experiments.report.admission import write_page

    cell = Cell(
        kind="capacity",
        profile=PROFILE,
        engines=1,
        workload=WorkloadSpec(kind="poisson", duration_s=300.0, stated=True),
        chunk_tokens=CHUNK_TOKENS,
    )
    capacity_rps = compute(cell)["rate_rps"]
    found = [measure(s, capacity_rps, range(1, seeds + 1), sample, typer.echo) for s in SCENARIOS]
    _told(write_page(found, capacity_rps, seeds, out))


@app.command()
def worth(
    file: Annotated[Path, typer.Option(help="The experiment file.", exists=True, dir_okay=False)] = Path(
        "experiments/worth.yaml"
    ),
    out: Out = RESULTS,
    seeds: Seeds = 5,
    seconds: Annotated[float, typer.Option(min=1.0, help="Seconds of each workload at most.")] = 1800.0,
    processes: Processes = 1,
    cells: Cells = Path("out/sim-cells"),
    data: Data = None,
    workload: Workloads = None,
    at: Loads = None,
    tagged: Annotated[bool, typer.Option("--tagged", help="Run only what states no SLOs.")] = False,
    pages_only: PagesOnly = False,
) -> None:
    """Measures what cognition is worth to the mesh, and what late annotations cost, and writes the page. If
    interrupted, give the command again: finished runs are kept. Without --data, no traces are run. Settings that are
    not run keep the rows of the page before, with the commit whose code computed them."""
    from experiments.report.worth import write_page
    from experiments.worth import batches_of_worth

    experiment = load(file).within(data_folder(data))
    short = tuple(replace(w, duration_s=min(w.duration_s, seconds)) for w in experiment.workloads)
    experiment = replace(experiment, workloads=short, seeds=tuple(range(1, seeds + 1)))
    store = CellStore(cells)
    if not pages_only:
        chosen = _part(experiment, workload, at)
        if tagged:
            chosen = replace(chosen, workloads=tuple(w for w in chosen.workloads if not w.stated))
        for some in batches_of_worth(chosen):
            execute_cells(some, store, processes, _counted)
    _told(write_page(experiment, store, out))


@app.command()
def regimes(
    out: Out = RESULTS,
    seeds: Seeds = 5,
    processes: Processes = 1,
    cells: Cells = Path("out/sim-cells"),
    pages_only: PagesOnly = False,
) -> None:
    """Compares a pool that all requests share with static splits by TPOT SLO and with the layout that the controller
    chooses, where TPOT is short and where compute is, and writes the page. If interrupted, give the command again:
    finished runs are kept."""
    from experiments.regimes import batches
    from experiments.report.regimes import write_page

    store, chosen = CellStore(cells), range(1, seeds + 1)
    if not pages_only:
        for some in batches(chosen):
            execute_cells(some, store, processes, _counted)
    _told(write_page(store, chosen, out))


@app.command()
def pools(
    out: Out = RESULTS,
    seeds: Seeds = 5,
    cells: Cells = Path("out/pool-cells"),
    pages_only: PagesOnly = False,
) -> None:
    """Compares the layout that the controller chooses with static ones in pools of one, three and eight engines, behind
    one worker and behind one an engine, and in pools of two kinds of engine, and writes the page. It takes
    about forty minutes of one core. If interrupted, give the command again: finished runs are kept."""
    from experiments.day import code_of_day
    from experiments.pools import fill
    from experiments.report.pools import write_page

    store, chosen = CellStore(cells, code_of_day), range(1, seeds + 1)
    if not pages_only:
        fill(store, chosen, typer.echo)
    _told(write_page(store, chosen, out))


@app.command(name="slo-drift")
def slo_drift(
    out: Annotated[Path, typer.Option(help="Folder that the figures are written to.", file_okay=False)] = Path(
        "docs/results"
    ),
    cells: Annotated[Path, typer.Option(help="Folder of the results of finished runs.")] = Path("out/drift-cells"),
) -> None:
    """Lets the TPOT SLOs drift inside a run, compares the layout that the controller chooses with an oracle that lays
    the pool out anew at once, and writes slo-drift.json, which `regimes --pages-only` puts on its page."""
    from experiments.day import code_of_day
    from experiments.report.regimes import write_drift
    from experiments.slo_drift import DriftCell, compute, known_cells, oracle_cells, rows_of

    store = CellStore(cells, code_of_day)

    def figures_of(cell: DriftCell) -> dict[str, Any]:
        if (figures := store.get(cell)) is None:
            typer.echo(f"{cell.system}, seed {cell.seed}")
            store.put(cell, figures := compute(cell))
        return figures

    found = {cell: figures_of(cell) for cell in known_cells()}
    found |= {cell: figures_of(cell) for cell in oracle_cells(found)}
    typer.echo(f"wrote {write_drift(rows_of(found), out)}")


@app.command(name="day")
def a_day(
    out: Out = RESULTS,
    seeds: Seeds = 5,
    fixed_only: Annotated[bool, typer.Option("--fixed-only", help="Run the fixed topologies alone.")] = False,
    processes: Processes = 1,
    cells: Cells = Path("out/day-cells"),
    pages_only: PagesOnly = False,
) -> None:
    """Runs a day of nine regimes under fixed topologies and, on the first version of it that has a place for that, with
    a meta controller that rehearses before it switches, and writes the page. Each seed takes about half an hour of one
    core, and adaptation as much again. If interrupted, give the command again: finished runs are kept."""
    from experiments.day import SEEDS, DayCell, adaptive_cells, code_of_day, compute, fixed_cells, judged_version
    from experiments.report.day import write_page

    store, chosen = CellStore(cells, code_of_day), SEEDS[:seeds]

    def filled(wanted: Sequence[DayCell]) -> dict[DayCell, dict[str, Any]]:
        return _filled(store, wanted, compute, 0 if pages_only else processes)

    found = filled(fixed_cells(chosen))
    version = judged_version(found, chosen)
    if version is not None and not fixed_only:
        found |= filled(adaptive_cells(version, chosen))
    _told(write_page(found, version, out))


@app.command()
def proposers(
    out: Out = RESULTS,
    seeds: Seeds = 5,
    processes: Processes = 1,
    cells: Cells = Path("out/proposer-cells"),
    pages_only: PagesOnly = False,
) -> None:
    """Measures what it costs that the meta controller is badly advised, and writes the page. If interrupted, give the
    command again: finished runs are kept."""
    from experiments.day import code_of_day
    from experiments.proposers import SEEDS, ProposerCell, cells_of, compute, search_cells, worst_of
    from experiments.report.proposers import write_page

    store, chosen = CellStore(cells, code_of_day), SEEDS[:seeds]

    def filled(wanted: Sequence[ProposerCell]) -> dict[ProposerCell, dict[str, Any]]:
        return _filled(store, wanted, compute, 0 if pages_only else processes)

    searched = filled(search_cells())
    if len(searched) < len(search_cells()):
        raise typer.BadParameter("the search is not finished: give the command without --pages-only")
    worst = worst_of(searched)
    found = filled(cells_of(worst, chosen))
    whole = [seed for seed in chosen if all(cell in found for cell in cells_of(worst, (seed,)))]
    if not whole:
        raise typer.BadParameter("no seed has been run with every proposer: give the command without --pages-only")
    _told(write_page(found, worst, whole, out))


@app.command(name="whatif-live")
def live_what_if(
    out: Out = RESULTS,
    seconds: Annotated[int, typer.Option(min=30, help="Seconds of traffic before and after each switch.")] = 60,
    most: Annotated[int, typer.Option(min=0, help="Make so many switches at most.")] = 20,
    cells: Annotated[Path, typer.Option(help="Folder of the switches made so far.")] = Path("out/whatif-live"),
) -> None:
    """Makes switches of topology on a running emulated mesh, compares what `hmas whatif` had foretold, and writes the
    page. A switch takes about three minutes. If interrupted, give the command again: what was made is kept."""
    from experiments.report.whatif_live import write_page
    from experiments.whatif_live import carry_out, keep, kept_in, missing, read, running

    kept = kept_in(cells, seconds)
    todo = list(missing(kept))[:most]
    if todo:
        with running(cells / "mesh") as (data_dir, url):
            for i, run in enumerate(todo):
                outcome = carry_out(run, data_dir, url, seconds, data_dir / f"load-{i}")
                keep(kept, outcome)
                typer.echo(f"{run.name}: {outcome.predicted:.3f} predicted, came {outcome.after:.3f}")
    _told(write_page(read(kept), seconds, out))


@app.command()
def regulator(
    out: Out = RESULTS,
    seeds: Seeds = 5,
    seconds: Annotated[float, typer.Option(min=20.0, help="Seconds of each run.")] = 120.0,
    processes: Processes = 1,
    cells: Cells = Path("out/sim-cells"),
    data: Data = None,
    pages_only: PagesOnly = False,
) -> None:
    """Measures what each part of Statera is worth where memory, time per token or compute is short, and writes the
    page. If interrupted, give the command again: finished runs are kept. Without --data, no trace is run."""
    from experiments.regulator import (
        ablation_rows,
        all_cells,
        courses,
        rows_of,
        runs_of,
        search_cells,
        searches,
        winner_cells,
    )
    from experiments.report.regulator import RegulatorStudy, write_page

    store, folder, numbers = CellStore(cells), data_folder(data), range(1, seeds + 1)
    wanted = [*all_cells(numbers, seconds, folder), *search_cells(folder)]
    if not pages_only:
        execute_cells(wanted, store, processes, _counted)
        execute_cells(winner_cells(store, numbers, seconds, folder), store, processes, _counted)
    winners = winner_cells(store, numbers, seconds, folder)
    finished = [store.get(cell) for cell in dict.fromkeys([*wanted, *winners])]
    study = RegulatorStudy(
        rows=rows_of(store, numbers, seconds, folder),
        courses=courses(store, numbers, seconds, folder),
        ablation=ablation_rows(store, numbers, seconds, folder),
        searches=searches(store, folder),
        found=runs_of(store, all_cells(numbers, seconds, folder)),
        seconds=seconds,
        cpu_s=sum(run["cpu_s"] for run in finished if run is not None),
        missing=sum(run is None for run in finished),
    )
    _told(write_page(study, out))


@app.command()
def fast(
    out: Out = RESULTS,
    seeds: Seeds = 5,
    seconds: Annotated[float, typer.Option(min=20.0, help="The most seconds of a run.")] = 600.0,
    processes: Processes = 1,
    cells: Cells = Path("out/sim-cells"),
    data: Data = None,
    pages_only: PagesOnly = False,
) -> None:
    """Measures what it brings and costs that short requests go first where the others have time, and writes the page.
    If interrupted, give the command again: finished runs are kept. Without --data, no traces are run."""
    from experiments.fast import cells_of_fast, rows_of_fast
    from experiments.report.fast import write_page

    store, folder, numbers = CellStore(cells), data_folder(data), range(1, seeds + 1)
    if not pages_only:
        execute_cells(cells_of_fast(numbers, seconds, folder), store, processes, _counted)
    _told(write_page(rows_of_fast(numbers, seconds, folder, store), seconds, out))


@app.command()
def deception(
    out: Out = RESULTS,
    seeds: Seeds = 5,
    seconds: Annotated[float, typer.Option(min=40.0, help="Seconds of each run.")] = 120.0,
    cells: Cells = Path("out/sim-cells"),
) -> None:
    """Measures what misleading prompts and a changed model do to the lengths that the mesh goes by and to the other
    tenants, and writes the page. If interrupted, give the command again: finished runs are kept."""
    from experiments.deception import code_of_deception, measure_all
    from experiments.report.deception import write_page

    found = measure_all(CellStore(cells, code_of_deception), range(1, seeds + 1), seconds, typer.echo)
    _told(write_page(found, seconds, out))


def _part(experiment: Experiment, workloads: list[str] | None, loads: list[float] | None) -> Experiment:
    """Returns the experiment with the workloads and loads of these names alone; None: all."""
    names = {spec.name for spec in experiment.workloads}
    if unknown := [name for name in workloads or () if name not in names]:
        raise typer.BadParameter(f"no workload {', '.join(unknown)}: there are {', '.join(sorted(names))}")
    chosen = tuple(spec for spec in experiment.workloads if workloads is None or spec.name in workloads)
    return replace(
        experiment, workloads=chosen, loads=tuple(x for x in experiment.loads if loads is None or x in loads)
    )


def _agentic(data: Path | None, *more: str) -> Path:
    """Returns the folder of data, which must hold recorded workflows, and `more` folders."""
    folder, needed = data_folder(data), ("agentic", *more)
    if folder is None or not all((folder / name).is_dir() for name in needed):
        wanted = " and ".join(f"{name}/" for name in needed)
        raise typer.BadParameter(f"this needs recorded workflows: give --data FOLDER with {wanted} in it")
    return folder


C = TypeVar("C", bound=Stored)


def _filled(
    store: CellStore, wanted: Sequence[C], compute: Callable[[C], dict[str, Any]], processes: int
) -> dict[C, dict[str, Any]]:
    """Makes the runs that the store lacks, none with 0 processes, and returns those that are finished."""
    missing = [cell for cell in wanted if store.get(cell) is None] if processes else []
    if missing:
        with ProcessPoolExecutor(processes) as pool:
            for cell, figures in zip(missing, pool.map(compute, missing), strict=True):
                typer.echo(str(cell))
                store.put(cell, figures)
    return {cell: run for cell in wanted if (run := store.get(cell)) is not None}


def _told(paths: Iterable[Path]) -> None:
    for path in paths:
        typer.echo(f"wrote {path}")


def _counted(done: int, total: int, text: str) -> None:
    if done % 20 == 0 or done == total:
        typer.echo(f"{done} of {total}: {text}")


@app.command(name="model-times")
def model_times(
    out: Annotated[
        Path | None, typer.Option(help="File to write; default: that which the simulator reads.", dir_okay=False)
    ] = None,
    data: Data = None,
) -> None:
    """Measures how long perception and prediction take for batches of each size, on one core, and writes the file that
    the simulator takes their times from. It takes half a minute and wants an idle machine."""
    from experiments.model_times import measure, write

    typer.echo(f"wrote {write(measure(data_folder(data)), out)}")


@app.command()
def fence(
    file: Annotated[Path, typer.Option(help="The experiment file.", dir_okay=False)] = Path("experiments/fence.yaml"),
    out: Out = RESULTS,
    processes: Processes = 1,
    seeds: Seeds = 5,
    cells: Cells = Path("out/sim-cells"),
    data: Data = None,
    workload: Workloads = None,
    at: Loads = None,
) -> None:
    """Measures how often answers outgrow the fence's length bounds, on ten workloads with the perception that ships,
    and writes its page. It takes about an hour of one core. If interrupted, give the command again: finished runs are
    kept. Without --data, only the synthetic workloads are run. Settings that are not run keep the rows of the page
    before, with the commit whose code computed them."""
    from experiments.fence import measure, rows
    from experiments.report.carried import present_commit
    from experiments.report.fence import write_page

    found = load(file).within(data_folder(data))
    found = replace(found, seeds=found.seeds[:seeds])
    store = CellStore(cells)
    part = _part(found, workload, at)
    measure(part, store, processes, lambda done, total, text: typer.echo(f"{done} of {total}: {text}"))
    _told(write_page(list(rows(part, store, present_commit())), found, out))


@app.command(name="jobs-linking")
def jobs_linking(
    out: Out = RESULTS,
    seed: Annotated[int, typer.Option(min=1, help="Seed of the order in which requests come.")] = 1,
    data: Data = None,
) -> None:
    """Measures whether the gateway finds the job of each request of recorded workflows, and writes the page. It takes
    half a minute and needs --data with agentic/."""
    from experiments.jobs_linking import crossings, measure
    from experiments.report.jobs_linking import write_page
    from hmas_loadgen.workflows.recorded import read_workflows

    folder = _agentic(data)
    found = measure(folder, seed, typer.echo)
    _told(write_page(found, read_workflows(folder), crossings(folder, seed), seed, out))


@app.command()
def jobs_forecast(
    out: Out = RESULTS,
    apart: Annotated[
        Path | None,
        typer.Option(help="Folder with agentic/ of further workflows: fit on --data, score these.", file_okay=False),
    ] = None,
    data: Data = None,
) -> None:
    """Measures forecasts about stages of recorded workflows (Maestro's Tables III, VI and VII), and writes the page. It
    takes about six minutes of one core and needs --data with agentic/."""
    from experiments.forecast.measure import measure
    from experiments.forecast.stages import read_stages
    from experiments.report.jobs_forecast import write_page

    folder = _agentic(data)
    found = measure(read_stages(folder), read_stages(apart) if apart is not None else [], typer.echo)
    _told(write_page(found, out))


@app.command()
def routing(
    out: Out = RESULTS,
    seeds: Seeds = 3,
    seconds: Annotated[float, typer.Option(min=10.0, help="Seconds of each run.")] = 40.0,
    part: Annotated[
        str, typer.Option(help="What is run: routers, gateways, many (workers and gateways), or all of these.")
    ] = "all",
    processes: Processes = 1,
    cells: Cells = Path("out/routing-cells"),
    data: Data = None,
    pages_only: PagesOnly = False,
) -> None:
    """Compares routers by prefix, several gateways with one, and several workers with one central queue, and writes the
    page. It needs --data with agentic/ and traces/. If interrupted, give the command again: finished runs are kept."""
    from experiments.report.routing import write_page
    from experiments.routing.plan import Plan, carry_out, digest

    folder = _agentic(data, "traces")
    if part not in ("all", "routers", "gateways", "many"):
        raise typer.BadParameter(f"--part {part}: choose routers, gateways, many or all")
    store, plan = CellStore(cells, digest), Plan(seeds, seconds)
    rates, missing = carry_out(store, plan, folder, part, processes, typer.echo, stored=pages_only)
    _told(write_page(store, plan, rates, out / "routing.md", missing))


@app.command()
def goodput(
    out: Out = RESULTS,
    seeds: Seeds = 3,
    processes: Processes = 1,
    pages_only: PagesOnly = False,
) -> None:
    """Simulates how many requests are on time at each load, with the mesh and without, and writes the page, beside what
    `hmas compare` has measured."""
    import json

    from experiments.goodput import LoadRow, measure
    from experiments.report.goodput import write_page

    if pages_only:
        rows = [LoadRow(**row) for row in json.loads((out / "goodput.json").read_text())]
    else:
        rows = measure(range(1, seeds + 1), processes, typer.echo)
    _told(write_page(rows, out))


@app.command()
def h100(out: Out = RESULTS, seeds: Seeds = 3, processes: Processes = CORES, pages_only: PagesOnly = False) -> None:
    """Simulates a vLLM on an H100 with prefill chunks of other sizes, and writes the page, beside what `hmas compare`
    has measured there."""
    import json

    from experiments.h100 import ChunkRow, measure
    from experiments.report.h100 import PROFILE, write_page

    if pages_only:
        rows = [ChunkRow(**row) for row in json.loads((out / "h100-chunks.json").read_text())]
    else:
        rows = measure(out / PROFILE, range(1, seeds + 1), processes)
    _told(write_page(rows, seeds, out))


@app.command()
def maestro(
    out: Out = RESULTS,
    seeds: Seeds = 5,
    seconds: Annotated[float, typer.Option(min=60.0, help="Seconds in which jobs arrive.")] = 600.0,
    processes: Processes = 1,
    cells: Cells = Path("out/sim-cells"),
    data: Data = None,
) -> None:
    """Measures orders of jobs on generated workflows in a closed loop (Maestro's Fig. 7), and writes the page. It takes
    about two hours of one core and needs --data with agentic/ and prompts/. If interrupted, give the command again:
    finished runs are kept."""
    from experiments.maestro.measure import code_of, measure
    from experiments.report.maestro import write_page

    folder = _agentic(data)
    found = measure(folder, range(1, seeds + 1), seconds, CellStore(cells, code_of), processes, typer.echo)
    _told(write_page(found, seconds, out))


if __name__ == "__main__":
    app()
