"""Periods, in s, of heartbeats, telemetry, views and timers, for the live services and the simulator alike."""

from dataclasses import dataclass, replace

HEARTBEAT_S = 1.0
WORKER_LOST_AFTER_S = 3.5  # three missed heartbeats and some slack
TELEMETRY_S = 0.1  # period of the telemetry of workers and gateways
TELEMETRY_EVENTS = 256  # telemetry is sent early once this many events have gathered
USE_S = 0.25  # period in which gateways tell one another what their tenants use
SHORT_VIEW_S = 0.25
LONG_VIEW_S = 5.0
FORETELL_S = 60.0  # period in which it is told what scheduling would bring, where the mesh only observes


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadences:
    """Periods, in s, of the timers in the shells. Every `progress_s` the output tokens of running requests are counted
    and told to their workers, which need them no sooner; an engine's mean step time is taken over the last
    `step_window_s`."""

    worker_cycle_s: float = 0.1
    progress_s: float = 0.5
    heartbeat_s: float = HEARTBEAT_S
    scrape_s: float = 0.5
    step_window_s: float = 5.0
    gateway_tick_s: float = 0.05
    control_tick_s: float = 0.05


LIVE = Cadences()
# The simulator's gateway ticks every 100 ms, when it reports: a tick in between would only check time-outs and moves to
# other workers, and would shift the instants of all published results.
SIMULATED = replace(LIVE, gateway_tick_s=0.1)
