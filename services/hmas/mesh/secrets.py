"""The command `hmas secrets`: makes what the services of an installation need to recognise one another, each service's
in a folder of its own."""

import json
from pathlib import Path
from secrets import token_urlsafe
from typing import Annotated

import typer

from hmas.mesh.nats_server import write_secret
from hmas.wire.permissions import OPERATOR, USERS, authorization

# Those that speak on a stream or call cognition.
RECOGNISED = ("gateway", "worker", "perception", "prediction")
CONSOLE_TOKENS = ("console_token", "console_admin_token")  # for reading and for acting
PASSWORD, SECRET, NATS_USERS = "nats_password", "mesh_secret", "nats_users.conf"


def make_secrets(folder: Path) -> list[Path]:
    """Writes what is missing: for each user of NATS `nats_password`, for the services that must recognise one another
    the same `mesh_secret`, for NATS `nats_users.conf` with all users, for the console its two tokens, and for Grafana
    `password`. The file for NATS is always written anew, because what a user may do changes with the version. Returns
    the secrets that were made. Raises OSError."""
    made: list[Path] = []
    passwords = {user.name: _keep(folder / user.name / PASSWORD, made) for user in USERS}
    secret = _keep(folder / RECOGNISED[0] / SECRET, made)
    for role in RECOGNISED[1:]:
        if _keep(folder / role / SECRET, made, secret) != secret:
            raise OSError(f"{folder / role / SECRET} differs from the gateway's: delete all of them to make a new one")
    for token in CONSOLE_TOKENS:
        _keep(folder / OPERATOR / token, made)
    _keep(folder / "grafana" / "password", made)
    (folder / "nats").mkdir(exist_ok=True)
    write_secret(folder / "nats" / NATS_USERS, f"authorization: {json.dumps(authorization(passwords), indent=2)}\n")
    return made


def _keep(path: Path, made: list[Path], new: str = "") -> str:
    """Returns the secret in a file; one that is missing or empty is made, or set to `new`."""
    if path.exists() and (text := path.read_text().strip()):
        return text
    path.parent.mkdir(parents=True, exist_ok=True)
    text = new or token_urlsafe(32)
    write_secret(path, text)
    made.append(path)
    return text


def secrets(
    folder: Annotated[Path, typer.Argument(help="folder with a folder for each service; what is there is kept")],
) -> None:
    """Make the passwords of NATS and the mesh's secret, and NATS's configuration of users."""
    for path in make_secrets(folder):
        typer.echo(f"made {path}")
