"""`hmas compare` and `hmas replay`."""

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hmas.contracts.control import TopologyName
from hmas.mesh.command import run_command
from hmas.mesh.compare.commands import Comparison, at_capacity, once, report_problems
from hmas.mesh.compare.ranking import ranked
from hmas.mesh.compare.runs import mesh_target
from hmas.mesh.compare.runs import replay as run_replay
from hmas.mesh.compare.table import comparison_table
from hmas.mesh.compare.workload import ReplayWorkload
from hmas.mesh.options import MeshOptions
from hmas.mesh.state import DEFAULT_DATA_DIR, MeshState, read_state
from hmas.mesh.supervisor import Mesh

console = Console() if Console().is_terminal else Console(width=120)
DEFAULT_RATE_RPS = 7.0
MAX_MODEL_LEN = 16384  # of the default profile


@asynccontextmanager
async def interruptible() -> AsyncIterator[asyncio.Event]:
    """Ctrl-C and SIGTERM cancel the block's task once; the mesh inside it is then stopped cleanly."""
    task = asyncio.current_task()
    stop = asyncio.Event()
    assert task is not None

    def interrupt() -> None:
        stop.set()
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    try:
        yield stop
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def compare(
    trace: Annotated[Path | None, typer.Option(help="trace file, e.g. official Azure CSV; else one is made")] = None,
    rate: Annotated[float, typer.Option(help="mean requests per second")] = DEFAULT_RATE_RPS,
    seconds: Annotated[float | None, typer.Option(help="length of each replay; 60, with --capacity 90")] = None,
    seed: Annotated[int, typer.Option(help="seed of the trace and its annotation")] = 1,
    seeds: Annotated[
        int, typer.Option(min=1, help="with --capacity or --topology: how many seeds, from --seed on")
    ] = 3,
    capacity: Annotated[bool, typer.Option(help="find the direct capacity, compare at 1.4 and 0.5 times it")] = False,
    topology: Annotated[
        list[TopologyName] | None, typer.Option(help="compare these (repeat it): each pinned in turn, at --rate")
    ] = None,
    profile: Annotated[str, typer.Option(help="cost profile of the emulated engines")] = "tiny-emulated",
    json: Annotated[Path | None, typer.Option(help="also write the figures here")] = None,
) -> None:
    """Start a mesh, replay a trace through it and straight at its engines, print both in one table, and end."""

    async def main() -> int:
        with tempfile.TemporaryDirectory(prefix="hmas-") as scratch:
            options = MeshOptions(port=0, profile=profile, data_dir=Path(scratch), replay=True, log_level="error")
            async with interruptible():
                with console.status("starting the mesh ..."):
                    mesh = await Mesh(options, _alarm).__aenter__()
                try:
                    state = mesh.plan.state({})
                    window_s = seconds or (90.0 if capacity else 60.0)
                    comparison = Comparison(state, ReplayWorkload(trace, MAX_MODEL_LEN), console, window_s)
                    chosen = tuple(range(seed, seed + seeds))
                    if topology:
                        return 0 if await ranked(comparison, topology, rate, chosen, json) else 2
                    if capacity:
                        return 0 if await at_capacity(comparison, chosen, json) else 2
                    await once(comparison, rate, seed, json)
                    return 0
                finally:
                    with console.status("stopping the mesh ..."):
                        await mesh.stop()

    run_command(main)


def replay(
    trace: Annotated[Path, typer.Argument(help="trace file: official Azure CSV first, and the others of `hmas load`")],
    rate: Annotated[float | None, typer.Option(help="scale to this mean rate; default: the trace's own")] = None,
    seconds: Annotated[float, typer.Option(help="how much of the trace")] = 60.0,
    seed: Annotated[int, typer.Option(help="seed of annotation and window")] = 1,
    data_dir: Annotated[Path, typer.Option(envvar="HMAS_DATA_DIR", help="of the running mesh")] = DEFAULT_DATA_DIR,
) -> None:
    """Replay a trace through the running mesh (`hmas up --replay`), open loop, and score it."""

    async def main() -> int:
        state: MeshState = read_state(data_dir)
        workload = ReplayWorkload(trace, MAX_MODEL_LEN)
        async with interruptible() as stop:
            rows = workload.at(rate or workload.own_rate_rps(), seconds, seed)
            run = await run_replay(
                "mesh", rows, mesh_target(state), state, console, seed=seed, window_s=seconds, stop=stop
            )
        console.print(comparison_table(workload.name, {"mesh": [run]}))
        report_problems(console, {"mesh": [run]})
        return 0

    run_command(main)


def _alarm(name: str, line: str) -> None:
    console.print(f"[dim]{name}[/dim] {line}", highlight=False)
