"""The commands `hmas compare` and `hmas replay`."""

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hmas.engine.named import named_profile
from hmas.entry_points import known_topology
from hmas.mesh.command import run_command
from hmas.mesh.compare.commands import Comparison, Written, at_capacity, at_rate, report_problems
from hmas.mesh.compare.ranking import ranked
from hmas.mesh.compare.runs import mesh_target
from hmas.mesh.compare.runs import replay as run_replay
from hmas.mesh.compare.table import comparison_table
from hmas.mesh.compare.workload import ReplayWorkload
from hmas.mesh.engine_options import ApiKeyFile, EmulatedProfile, Hardware, MaxNumSeqs
from hmas.mesh.options import MeshOptions
from hmas.mesh.state import DEFAULT_DATA_DIR, MeshState, read_state
from hmas.mesh.supervisor import Mesh
from hmas.mesh.up import card_of, with_model

console = Console() if Console().is_terminal else Console(width=120)
DEFAULT_RATE_RPS = 7.0
MAX_MODEL_LEN = 16384  # tokens; longer requests of a trace are left out
SEVERAL = 3  # seeds, where a comparison has several

SeedCount = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="number of seeds, from --seed upwards; default: 3 with --capacity, --topology or --simulated, else 1",
    ),
]
AtCapacity = Annotated[
    bool,
    typer.Option(help="find the capacity of the engines without the mesh, and compare at 1.4 and 0.5 times it"),
]
LoadedUrls = Annotated[
    list[str] | None,
    typer.Option(
        help="URL of a running vLLM or SGLang server, which gets the load in place of emulated engines; repeat the "
        "option for several"
    ),
]
SimulatedProfile = Annotated[
    str | None,
    typer.Option(
        help="also simulate the same requests, on engines of this profile: a file of `hmas calibrate`, or a name"
    ),
]


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
    seeds: SeedCount = None,
    capacity: AtCapacity = False,
    topology: Annotated[
        list[str] | None,
        typer.Option(help="topology to pin and compare at --rate; repeat the option for several"),
    ] = None,
    engine: LoadedUrls = None,
    engine_api_key_file: ApiKeyFile = None,
    max_num_seqs: MaxNumSeqs = None,
    hardware: Hardware = "",
    profile: EmulatedProfile = "tiny-emulated",
    simulated: SimulatedProfile = None,
    picture: Annotated[
        Path | None, typer.Option(help="file to which a picture of both sides is written, second by second, as SVG")
    ] = None,
    rows: Annotated[
        Path | None, typer.Option(help="file to which every request of both sides is written, as CSV")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="file to which the figures are also written, as JSON")] = None,
) -> None:
    """Start a mesh, replay a trace through it and directly at its engines, and print both in one table."""
    if (simulated or picture or rows) and (capacity or topology):
        raise typer.BadParameter("--simulated, --picture and --rows go without --capacity and --topology")

    several = capacity or topology or simulated
    chosen = tuple(range(seed, seed + (seeds or (SEVERAL if several else 1))))
    written = Written(json=json, rows=rows, picture=picture)

    async def main() -> int:
        topologies = [known_topology(name) for name in topology or ()]
        as_simulated = named_profile(simulated) if simulated else None

        async def measure(comparison: Comparison) -> bool:
            if topologies:
                return await ranked(comparison, topologies, rate, chosen, json)
            if capacity:
                return await at_capacity(comparison, chosen, json)
            await at_rate(comparison, rate, chosen, written, as_simulated)
            return True

        with tempfile.TemporaryDirectory(prefix="hmas-") as scratch:
            options = MeshOptions(
                port=0, profile=profile, data_dir=Path(scratch), replay=True, log_level="error",
                engine_urls=tuple(engine or ()), engine_api_key_file=engine_api_key_file,
                max_num_seqs=max_num_seqs, hardware=hardware,
            )  # fmt: skip
            return 0 if await _compared(options, trace, seconds or (90.0 if capacity else 60.0), measure) else 2

    run_command(main)


async def _compared(
    options: MeshOptions, trace: Path | None, window_s: float, measure: Callable[[Comparison], Awaitable[bool]]
) -> bool:
    """Starts a mesh, measures it beside its engines, and stops it, also where Ctrl-C comes between."""
    for url in options.engine_urls:  # a mesh serves without one that is down, but the other side would not
        card_of(url, options.engine_api_key)
    options = with_model(options)
    async with interruptible():
        with console.status("starting the mesh ..."):
            mesh = await Mesh(options, _alarm).__aenter__()
        try:
            state, key = mesh.plan.state({}), options.engine_api_key
            context = int(card_of(state.engine_urls[0], key).get("max_model_len") or MAX_MODEL_LEN)
            workload = ReplayWorkload(trace, min(context, MAX_MODEL_LEN))
            return await measure(Comparison(state, workload, console, window_s, key))
        finally:
            with console.status("stopping the mesh ..."):
                await mesh.stop()


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
