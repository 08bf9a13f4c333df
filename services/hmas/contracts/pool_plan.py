"""Plans: which engines a budget of cards should run.

A plan is desired state, and workers' heartbeats what is; the steps between the two are worked out anew whenever either
changes.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from hmas.contracts.control import Split
from hmas.contracts.step_cost import StepCostModel


class CostOrigin(StrEnum):
    """Where the costs of an instance type come from, the best first."""

    CALIBRATED = "calibrated"  # by the operator, on an engine of this type
    MEASURED = "measured"  # by others, and published
    INTERPOLATED = "interpolated"  # between other numbers of cards
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """One way to run a model: an engine on `gpus` cards of a kind, and what is known of it.

    `step` is the time of its steps, `kv_tokens` the tokens that its KV memory holds, `max_num_seqs` and
    `max_num_batched_tokens` its limits as vLLM's flags of the same names. From the order to start it until it serves,
    `start_s` seconds pass. `usd_h` is its price in US dollars an hour, 0 if that is unknown. `error` is the mean
    relative error of the time per token that `step` makes where it was checked, None if it was not.
    """

    name: str
    model: str
    hardware: str
    gpus: int
    step: StepCostModel
    kv_tokens: int
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    start_s: float = 120.0
    usd_h: float = 0.0
    origin: CostOrigin = CostOrigin.ASSUMED
    error: float | None = None

    def __post_init__(self) -> None:
        if min(self.gpus, self.kv_tokens, self.max_num_seqs, self.max_num_batched_tokens) < 1:
            raise ValueError(
                f"the instance type {self.name}: gpus, kv_tokens, max_num_seqs and max_num_batched_tokens must be at "
                "least 1"
            )
        if min(self.start_s, self.usd_h, self.error or 0.0) < 0.0:
            raise ValueError(f"the instance type {self.name}: start_s, usd_h and error must be 0 or more")


@dataclass(frozen=True, slots=True)
class Budget:
    """The cards of one kind that plans may use."""

    hardware: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The instance types that plans are made of. Their names differ. `source` says where they come from."""

    types: tuple[InstanceType, ...]
    source: str = ""

    def __post_init__(self) -> None:
        names = [each.name for each in self.types]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"the catalogue names {', '.join(twice)} more than once")

    def named(self, name: str) -> InstanceType:
        """Returns the instance type of that name. Raises ValueError that lists the known names."""
        for each in self.types:
            if each.name == name:
                return each
        known = ", ".join(each.name for each in self.types)
        raise ValueError(f"the catalogue has no instance type {name!r}: use one of {known}")


@dataclass(frozen=True, slots=True)
class Group:
    """So many instances of one type."""

    type: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """The engines of one pool, which serves one model, and how its requests share them. Classes of `split` get
    instances in the order of `groups`."""

    pool: str
    groups: tuple[Group, ...]
    split: Split = field(default_factory=Split)


BY_CONSOLE = "console"  # the selector of a plan that was pinned in the console


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPin:
    """An operator's plan for all pools, by `by`. It outranks all others until one without `plans` lifts it."""

    plans: tuple[PoolPlan, ...]
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedType:
    """How an engine of the instance type `name` is known by its heartbeat: its model, and so many cards of a kind."""

    name: str
    model: str
    hardware: str
    gpus: int


class StepKind(StrEnum):
    """What a step towards a plan does, the cheapest first."""

    RECLASS = "reclass"  # other pace classes on the same engines
    SCALE = "scale"  # more engines of a type on free cards, or fewer
    REPLACE = "replace"  # engines of other types leave, because those of a type need their cards


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One step from the engines that run to those of a plan.

    It takes `acts_after_s` seconds until it acts. Meanwhile it takes `lost_gpu_s` seconds of cards from what serves or
    could serve. A reclass names no `type` and can be taken back at once; the others are not `reversible`. They change
    the engines of `type`, which serves `pool`, from `count_from` to `count_to`; before that, the engines of `leaving`
    are drained.
    """

    kind: StepKind
    pool: str
    type: str = ""
    count_from: int = 0
    count_to: int = 0
    leaving: tuple[Group, ...] = ()
    acts_after_s: float = 0.0
    lost_gpu_s: float = 0.0
    reversible: bool = False

    @property
    def sends_away(self) -> bool:
        """Whether engines leave by it."""
        return bool(self.leaving) or self.count_to < self.count_from


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedShare:
    """The share of a pool's requests that a plan is expected to have on time, with the ends of its interval, and
    `before`, the share expected of what runs."""

    pool: str
    share: float
    low: float
    high: float
    before: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCandidate:
    """A plan for all pools that could be put in force. `bound`: no plan within the budget has a greater share of all
    requests on time; 1 if that is unknown."""

    plans: tuple[PoolPlan, ...]
    expected: tuple[ExpectedShare, ...] = ()
    bound: float = 1.0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDecision:
    """The plan of all pools for `valid_for_s` seconds: what is wanted in the end, and the `steps` that are left.

    `ordered` are the engines of each type that an orchestrator should run now. It follows the plan a step at a time,
    and is empty unless the controller may scale. `epoch` and `seq` order decisions; `selector` says who made this one.
    `acted_age_s` are the steps of the last day by which engines left, in s before the decision: a next writer counts
    them, too.
    `acts` says how far the controller follows plans (`HMAS_PLAN`). `before` is what ran when this plan was accepted,
    where that was something else. `types` are the instance types that the plan names, or of which there are engines.
    """

    plans: tuple[PoolPlan, ...]
    expected: tuple[ExpectedShare, ...]
    bound: float
    steps: tuple[PlanStep, ...]
    ordered: tuple[Group, ...]
    epoch: int
    seq: int
    valid_for_s: float
    reason: str
    selector: str
    acted_age_s: tuple[float, ...] = ()
    acts: str = ""
    before: tuple[PoolPlan, ...] = ()
    types: tuple[PlannedType, ...] = ()
