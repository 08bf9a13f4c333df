"""The pages, each a pure function `view(state, now_s, choice) -> dict`: what a browser draws, without a null. What has
not changed is equal from one call to the next, so that `patch.diff` is small. `choice` is a pool or an engine, as the
address in the browser has it; empty: the first."""

from collections.abc import Callable, Mapping
from typing import Any

from hmas.console.pages.control import view_control
from hmas.console.pages.engine_plan import view_plan
from hmas.console.pages.jobs import view_jobs
from hmas.console.pages.lanes import view_lanes
from hmas.console.pages.now import view_now
from hmas.console.pages.queue import view_queue
from hmas.console.pages.requests import view_requests
from hmas.console.pages.tenants import view_tenants
from hmas.console.pages.whatif import view_whatif
from hmas.console.state import ConsoleState

View = Callable[[ConsoleState, float, str], dict[str, Any]]

PAGES: Mapping[str, View] = {
    "now": view_now,
    "queue": view_queue,
    "control": view_control,
    "requests": view_requests,
    "tenants": view_tenants,
    "lanes": view_lanes,
    "jobs": view_jobs,
    "whatif": view_whatif,
    "plan": view_plan,
}


def framed(page: str, state: ConsoleState, now_s: float, choice: str) -> dict[str, Any]:
    """Returns the view of a page with what stands above each one: the pools in which nothing is in force, because their
    workers only observe."""
    observing = {name: True for name in sorted({*state.top.short, *state.top.decisions}) if state.top.observes(name)}
    return PAGES[page](state, now_s, choice) | ({"observing": observing} if observing else {})


# Seconds between two frames of a page: engines are watched, the rest is read.
PERIODS_S = {"now": 0.25, "queue": 0.5}
PERIOD_S = 1.0
