"""`hmas train prediction`, `hmas eval prediction`: mounted by the `hmas` command."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import hmas.prediction
from hmas_lab.groups import needs_group

train = typer.Typer(help="Train the cost model.", no_args_is_help=True)
evaluate = typer.Typer(help="Evaluate the cost model.", no_args_is_help=True)
ARTEFACTS = Path(hmas.prediction.__file__).with_name("artefacts")  # without their libraries, which take long to load
Folder = Annotated[Path, typer.Option(help="Folder of the model's files.")]
console = Console(stderr=True)


@train.command("prediction")
@needs_group("train")
def train_prediction(
    data: Annotated[
        Path, typer.Option(envvar="HMAS_DATA", help="Folder that holds perf/.", exists=True, file_okay=False)
    ] = Path("data"),
    out: Folder = ARTEFACTS,
    seed: Annotated[int, typer.Option(help="Random seed of the split and the trees.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="Number of CPU threads.")] = 1,
) -> None:
    """Fits the cost model to the measurements in data/perf and writes it with its metadata."""
    from hmas_lab.prediction.training.train import ForestRecipe
    from hmas_lab.prediction.training.train import train as run

    command = f"hmas train prediction --data {data.name} --seed {seed}"
    run(data, out, replace(ForestRecipe(), seed=seed), command, console.print, threads)


@evaluate.command("prediction")
def eval_prediction(
    data: Annotated[
        list[Path], typer.Option(help="File of measurements in a format of data/perf, or a folder; repeat it for more.")
    ],
    folder: Folder = ARTEFACTS,
    unseen: Annotated[bool, typer.Option(help="Use only rows that training never saw.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Prints R2 (the coefficient of determination) of the cost model on any files in a format of data/perf, and says of
    a file that holds no measured request why it holds none."""
    with needs_group("train"):
        from hmas.prediction.models.catboost_model import CatBoostCostModel
        from hmas_lab.prediction.evaluation import evaluate as figures_of
        from hmas_lab.prediction.training.measurements import TRAINING, NoMeasurements, read
        from hmas_lab.prediction.training.train import ForestRecipe, held_apart

    model = CatBoostCostModel(folder)
    recipe = ForestRecipe(**model.metadata["recipe"])
    figures: dict[str, dict[str, Any]] = {}
    files = [own for path in data for own in (sorted(path.glob("*.csv*")) if path.is_dir() else [path])]
    if not files:
        raise typer.BadParameter(f"no *.csv or *.csv.gz in {', '.join(map(str, data))}: name that of data/perf")
    for file in files:
        try:
            rows = read(file)
        except NoMeasurements as reason:
            console.print(f"{file.name} is left out: {reason}", soft_wrap=True)
            continue
        except (OSError, ValueError) as error:
            raise typer.BadParameter(str(error)) from error
        seen = unseen and file.name in TRAINING
        figures[file.name] = asdict(figures_of(model, rows.rows(held_apart(len(rows), recipe)) if seen else rows))
    if as_json:
        typer.echo(json.dumps(figures, indent=1))
        return
    for name, values in figures.items():
        Console().print(figure_table(name, values))


def figure_table(name: str, values: dict[str, float]) -> Table:
    """Returns a table of a file's figures; those that its rows do not tell are left out."""
    table = Table(title=name, title_justify="left", box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    for key, value in values.items():
        if not math.isnan(value):
            table.add_row(key, f"{value:.4g}")
    return table
