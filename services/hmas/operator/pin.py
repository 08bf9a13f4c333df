"""The command `hmas pin`: an operator's choice of topology, kept in the NATS bucket until it is lifted."""

import asyncio
import getpass
import os
import time
from contextlib import suppress
from math import inf
from typing import Any

from hmas.contracts.cadences import HEARTBEAT_S
from hmas.contracts.control import MAX_CUTS, Pin, Split, TopologyName
from hmas.contracts.pool_plan import PlanPin
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.routes import Role
from hmas.operator.client import connected
from hmas.operator.mesh_view import MeshView
from hmas.runtime.bucket import ControlBucket
from hmas.runtime.bus import Bus
from hmas.wire.subjects import PLAN_PIN_KEY, pin_key, subject_of


async def set_pin(bus: Bus, pool: str, topology: TopologyName | None, split: Split | None = None) -> Pin:
    """Stores the pin of a pool and publishes it to the meta controller; `topology` None lifts it, and `split` None
    leaves the layout to the controller.

    Raises BucketUnavailable or MeshUnreachable.
    """
    pin = Pin(pool, topology, by=_user(), split=split)
    async with connected(bus) as bucket:
        await store_pin(bus, bucket, pin)
    return pin


async def pool_observes(bus: Bus, pool: str) -> bool:
    """Tells whether nothing is in force in a pool, because its workers only observe, as far as they are heard
    within two heartbeats. Raises MeshUnreachable."""
    model, heard = MeshView(), asyncio.Event()

    def hear(value: Any) -> None:
        model.hear(time.monotonic(), value)
        if isinstance(value, WorkerHeartbeat) and value.pool == pool:
            heard.set()

    bus.follow(Role.TOP, hear)
    async with connected(bus):
        with suppress(TimeoutError):
            await asyncio.wait_for(heard.wait(), 2.0 * HEARTBEAT_S)
    return model.observes(pool)


async def store_pin(bus: Bus, bucket: ControlBucket, pin: Pin | PlanPin) -> None:
    """Keeps a pin and publishes it over a bus that is connected. Raises BucketUnavailable."""
    await bucket.put(pin_key(pin.pool) if isinstance(pin, Pin) else PLAN_PIN_KEY, pin)
    bus.publish(subject_of(pin), pin)


def parse_layout(text: str) -> Split:
    """Returns the split that `hmas pin --layout` names: `mixed`, or for each class but the last the bound on its TPOT
    SLOs in ms and its number of engines, such as `84:1,111:2`; the last class gets the other engines. Raises ValueError
    for anything else."""
    if text == "mixed":
        return Split()
    try:
        pairs = [part.partition(":") for part in text.split(",")]
        cuts_s = tuple(float(bound) / 1000.0 for bound, _, _ in pairs)
        engines = tuple(int(count) for _, _, count in pairs)
        ascending = all(low < high for low, high in zip((0.0, *cuts_s), (*cuts_s, inf), strict=True))
        if ascending and min(engines) >= 1 and len(cuts_s) <= MAX_CUTS:
            return Split(cuts_s, (*engines, 1))
    except ValueError:
        pass
    raise ValueError(
        f"{text!r} is not a layout: use `mixed`, or ascending bounds on TPOT SLOs in ms, each with its number of "
        f"engines, such as 84:1,111:2 (at most {MAX_CUTS})"
    )


def _user() -> str:
    """Returns the name of the operator's account, or its number, because an account in a container may lack a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
