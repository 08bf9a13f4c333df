"""Runs each `hmas` command: an error that the user can correct becomes one line and exit code 1, not a traceback."""

import asyncio
from collections.abc import Awaitable, Callable

import typer
from rich.console import Console
from rich.text import Text

from hmas.mesh.nats_server import NatsBinaryMissing
from hmas.mesh.state import NoMesh
from hmas.mesh.supervisor import MeshFailed
from hmas.operator.client import MeshUnreachable
from hmas.runtime.bucket import BucketUnavailable
from hmas.runtime.extras import CannotStart
from hmas.runtime.harmless_text import harmless_lines
from hmas.runtime.logs import configure_logs

errors = Console(stderr=True)
MENDABLE = (
    NoMesh, MeshUnreachable, MeshFailed, NatsBinaryMissing, BucketUnavailable, CannotStart, ValueError, OSError,
)  # fmt: skip


def refuse(error: Exception) -> typer.Exit:
    """Prints an error that the user can correct, as one unwrapped line, and returns exit code 1 to raise."""
    errors.print(Text.assemble(("hmas:", "red"), f" {harmless_lines(str(error))}"), soft_wrap=True)
    return typer.Exit(1)


def run_command(main: Callable[[], Awaitable[int]]) -> None:
    """Runs a command and exits with its code; an error that the user can correct is one line and exit code 1.

    Ctrl-C is exit code 130.
    """

    async def body() -> int:
        configure_logs("hmas", "cli", "error", "console")  # only errors: the command prints its own results
        return await main()

    try:
        code = asyncio.run(body())
    except MENDABLE as error:
        raise refuse(error) from None
    except (KeyboardInterrupt, asyncio.CancelledError):
        code = 130
    raise typer.Exit(code)
