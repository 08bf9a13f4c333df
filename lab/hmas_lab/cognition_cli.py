"""The commands `hmas train` and `hmas eval`, each with the sub-commands `perception` and `prediction`."""

import typer

from hmas_lab.perception import cli as perception
from hmas_lab.prediction import cli as prediction

train = typer.Typer(help="Train perception or prediction from measured data", no_args_is_help=True)
evaluate = typer.Typer(help="Evaluate perception or prediction on data files", no_args_is_help=True)
for room in (perception, prediction):
    train.registered_commands += room.train.registered_commands
    evaluate.registered_commands += room.evaluate.registered_commands
