"""Starts the three systems: plain vLLM, the mesh in front of it, and the mesh in front of a vLLM with the scheduler
plug-in."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from hmas.mesh.compare.cli import interruptible
from hmas.mesh.options import MeshOptions
from hmas.mesh.state import MeshState
from hmas.mesh.supervisor import Mesh
from tests.engines.engine_server import MODEL
from tests.engines.environment import EngineEnvironment, Unavailable
from tests.engines.vllm_server import PLUGIN, VllmServer

MAX_NUM_SEQS = 8  # small, so that a few requests per second fill the engine and its HTTP server stays idle
CONTEXT = 4096
# Tokens per step, few enough that the longest step is within the tightest TPOT, as an operator would set it.
MAX_NUM_BATCHED_TOKENS = 128
FLAGS = (
    "--max-num-seqs", str(MAX_NUM_SEQS), "--max-model-len", str(CONTEXT),
    "--max-num-batched-tokens", str(MAX_NUM_BATCHED_TOKENS), "--block-size", "32", "--no-enable-prefix-caching",
)  # fmt: skip
ENGINE_CORES = {0}
PLAIN, MESH, WITH_PLUGIN = SYSTEMS = "plain vLLM", "mesh", "mesh + plug-in"


def other_cores() -> set[int]:
    """Returns the processors for all processes but the engine core; those of the engine core if there are no others."""
    every = set(range(os.cpu_count() or 1))
    return every - ENGINE_CORES or every


@contextmanager
def vllm(
    environment: EngineEnvironment,
    folder: Path,
    *,
    plugin: bool,
    flags: tuple[str, ...] = FLAGS,
    model: Path | None = None,
) -> Iterator[VllmServer]:
    scheduler = PLUGIN if plugin else ""
    folder.mkdir()
    os.sched_setaffinity(0, ENGINE_CORES | other_cores())  # the engine inherits all; this process keeps the others
    server = VllmServer(environment, folder, *flags, scheduler=scheduler, model=model, nice=0)
    try:
        server.start()
        server.pin(ENGINE_CORES, other_cores())
        os.sched_setaffinity(0, other_cores())
        yield server
    finally:
        server.kill()


def plain(engine: VllmServer) -> MeshState:
    """Returns a state without a mesh, so that requests are sent to the engine directly."""
    return MeshState(
        gateway_url="",
        nats_url="",
        nats_password_file="",
        ops_token_file="",
        pool=MODEL,
        engine_urls=(engine.url,),
        ops_urls={},
        pids={},
    )


@asynccontextmanager
async def mesh_over(engine: VllmServer, folder: Path, *, plugin: bool) -> AsyncIterator[MeshState]:
    """Runs the mesh in front of the engine, as `hmas up --engine URL` does, and yields its state."""
    block = {"HMAS_CONTROL_BLOCK_DIR": str(engine.control.parent)} if plugin else {}
    options = MeshOptions(
        port=0, engine_urls=(engine.url,), model=MODEL, max_num_seqs=MAX_NUM_SEQS, data_dir=folder, replay=True,
        log_level="error", extra_env=block,
    )  # fmt: skip
    mesh = await Mesh(options, lambda name, line: print(name, line, flush=True)).__aenter__()
    try:
        yield mesh.plan.state({})
    finally:
        await mesh.stop()


def carried_out(measure: Callable[[Path], Awaitable[None]]) -> int:
    """Runs `measure` with a folder for its processes' files, and stops what it has started on SIGTERM as on Ctrl-C.
    Returns the exit status: 0, 130 if it was interrupted, and 3 where real vLLM cannot run."""

    async def measured(folder: str) -> None:
        async with interruptible():
            await measure(Path(folder))

    try:
        with tempfile.TemporaryDirectory(prefix="hmas-vllm-") as folder:
            asyncio.run(measured(folder))
    except asyncio.CancelledError:
        return 130
    except Unavailable as reason:
        print(f"real vLLM cannot run on this machine: {reason}", file=sys.stderr)
        return 3
    return 0
