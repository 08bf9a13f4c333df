"""The command `hmas engine`: an emulated engine in the foreground."""

import typer


def engine(context: typer.Context) -> None:
    """Run an emulated vLLM server, without a GPU and without a model; `hmas engine --help` lists its flags."""
    from hmas.engine.__main__ import main

    raise typer.Exit(main(context.args, program="hmas engine"))
