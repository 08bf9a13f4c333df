"""How often what the rooms owe one another happens, seconds. The live services and the simulator read it here."""

from dataclasses import dataclass, replace

HEARTBEAT_S = 1.0
WORKER_LOST_AFTER_S = 3.5  # three missed heartbeats and some slack
TELEMETRY_S = 0.1  # of workers and gateways, or earlier, after
TELEMETRY_EVENTS = 256
SHORT_VIEW_S = 0.25
LONG_VIEW_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadences:
    """Periods of the timers in the shells. `progress_s`: between two counts of the running requests' output tokens.
    `step_window_s`: an engine's mean step is taken over so long."""

    worker_cycle_s: float = 0.1
    progress_s: float = 0.1
    heartbeat_s: float = HEARTBEAT_S
    scrape_s: float = 0.5
    step_window_s: float = 5.0
    gateway_tick_s: float = 0.05
    control_tick_s: float = 0.05


LIVE = Cadences()
# Counting tokens at every cycle costs a third of a simulated run, and no decision reads them faster than the fence's
# bounds grow. The gateway reports every 100 ms: a tick in between would look at time-outs and moves alone, and shift
# the instants of every result that was published.
SIMULATED = replace(LIVE, progress_s=0.5, gateway_tick_s=0.1)
