"""The arbiter: it hears what waits and what engines are, and moves engines, one of a card at a time."""

from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from hmas.contracts.control_agents import TimerTicked
from hmas.contracts.residency import (
    MAX_CALLERS,
    CardLeased,
    CardLost,
    DemandHeard,
    DemandReport,
    EngineDemand,
    EngineSeen,
    HostEffect,
    HostEvent,
    HostReport,
    MoveEnded,
    PublishHost,
    Readiness,
    RecordSwitch,
    SleepEngine,
    StartEngine,
    StopEngine,
    WakeEngine,
)
from hmas.host.agent.card_books import CardBooks, ResidentBooks
from hmas.host.agent.config import HostConfig
from hmas.host.agent.machine import MOVING, STABLE, Signal
from hmas.laws.model_places import ResidencyLaw, Resident, Switch, fewest, next_switch


class HostArbiter:
    """Decides for all cards of a host, by `law`. It needs a `TimerTicked` at least every `report_s`."""

    def __init__(self, config: HostConfig, law: ResidencyLaw = next_switch) -> None:
        self._config, self._law = config, law
        self._engines = {each.engine: ResidentBooks(each) for each in config.engines}
        self._cards = {
            card: CardBooks(card, total_gb, [each for each in self._engines.values() if each.engine.card == card])
            for card, total_gb in config.cards.items()
        }
        self._reports: dict[str, tuple[float, DemandReport]] = {}
        self._published_s: float | None = None

    def step(self, now_s: float, event: HostEvent) -> list[HostEffect]:
        effects: list[HostEffect] = []
        before = {name: each.readiness for name, each in self._engines.items()}
        match event:
            case DemandHeard(report):
                self._heard(now_s, report)
            case EngineSeen(engine, readiness):
                effects += self._saw(now_s, engine, readiness)
            case MoveEnded():
                effects += self._ended(now_s, event)
            case CardLeased(card, epoch):
                if card in self._cards:
                    self._cards[card].epoch = epoch
            case CardLost(card):
                if card in self._cards:
                    self._cards[card].epoch = self._cards[card].aim = None
            case TimerTicked():
                effects += self._overdue(now_s)
            case _:
                assert_never(event)
        for books in self._cards.values():
            effects += self._move(now_s, books)
        return effects + self._publish(now_s, before)

    # --- what is heard

    def _heard(self, now_s: float, report: DemandReport) -> None:
        self._reports[report.worker] = now_s, report
        for demand in report.demands:
            books = self._engines.get(demand.engine)
            if books is None:
                continue
            if demand.runs or not demand.waits:
                books.fresh = False
            if books.readiness is Readiness.AWAKE and (demand.waits or demand.runs):
                books.used_s = now_s

    def _saw(self, now_s: float, engine: str, readiness: Readiness) -> list[HostEffect]:
        """Believes an engine about itself, except what a move that has not ended yet explains."""
        books = self._engines.get(engine)
        if books is None or readiness not in STABLE:
            return []
        if books.readiness in MOVING and readiness is not Readiness.COLD:
            return []
        same = readiness is books.readiness or (books.readiness, readiness) == (Readiness.DRAINING, Readiness.AWAKE)
        if books.seen and same:
            return []
        first, books.seen = not books.seen, True
        recovered = books.readiness is Readiness.FAILED
        books.enter(now_s, readiness)
        if first or recovered:
            return []
        card = self._cards[books.engine.card]
        card.aim = None
        if readiness is not Readiness.COLD:
            books.foreign_until_s = now_s + self._config.foreign_s
        return [_foreign(card.card, engine, readiness)]

    def _ended(self, now_s: float, event: MoveEnded) -> list[HostEffect]:
        books = self._engines.get(event.engine)
        if books is None or books.readiness not in MOVING:
            return []  # it was given up before
        card = self._cards[books.engine.card]
        card.moves.append((books.since_s, now_s))
        if not event.ok:
            return self._fail(now_s, books, event.message or "it was refused")
        woken = books.readiness is not Readiness.FALLING
        books.took(event.seconds)
        books.go(now_s, Signal.DONE)
        if woken:
            books.fresh, books.used_s = self._demand(now_s, books.name).waits, now_s
            if card.aim is not None and card.aim.target == books.name:
                card.aim = None
        return []

    def _fail(self, now_s: float, books: ResidentBooks, message: str) -> list[HostEffect]:
        move = books.readiness
        books.go(now_s, Signal.FAIL)
        card = self._cards[books.engine.card]
        card.aim = None
        reason = f"{books.name} was {move.value} and failed: {message}"
        return [RecordSwitch(card=card.card, target=books.name, victims=(), gained=0, hurt=0, reason=reason)]

    def _overdue(self, now_s: float) -> list[HostEffect]:
        """Gives up moves that never ended, and has engines stopped of which nobody knows what they are."""
        effects: list[HostEffect] = []
        for books in self._engines.values():
            epoch = self._cards[books.engine.card].epoch
            if books.is_overdue(now_s, self._config):
                effects += self._fail(now_s, books, f"no answer for {now_s - books.since_s:.0f} s")
            lost = books.seen and books.readiness is Readiness.FAILED and not books.stopped
            if lost and epoch is not None and now_s - books.since_s >= self._config.recycle_after_s:
                books.stopped = True
                effects.append(StopEngine(books.name, epoch))
        return effects

    # --- demand

    def _demand(self, now_s: float, engine: str) -> EngineDemand:
        """Returns what all workers have for an engine, by the time that has passed since they said so."""
        found = [
            _aged(demand, now_s - heard_s)
            for heard_s, report in self._reports.values()
            if now_s - heard_s <= self._config.demand_expiry_s
            for demand in report.demands
            if demand.engine == engine
        ]
        return found[0] if len(found) == 1 else _together(engine, found)

    def _residents(self, now_s: float, card: CardBooks) -> list[Resident]:
        return [each.resident(now_s, self._demand(now_s, each.name)) for each in card.engines]

    # --- moves

    def _move(self, now_s: float, card: CardBooks) -> Iterator[HostEffect]:
        """Takes the next step of the switch under way, or decides on one, unless an engine of the card moves."""
        if card.epoch is None or not card.known or card.moving:
            return
        residents = self._residents(now_s, card)
        if card.aim is not None and not _wanted(card.aim, residents):
            self._let_go(now_s, card)
        if card.aim is None:
            calm = card.moving_share(now_s, self._config.moving_window_s) <= self._config.most_moving
            card.aim = self._law(card.total_gb, residents, self._config.rules, calm)
            if card.aim is None:
                yield from self._start_next(now_s, card, residents)
                return
            aim = card.aim
            yield RecordSwitch(
                card=card.card, target=aim.target, victims=aim.victims, gained=aim.gained, hurt=aim.hurt,
                reason=aim.reason,
            )  # fmt: skip
        yield from self._go_on(now_s, card, card.aim)

    def _go_on(self, now_s: float, card: CardBooks, aim: Switch) -> Iterator[HostEffect]:
        target = self._engines[aim.target]
        for name in aim.victims:
            victim = self._engines[name]
            if victim.readiness is Readiness.AWAKE and name in aim.drained:
                victim.go(now_s, Signal.DRAIN)
            if victim.readiness is Readiness.DRAINING and self._demand(now_s, name).runs:
                return
            if victim.readiness in (Readiness.AWAKE, Readiness.DRAINING):
                yield self._sleep(now_s, card, victim, keep=name not in aim.drained)
                return
        if card.used_gb - target.held_gb + target.engine.awake_gb > card.total_gb:
            card.aim = None  # a victim is not what it was; decide anew
        elif target.readiness is Readiness.COLD:
            yield from self._start(now_s, card, target)
        elif target.readiness is Readiness.ASLEEP:
            target.go(now_s, Signal.WAKE)
            yield WakeEngine(target.name, card.epoch or 0)
        else:
            card.aim = None

    def _let_go(self, now_s: float, card: CardBooks) -> None:
        """Gives a switch up that nobody needs any more."""
        card.aim = None
        for each in card.engines:
            if each.readiness is Readiness.DRAINING:
                each.enter(now_s, Readiness.AWAKE)

    def _sleep(self, now_s: float, card: CardBooks, victim: ResidentBooks, *, keep: bool) -> HostEffect:
        victim.go(now_s, Signal.SLEEP)
        return SleepEngine(victim.name, keep, card.epoch or 0)

    def _start(self, now_s: float, card: CardBooks, books: ResidentBooks) -> Iterator[HostEffect]:
        books.go(now_s, Signal.START)
        yield StartEngine(books.name, card.epoch or 0)

    def _start_next(self, now_s: float, card: CardBooks, residents: list[Resident]) -> Iterator[HostEffect]:
        """Starts an engine that does not run, where nobody waits for anything else; who is idle makes room for it."""
        for books in card.engines:
            if books.readiness is not Readiness.COLD:
                continue
            idle = [each for each in residents if each.awake and each.movable and each.empty]
            victims = fewest(books.engine.awake_gb - (card.total_gb - card.used_gb), idle)
            if victims:
                yield self._sleep(now_s, card, self._engines[victims[0].engine], keep=True)
                return
            if victims is not None:
                yield from self._start(now_s, card, books)
                return

    # --- what is told

    def _publish(self, now_s: float, before: dict[str, Readiness]) -> list[HostEffect]:
        changed = any(each.readiness is not before[name] for name, each in self._engines.items())
        due = self._published_s is None or now_s - self._published_s >= self._config.report_s
        if not (changed or due):
            return []
        self._published_s = now_s
        return [PublishHost(HostReport(self._config.host, tuple(each.told(now_s) for each in self._engines.values())))]


def _wanted(aim: Switch, residents: list[Resident]) -> bool:
    """Whether a switch under way still is what was decided: somebody waits for its target, and no victim that was idle
    then has callers now."""
    asked = any(each.engine == aim.target and each.movable and not each.empty for each in residents)
    return asked and not any(each.engine in aim.idle and each.awake and not each.empty for each in residents)


def _foreign(card: str, engine: str, readiness: Readiness) -> RecordSwitch:
    reason = f"foreign: {engine} is {readiness.value}, and no move of ours explains it"
    return RecordSwitch(card=card, target="", victims=(), gained=0, hurt=0, reason=reason)


def _aged(demand: EngineDemand, age_s: float) -> EngineDemand:
    """Returns a demand as it is some time later, if nothing has begun or ended."""
    if age_s <= 0.0:
        return demand
    latest_s = tuple(at_s - age_s for at_s in demand.latest_s if at_s >= age_s)
    spare_s = tuple(at_s - age_s for at_s in demand.spare_s if at_s >= age_s)
    return replace(
        demand, latest_s=latest_s, late=demand.late + len(demand.latest_s) - len(latest_s), spare_s=spare_s,
        late_runs=demand.late_runs + len(demand.spare_s) - len(spare_s), drain_s=max(0.0, demand.drain_s - age_s),
        oldest_s=demand.oldest_s + (age_s if demand.waits else 0.0),
    )  # fmt: skip


def _together(engine: str, demands: list[EngineDemand]) -> EngineDemand:
    return EngineDemand(
        engine=engine,
        latest_s=tuple(sorted(at_s for each in demands for at_s in each.latest_s))[:MAX_CALLERS],
        late=sum(each.late for each in demands),
        oldest_s=max((each.oldest_s for each in demands), default=0.0),
        serve_s=sum(each.serve_s for each in demands),
        spare_s=tuple(sorted(at_s for each in demands for at_s in each.spare_s))[:MAX_CALLERS],
        late_runs=sum(each.late_runs for each in demands),
        drain_s=max((each.drain_s for each in demands), default=0.0),
    )
