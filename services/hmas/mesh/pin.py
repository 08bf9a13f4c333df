"""`hmas pin`: an operator's override of the topology, kept in the bucket until lifted."""

import getpass
import os

from hmas.contracts.control import Pin, TopologyName
from hmas.mesh.client import connected
from hmas.runtime.bus import Bus
from hmas.wire.subjects import control_pin, pin_key


async def set_pin(bus: Bus, pool: str, topology: TopologyName | None) -> Pin:
    """Stores the pin and tells the meta controller at once. Raises BucketUnavailable, MeshUnreachable."""
    pin = Pin(pool, topology, by=_user())
    async with connected(bus) as bucket:
        await bucket.put(pin_key(pool), pin)
        bus.publish(control_pin(pool), pin)
    return pin


def _user() -> str:
    """Who pinned it; a container's user may have a number only."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
