"""What the meta agent keeps of plans."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from hmas.contracts.pool_plan import (
    Catalogue,
    Group,
    PlanCandidate,
    PlanDecision,
    PlannedType,
    PlanStep,
    PoolPlan,
)
from hmas.contracts.views import VLong
from hmas.laws.engine_census import EngineCensus
from hmas.laws.plan_steps import InstanceCounts
from hmas.meta.agent.config import PlanActs, PlanConfig
from hmas.meta.agent.plans.mix_clock import MixClock
from hmas.meta.agent.rehearsing import CpuBudget

DAY_S = 86_400.0


@dataclass(slots=True, kw_only=True)
class PlanInForce:
    """A plan that was accepted. `observed` is the share on time of each pool then, and `rps` its requests per second.
    `begun`: it has taken an irreversible step. `reclassed` are the pools that got its classes, which are the layout's
    to refine since. `before` is what ran when it was accepted, if it is another plan."""

    candidate: PlanCandidate
    by: str
    accepted_s: float
    observed: Mapping[str, float] = field(default_factory=dict)
    rps: Mapping[str, float] = field(default_factory=dict)
    begun: bool = False
    done_s: float | None = None
    judged: bool = False
    reclassed: set[str] = field(default_factory=set)
    before: tuple[PoolPlan, ...] = ()

    def wanted(self) -> dict[str, int]:
        """Returns how many engines of each type the plan has."""
        return {each.type: each.count for plan in self.candidate.plans for each in plan.groups}


@dataclass(frozen=True, slots=True)
class OpenSearch:
    """A search that was asked for and not answered yet."""

    number: int
    began_s: float
    deadline_s: float


@dataclass(frozen=True, slots=True)
class ToldPlan:
    """What was last published: a plan decision without epoch, number and validity."""

    candidate: PlanCandidate
    steps: tuple[PlanStep, ...]
    ordered: tuple[Group, ...]
    reason: str
    by: str


class PlanState:
    """The plan in force, and what was ordered of each type. `ordered` is empty unless the controller may scale."""

    def __init__(self, config: PlanConfig, catalogue: Catalogue) -> None:
        self.config, self.catalogue = config, catalogue
        self.census = EngineCensus(catalogue)
        self.in_force: PlanInForce | None = None
        self.pins: dict[str, tuple[PoolPlan, ...]] = {}  # an operator's plans, by who pinned them
        self.ordered: dict[str, int] = {}
        self.acted_s: deque[float] = deque()  # when engines were sent away, within a day
        self.misses = 0  # in a row
        self.stopped_until_s = -inf  # after too many of these
        self.unsettled_s: float | None = None  # since when engines start or leave
        self.untouched = True  # this process has accepted nothing yet, so a previous writer's plan still counts
        self.look_s = 0.0
        self.searches = 0  # how many were asked for
        self.open_search: OpenSearch | None = None
        self.search_due_s = 0.0
        self.search_budget = CpuBudget(config.search_cpu_share)
        self.sent_s = float("-inf")
        self.sent: ToldPlan | None = None
        self._mixes: dict[str, MixClock] = {}

    @property
    def pinned(self) -> bool:
        """Whether an operator's plan is in force."""
        return bool(self.pins)

    def see_mix(self, now_s: float, view: VLong) -> None:
        clock = self._mixes.setdefault(view.pool, MixClock(self.config.rate_change, self.config.mix_change))
        clock.see(now_s, view)

    def horizon_s(self, now_s: float, pools: set[str]) -> float:
        """Returns how long a gain in these pools is expected to last: as long as their mix has held, within bounds."""
        held_s = min((self._mixes[each].held_s(now_s) if each in self._mixes else 0.0 for each in pools), default=0.0)
        return min(max(held_s, self.config.least_horizon_s), self.config.most_horizon_s)

    def miss(self, now_s: float) -> None:
        """Counts a plan that brought less than was predicted; after too many in a row nothing is done for a while."""
        self.misses += 1
        if self.misses >= self.config.misses:
            self.misses, self.stopped_until_s = 0, now_s + self.config.stopped_s

    def counts(self, now_s: float) -> dict[str, InstanceCounts]:
        return self.census.counts(now_s, self.ordered)

    def types(self, now_s: float) -> tuple[PlannedType, ...]:
        """Returns the types that the plan in force names, or of which there are engines."""
        named = {*self.counts(now_s), *(self.in_force.wanted() if self.in_force is not None else ())}
        return tuple(
            PlannedType(name=each.name, model=each.model, hardware=each.hardware, gpus=each.gpus)
            for each in self.catalogue.types
            if each.name in named
        )

    def spare(self, name: str) -> int:
        """Returns how many more engines of a type fit into the budget beside what was ordered."""
        kind, types = self.catalogue.named(name), {each.name: each for each in self.catalogue.types}
        cards = sum(each.gpus for each in self.config.budgets if each.hardware == kind.hardware)
        taken = sum(n * types[o].gpus for o, n in self.ordered.items() if types[o].hardware == kind.hardware)
        return (cards - taken) // kind.gpus

    def acted_age_s(self, now_s: float) -> tuple[float, ...]:
        """Returns how long ago engines were sent away within the last day, the oldest first."""
        while self.acted_s and now_s - self.acted_s[0] >= DAY_S:
            self.acted_s.popleft()
        return tuple(now_s - each for each in self.acted_s)

    def take(self, plan: PlanInForce) -> None:
        """Puts a plan in force."""
        self.in_force, self.unsettled_s = plan, None
        self.census.house({each.type: one.pool for one in plan.candidate.plans for each in one.groups})

    def resume(self, now_s: float, decision: PlanDecision) -> None:
        """Goes on from the last decision of a previous writer; under a pin, from what it ordered."""
        candidate = PlanCandidate(
            plans=decision.plans, expected=decision.expected, bound=decision.bound, reason=decision.reason
        )
        orders = self.config.acts is PlanActs.SCALE
        known = {each.name for each in self.catalogue.types}
        self.ordered = {e.type: e.count for e in decision.ordered if e.type in known} if orders else {}
        self.acted_s = deque(sorted(now_s - each for each in decision.acted_age_s))
        # What was ordered may be half done, and must not be left like that: its gain is not weighed again, nor judged.
        begun, plan = bool(self.ordered), self.in_force
        if not self.pinned:
            self.take(
                PlanInForce(
                    candidate=candidate, by=decision.selector, accepted_s=now_s, begun=begun, judged=True,
                    before=decision.before,
                )
            )  # fmt: skip
        elif plan is not None and plan.candidate.plans == decision.plans:
            plan.candidate, plan.before = replace(candidate, reason=plan.candidate.reason), decision.before
