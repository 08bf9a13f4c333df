"""`python -m experiments`: makes the pages of results, and trains what is trained on simulated runs."""

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

app = typer.Typer(help="Pages of results, and training on simulated runs.", no_args_is_help=True)
console = Console()


@app.command(name="run")
def run_all(
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
    from experiments.report.pages import write_pages

    files = sorted(p for p in folder.glob("*.yaml") if p.stem != "smoke")
    chosen = [load(p) for p in files if not only or p.stem in only]
    data = data_folder(data)
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
    from experiments.niyama.evaluation import evaluate_all
    from experiments.report.niyama import write_page

    found, seconds = evaluate_all(cells, data_folder(data), hours * 3600.0, processes, typer.echo)
    for path in write_page(found, seconds, hours * 3600.0, out):
        typer.echo(f"wrote {path}")


@app.command()
def admission(
    out: Annotated[Path, typer.Option(help="Where the page goes.", file_okay=False)] = Path("docs/results"),
    seeds: Annotated[int, typer.Option(min=1, help="How many.")] = 5,
    sample: Annotated[int, typer.Option(min=1, help="Refusals tried after other waits, a seed and scenario.")] = 40,
) -> None:
    """Is `Retry-After` right? Refused requests sent again when told, and after other waits. About 10 minutes."""
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
    profile: Annotated[str, typer.Option(help="Engine profile of the runs.")] = "qwen3-32b-h100x2",
    engines: Annotated[int, typer.Option(min=1)] = 2,
    out: Annotated[Path | None, typer.Option(help="By default into the package.", dir_okay=False)] = None,
) -> None:
    """Trains the meta controller's classifier and regime table on simulated runs."""
    from experiments.train_selectors import lessons, train, write

    document = train(list(lessons(profile, engines, typer.echo)))
    typer.echo(f"wrote {write(document, out)}: {document['trained']}")


@app.command()
def record(
    file: Annotated[Path, typer.Argument(help="An experiment file with one workload and rate_rps.", exists=True)],
    out: Annotated[Path, typer.Argument(help="Where the model's outputs go (CSV).", dir_okay=False)],
    seed: Annotated[int, typer.Option(help="Of the workload.")] = 1,
    data: Data = None,
) -> None:
    """Records the trained perception model's outputs for a workload; `run --recorded` uses them."""
    from hmas.perception.backends.model import ModelBackend

    experiment = load(file).within(data_folder(data))
    spec = experiment.workloads[0]
    if experiment.rate_rps is None or not spec.prompts:
        raise typer.BadParameter("the file needs rate_rps, and its workload prompts (with --data)")
    workload = build(spec, experiment.rate_rps, seed).fitting(experiment.engine)
    typer.echo(f"{out}: {write_record(workload, ModelBackend(), out)} of {len(workload.requests)} requests tagged")


if __name__ == "__main__":
    app()
