"""Makes one run of Niyama's evaluation and counts the requests that missed a deadline."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from experiments.niyama.systems import PROFILE, SYSTEMS
from experiments.niyama.workload import CLASSES, LOW_PRIORITY, QosLoad, build
from hmas.engine.core.profile import builtin_profile
from hmas.laws.scoring import Settlement, is_ok
from hmas.sim.processes.fleet import EngineFleet, FleetSetting
from hmas.sim.result import SimResult
from hmas_lab.sim.stored import cell_key

ALLOWED = 0.01  # share of all requests that may miss a deadline (Niyama §4.1)
NETWORK_S = 0.001  # time on the network, which the client sees but the engine's deadlines do not include
TTLT_S = max(slo.ttft_s for _, slo in CLASSES)


@dataclass(frozen=True, slots=True)
class QosRun:
    """One run: a system under a load. With `hopeless` the run is given up once more than the allowed share of requests
    is late, which is all that a search for the highest rate needs to know."""

    system: str
    load: QosLoad
    hopeless: bool = False

    def key(self) -> str:
        return cell_key(self)


def violated(settlement: Settlement) -> bool:
    """Tells whether a request missed a deadline of Niyama Eq. 1 to 3: that of the first or the last token if it is
    interactive, that of the last token otherwise."""
    slo = settlement.slo
    if slo.whole:
        return not is_ok(settlement)
    first_s, last_s = settlement.ttft_s, settlement.last_token_s
    if first_s is None or last_s is None or first_s > slo.ttft_s:
        return True
    return last_s > slo.ttft_s + (settlement.output_tokens - 1) * slo.tpot_s + NETWORK_S


def measure(run: QosRun, data: Path | None) -> dict[str, Any]:
    """Makes one run and returns the shares of requests that missed a deadline: of all, by class, by priority and by
    length (long: a prompt not below the 90th percentile, §4.2). Also returns the engine's steps, its busy seconds, and
    the CPU seconds of the run. `data` is the folder of traces."""
    started = process_time()
    baseline, profile = SYSTEMS[run.system], builtin_profile(PROFILE)
    workload = build(run.load, data)
    fleet = EngineFleet(
        baseline,
        [baseline.core(profile, FleetSetting(run.load.seed))],
        workload,
        cutoff_s=TTLT_S,  # by then every deadline has passed
        late_share=ALLOWED if run.hopeless else 1.0,
    )
    result = fleet.run()
    low = {r.id for r in workload.requests if r.request.priority >= LOW_PRIORITY}
    return _figures(result, low) | {"cpu_s": process_time() - started}


def _figures(result: SimResult, low: set[str]) -> dict[str, Any]:
    rows = result.settlements
    long = float(np.quantile([s.prompt_tokens for s in rows], 0.9))
    return {
        "requests": len(rows),
        "all": _share(rows),
        "classes": {name: _share(s for s in rows if s.tenant == name) for name, _ in CLASSES},
        "important": _share(s for s in rows if s.request_id not in low),
        "low": _share(s for s in rows if s.request_id in low),
        "long": _share(s for s in rows if s.prompt_tokens >= long),
        "short": _share(s for s in rows if s.prompt_tokens < long),
        "busy_s": result.run.busy_s,
        "steps": result.run.engine_steps,
    }


def _share(rows: Iterable[Settlement]) -> float:
    """Returns the share of the settlements that missed a deadline; 0 if there are none."""
    found = [violated(s) for s in rows]
    return sum(found) / len(found) if found else 0.0
