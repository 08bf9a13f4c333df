"""Short-lived connections of an operator's commands to a mesh's NATS server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hmas.runtime.bucket import ControlBucket
from hmas.runtime.bus import Bus
from hmas.runtime.ids import instance_name

CONNECT_TIMEOUT_S = 5.0
FIRST_REPLY_S = 2.0


class MeshUnreachable(Exception):
    """The mesh's NATS server does not answer."""


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
