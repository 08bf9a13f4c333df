"""The command `hmas up`: runs the embedded mesh in the foreground."""

import asyncio
import json
import signal
import urllib.error
import urllib.request
from dataclasses import replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hmas.mesh.options import MeshOptions
from hmas.mesh.state import sole_owner
from hmas.mesh.supervisor import Mesh


def _picture(mesh: Mesh) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    state = mesh.plan.state({})
    table.add_row("API", f"{state.gateway_url}/v1", f"model {state.pool}")
    for url in state.engine_urls:
        table.add_row("engine", url)
    table.add_row("NATS", state.nats_url)
    for name, url in sorted(state.ops_urls.items()):
        table.add_row("metrics", f"{url}/metrics", name)
    table.add_row("logs", str(mesh.options.data_dir / "logs"))
    return table


def model_of(engine_url: str, api_key: str) -> str:
    """Returns the first model that an engine lists. Raises ValueError, which says what to do, if it lists none."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    request = urllib.request.Request(f"{engine_url.rstrip('/')}/v1/models", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as reply:
            return str(json.load(reply)["data"][0]["id"])
    except (urllib.error.URLError, OSError, ValueError, LookupError, TypeError) as error:
        reason = getattr(error, "reason", error)
        raise ValueError(
            f"the engine {engine_url} does not list its model ({reason}): start it first, or name it with --model"
        ) from None


def with_model(options: MeshOptions) -> MeshOptions:
    """Returns the options with a model: if none is named, the first given engine is asked. Raises ValueError."""
    if options.model or not options.engine_urls:
        return options
    key = options.engine_api_key_file.read_text().strip() if options.engine_api_key_file else ""
    return replace(options, model=model_of(options.engine_urls[0], key))


async def serve(options: MeshOptions, console: Console) -> int:
    """Runs a mesh until SIGINT or SIGTERM and returns the exit code: 0, or 130 if interrupted while starting.

    Raises MeshFailed, NatsBinaryMissing or ValueError.
    """
    with sole_owner(options.data_dir):
        return await _serve(with_model(options), console)


async def _serve(options: MeshOptions, console: Console) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)

    def alarm(name: str, line: str) -> None:
        console.print(Text.assemble((f"{name:<14}", "dim"), line.strip()), soft_wrap=True)

    with console.status("starting the mesh ..."):
        mesh = Mesh(options, alarm)
        starting = asyncio.ensure_future(mesh.__aenter__())
        interrupted = asyncio.ensure_future(stop.wait())
        await asyncio.wait([starting, interrupted], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return 130
        interrupted.cancel()
        starting.result()
    console.print(_picture(mesh))
    console.print("watch it with `hmas top`; Ctrl-C stops it", style="dim")
    try:
        await stop.wait()
    finally:
        with console.status("stopping ..."):
            await mesh.stop()
    return 0
