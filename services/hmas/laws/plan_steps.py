"""The steps from the engines that run to those of a plan, worked out from scratch each time.

Nothing is remembered between two calls, so that a step that was lost, a restart or an operator's change of replicas is
just another difference.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hmas.contracts.control import Split
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.pool_plan import (
    Budget,
    Catalogue,
    Group,
    InstanceType,
    PlannedType,
    PlanStep,
    PoolPlan,
    StepKind,
)

RECLASS_S = 1.0  # until workers obey a new layout


@dataclass(frozen=True, slots=True)
class InstanceCounts:
    """The engines of one type: those that serve and stay, those that were ordered and do not serve yet, and those that
    still hold their cards although they were not ordered. Down engines count as starting, because they come back."""

    pool: str
    up: int = 0
    starting: int = 0
    leaving: int = 0

    @property
    def ordered(self) -> int:
        return self.up + self.starting

    @property
    def held(self) -> int:
        """How many engines of the type may hold cards now."""
        return self.up + self.starting + self.leaving

    @property
    def settled(self) -> bool:
        return not self.starting and not self.leaving


def counted(pool: str, ordered: int, up: int, away: int) -> InstanceCounts:
    """Returns the counts of a type of which `ordered` engines should run, `up` serve, and `away` are known and do not
    serve, because they drain or are down."""
    return InstanceCounts(pool, min(up, ordered), max(0, ordered - up), max(0, up + away - ordered))


def type_named_by(catalogue: Catalogue, kind: EngineKind, pool: str) -> InstanceType | None:
    """Returns the instance type of an engine of a pool, which its model and hardware tell; None if the catalogue has
    none."""
    return next((each for each in catalogue.types if _is_of(each, kind, pool)), None)


def told_type(types: Iterable[PlannedType], kind: EngineKind, pool: str) -> str:
    """Returns the name of the instance type of an engine of a pool, by what a decision tells of types; empty if it
    tells of none like that."""
    return next((each.name for each in types if _is_of(each, kind, pool)), "")


def _is_of(each: InstanceType | PlannedType, kind: EngineKind, pool: str) -> bool:
    """Whether an engine is of that type. Its hardware is a card and how many, such as H100x2; one needs no number."""
    hardware, card = kind.hardware.casefold(), each.hardware.casefold()
    cards = hardware == f"{card}x{each.gpus}" or (each.gpus == 1 and hardware == card)
    return cards and each.model == (kind.model or pool)


def alike_types(catalogue: Catalogue) -> tuple[str, str] | None:
    """Returns the names of two types whose engines cannot be told apart, because they have the model, the card and the
    number of cards in common; None if there are none."""
    seen: dict[tuple[str, str, int], str] = {}
    for each in catalogue.types:
        other = seen.setdefault((each.model, each.hardware.casefold(), each.gpus), each.name)
        if other != each.name:
            return other, each.name
    return None


def plan_fault(plans: Sequence[PoolPlan], catalogue: Catalogue, budgets: Iterable[Budget]) -> str:
    """Returns why plans cannot be carried out: a type that is unknown or in two pools, a pool without engines or named
    twice, a split of other engines, or more cards than the budget has. Empty: they can."""
    types = {each.name: each for each in catalogue.types}
    cards = {each.hardware: each.gpus for each in budgets}
    used, homes = Counter[str](), dict[str, str]()
    for plan in plans:
        if sum(each.count for each in plan.groups if each.count > 0) < 1:
            return f"the pool {plan.pool} has no engines"
        if any(plan.pool == other for other in homes.values()):
            return f"the pool {plan.pool} is planned twice"
        for group in plan.groups:
            if group.type not in types:
                return f"the catalogue has no instance type {group.type}"
            if group.count < 0 or group.type in homes:
                return f"the type {group.type} is counted below 0 or named twice"
            homes[group.type] = plan.pool
            used[types[group.type].hardware] += group.count * types[group.type].gpus
        if plan.split.cuts_s and sum(plan.split.engines) != sum(each.count for each in plan.groups):
            return f"the split of the pool {plan.pool} is one of {sum(plan.split.engines)} engines"
    for hardware, number in used.items():
        if number > cards.get(hardware, 0):
            return f"it takes {number} {hardware}, and the budget has {cards.get(hardware, 0)}"
    return ""


def steps_towards(
    plans: Sequence[PoolPlan],
    catalogue: Catalogue,
    budgets: Iterable[Budget],
    observed: Mapping[str, InstanceCounts],
    splits: Mapping[str, Split],
    drain_s: float,
) -> tuple[PlanStep, ...]:
    """Returns the steps to plans that have no fault, the cheapest first; none where all is as planned.

    `observed` has the counts of each type, by its name. Pools without a plan keep what they have. `splits` are those in
    force by pool; one that is left out is not to be changed. A draining engine is expected to need `drain_s` seconds.
    """
    difference = _Difference(plans, catalogue, budgets, observed, drain_s)
    return (*_reclasses(plans, observed, splits), *difference.steps())


def requests_lost(steps: Iterable[PlanStep], rps: float, gpus: int) -> float:
    """Returns how many requests the cards would have served that the steps take: of `rps` a second on `gpus` cards."""
    return sum(step.lost_gpu_s for step in steps) * rps / gpus if gpus else 0.0


def _reclasses(
    plans: Iterable[PoolPlan], observed: Mapping[str, InstanceCounts], splits: Mapping[str, Split]
) -> list[PlanStep]:
    """Returns the changes of classes for which the engines are there."""
    found = []
    for plan in plans:
        up = sum(each.up for each in observed.values() if each.pool == plan.pool)
        fits = not plan.split.cuts_s or sum(plan.split.engines) == up
        if fits and splits.get(plan.pool, plan.split) != plan.split:
            found.append(PlanStep(kind=StepKind.RECLASS, pool=plan.pool, acts_after_s=RECLASS_S, reversible=True))
    return found


class _Difference:
    """What is left of the difference between plans and what was ordered, while steps are taken from it."""

    def __init__(
        self,
        plans: Sequence[PoolPlan],
        catalogue: Catalogue,
        budgets: Iterable[Budget],
        observed: Mapping[str, InstanceCounts],
        drain_s: float,
    ) -> None:
        self._types = {each.name: each for each in catalogue.types}
        self._pools = {each.type: plan.pool for plan in plans for each in plan.groups}
        self._now = {name: each.ordered for name, each in observed.items()}
        self._drain_s = drain_s
        self._free = Counter({each.hardware: each.gpus for each in budgets})
        for name, each in observed.items():
            self._free[self._types[name].hardware] -= each.held * self._types[name].gpus
        wanted = {each.type: each.count for plan in plans for each in plan.groups}
        planned = {plan.pool for plan in plans}
        for name, each in observed.items():
            if each.pool in planned:
                self._pools.setdefault(name, each.pool)
                wanted.setdefault(name, 0)
        change = {name: count - self._now.get(name, 0) for name, count in wanted.items()}
        self._more = {name: number for name, number in change.items() if number > 0}
        self._fewer = {name: -number for name, number in change.items() if number < 0}

    def steps(self) -> list[PlanStep]:
        more = [self._scaled(name, number) for name in self._more if (number := self._on_free_cards(name))]
        replaced = [step for name in self._more for step in self._replaced(name)]
        fewer = [self._scaled(name, -number) for name, number in self._fewer.items() if number]
        return [*more, *fewer, *replaced]

    def _on_free_cards(self, name: str) -> int:
        """Returns how many engines of a type can start on free cards, and takes these."""
        kind = self._types[name]
        number = min(self._more[name], max(0, self._free[kind.hardware]) // kind.gpus)
        self._more[name] -= number
        self._free[kind.hardware] -= number * kind.gpus
        return number

    def _scaled(self, name: str, number: int) -> PlanStep:
        kind, before = self._types[name], self._now.get(name, 0)
        self._now[name] = before + number
        takes_s = kind.start_s if number > 0 else self._drain_s
        return PlanStep(
            kind=StepKind.SCALE,
            pool=self._pools[name],
            type=name,
            count_from=before,
            count_to=before + number,
            acts_after_s=takes_s,
            lost_gpu_s=abs(number) * kind.gpus * takes_s,
        )

    def _replaced(self, name: str) -> list[PlanStep]:
        found = [self._scaled(name, number)] if (number := self._on_free_cards(name)) else []  # left by one before
        while self._more[name] and (leaving := self._room_for(self._types[name])):
            number = self._on_free_cards(name)
            cards = sum(count * self._types[each].gpus for each, count in leaving.items())
            step = self._scaled(name, number)
            taken = max(cards, number * self._types[name].gpus)
            found.append(
                replace(
                    step,
                    kind=StepKind.REPLACE,
                    leaving=tuple(Group(each, count) for each, count in leaving.items()),
                    acts_after_s=self._drain_s + step.acts_after_s,
                    lost_gpu_s=cards * self._drain_s + taken * step.acts_after_s,
                )
            )
        return found

    def _room_for(self, kind: InstanceType) -> Counter[str]:
        """Takes the fewest engines away that make room for one more of that type, and returns them; none if that is
        impossible."""
        leaving, missing = Counter[str](), kind.gpus - self._free[kind.hardware]
        left = {n: k for n, k in self._fewer.items() if k and self._types[n].hardware == kind.hardware}
        while missing > 0:
            # The smallest one that is enough, otherwise the largest.
            sizes = {n: self._types[n].gpus for n in left if left[n] > leaving[n]}
            if not sizes:
                return Counter()
            enough = [n for n, gpus in sizes.items() if gpus >= missing]
            chosen = min(enough, key=sizes.__getitem__) if enough else max(sizes, key=sizes.__getitem__)
            leaving[chosen] += 1
            missing -= sizes[chosen]
        for name, number in leaving.items():
            self._fewer[name] -= number
            self._free[kind.hardware] += number * self._types[name].gpus
        return leaving


def plans_of(counts: Mapping[str, InstanceCounts], splits: Mapping[str, Split]) -> tuple[PoolPlan, ...]:
    """Returns the plan that keeps what is ordered, and the splits in force where they are of as many engines."""
    found = []
    for pool in sorted({each.pool for each in counts.values()}):
        groups = tuple(Group(n, each.ordered) for n, each in counts.items() if each.pool == pool and each.ordered)
        split = splits.get(pool, Split())
        fits = sum(split.engines) == sum(each.count for each in groups)
        found.append(PoolPlan(pool=pool, groups=groups, split=split if fits else Split()))
    return tuple(found)


def alike_plans(one: Iterable[PoolPlan], other: Iterable[PoolPlan]) -> bool:
    """Whether two plans have the same engines and the same classes, in whatever order their types stand."""

    def content(plans: Iterable[PoolPlan]) -> dict[str, tuple[dict[str, int], Split]]:
        return {each.pool: ({g.type: g.count for g in each.groups if g.count}, each.split) for each in plans}

    return content(one) == content(other)


def described_plans(plans: Iterable[PoolPlan]) -> str:
    """Returns plans in words, such as "m: 1 tp4, 2 tp2; n: 1 tp8"."""
    return "; ".join(f"{each.pool}: {_described(each.groups)}" for each in plans)


def described_step(step: PlanStep) -> str:
    """Returns an irreversible step in words, such as "tp2: 0 to 2, once 1 tp4 left"."""
    then = f", once {_described(step.leaving)} left" if step.leaving else ""
    return f"{step.type}: {step.count_from} to {step.count_to}{then}"


def _described(groups: Iterable[Group]) -> str:
    return ", ".join(f"{each.count} {each.type}" for each in groups)
