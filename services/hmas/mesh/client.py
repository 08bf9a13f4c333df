"""Short-lived connections from the command line to a mesh's NATS server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hmas.mesh.state import MeshState, read_state
from hmas.runtime.bucket import ControlBucket
from hmas.runtime.bus import Bus
from hmas.runtime.ids import instance_name
from hmas.runtime.settings import RuntimeSettings
from hmas.wire.permissions import OPERATOR

CONNECT_TIMEOUT_S = 5.0
FIRST_REPLY_S = 2.0


class MeshUnreachable(Exception):
    """The mesh's NATS server does not answer."""


def nats_settings(nats_url: str | None, data_dir: Path) -> RuntimeSettings:
    """Returns settings with the NATS URL: the given one, otherwise HMAS_NATS_URL, otherwise the embedded mesh's.

    The embedded mesh's come with the operator's user and password. Raises NoMesh if no mesh runs in `data_dir`.
    """
    settings = RuntimeSettings()
    if nats_url is not None:
        return settings.model_copy(update={"nats_url": nats_url})
    if "nats_url" in settings.model_fields_set:
        return settings
    return _settings_of(read_state(data_dir))


def _settings_of(state: MeshState) -> RuntimeSettings:
    known: dict[str, Any] = {"nats_url": state.nats_url}
    if state.nats_password_file:
        known |= {"nats_user": OPERATOR, "nats_password_file": Path(state.nats_password_file)}
    return RuntimeSettings().model_copy(update=known)


def bus_of(state: MeshState) -> Bus:
    """Returns a bus, not yet connected, to the NATS server of a running mesh."""
    return Bus(_settings_of(state), instance_name("cli"))


@asynccontextmanager
async def connected(bus: Bus) -> AsyncIterator[ControlBucket]:
    """Runs the bus inside the `async with` block and yields the bucket (NATS key-value store) of control values.

    Raises MeshUnreachable if there is no connection within `CONNECT_TIMEOUT_S`.
    """
    task = asyncio.create_task(bus.run())
    try:
        await asyncio.wait_for(bus.wait_connected(), CONNECT_TIMEOUT_S)
        yield ControlBucket(bus, instance_name("cli"), makes=False)
    except TimeoutError:
        raise MeshUnreachable(
            "the mesh's NATS server does not answer: start the mesh with `hmas up`, or correct --nats-url"
        ) from None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.close()


def open_bus(nats_url: str | None, data_dir: Path) -> Bus:
    return Bus(nats_settings(nats_url, data_dir), instance_name("cli"))


async def replies_to(bus: Bus, subject: str, query: bytes, quiet_s: float) -> AsyncIterator[bytes]:
    """Asks all processes that hear a subject, over a bus that is connected. Yields what each answers, until none has
    answered for `quiet_s`. Raises nats.errors.Error."""
    inbox = bus.client.new_inbox()
    subscription = await bus.client.subscribe(inbox)
    try:
        await bus.client.publish(subject, query, reply=inbox)
        async with asyncio.timeout(FIRST_REPLY_S) as deadline:
            async for message in subscription.messages:
                yield message.data
                deadline.reschedule(asyncio.get_running_loop().time() + quiet_s)
    except TimeoutError:
        pass
    finally:
        await subscription.unsubscribe()
