"""Shell of `hmas top`: subscribes to the mesh's subjects, asks gateways for their jobs, and redraws the view until
interrupted."""

import asyncio
import time

import nats.errors
from rich.console import Console
from rich.live import Live

from hmas.contracts.routes import Role
from hmas.mesh.top.view import render_top
from hmas.operator.client import connected
from hmas.operator.jobs import jobs_of
from hmas.operator.mesh_view import MeshView
from hmas.runtime.bus import Bus

REDRAW_S = 0.5
JOBS_S = 2.0


async def run_top(bus: Bus, console: Console, *, once_after_s: float | None = None) -> None:
    """Shows the live view until cancelled; with `once_after_s` it listens for that many seconds and prints it once.

    Raises MeshUnreachable.
    """
    model = MeshView()
    bus.follow(Role.TOP, lambda value: model.hear(time.monotonic(), value))
    async with connected(bus):
        if once_after_s is not None:
            await asyncio.sleep(once_after_s)
            model.jobs = await jobs_of(bus)
            console.print(render_top(model, time.monotonic()))
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(_ask_for_jobs(bus, model))
            with Live(render_top(model, time.monotonic()), console=console, screen=console.is_terminal) as live:
                while True:
                    await asyncio.sleep(REDRAW_S)
                    live.update(render_top(model, time.monotonic()))


async def _ask_for_jobs(bus: Bus, model: MeshView) -> None:
    while True:
        try:
            model.jobs = await jobs_of(bus)
        except nats.errors.Error:
            pass  # NATS is away; what was told last stays
        await asyncio.sleep(JOBS_S)
