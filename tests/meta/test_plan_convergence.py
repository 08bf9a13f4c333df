"""The engines become those of a plan, whatever runs at first and whatever happens on the way: the agent beside an
orchestrator that does what is ordered, late and with losses."""

from dataclasses import dataclass, field, replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.control_agents import (
    EpochGranted,
    LongViewReceived,
    MetaEvent,
    PlanPinned,
    PlanRestored,
    TimerTicked,
)
from hmas.contracts.pool_plan import Group, PlanDecision, PoolPlan
from hmas.contracts.registry import HeartbeatReceived
from hmas.meta.agent import MetaAgent
from hmas.meta.agent.config import LayoutConfig, MetaConfig
from tests.builders.instance_types import CATALOGUE
from tests.builders.registry import worker_heartbeat
from tests.laws.test_plan_steps import COUNTS, HOMES
from tests.meta.test_meta_plans import SCALE, VIEW, decisions, engine

GPUS = {each.name: each.gpus for each in CATALOGUE.types}
CONFIG = MetaConfig(plan=replace(SCALE, steps_a_day=1000), layout=LayoutConfig(adaptive=False))


@dataclass(slots=True)
class Pod:
    """An engine of the orchestrator: it comes up after some seconds, and holds its cards until its answers have
    ended."""

    name: str
    kind: str
    up_s: float
    gone_s: float | None = None


@dataclass(slots=True)
class Orchestrator:
    """Runs as many pods of each type as are ordered, as a StatefulSet does: the newest leaves first, and drains. It
    starts a pod only when there are cards for it."""

    chance: Random
    pods: list[Pod] = field(default_factory=list)
    ordered: dict[str, int] = field(default_factory=dict)
    started: int = 0

    def start(self, now_s: float, kind: str, takes_s: float) -> None:
        self.started += 1
        self.pods.append(Pod(f"e{self.started}", kind, now_s + takes_s))

    def cards(self) -> int:
        return sum(GPUS[pod.kind] for pod in self.pods)

    def work(self, now_s: float) -> None:
        self.pods = [pod for pod in self.pods if pod.gone_s is None or now_s < pod.gone_s]
        for kind, count in self.ordered.items():
            staying = [pod for pod in self.pods if pod.kind == kind and pod.gone_s is None]
            for pod in staying[count:]:
                pod.gone_s = now_s + self.chance.uniform(1.0, 90.0)
            for _ in range(count - len(staying)):
                if self.cards() + GPUS[kind] <= 8:
                    self.start(now_s, kind, self.chance.uniform(5.0, 120.0))


class World:
    """The agent and the orchestrator, second by second. Decisions are lost, the agent is killed, engines go down and an
    operator changes replicas until `calm_s`."""

    def __init__(self, now: dict[str, int], then: dict[str, int], seed: int, calm_s: float) -> None:
        self.chance, self.calm_s = Random(seed), calm_s
        self.orchestrator = Orchestrator(Random(seed + 1))
        for kind, count in now.items():
            for _ in range(count):
                self.orchestrator.start(0.0, kind, 0.0)
        self.plan = PlanPinned(tuple(
            PoolPlan(pool=pool, groups=tuple(Group(n, k) for n, k in then.items() if HOMES[n] == pool))
            for pool in ("m", "n") if any(k for n, k in then.items() if HOMES[n] == pool)
        ))  # fmt: skip
        self.kept: PlanDecision | None = None
        self.epoch, self.now_s = 0, 0.0
        self.down: dict[str, float] = {}
        self.begin()

    def begin(self) -> None:
        """Starts the agent, or starts it again: it reads the bucket and the operator's file."""
        self.epoch += 1
        self.agent = MetaAgent(CONFIG)
        if self.kept is not None:
            self.agent.step(self.now_s, PlanRestored(self.kept))
        self.agent.step(self.now_s, EpochGranted(self.epoch))
        self.agent.step(self.now_s, self.plan)

    def beats(self) -> list[HeartbeatReceived]:
        pods = [pod for pod in self.orchestrator.pods if pod.up_s <= self.now_s]
        found = []
        for pool in ("m", "n"):
            engines = tuple(
                engine(pod.name, pod.kind, up=pod.gone_s is None and self.down.get(pod.name, 0.0) <= self.now_s)
                for pod in pods
                if HOMES[pod.kind] == pool
            )
            found.append(HeartbeatReceived(worker_heartbeat(f"w-{pool}", pool=pool, engines=engines)))
        return found

    def second(self) -> None:
        self.now_s += 1.0
        troubled = self.now_s < self.calm_s
        if troubled and self.chance.random() < 0.02:
            self.begin()
        if troubled and self.chance.random() < 0.02 and self.orchestrator.pods:
            self.down[self.chance.choice(self.orchestrator.pods).name] = self.now_s + self.chance.uniform(1.0, 60.0)
        views = [LongViewReceived(replace(VIEW, pool=pool)) for pool in ("m", "n")]
        events: list[MetaEvent] = [*self.beats(), *views, TimerTicked()]
        effects = [each for event in events for each in self.agent.step(self.now_s, event)]
        for decision in decisions(effects):
            assert sum(GPUS[each.type] * each.count for each in decision.ordered) <= 8
            self.kept = decision
            if not troubled or self.chance.random() < 0.7:  # otherwise it is lost on the way
                self.obey(decision)
        if troubled and self.chance.random() < 0.02 and self.orchestrator.ordered:  # kubectl scale
            kind = self.chance.choice(sorted(self.orchestrator.ordered))
            self.orchestrator.ordered[kind] = self.chance.randint(0, 2)
        self.orchestrator.work(self.now_s)
        assert self.orchestrator.cards() <= 8

    def obey(self, decision: PlanDecision) -> None:
        self.orchestrator.ordered |= {each.type: each.count for each in decision.ordered}

    def engines(self) -> dict[str, int]:
        counts = dict.fromkeys(HOMES, 0)
        for pod in self.orchestrator.pods:
            counts[pod.kind] += 1
        return counts


@given(
    COUNTS.filter(lambda c: any(c.values())), COUNTS.filter(lambda c: c["other2"] and c["tp1"]), st.integers(0, 2**32)
)
def test_the_engines_become_those_of_the_plan_whatever_happens_on_the_way(
    now: dict[str, int], then: dict[str, int], seed: int
) -> None:
    world = World(now, then, seed, calm_s=300.0)
    for _ in range(3000):
        world.second()
        if world.now_s > world.calm_s and world.engines() == then and world.kept and not world.kept.steps:
            break
    assert world.engines() == then


@given(
    COUNTS.filter(lambda c: any(c.values())), COUNTS.filter(lambda c: c["other2"] and c["tp1"]), st.integers(0, 2**32)
)
def test_no_card_is_promised_twice_while_engines_drain(now: dict[str, int], then: dict[str, int], seed: int) -> None:
    """Without losses nothing waits for cards: whatever is ordered can start at once."""
    world = World(now, then, seed, calm_s=0.0)
    for _ in range(1500):
        world.second()
        waiting = {
            kind: count - sum(pod.kind == kind and pod.gone_s is None for pod in world.orchestrator.pods)
            for kind, count in world.orchestrator.ordered.items()
        }
        assert max(waiting.values(), default=0) <= 0
        if world.engines() == then:
            break
    assert world.engines() == then
