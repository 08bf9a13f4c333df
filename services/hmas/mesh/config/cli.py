"""The commands `hmas config show`, `check` and `schema`."""

import json
import os
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hmas.mesh.command import MENDABLE, refuse
from hmas.mesh.config.flags import flags_of
from hmas.mesh.config.mesh_file import read_mesh_file
from hmas.mesh.config.schema import config_schema
from hmas.mesh.config.values_in_force import BY_UP, DEFAULT, EMPTY, ValueInForce, check_in_force, values_in_force
from hmas.mesh.up_cli import FILE_IN_CONTEXT, up
from hmas.runtime.harmless_text import harmless

app = typer.Typer(no_args_is_help=True)
console = Console() if Console().is_terminal else Console(width=160)
FLAGS_OF_UP = {"allow_extra_args": True, "ignore_unknown_options": True}

ConfigFile = Annotated[Path, typer.Option("--config", help="the YAML file")]


def context_of_up(words: list[str]) -> typer.Context:
    """Returns the context in which `hmas up` would run with these words: the value of each flag, and its source."""
    alone = typer.Typer(add_completion=False)
    alone.command("up")(up)
    return cast(typer.Context, typer.main.get_command(alone).make_context("hmas up", words))


@app.command("show", context_settings=FLAGS_OF_UP)
def show_config(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option("--config", help="the YAML file; default: none")] = None,
    changed: Annotated[
        bool, typer.Option(help="leave out what is as it is by default, and what `hmas up` sets")
    ] = False,
) -> None:
    """Print what is in force for `hmas up` with this file, this environment and these flags, and where each value comes
    from. Further flags are those of `hmas up`. Secrets are masked."""
    words = [*(["--config", str(config)] if config is not None else []), *context.args]
    told = context_of_up(words)
    found = values_in_force(told.meta.get(FILE_IN_CONTEXT, EMPTY), os.environ, told, flags_of(up))
    console.print(
        settings_table([each for each in found if not changed or not each.source.startswith((DEFAULT, BY_UP))])
    )


@app.command("check")
def check_config(config: ConfigFile) -> None:
    """Check a file, and what it and the environment say together; the exit code is 1 if something is wrong."""
    try:
        file = read_mesh_file(config, flags_of(up))
        check_in_force(file, os.environ)
    except MENDABLE as error:
        raise refuse(error) from None
    counts = len(file.flags), sum(map(len, file.settings.values()))
    console.print(f"{config}: {counts[0]} flags and {counts[1]} settings, all valid")


@app.command("schema")
def print_schema() -> None:
    """Print the JSON schema of the file, for editors."""
    typer.echo(json.dumps(config_schema(flags_of(up)), indent=2))


def settings_table(values: list[ValueInForce]) -> Table:
    """Returns a table of values, one a line, with their sources."""
    table = Table(box=None, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("from", overflow="fold")
    for each in values:
        style = "dim" if each.source == DEFAULT else ""
        cells = f"{each.section}.{each.key}", each.value, each.source
        table.add_row(*(Text(harmless(cell), style=style) for cell in cells))
    return table
