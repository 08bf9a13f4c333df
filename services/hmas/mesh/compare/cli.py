"""The commands `hmas compare` and `hmas replay`."""

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
MAX_MODEL_LEN = 16384  # tokens; that of the default engine profile


@asynccontextmanager
async def interruptible() -> AsyncIterator[asyncio.Event]:
    """Lets Ctrl-C and SIGTERM cancel the task in the `async with` block, which then stops its mesh cleanly.

    It yields an event that is set at that moment.
    """
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
    trace: Annotated[
        Path | None, typer.Option(help="trace file, e.g. the official Azure CSV; default: a generated trace")
    ] = None,
    rate: Annotated[float, typer.Option(help="mean requests per second")] = DEFAULT_RATE_RPS,
    seconds: Annotated[
        float | None, typer.Option(help="seconds of each replay; default: 60, with --capacity 90")
    ] = None,
    seed: Annotated[int, typer.Option(help="seed of the trace and of its task types and SLOs")] = 1,
    seeds: Annotated[
        int, typer.Option(min=1, help="with --capacity or --topology: number of seeds, from --seed upwards")
    ] = 3,
    capacity: Annotated[
        bool,
        typer.Option(help="find the capacity of the engines without the mesh, and compare at 1.4 and 0.5 times it"),
    ] = False,
    topology: Annotated[
        list[TopologyName] | None,
        typer.Option(help="topology to pin and compare at --rate; repeat the option for several"),
    ] = None,
    profile: Annotated[str, typer.Option(help="cost profile of the emulated engines")] = "tiny-emulated",
    json: Annotated[Path | None, typer.Option(help="file to which the figures are also written, as JSON")] = None,
) -> None:
    """Start a mesh, replay a trace through it and directly at its engines, and print both in one table."""

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
    trace: Annotated[
        Path, typer.Argument(help="trace file, e.g. the official Azure CSV, or any other that `hmas load` reads")
    ],
    rate: Annotated[
        float | None, typer.Option(help="requests per second to which the trace is scaled; default: its own rate")
    ] = None,
    seconds: Annotated[float, typer.Option(help="seconds of the trace to replay")] = 60.0,
    seed: Annotated[
        int, typer.Option(help="seed of the task types and SLOs, and of the part of the trace that is replayed")
    ] = 1,
    data_dir: Annotated[
        Path, typer.Option(envvar="HMAS_DATA_DIR", help="data directory of the running mesh")
    ] = DEFAULT_DATA_DIR,
) -> None:
    """Replay a trace at its arrival times through the running mesh (`hmas up --replay`), and score it."""

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
