"""Short-lived connections of the command line to a mesh's NATS server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hmas.mesh.state import read_state
from hmas.runtime.bucket import ControlBucket
from hmas.runtime.bus import Bus
from hmas.runtime.ids import instance_name
from hmas.runtime.settings import RuntimeSettings

CONNECT_TIMEOUT_S = 5.0


class MeshUnreachable(Exception):
    """The mesh's NATS server does not answer."""


def nats_settings(nats_url: str | None, data_dir: Path) -> RuntimeSettings:
    """The given URL, else the environment's, else the embedded mesh's. Raises NoMesh."""
    settings = RuntimeSettings()
    if nats_url is None and "nats_url" not in settings.model_fields_set:
        nats_url = read_state(data_dir).nats_url
    return settings if nats_url is None else settings.model_copy(update={"nats_url": nats_url})


@asynccontextmanager
async def connected(bus: Bus) -> AsyncIterator[ControlBucket]:
    """Runs the bus for the length of the block. Raises MeshUnreachable after five seconds without a connection."""
    task = asyncio.create_task(bus.run())
    try:
        await asyncio.wait_for(bus.wait_connected(), CONNECT_TIMEOUT_S)
        yield ControlBucket(bus, instance_name("cli"))
    except TimeoutError:
        raise MeshUnreachable("NATS does not answer: is the mesh running (`hmas up`), is --nats-url right?") from None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.close()


def open_bus(nats_url: str | None, data_dir: Path) -> Bus:
    return Bus(nats_settings(nats_url, data_dir), instance_name("cli"))
