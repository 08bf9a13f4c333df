"""What the simulator makes of the requests that a comparison sends to live engines."""

from dataclasses import dataclass, field, replace

from hmas.contracts.outcome import Outcome
from hmas.engine.core.profile import EngineProfile
from hmas.laws.scoring import Score, Settlement, score
from hmas.mesh.compare.runs import DRAIN_S
from hmas.sim.perceived import perceived
from hmas.sim.sources import offered
from hmas.sim.systems import HMAS, run_system
from hmas_loadgen.traces.row import Trace

SYSTEMS = {"direct": "vllm", "mesh": HMAS}


@dataclass(frozen=True, slots=True)
class SimulatedReplay:
    """A replay in virtual time, which has no lag and cannot be late."""

    score: Score
    lag: None = None
    reasons: list[str] = field(default_factory=list)


def simulated(
    side: str, trace: Trace, profile: EngineProfile, engines: int, window_s: float, seed: int
) -> SimulatedReplay:
    """Runs `side` of a comparison (direct, mesh) in virtual time, on `engines` engines of a profile with a worker each.

    Requests that have not ended `DRAIN_S` after the window are cut off there, as the live ones are. Raises ValueError
    if the packages that the simulator needs are missing (`hmas[sim]`).
    """
    reads = side == "mesh"
    workload = offered(trace, trace.name, window_s, seed, stated=True, prompts=reads).fitting(profile)
    if reads:
        workload = perceived(workload)
    result = run_system(SYSTEMS[side], workload, profile, engines, seed, workers=engines)
    settled = [_cut_off(s, window_s + DRAIN_S) for s in result.settlements]
    return SimulatedReplay(score(settled, window_s))


def _cut_off(s: Settlement, end_s: float) -> Settlement:
    """Returns what the client had seen of a request at the instant `end_s`."""
    if s.last_token_s is not None and s.offered_s + s.last_token_s <= end_s:
        return s
    begun = s.ttft_s is not None and s.offered_s + s.ttft_s <= end_s
    return replace(s, outcome=Outcome.TIMED_OUT, ttft_s=s.ttft_s if begun else None, tpot_s=None, last_token_s=None)
