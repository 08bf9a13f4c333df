"""The command `hmas pin`: an operator's choice of topology, kept in the NATS bucket until it is lifted."""

import getpass
import os

from hmas.contracts.control import Pin, TopologyName
from hmas.mesh.client import connected
from hmas.runtime.bus import Bus
from hmas.wire.subjects import pin_key, subject_of


async def set_pin(bus: Bus, pool: str, topology: TopologyName | None) -> Pin:
    """Stores the pin of a pool and publishes it to the meta controller; `topology` None lifts it.

    Raises BucketUnavailable or MeshUnreachable.
    """
    pin = Pin(pool, topology, by=_user())
    async with connected(bus) as bucket:
        await bucket.put(pin_key(pool), pin)
        bus.publish(subject_of(pin), pin)
    return pin


def _user() -> str:
    """Returns the name of the operator's account, or its number, because an account in a container may lack a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
