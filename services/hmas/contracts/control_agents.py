"""Events and effects of the control agents: QoS, meta and Statera."""

from dataclasses import dataclass

from hmas.contracts.control import (
    AuditRecord,
    ControlTuple,
    Hints,
    LayoutDecision,
    Pin,
    TopologyDecision,
    TopologyName,
    TopologyReceived,
)
from hmas.contracts.past import PastBlock
from hmas.contracts.pool_plan import Budget, Catalogue, PlanCandidate, PlanDecision, PlanPin, PoolPlan
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.rehearsal import Policy, PoolFacts, Rehearsal
from hmas.contracts.scheduling_gain import SchedulingGain
from hmas.contracts.telemetry import GatewayTelemetry, WorkerTelemetry
from hmas.contracts.views import VLong, VShort


@dataclass(frozen=True, slots=True)
class WorkerReported:
    telemetry: WorkerTelemetry


@dataclass(frozen=True, slots=True)
class GatewayReported:
    telemetry: GatewayTelemetry


@dataclass(frozen=True, slots=True)
class ShortViewReceived:
    view: VShort


@dataclass(frozen=True, slots=True)
class LongViewReceived:
    view: VLong


@dataclass(frozen=True, slots=True)
class PinChanged:
    pin: Pin


@dataclass(frozen=True, slots=True)
class SelectorAnswered:
    """A selector that must be asked (a language model) answered question number `ask`. `error` is set instead of
    `answer` if no usable reply came."""

    ask: int
    pool: str
    answer: str  # raw text, not validated yet
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalAnswered:
    """The rehearsal with that number ended. `rehearsal` None: it could not be made, and `error` says why. `cpu_s`: the
    CPU time that it took, however it ended."""

    number: int
    rehearsal: Rehearsal | None
    error: str = ""
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PlansProposed:
    """Plans were found that could be put in force: by a search, or by a language model whose plans were rehearsed. `by`
    names it."""

    candidates: tuple[PlanCandidate, ...]
    by: str


@dataclass(frozen=True, slots=True)
class PlansSearched:
    """The search with that number ended. `error` says why it found nothing, if it could not be made; without, what runs
    is the best plan. `cpu_s`: the CPU time that it took, however it ended."""

    number: int
    candidates: tuple[PlanCandidate, ...]
    error: str = ""
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PlanPinned:
    """The plan of an operator's file, which outranks those that are proposed; none lifts it."""

    plans: tuple[PoolPlan, ...]


@dataclass(frozen=True, slots=True)
class PlanPinChanged:
    """An operator pinned a plan in the console, or lifted the one that was pinned there. It outranks the file's."""

    pin: PlanPin


@dataclass(frozen=True, slots=True)
class EpochGranted:
    """This process now holds the lease, so that its decisions are published; `epoch` grows with every take-over."""

    epoch: int


@dataclass(frozen=True, slots=True)
class EpochLost:
    """This process no longer holds the lease: another copy of the service publishes."""


@dataclass(frozen=True, slots=True)
class TimerTicked:
    """Time has passed; the agent does what has become due. Shells post this event at a short, fixed period."""


@dataclass(frozen=True, slots=True)
class TopologyRestored:
    """The last decision of a pool, read from the control bucket at the start, from which a new writer goes on."""

    decision: TopologyDecision


@dataclass(frozen=True, slots=True)
class LayoutRestored:
    """The last layout decision of a pool, read from the control bucket at the start."""

    decision: LayoutDecision


@dataclass(frozen=True, slots=True)
class PlanRestored:
    """The last plan decision, read from the control bucket at the start, or another copy's."""

    decision: PlanDecision


@dataclass(frozen=True, slots=True)
class TupleRestored:
    """The last control tuple of a worker, read from the control bucket at the start."""

    control: ControlTuple


@dataclass(frozen=True, slots=True)
class PastRestored:
    """The blocks of a pool's past requests that an earlier owner kept, with their ages of now."""

    pool: str
    blocks: tuple[PastBlock, ...]


QosEvent = WorkerReported | GatewayReported | HeartbeatReceived | PastRestored | EpochGranted | EpochLost | TimerTicked
MetaEvent = (
    ShortViewReceived
    | LongViewReceived
    | SelectorAnswered
    | RehearsalAnswered
    | PinChanged
    | PlansProposed
    | PlansSearched
    | PlanPinned
    | PlanPinChanged
    | HeartbeatReceived
    | TopologyRestored
    | LayoutRestored
    | PlanRestored
    | EpochGranted
    | EpochLost
    | TimerTicked
)
StateraEvent = (
    ShortViewReceived
    | WorkerReported
    | HeartbeatReceived
    | TopologyReceived
    | TupleRestored
    | EpochGranted
    | EpochLost
    | TimerTicked
)


@dataclass(frozen=True, slots=True)
class PublishShort:
    view: VShort


@dataclass(frozen=True, slots=True)
class PublishLong:
    view: VLong


@dataclass(frozen=True, slots=True)
class KeepPast:
    """Keep a block of a pool's past requests, in the place of an earlier one with its number."""

    pool: str
    block: PastBlock


@dataclass(frozen=True, slots=True)
class PublishTopology:
    decision: TopologyDecision


@dataclass(frozen=True, slots=True)
class PublishLayout:
    decision: LayoutDecision


@dataclass(frozen=True, slots=True)
class PublishPlan:
    decision: PlanDecision


@dataclass(frozen=True, slots=True)
class PublishTuple:
    control: ControlTuple


@dataclass(frozen=True, slots=True)
class PublishAudit:
    record: AuditRecord


@dataclass(frozen=True, slots=True)
class PublishGain:
    """Tell what scheduling would bring a pool that is only observed, and keep it for reports."""

    gain: SchedulingGain


@dataclass(frozen=True, slots=True, kw_only=True)
class AskSelector:
    """Ask the language model that serves as selector which topology suits the view. Its reply, an error or a time-out
    after `timeout_s` comes back as `SelectorAnswered` with the same `ask`."""

    ask: int
    view: VLong
    current: TopologyName
    hints: Hints
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearse:
    """Replay the last `window_s` seconds of a pool under what is in force and under each candidate, in a process that
    gives way to all that serves. The outcome comes back as `RehearsalAnswered` with the same `number`, after
    `timeout_s` at the latest."""

    number: int
    pool: str
    window_s: float
    facts: PoolFacts
    in_force: Policy
    candidates: tuple[Policy, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlans:
    """Search for the plan under which the most of the last `window_s` seconds' requests would have been on time, of the
    pools of `standing`, the plan that runs now, within `budgets`, in a process that gives way to all that serves. The
    outcome comes back as `PlansSearched` with the same `number`, after twice `timeout_s` at the latest."""

    number: int
    standing: tuple[PoolPlan, ...]
    catalogue: Catalogue
    budgets: tuple[Budget, ...]
    window_s: float
    timeout_s: float


QosEffect = PublishShort | PublishLong | KeepPast
MetaEffect = (
    PublishTopology | PublishLayout | PublishPlan | PublishAudit | PublishGain | AskSelector | Rehearse | SearchPlans
)
StateraEffect = PublishTuple | PublishAudit
