"""`hmas keys`: make, list and revoke API keys in the tenants file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hmas.gateway.tenants.file import TenantFileError, TenantKey
from hmas.gateway.tenants.keys import list_keys, make_key, revoke_key

app = typer.Typer(no_args_is_help=True, add_completion=False)
console = Console()
errors = Console(stderr=True)

File = Annotated[Path, typer.Option("--file", envvar="HMAS_TENANTS_FILE", help="path of the tenants file (YAML)")]
DEFAULT_FILE = Path("tenants.yaml")


@app.command()
def make(
    tenant: Annotated[str, typer.Argument(help="tenant that the key is for; added to the file if new")],
    name: Annotated[str, typer.Option(help="label for the key in `hmas keys list`")] = "",
    file: File = DEFAULT_FILE,
) -> None:
    """Make an API key. It is shown only once: the file keeps its hash alone."""
    try:
        made = make_key(file, tenant, name)
    except (TenantFileError, OSError) as error:
        raise _failed(error) from None
    if made.new_tenant:
        errors.print(f"tenant [bold]{tenant}[/] was added to {file}, without any limits", highlight=False)
    errors.print(f"API key {made.id} of tenant {tenant}; copy it now, it is not shown again:", highlight=False)
    print(made.key)


@app.command("list")
def list_(file: File = DEFAULT_FILE) -> None:
    """List id, tenant, name and date of every API key. The keys themselves are not stored."""
    try:
        keys = list_keys(file)
    except (TenantFileError, OSError) as error:
        raise _failed(error) from None
    console.print(key_table(keys))


def key_table(keys: Iterable[TenantKey]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("id", "tenant", "name", "created"):
        table.add_column(column, no_wrap=column in ("id", "created"), overflow="fold")
    for key in keys:
        table.add_row(key.id, key.tenant, key.name, key.created)
    return table


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="id of the key, from `hmas keys list`")],
    file: File = DEFAULT_FILE,
) -> None:
    """Revoke an API key. Running gateways refuse it within two seconds."""
    try:
        key = revoke_key(file, key_id)
    except (TenantFileError, OSError) as error:
        raise _failed(error) from None
    console.print(f"key {key.id} of {key.tenant} is revoked", highlight=False)


def _failed(error: Exception) -> typer.Exit:
    errors.print(f"[red]error:[/] {error}", highlight=False)
    return typer.Exit(1)
