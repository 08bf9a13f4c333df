"""The commands of `hmas load traces`: list, fetch and describe traces."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hmas_loadgen.traces.registry import PUBLIC_TRACES, PublicTrace

app = typer.Typer(no_args_is_help=True, add_completion=False)
console = Console()
errors = Console(stderr=True)
TRACES_A_TABLE = 4  # as many traces as fit in 80 characters


@app.command("list")
def list_traces() -> None:
    """List the public traces that can be fetched."""
    console.print(trace_table(PUBLIC_TRACES.values()))


def trace_table(traces: Iterable[PublicTrace]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("licence", overflow="fold")
    table.add_column("what it is", overflow="fold")
    for trace in traces:
        table.add_row(trace.name, trace.licence, trace.about)
    return table


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="name of a public trace, from `traces list`")],
    folder: Annotated[Path, typer.Option("--to", help="folder that the trace is put in")] = Path("data/traces"),
    url: Annotated[
        str | None, typer.Option(help="address of a mirror to download from; the checksum must match all the same")
    ] = None,
) -> None:
    """Download a public trace. A broken download is continued, and the checksum is verified."""
    from dataclasses import replace

    from rich.progress import Progress

    from hmas_loadgen.traces.fetch import FetchError
    from hmas_loadgen.traces.fetch import fetch as download

    trace = PUBLIC_TRACES.get(name)
    if trace is None:
        errors.print(
            f"[red]hmas load:[/red] no public trace is named {name!r}; give one of: {', '.join(PUBLIC_TRACES)}"
        )
        raise typer.Exit(2)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(name, total=None)
        try:
            path = download(
                replace(trace, url=url) if url else trace,
                folder,
                lambda done, total: progress.update(task, completed=done, total=total),
            )
        except FetchError as error:
            errors.print(f"[red]hmas load:[/red] {error}", highlight=False, soft_wrap=True)
            raise typer.Exit(1) from None
    console.print(f"{path} ({path.stat().st_size:,} bytes, {trace.licence})", highlight=False)


@app.command()
def stats(
    trace: Annotated[list[Path], typer.Argument(help="trace files")],
    as_json: Annotated[
        bool, typer.Option("--json", help="print JSON, with one object per trace, instead of a table")
    ] = False,
) -> None:
    """Describe traces in numbers: rates, bursts, lengths, drift."""
    from hmas_loadgen.traces.reading import read_trace
    from hmas_loadgen.traces.row import TraceError
    from hmas_loadgen.traces.statistics import statistics

    try:
        found = {path.name: asdict(statistics(read_trace(path))) for path in trace}
    except (TraceError, OSError) as error:
        errors.print(f"[red]hmas load:[/red] {error}", highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None
    if as_json:
        console.print_json(data=found)
        return
    for at in range(0, len(found), TRACES_A_TABLE):
        console.print(statistics_table(dict(list(found.items())[at : at + TRACES_A_TABLE])))


def statistics_table(found: Mapping[str, Mapping[str, float]]) -> Table:
    """Returns a table with one column per trace and one row per figure. `found` maps a trace's name to its figures."""
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in found:
        table.add_column(name, justify="right", overflow="fold")
    for key in next(iter(found.values())):
        table.add_row(key, *(f"{values[key]:,.4g}" for values in found.values()))
    return table
