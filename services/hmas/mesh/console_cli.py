"""The command `hmas console`: the console of a running mesh, in the foreground."""

import os
from pathlib import Path
from typing import Annotated

import typer

from hmas.mesh.client import nats_settings
from hmas.mesh.command import MENDABLE, refuse
from hmas.mesh.state import DEFAULT_DATA_DIR, read_state


def console(
    port: Annotated[int | None, typer.Option(help="port; default: HMAS_CONSOLE_PORT, or 8090")] = None,
    nats_url: Annotated[
        str | None, typer.Option(help="URL of the mesh's NATS server; default: that of the mesh under --data-dir")
    ] = None,
    data_dir: Annotated[
        Path, typer.Option(envvar="HMAS_DATA_DIR", help="folder in which the embedded mesh keeps its state and logs")
    ] = DEFAULT_DATA_DIR,
) -> None:
    """Show a running mesh in a browser; `hmas up` has one already. Settings: HMAS_CONSOLE_*."""
    try:
        nats = nats_settings(nats_url, data_dir)
    except MENDABLE as error:
        raise refuse(error) from None
    variables = {"HMAS_NATS_URL": nats.nats_url, "HMAS_NATS_USER": nats.nats_user}
    if nats.nats_password_file is not None:
        variables["HMAS_NATS_PASSWORD_FILE"] = str(nats.nats_password_file)
    for variable, file in (
        ("HMAS_CONSOLE_TOKEN_FILE", "console"),
        ("HMAS_CONSOLE_ADMIN_TOKEN_FILE", "console-admin"),
    ):  # of the embedded mesh, if it has a console
        path = data_dir / "secrets" / file
        if variable not in os.environ and nats_url is None and path.exists():
            variables[variable] = str(path)
    if port is not None:
        variables["HMAS_CONSOLE_PORT"] = str(port)
    if nats_url is None and not {"HMAS_NATS_URL", "HMAS_REHEARSAL_PROFILE"} & os.environ.keys():
        variables["HMAS_REHEARSAL_PROFILE"] = read_state(data_dir).profile
    os.environ.update(variables)
    from hmas.console.__main__ import main

    main()
