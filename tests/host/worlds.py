"""A host as it is, beside what its arbiter believes: engines that take memory, moves that end, fail or are lost, and an
arbiter that dies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from hmas.contracts.agent import Agent
from hmas.contracts.control_agents import TimerTicked
from hmas.contracts.residency import (
    CardLeased,
    DemandHeard,
    DemandReport,
    EngineDemand,
    EngineSeen,
    HostEffect,
    HostEvent,
    MoveEnded,
    PublishHost,
    Readiness,
    ResidentEngine,
    SleepEngine,
    StartEngine,
    StopEngine,
    WakeEngine,
)
from hmas.host.agent.arbiter import HostArbiter
from hmas.host.agent.config import HostConfig

Arbiter = Agent[HostEvent, HostEffect]
MakeArbiter = Callable[[HostConfig], Arbiter]


def random_host(random: Random) -> HostConfig:
    """Draws one or two cards, and engines each of which fits its card beside the contexts of the others."""
    cards = {f"c{i}": random.choice((24.0, 40.0, 80.0)) for i in range(random.choice((1, 1, 2)))}
    engines: list[ResidentEngine] = []
    wanted = random.randint(2, 7)
    for i in range(40):
        if len(engines) == wanted:
            break
        card = random.choice([*cards])
        drawn = ResidentEngine(
            engine=f"e{i}", card=card, awake_gb=random.uniform(2.0, 36.0), asleep_gb=random.uniform(0.1, 2.0),
            sleep_s=random.uniform(0.1, 3.0), wake_s=random.uniform(0.2, 3.0), start_s=random.uniform(20.0, 60.0),
            interrupts=random.random() < 0.8,
        )  # fmt: skip
        try:
            HostConfig(host="h", cards=cards, engines=(*engines, drawn))
        except ValueError:
            continue
        engines.append(drawn)
    return HostConfig(host="h", cards=cards, engines=tuple(engines))


@dataclass
class World:
    """What really is: the state of each engine, and what each was asked for and has not done yet."""

    config: HostConfig
    make: MakeArbiter = HostArbiter
    now_s: float = 0.0
    real: dict[str, Readiness] = field(default_factory=dict)
    asked: dict[str, tuple[float, Readiness]] = field(default_factory=dict)
    inherited: set[str] = field(default_factory=set)  # asked by an arbiter that is dead
    told: dict[str, Readiness] = field(default_factory=dict)
    done: list[HostEffect] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engines = {each.engine: each for each in self.config.engines}
        self.real = {name: self.real.get(name, Readiness.ASLEEP) for name in self.engines}
        self.arbiter = self.make(self.config)
        self.begin(epoch=1)

    def begin(self, epoch: int) -> None:
        for card in self.config.cards:
            self.step(CardLeased(card, epoch))
        for name in self.engines:
            self.see(name)

    def restart(self, epoch: int) -> None:
        """The arbiter dies; another one has the leases, and knows nothing."""
        self.arbiter = self.make(self.config)
        self.inherited = set(self.asked)
        self.begin(epoch)

    def held_gb(self, card: str) -> float:
        """What the engines of a card may take at this instant at most."""
        return sum(
            0.0 if self.real[name] is Readiness.COLD and name not in self.asked
            else each.asleep_gb if self.real[name] is Readiness.ASLEEP and name not in self.asked
            else each.awake_gb
            for name, each in self.engines.items() if each.card == card
        )  # fmt: skip

    def overfull(self) -> list[str]:
        return [card for card, total_gb in self.config.cards.items() if self.held_gb(card) > total_gb + 1e-9]

    def step(self, event: HostEvent) -> None:
        effects = self.arbiter.step(self.now_s, event)
        self.done += effects
        for effect in effects:
            if isinstance(effect, PublishHost):
                self.told = {each.engine: each.readiness for each in effect.report.engines}
        for effect in effects:
            match effect:
                case StartEngine(name):
                    self._ask(name, Readiness.AWAKE, {Readiness.COLD})
                case WakeEngine(name):
                    self._ask(name, Readiness.AWAKE, {Readiness.ASLEEP})
                case SleepEngine(name):
                    self._ask(name, Readiness.ASLEEP, {Readiness.AWAKE})
                case StopEngine(name):
                    self.crash(name)

    def _ask(self, name: str, wanted: Readiness, allowed: set[Readiness]) -> None:
        assert name not in self.asked, f"{name} was asked for two things at once"
        assert self.real[name] in allowed, f"{name} is {self.real[name]} and was asked to become {wanted}"
        card = self.engines[name].card
        given_up = {other for other in self.asked if self.told.get(other) is Readiness.FAILED}
        beside = [other for other in self.asked if self.engines[other].card == card and other not in given_up]
        assert not beside, f"{name} and {beside} of one card move at once"
        self.asked[name] = self.now_s, wanted

    def see(self, name: str) -> None:
        """An engine says what it is. No shell posts that while the engine's metrics tell of an operation in flight;
        here one does all the same where the arbiter itself has asked for that operation and waits for it."""
        starts = self.real[name] is Readiness.COLD  # whose process runs, so that it is not seen cold
        given_up = name in self.inherited or self.told.get(name) is Readiness.FAILED
        if name not in self.asked or not (starts or given_up):
            self.step(EngineSeen(name, self.real[name]))

    def end(self, name: str, *, ok: bool = True) -> None:
        """What an engine was asked for has ended; without success it is what it was."""
        begun_s, wanted = self.asked.pop(name)
        if ok:
            self.real[name] = wanted
        if name in self.inherited:
            self.inherited.discard(name)
            self.see(name)
            return
        self.step(MoveEnded(name, ok, self.now_s - begun_s))

    def vanish(self, name: str) -> None:
        """What an engine was asked for has ended, and its answer is lost."""
        _, self.real[name] = self.asked.pop(name)
        self.inherited.discard(name)

    def crash(self, name: str) -> None:
        self.asked.pop(name, None)
        self.inherited.discard(name)
        self.real[name] = Readiness.COLD
        self.see(name)

    def tick(self, seconds: float) -> None:
        self.now_s += seconds
        self.step(TimerTicked())

    def report(self, worker: str, demands: Sequence[EngineDemand]) -> None:
        self.step(DemandHeard(DemandReport(worker, tuple(demands))))


def random_demand(random: Random, engine: str) -> EngineDemand:
    def some(most_s: float) -> tuple[float, ...]:
        return tuple(sorted(random.uniform(0.0, most_s) for _ in range(random.choice((0, 0, 1, 3)))))

    return EngineDemand(
        engine=engine, latest_s=some(90.0), late=random.choice((0, 0, 0, 2)),
        oldest_s=random.choice((1.0, 30.0, 700.0)), serve_s=random.uniform(0.0, 20.0), spare_s=some(200.0),
        late_runs=random.choice((0, 0, 1)), drain_s=random.uniform(0.0, 60.0),
    )  # fmt: skip


def live_through(world: World, random: Random, steps: int) -> int | None:
    """Lets things happen to a host. Returns after which of them a card held more than it has, None if none ever did."""
    names = [*world.engines]
    for number in range(steps):
        act = random.random()
        if act < 0.35:
            wanted = random.sample(names, random.randint(0, len(names)))
            world.report(random.choice("vw"), [random_demand(random, name) for name in wanted])
        elif act < 0.75 and world.asked:
            world.now_s += random.uniform(0.0, 4.0)
            world.end(random.choice([*world.asked]), ok=random.random() < 0.93)
        elif act < 0.85:
            world.tick(random.choice((0.25, 1.0, 5.0, 60.0)))
        elif act < 0.95:
            world.see(random.choice(names))
        elif act < 0.965:
            world.restart(number)
        elif act < 0.98:
            world.crash(random.choice(names))
        elif world.asked:
            world.vanish(random.choice([*world.asked]))
        if world.overfull():
            return number
    return None
