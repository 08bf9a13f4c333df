"""What the simulator makes of the requests that a comparison sends to live engines."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from hmas.contracts.outcome import Outcome
from hmas.engine.core.profile import EngineProfile
from hmas.laws.scoring import Score, Settlement, score
from hmas.mesh.compare.runs import DRAIN_S
from hmas.sim.perceived import perceived
from hmas.sim.sources import offered
from hmas.sim.systems import HMAS, reads_shipped, run_system
from hmas.sim.workload import OfferedRequest, Workload
from hmas_loadgen.traces.row import Trace

SYSTEMS = {"direct": "vllm", "mesh": HMAS}


@dataclass(frozen=True, slots=True)
class SimulatedReplay:
    """A replay in virtual time, which has no lag and cannot be late."""

    score: Score
    lag: None = None
    reasons: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Turn:
    """One replay of a comparison: its trace, its seed, and when it began, in s on a clock of their own."""

    trace: Trace
    seed: int
    began_s: float = 0.0


def simulated(side: str, turn: Turn, profile: EngineProfile, engines: int, window_s: float) -> SimulatedReplay:
    """Runs `side` of a comparison (direct, mesh), or another system by its name, in virtual time, on `engines` engines
    of a profile with a worker each.

    Requests that have not ended `DRAIN_S` after the window are cut off there, as the live ones are. Raises ValueError
    if the packages that the simulator needs are missing (`hmas[sim]`).
    """
    return in_turn(side, [turn], profile, engines, window_s)[0]


def in_turn(
    side: str, turns: Sequence[Turn], profile: EngineProfile, engines: int, window_s: float
) -> list[SimulatedReplay]:
    """Runs several replays of a side. One mesh serves them all, at the instants at which the live one did, because it
    remembers: after a bursty minute it orders the next one more by deadline."""
    if side != "mesh":
        return [_run(side, [turn], profile, engines, window_s)[0] for turn in turns]
    return _run(side, turns, profile, engines, window_s)


def _run(
    side: str, turns: Sequence[Turn], profile: EngineProfile, engines: int, window_s: float
) -> list[SimulatedReplay]:
    starts = [turn.began_s - turns[0].began_s for turn in turns]
    parts = [_workload(side, turn, number, profile, window_s) for number, turn in enumerate(turns)]
    requests = [_later(request, by_s) for part, by_s in zip(parts, starts, strict=True) for request in part.requests]
    whole = replace(parts[0], requests=tuple(requests), duration_s=starts[-1] + window_s)
    system = SYSTEMS.get(side, side)
    settled = iter(run_system(system, whole, profile, engines, turns[0].seed, workers=engines).settlements)
    replays = []
    for part, by_s in zip(parts, starts, strict=True):
        own = [replace(s, offered_s=s.offered_s - by_s) for s in islice(settled, len(part.requests))]
        replays.append(SimulatedReplay(score([_cut_off(s, window_s + DRAIN_S) for s in own], window_s)))
    return replays


def _workload(side: str, turn: Turn, number: int, profile: EngineProfile, window_s: float) -> Workload:
    """Returns the requests of a replay, with ids that no other replay has."""
    reads = reads_shipped(SYSTEMS.get(side, side))
    trace = turn.trace
    workload = offered(trace, trace.name, window_s, turn.seed, stated=True, prompts=reads).fitting(profile)
    if reads:
        workload = perceived(workload)
    named = (replace(r, request=replace(r.request, id=f"{number}-{r.id}")) for r in workload.requests)
    return replace(workload, requests=tuple(named))


def _later(offered: OfferedRequest, by_s: float) -> OfferedRequest:
    return replace(offered, request=replace(offered.request, arrival_s=offered.request.arrival_s + by_s))


def _cut_off(s: Settlement, end_s: float) -> Settlement:
    """Returns what the client had seen of a request at the instant `end_s`."""
    if s.last_token_s is not None and s.offered_s + s.last_token_s <= end_s:
        return s
    begun = s.ttft_s is not None and s.offered_s + s.ttft_s <= end_s
    return replace(s, outcome=Outcome.TIMED_OUT, ttft_s=s.ttft_s if begun else None, tpot_s=None, last_token_s=None)
