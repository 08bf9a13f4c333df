"""What the arbiter of a GPU host hears and asks for, where engines of several models share a card, and some sleep.

Nobody asks anybody and waits for an answer. Workers report what waits for an engine and what runs there, engines show
whether they sleep, and the arbiter reports which engines are ready and when others will be. All of it is repeated, so
that a process that starts anew needs nothing else.
"""

from dataclasses import dataclass
from enum import StrEnum

from hmas.contracts.control_agents import TimerTicked

MAX_CALLERS = 256  # of a kind that a report lists for one engine, the most urgent ones; the rest is as the last of them


class Readiness(StrEnum):
    """What an engine of a card is, by its own word, and where a move of ours is under way by that.

    - cold: its process does not run; it takes no memory.
    - starting, waking: on its way to awake.
    - awake: it serves.
    - draining: it is granted nothing any more, and goes to sleep once what runs has ended.
    - falling: on its way to sleep; what runs is kept.
    - asleep: its weights are in the host's memory, and what was kept goes on after it wakes.
    - failed: a move failed or never ended; nobody knows what memory it takes.
    """

    COLD = "cold"
    STARTING = "starting"
    WAKING = "waking"
    AWAKE = "awake"
    DRAINING = "draining"
    FALLING = "falling"
    ASLEEP = "asleep"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentEngine:
    """An engine that shares a `card` with others. It takes `awake_gb` (weights, context, KV cache) from the begin of
    its start or wake to the end of its sleep, and `asleep_gb` (its context) while it sleeps. The seconds are those of
    each move until some are measured. `interrupts`: its sleep keeps what runs (vLLM's `mode=keep`)."""

    engine: str
    card: str
    awake_gb: float
    asleep_gb: float
    sleep_s: float
    wake_s: float
    start_s: float
    interrupts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDemand:
    """What a worker has for one engine. Of callers that wait and can still be on time, `latest_s` says how many seconds
    from now the engine must be at work for them; of runs that can, kept ones too, `spare_s` says for how long they may
    stand still. Both ascend. `late` and `late_runs` count those that cannot be on time. The first of all callers has
    waited for `oldest_s`; `serve_s` is what serving those that wait takes, `drain_s` what those that run still take."""

    engine: str
    latest_s: tuple[float, ...] = ()
    late: int = 0
    oldest_s: float = 0.0
    serve_s: float = 0.0
    spare_s: tuple[float, ...] = ()
    late_runs: int = 0
    drain_s: float = 0.0

    @property
    def waits(self) -> bool:
        return bool(self.latest_s or self.late)

    @property
    def runs(self) -> bool:
        return bool(self.spare_s or self.late_runs)


@dataclass(frozen=True, slots=True)
class DemandReport:
    """All that a worker has for the engines of one host; it replaces the worker's report before."""

    worker: str
    demands: tuple[EngineDemand, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineResidency:
    """`ready_s`: the seconds until the engine serves, as far as a move is under way; None if none is."""

    engine: str
    card: str
    readiness: Readiness
    ready_s: float | None


@dataclass(frozen=True, slots=True)
class HostReport:
    host: str
    engines: tuple[EngineResidency, ...]


# --- events ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DemandHeard:
    """A worker has reported."""

    report: DemandReport


@dataclass(frozen=True, slots=True)
class EngineSeen:
    """What an engine says of itself (awake or asleep), or that it does not run (cold). Nobody posts that an engine is
    awake or asleep while it tells of an operation in flight (`vllm:sleep_mode_operations_in_flight`): it may take more
    memory then."""

    engine: str
    readiness: Readiness


@dataclass(frozen=True, slots=True)
class MoveEnded:
    """An engine has answered a start, a sleep or a wake, or has refused it, `seconds` after it was asked."""

    engine: str
    ok: bool
    seconds: float
    message: str = ""


@dataclass(frozen=True, slots=True)
class CardLeased:
    """This host alone may move the engines of a card."""

    card: str
    epoch: int


@dataclass(frozen=True, slots=True)
class CardLost:
    """This host may not move the engines of a card any more."""

    card: str


HostEvent = DemandHeard | EngineSeen | MoveEnded | CardLeased | CardLost | TimerTicked


# --- effects -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartEngine:
    engine: str
    epoch: int


@dataclass(frozen=True, slots=True)
class StopEngine:
    """End the process of an engine that has failed; what runs it then tells that it is cold."""

    engine: str
    epoch: int


@dataclass(frozen=True, slots=True)
class WakeEngine:
    engine: str
    epoch: int


@dataclass(frozen=True, slots=True)
class SleepEngine:
    """Put an engine to sleep. `keep`: at once, and what runs goes on after it wakes; else once what runs has ended."""

    engine: str
    keep: bool
    epoch: int


@dataclass(frozen=True, slots=True)
class PublishHost:
    report: HostReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSwitch:
    """Note a decision: for the sake of `target`, `victims` go to sleep. `gained` callers would have missed their
    deadlines without it, and `hurt` callers and runs of the victims will. `target` is empty for what was not ours."""

    card: str
    target: str
    victims: tuple[str, ...]
    gained: int
    hurt: int
    reason: str


HostEffect = StartEngine | StopEngine | WakeEngine | SleepEngine | PublishHost | RecordSwitch
