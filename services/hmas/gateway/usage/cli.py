"""`hmas usage`: shows and exports what tenants and API keys have used."""

import sys
from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hmas.gateway.usage.book import COUNTS, UsageCounts, UsageKey
from hmas.gateway.usage.files import COLUMNS, UsageFileError, read_folder, write_rows
from hmas.runtime.extras import needs
from hmas.runtime.harmless_text import harmless

app = typer.Typer(no_args_is_help=True, add_completion=False)
console = Console()
errors = Console(stderr=True)

Folder = Annotated[
    Path, typer.Option("--dir", envvar="HMAS_USAGE_DIR", help="folder in which gateways keep their files of usage")
]
Since = Annotated[str, typer.Option(help="first day, UTC, such as 2027-01-01; default: the first there is")]
Until = Annotated[str, typer.Option(help="last day, UTC; default: the last there is")]
DEFAULT_FOLDER = Path(".hmas/usage")


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat() if text else ""
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a date: write 2027-01-31") from None


def _read(folder: Path, since: str, until: str) -> dict[UsageKey, UsageCounts]:
    try:
        return read_folder(folder, _day(since), _day(until))
    except (UsageFileError, OSError) as error:
        errors.print(f"[red]error:[/] {error}", highlight=False)
        raise typer.Exit(1) from None


@app.command()
def export(
    folder: Folder = DEFAULT_FOLDER,
    since: Since = "",
    until: Until = "",
    out: Annotated[
        Path | None, typer.Option(help="file to write, .csv or .parquet; default: CSV to standard output")
    ] = None,
) -> None:
    """Write usage by day, tenant and API key, summed over gateways: requests, on time or not, and tokens."""
    if out is not None and out.suffix not in (".csv", ".parquet"):
        raise typer.BadParameter(f"{out.name!r} must end in .csv or .parquet")
    rows = _read(folder, since, until)
    if out is None:
        write_rows(sys.stdout, rows)
    elif out.suffix == ".parquet":
        _write_parquet(out, rows)
    else:
        with out.open("w", newline="", encoding="utf-8") as file:
            write_rows(file, rows)


def _write_parquet(out: Path, rows: dict[UsageKey, UsageCounts]) -> None:
    with needs("load", "write a .csv file"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    keys = sorted(rows)
    columns = {name: pa.array([getattr(key, name) for key in keys], pa.string()) for name in UsageKey._fields}
    columns["day"] = columns["day"].cast(pa.date32())
    columns |= {name: pa.array([getattr(rows[key], name) for key in keys], pa.int64()) for name in COUNTS}
    pq.write_table(pa.table(columns), out)


@app.command()
def show(folder: Folder = DEFAULT_FOLDER, since: Since = "", until: Until = "") -> None:
    """Show usage by tenant and API key, summed over days and gateways."""
    totals: dict[tuple[str, str], UsageCounts] = {}
    for row, counts in _read(folder, since, until).items():
        totals.setdefault((row.tenant, row.key), UsageCounts()).add(counts)
    console.print(usage_table(totals))


def usage_table(totals: dict[tuple[str, str], UsageCounts]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in COLUMNS[1:]:
        table.add_column(column.replace("_", " "), justify="right" if column in COUNTS else "left", overflow="fold")
    for tenant, key in sorted(totals):
        table.add_row(
            Text(harmless(tenant)), Text(harmless(key)), *(str(getattr(totals[tenant, key], name)) for name in COUNTS)
        )
    return table
