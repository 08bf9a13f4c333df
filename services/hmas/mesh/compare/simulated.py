"""What the simulator makes of the requests that a comparison sends to live engines."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from hmas.contracts.outcome import Outcome
from hmas.engine.core.profile import EngineProfile
from hmas.laws.scoring import Score, Settlement, score
from hmas.mesh.compare.runs import DRAIN_S
from hmas.sim.offered import offered
from hmas.sim.past.rehearsal import of_blocks
from hmas.sim.perceived import perceived
from hmas.sim.processes.fleet import Baseline, run_fleet
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas.sim.vllm import VLLM
from hmas.sim.workload import OfferedRequest, Workload
from hmas_loadgen.traces.row import Trace

SYSTEMS: dict[str, Baseline | MeshSetup] = {"direct": VLLM, "mesh": MeshSetup()}


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


def simulated(
    system: Baseline | MeshSetup, turn: Turn, profile: EngineProfile, engines: int, window_s: float
) -> SimulatedReplay:
    """Runs a system, such as one of `SYSTEMS`, in virtual time, on `engines` engines of a profile. In a mesh each of
    them has a worker of its own.

    Requests that have not ended `DRAIN_S` after the window are cut off there, as the live ones are. Raises ValueError
    if the packages that the simulator needs are missing (`hmas[sim]`).
    """
    return in_turn(system, [turn], profile, engines, window_s)[0]


def in_turn(
    system: Baseline | MeshSetup, turns: Sequence[Turn], profile: EngineProfile, engines: int, window_s: float
) -> list[SimulatedReplay]:
    """Runs several replays of a system. One mesh serves them all, at the instants at which the live one did, because it
    remembers: after a bursty minute it orders the next one more by deadline."""
    if isinstance(system, Baseline):
        return [_run(system, [turn], profile, engines, window_s)[0] for turn in turns]
    return _run(system, turns, profile, engines, window_s)


def _run(
    system: Baseline | MeshSetup, turns: Sequence[Turn], profile: EngineProfile, engines: int, window_s: float
) -> list[SimulatedReplay]:
    starts = [turn.began_s - turns[0].began_s for turn in turns]
    read = isinstance(system, MeshSetup)
    parts = [_workload(turn, number, profile, window_s, read) for number, turn in enumerate(turns)]
    requests = [_later(request, by_s) for part, by_s in zip(parts, starts, strict=True) for request in part.requests]
    whole = replace(parts[0], requests=tuple(requests), duration_s=starts[-1] + window_s)
    seed = turns[0].seed
    if isinstance(system, Baseline):
        result = run_fleet(system, whole, profile, engines, seed)
    else:
        result = MeshSim(replace(system, workers=engines), profile, engines, whole, seed, rehearsal=of_blocks).run()
    settled = iter(result.settlements)
    replays = []
    for part, by_s in zip(parts, starts, strict=True):
        own = [replace(s, offered_s=s.offered_s - by_s) for s in islice(settled, len(part.requests))]
        replays.append(SimulatedReplay(score([_cut_off(s, window_s + DRAIN_S) for s in own], window_s)))
    return replays


def _workload(turn: Turn, number: int, profile: EngineProfile, window_s: float, read: bool) -> Workload:
    """Returns the requests of a replay, with ids that no other replay has; perception has `read` their prompts."""
    trace = turn.trace
    workload = offered(trace, trace.name, window_s, turn.seed, stated=True, prompts=read).fitting(profile)
    if read:
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
