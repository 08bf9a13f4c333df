"""The cells of the second judge: one model on so many cards, asked for with one SLO class and with two, and plans for
them that both simulators can express."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from experiments.plans.cases import MODELS, kinds_of
from hmas.contracts.control import Split
from hmas.contracts.pool_plan import InstanceType
from hmas.contracts.request import Slo
from hmas.laws.layout import pace_class
from hmas.laws.placement.demand import USUAL, in_order
from hmas.sim.workload import OfferedRequest, Workload
from hmas_lab.placement.traces import PoolTraffic, alone_step_s, traffic_workload

POOL, MODEL = "llama", MODELS["llama"]
OUTSIDE = {"model": "nvidia/Llama-3.1-70B-Instruct-FP8", "hardware": "h100_sxm", "backend": "vllm"}
TTFT_S = 2.0
SAMPLE = 901  # the seed of the requests on which plans are made
SAMPLE_S = 50.0
SECONDS, JUDGED_S = 60.0, 25.0  # of a judged run; requests that come after the second are judged
ONE, TWO = "one class", "two classes"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCell:
    """`rate_rps` requests per second of a trace on `cards` cards. `slos_s` has the TPOT SLO of each class in s, the
    strict one first: the trace's short answers are strict, its long ones lax. One class: all requests have it."""

    name: str
    trace: str
    rate_rps: float
    cards: int
    slos_s: tuple[float, ...]

    @property
    def classes(self) -> str:
        return ONE if len(self.slos_s) == 1 else TWO

    @property
    def title(self) -> str:
        slos = " and ".join(f"{1000 * slo_s:g}" for slo_s in self.slos_s)
        return f"{self.name}, {self.classes} ({slos} ms)"

    @property
    def cuts_s(self) -> tuple[float, ...]:
        """The cuts between the classes."""
        return self.slos_s[:-1]

    def workload(self, seconds: float, seed: int) -> Workload:
        """Returns the requests, which differ between one class and two in their SLOs alone."""
        traffic = PoolTraffic(
            pool=POOL, trace=self.trace, rate_rps=self.rate_rps, alone_s=alone_step_s(kinds()[0].step), ttft_s=TTFT_S
        )
        drawn = traffic_workload((traffic,), seconds, seed)
        return replace(drawn, requests=tuple(self._stated(each, traffic.alone_s) for each in drawn.requests))

    def _stated(self, each: OfferedRequest, tight_s: float) -> OfferedRequest:
        """Returns a request with the SLO of its class. Those of the trace's tight part ask for `tight_s` or less."""
        slo = Slo(TTFT_S, self.slos_s[0] if each.slo.tpot_s <= tight_s else self.slos_s[-1])
        return replace(each, slo=slo, request=replace(each.request, slo=slo))


NEAR = JudgedCell(name="8 cards, t4", trace="t4", rate_rps=8.4, cards=8, slos_s=(0.015, 0.023))
FAR = JudgedCell(name="8 cards, t9", trace="t9", rate_rps=23.0, cards=8, slos_s=(0.023, 0.1))
CELLS = (replace(NEAR, slos_s=(0.017,)), NEAR, replace(FAR, slos_s=(0.035,)), FAR)


def kinds() -> tuple[InstanceType, ...]:
    """Returns the shipped catalogue's types of the model, those with the fewest cards first."""
    return kinds_of(POOL)


@dataclass(frozen=True, slots=True)
class JudgedPlan:
    """Engines by their cards, in the order in which the classes between `cuts_s` get `counts` of them; without cuts,
    all requests share all engines."""

    cards: tuple[int, ...]
    cuts_s: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    @property
    def split(self) -> Split:
        return Split(self.cuts_s, self.counts)

    @property
    def engines(self) -> list[InstanceType]:
        named = {kind.gpus: kind for kind in kinds()}
        return [named[cards] for cards in self.cards]

    @property
    def told(self) -> str:
        """The engines in words: `2 x 4 / 4 x 2` are two engines of four cards for the strict class, and four of two
        cards for the lax one."""
        return " / ".join(_counted(own) for own in self.by_class)

    @property
    def by_class(self) -> list[tuple[int, ...]]:
        found, first = [], 0
        for count in self.counts or (len(self.cards),):
            found.append(self.cards[first : first + count])
            first += count
        return found


def _counted(cards: Sequence[int]) -> str:
    return " + ".join(f"{cards.count(size)} x {size}" for size in dict.fromkeys(cards))


def in_class_order(plan: JudgedPlan) -> JudgedPlan:
    """Returns the plan with its engines in the order of their steps, in which our layouts name them."""
    ordered = in_order(plan.engines)
    return replace(plan, cards=tuple(kind.gpus for kind in ordered))


@dataclass(frozen=True, slots=True)
class Deployment:
    """What one deployment of AISimulate can be: `replicas` engines of `tensor` cards each, which get the requests at
    the places `requests` of a workload in turn."""

    tensor: int
    replicas: int
    requests: tuple[int, ...]


def deployments(plan: JudgedPlan, workload: Workload) -> list[Deployment]:
    """Returns the plan as deployments of engines that are alike, each with its part of the workload. Requests go to the
    engines of their class; where these differ in size, they are dealt out by how fast their engines step."""
    found = []
    for number, own in enumerate(plan.by_class):
        places = [
            place for place, each in enumerate(workload.requests) if pace_class(plan.cuts_s, each.slo.tpot_s) == number
        ]
        sizes = {size: own.count(size) for size in dict.fromkeys(own)}
        for size, part in _dealt(places, sizes).items():
            found.append(Deployment(size, sizes[size], tuple(part)))
    return found


def _dealt(places: Sequence[int], sizes: dict[int, int]) -> dict[int, list[int]]:
    """Deals out requests to the engines of each size, by turns that are weighted by the speed of their steps."""
    named = {kind.gpus: kind for kind in kinds()}
    usual_s = {size: named[size].step.step_s(*USUAL, 0.0) for size in sizes}
    weights = {size: count / usual_s[size] for size, count in sizes.items()}
    total, due = sum(weights.values()), dict.fromkeys(sizes, 0.0)
    found: dict[int, list[int]] = {size: [] for size in sizes}
    for place in places:
        for size in sizes:
            due[size] += weights[size] / total
        chosen = max(sizes, key=lambda size: due[size])
        due[chosen] -= 1.0
        found[chosen].append(place)
    return found
