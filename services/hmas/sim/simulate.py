"""The simulator as a function: a trace, engines and a topology in, a table of what became of each request out."""

from dataclasses import dataclass, replace
from pathlib import Path

from hmas.contracts.control import Split
from hmas.engine.core.profile import EngineProfile, builtin_profile
from hmas.entry_points import known_topology
from hmas.laws.scoring import Score, is_ok
from hmas.sim.offered import offered
from hmas.sim.perceived import perceived
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas_loadgen.source import Source
from hmas_loadgen.traces.row import Trace

MIN_WINDOW_S = 1.0


@dataclass(frozen=True, slots=True)
class SimulatedRequest:
    """What became of a request.

    `arrival_s`: since the trace began; `ttft_s`, `tpot_s`: time to the first token and mean time per output token in s,
    None if it got none; `outcome` is `finished`, or says how it ended.
    """

    request_id: str
    tenant: str
    task: str
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    ttft_s: float | None
    tpot_s: float | None
    on_time: bool
    outcome: str


@dataclass(frozen=True, slots=True)
class SimulatedTable:
    """The requests of a run in the order of the trace, their score, and the topologies by which the first worker
    ordered them, in their order."""

    rows: tuple[SimulatedRequest, ...]
    score: Score
    topologies: tuple[str, ...]


def simulate(
    trace: Trace | Source | Path | str,
    profile: EngineProfile | str,
    topology: str | None = None,
    *,
    engines: int = 1,
    seed: int = 1,
    estimator: str = "shipped",
) -> SimulatedTable:
    """Serves a trace by the whole mesh in virtual time.

    `trace` is one, where one comes from, or the path of a file. `profile` is that of each of the `engines`: one, or the
    name of one that ships. `topology` is pinned; None lets the mesh choose. `estimator` is what predicts lengths, as in
    `MeshSetup`: `none` needs no models, and the text of prompts is made only for those that read it.

    Raises ValueError if the trace cannot be read, a name is unknown, or the topology, which an installed package may
    add, fails.
    """
    if not isinstance(trace, Trace):
        trace = (trace if isinstance(trace, Source) else Source(trace=str(trace))).load()
    profile = builtin_profile(profile) if isinstance(profile, str) else profile
    setup = MeshSetup(estimator=estimator)
    if topology is not None:
        setup = replace(setup, pin=known_topology(topology), split=Split())
    seconds = max(trace.duration_s, MIN_WINDOW_S)
    reads = estimator in ("shipped", "rules")
    workload = offered(trace, trace.name, seconds, seed, stated=True, prompts=reads).fitting(profile)
    if estimator == "shipped":
        workload = perceived(workload)
    result = MeshSim(setup, profile, engines, workload, seed).run()
    rows = tuple(
        SimulatedRequest(
            request_id=s.request_id, tenant=s.tenant, task=s.task.value, arrival_s=s.offered_s,
            prompt_tokens=s.prompt_tokens, output_tokens=s.output_tokens, ttft_s=s.ttft_s, tpot_s=s.tpot_s,
            on_time=is_ok(s), outcome=s.outcome.value,
        )
        for s in result.settlements
    )  # fmt: skip
    return SimulatedTable(rows, result.score, tuple(dict.fromkeys(span.topology for span in result.run.topologies)))
