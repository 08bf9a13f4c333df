"""`python -m experiments` runs the experiments, writes their pages of results, and trains the meta controller's
selectors on simulated runs."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from experiments.execute import execute
from hmas.sim.cells import Cell, CellStore, compute
from hmas.sim.cli import Data, data_folder, load
from hmas.sim.recording import record as write_record
from hmas.sim.sources import WorkloadSpec, build

app = typer.Typer(
    help="Runs experiments in virtual time, writes their pages, and trains selectors on simulated runs.",
    no_args_is_help=True,
)
console = Console()
UNPUBLISHED = ("faults", "smoke")  # experiments without a page, run with `hmas sim run`


@app.command(name="run")
def run_all(
    folder: Annotated[Path, typer.Option(help="Folder of the experiment files (*.yaml).", file_okay=False)] = Path(
        "experiments"
    ),
    out: Annotated[Path, typer.Option(help="Folder that the pages are written to.", file_okay=False)] = Path(
        "docs/results"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Run only one seed, and at most 300 s of each workload.")
    ] = False,
    full: Annotated[
        list[str] | None, typer.Option(help="With --quick: names of experiments that are run in full.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Names of the experiments to run; default: all.")] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Number of processes, each with one run at a time.")
    ] = os.cpu_count() or 1,
    cells: Annotated[Path, typer.Option(help="Folder of the results of finished runs.")] = Path("out/sim-cells"),
    data: Data = None,
    pages_only: Annotated[
        bool, typer.Option("--pages-only", help="Run nothing; write the pages from the results of finished runs.")
    ] = False,
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
    for path in written:
        typer.echo(f"wrote {path}")


@app.command()
def niyama(
    out: Annotated[Path, typer.Option(help="Folder that the page is written to.", file_okay=False)] = Path(
        "docs/results"
    ),
    hours: Annotated[
        float, typer.Option(min=0.1, help="Hours of offered load per run; those of Fig. 10 always take 4.")
    ] = 2.0,
    processes: Annotated[
        int, typer.Option(min=1, help="Number of processes; at most one per source of lengths is used.")
    ] = 1,
    cells: Annotated[Path, typer.Option(help="Folder of the results of finished runs.")] = Path("out/niyama-cells"),
    data: Data = None,
) -> None:
    """Repeats Niyama's evaluation (Table 3, Fig. 7b, 9 and 10) and writes its page. It takes about 20 minutes of one
    core with --hours 2. If interrupted, give the command again: finished runs are kept. Without --data, only synthetic
    lengths are used."""
    from experiments.niyama.evaluation import evaluate_all
    from experiments.report.niyama import write_page

    found, seconds = evaluate_all(cells, data_folder(data), hours * 3600.0, processes, typer.echo)
    for path in write_page(found, seconds, hours * 3600.0, out):
        typer.echo(f"wrote {path}")


@app.command()
def admission(
    out: Annotated[Path, typer.Option(help="Folder that the page is written to.", file_okay=False)] = Path(
        "docs/results"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, from 1 on.")] = 5,
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
    for path in write_page(found, capacity_rps, seeds, out):
        typer.echo(f"wrote {path}")


@app.command(name="train-selectors")
def train_selectors(
    profile: Annotated[str, typer.Option(help="Engine profile of the simulated runs.")] = "qwen3-32b-h100x2",
    engines: Annotated[int, typer.Option(min=1, help="Number of engines.")] = 2,
    out: Annotated[
        Path | None, typer.Option(help="File to write; default: learned.json of the selectors.", dir_okay=False)
    ] = None,
) -> None:
    """Trains the meta controller's classifier and change-point table on simulated runs, and writes them as JSON."""
    from experiments.train_selectors import lessons, train, write

    document = train(list(lessons(profile, engines, typer.echo)))
    typer.echo(f"wrote {write(document, out)}: {document['trained']}")


@app.command()
def record(
    file: Annotated[Path, typer.Argument(help="An experiment file with one workload and rate_rps.", exists=True)],
    out: Annotated[Path, typer.Argument(help="CSV file that the model's outputs are written to.", dir_okay=False)],
    seed: Annotated[int, typer.Option(help="Seed of the workload.")] = 1,
    data: Data = None,
) -> None:
    """Records what the trained perception model predicts for each request of a workload. `hmas sim run --recorded`
    reads the file."""
    from hmas.perception.backends.model import ModelBackend

    experiment = load(file).within(data_folder(data))
    spec = experiment.workloads[0]
    if experiment.rate_rps is None or not spec.prompts:
        raise typer.BadParameter(
            f"{file} must set rate_rps, and its first workload prompts; give --data for their folder"
        )
    workload = build(spec, experiment.rate_rps, seed).fitting(experiment.engine)
    typer.echo(f"{out}: {write_record(workload, ModelBackend(), out)} of {len(workload.requests)} requests tagged")


if __name__ == "__main__":
    app()
