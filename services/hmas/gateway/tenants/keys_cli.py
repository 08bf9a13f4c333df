"""`hmas keys`: make, list, rotate and revoke API keys in the tenants file."""

import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hmas.gateway.tenants.file import TenantFileError, TenantKey
from hmas.gateway.tenants.keys import list_keys, make_key, revoke_key, rotate_key, told_instant

app = typer.Typer(no_args_is_help=True, add_completion=False)
console = Console()
errors = Console(stderr=True)

File = Annotated[Path, typer.Option("--file", envvar="HMAS_TENANTS_FILE", help="path of the tenants file (YAML)")]
DEFAULT_FILE = Path("tenants.yaml")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _span_s(text: str) -> float:
    """Returns the seconds of a span such as 30d, 12h, 5m or 10s."""
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a span of time: write 30d, 12h, 5m or 10s")
    return float(int(found[1]) * _SECONDS[found[2]])


def _end_s(text: str) -> float:
    """Returns the Unix instant that a date, an instant or a span from now on names; an empty text names none."""
    if not text:
        return inf
    if re.fullmatch(r"[0-9]+[smhd]", text):
        return float(int(time.time() + _span_s(text)))
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a date: write 30d, 2027-01-31 or 2027-01-31T12:00:00Z") from None
    return float(int((instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)).timestamp()))


Expires = Annotated[str, typer.Option(help="when it ends: a span such as 90d, or a date or instant (UTC)")]


@app.command()
def make(
    tenant: Annotated[str, typer.Argument(help="tenant that the key is for; added to the file if new")],
    name: Annotated[str, typer.Option(help="label for the key in `hmas keys list`")] = "",
    expires: Expires = "",
    file: File = DEFAULT_FILE,
) -> None:
    """Make an API key. It is shown only once: the file keeps its hash alone."""
    try:
        made = make_key(file, tenant, name, _end_s(expires))
    except (TenantFileError, OSError) as error:
        raise _failed(error) from None
    if made.new_tenant:
        errors.print(f"tenant [bold]{tenant}[/] was added to {file}, without any limits", highlight=False)
    errors.print(f"API key {made.id} of tenant {tenant}; copy it now, it is not shown again:", highlight=False)
    print(made.key)


@app.command()
def rotate(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="id of the key, from `hmas keys list`")],
    grace: Annotated[str, typer.Option(help="how long the old key stays valid, such as 7d or 12h")] = "7d",
    expires: Expires = "",
    file: File = DEFAULT_FILE,
) -> None:
    """Make a new API key for the holder of another, which stays valid for a while."""
    grace_s = _span_s(grace)
    try:
        made = rotate_key(file, key_id, grace_s, _end_s(expires))
    except (TenantFileError, OSError) as error:
        raise _failed(error) from None
    errors.print(f"key {key_id} ends in {grace}; API key {made.id} takes its place, it is not shown again:",
                 highlight=False)  # fmt: skip
    print(made.key)


@app.command("list")
def list_(file: File = DEFAULT_FILE) -> None:
    """List id, tenant, name, date and end of every API key. The keys themselves are not stored."""
    try:
        keys = list_keys(file)
    except (TenantFileError, OSError) as error:
        raise _failed(error) from None
    console.print(key_table(keys))


def key_table(keys: Iterable[TenantKey]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("id", "tenant", "name", "created", "expires"):
        table.add_column(column, no_wrap=column in ("id", "created"), overflow="fold")
    now_s = time.time()
    for key in keys:
        end = told_instant(key.expires_s)
        table.add_row(key.id, key.tenant, key.name, key.created, f"{end} (over)" if key.expires_s <= now_s else end)
    return table


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="id of the key, from `hmas keys list`")],
    file: File = DEFAULT_FILE,
) -> None:
    """Revoke an API key. Running gateways refuse it within a second."""
    try:
        key = revoke_key(file, key_id)
    except (TenantFileError, OSError) as error:
        raise _failed(error) from None
    console.print(f"key {key.id} of {key.tenant} is revoked", highlight=False)


def _failed(error: Exception) -> typer.Exit:
    errors.print(f"[red]error:[/] {error}", highlight=False)
    return typer.Exit(1)
