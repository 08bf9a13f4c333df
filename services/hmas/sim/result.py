"""The results of a simulated run."""

from dataclasses import dataclass, field

from hmas.laws.scoring import Score, Settlement, score
from hmas.sim.coverage import Coverage
from hmas.sim.regulated import Regulated


@dataclass(frozen=True, slots=True)
class TopologySpan:
    """A topology that a worker used from `start_s` until the start of the next span, and the reason of the switch."""

    start_s: float
    topology: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineExcess:
    """How far an engine was above its limits, by its own count.

    `over_n_run`: the most sequences in it beyond N_run, and `over_n_run_s`: the longest time beyond it. `unaccounted`:
    the most by which it was beyond N_run when a granted request came, less what its worker cannot have known: what
    gateways had placed there by themselves since the last sample but one, and the grants that were on their way at
    these samples, which hide as many others from the count. `over_fence`: the
    largest share of the KV memory in use beyond what the fence gives away, while no request ran that a gateway had
    placed by itself; `over_fence_s`: the longest time. Times are in s.
    """

    engine: str
    over_n_run: int
    over_n_run_s: float
    unaccounted: int
    over_fence: float
    over_fence_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemRun:
    """Counts from inside a run. `preemptions`, `engine_steps` and `busy_s` are sums over all engines; `ended_s` is the
    instant of the last event. `coverage` is that of the length bounds; None for a baseline. `lost` requests were at a
    gateway that ended; `doubled` counts how often a request came to an engine while another one had it. Of `granted`
    requests that workers dispatched, `masked` had their annotation by then; `waited` were not dispatched at once, and
    of these `waited_masked` had it; `late_granted` and `late_masked` are those that came in the last third of the
    offered window, when what the load makes wait does wait. `effects` and `effect_hash` cover all agents; they are 0
    and empty if no effect log was kept."""

    preemptions: int = 0
    engine_steps: int = 0
    busy_s: float = 0.0
    ended_s: float = 0.0
    coverage: Coverage | None = None
    effects: int = 0
    effect_hash: str = ""
    topologies: tuple[TopologySpan, ...] = ()
    layouts: tuple[TopologySpan, ...] = ()  # of the first worker, since its last start
    engines: tuple[EngineExcess, ...] = ()
    regulated: tuple[Regulated, ...] = ()
    lost: int = 0
    doubled: int = 0
    granted: int = 0
    masked: int = 0
    waited: int = 0
    waited_masked: int = 0
    late_granted: int = 0
    late_masked: int = 0


@dataclass(frozen=True, slots=True)
class SimResult:
    """The result of one run: one settlement per offered request. Requests were offered during `duration_s`, over which
    all rates are taken."""

    system: str
    settlements: list[Settlement] = field(repr=False)
    duration_s: float
    run: SystemRun = SystemRun()

    @property
    def score(self) -> Score:
        return score(self.settlements, self.duration_s)
