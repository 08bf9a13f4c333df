"""The results of a simulated run."""

from dataclasses import dataclass, field

from hmas.laws.scoring import Score, Settlement, score


@dataclass(frozen=True, slots=True)
class TopologySpan:
    """A topology that a worker used from `start_s` until the start of the next span, and the reason of the switch."""

    start_s: float
    topology: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemRun:
    """Counts from inside a run. `preemptions`, `engine_steps` and `busy_s` are sums over all engines; `ended_s` is the
    instant of the last event. Of `fence_checked` finished requests, `fence_misses` had outputs longer than the length
    bound under which they were admitted. `effects` and `effect_hash` cover all agents; they are 0 and empty if no
    effect log was kept."""

    preemptions: int = 0
    engine_steps: int = 0
    busy_s: float = 0.0
    ended_s: float = 0.0
    fence_checked: int = 0
    fence_misses: int = 0
    effects: int = 0
    effect_hash: str = ""
    topologies: tuple[TopologySpan, ...] = ()


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
