"""What a run yields."""

from dataclasses import dataclass, field

from hmas.laws.scoring import Score, Settlement, score


@dataclass(frozen=True, slots=True)
class TopologySpan:
    """A topology in force from `start_s` on."""

    start_s: float
    topology: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemRun:
    """What happened inside: engine steps and busy seconds over all engines, when the last event ran. Of the
    `fence_checked` requests that finished behind the fence, `fence_misses` outgrew the bound of their admission."""

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
    """`duration_s` is the offered window, over which all rates are taken."""

    system: str
    settlements: list[Settlement] = field(repr=False)
    duration_s: float
    run: SystemRun = SystemRun()

    @property
    def score(self) -> Score:
        return score(self.settlements, self.duration_s)
