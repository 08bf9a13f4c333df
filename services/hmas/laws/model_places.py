"""Which model of a card goes to sleep and which wakes: by callers who can still be on time.

A model keeps its place while it has callers who can be on time. The next one is that with the most of them per second
of moving. What serves is interrupted, without loss, only for callers who would otherwise be late, and only where
nobody becomes late by it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hmas.contracts.residency import EngineDemand


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidencyRules:
    """`interrupts`: a serving model may be interrupted. `check_hurt`: not if somebody becomes late by it. `by_worth`:
    the next model is the one with the most callers on time per second of moving, else the one of the oldest caller.
    A caller that has waited for `most_wait_s` goes first, whatever it costs others."""

    interrupts: bool = True
    check_hurt: bool = True
    by_worth: bool = True
    most_wait_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """An engine of a card as the law sees it. `movable`: it may be put to sleep or woken now. `fresh`: it was woken for
    callers of whom none has begun. `ready_s` is what waking it takes; nothing has waited or run there for `idle_s`."""

    engine: str
    awake: bool
    held_gb: float
    awake_gb: float
    asleep_gb: float
    sleep_s: float
    ready_s: float
    interrupts: bool
    movable: bool
    fresh: bool
    idle_s: float
    demand: EngineDemand

    @property
    def holds(self) -> bool:
        """Whether it has callers or runs that can be on time."""
        return bool(self.demand.latest_s or self.demand.spare_s)

    @property
    def empty(self) -> bool:
        return not (self.demand.waits or self.demand.runs)

    @property
    def serving_s(self) -> float:
        """The seconds until who waits and what runs there, kept or not, has been served."""
        return max(self.demand.serve_s, self.demand.drain_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A decision: `victims` go to sleep in this order, those in `drained` once what runs has ended; then `target`
    wakes, `seconds` from now if nothing is drained. It is void once a victim that was `idle` has callers again."""

    target: str
    victims: tuple[str, ...] = ()
    drained: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()
    seconds: float = 0.0
    gained: int = 0
    hurt: int = 0
    reason: str = ""


ResidencyLaw = Callable[[float, Sequence[Resident], ResidencyRules, bool], Switch | None]


def used_gb(residents: Sequence[Resident]) -> float:
    """Returns the memory that the engines of a card take now, in GB."""
    return sum(each.held_gb for each in residents)


def never_fits(card_gb: float, awake_gb: float, asleep_gb: Sequence[float]) -> bool:
    """Whether an engine has no room on a card of which the other engines take what they do asleep."""
    return awake_gb + sum(asleep_gb) > card_gb


def fewest(needed_gb: float, ordered: Sequence[Resident]) -> list[Resident] | None:
    """Returns the first of `ordered` that together free so much, without those that are not needed for it; None if all
    of them do not suffice."""
    chosen: list[Resident] = []
    freed_gb = 0.0
    for each in ordered:
        if freed_gb >= needed_gb:
            break
        chosen.append(each)
        freed_gb += each.held_gb - each.asleep_gb
    if freed_gb < needed_gb:
        return None
    for each in list(chosen):
        gain_gb = each.held_gb - each.asleep_gb
        if freed_gb - gain_gb >= needed_gb:
            chosen.remove(each)
            freed_gb -= gain_gb
    return chosen


def on_time(resident: Resident, seconds: float) -> int:
    """Returns how many callers and kept runs can be on time if the engine is ready in so many seconds."""
    demand = resident.demand
    return sum(at_s >= seconds for at_s in (*demand.latest_s, *demand.spare_s))


def absence_s(victim: Resident, target: Resident, seconds: float) -> float:
    """Returns for how long a victim is away: until the target is ready and has served who waits, and until the victim
    is back, once the target has gone to sleep."""
    return seconds + target.serving_s + target.sleep_s + victim.ready_s


def hurt_by(victim: Resident, away_s: float) -> int:
    """Returns how many callers and runs of a victim become late if it is away for so long."""
    demand = victim.demand
    return sum(at_s < away_s for at_s in (*demand.latest_s, *demand.spare_s))


def moving_s(victims: Sequence[Resident], target: Resident) -> float:
    return sum(victim.sleep_s for victim in victims) + target.ready_s


def next_switch(
    card_gb: float, residents: Sequence[Resident], rules: ResidencyRules, may_interrupt: bool = True
) -> Switch | None:
    """Returns what to do on a card now, None for nothing. `may_interrupt` false: models with callers keep their places,
    because there were too many moves of late."""
    asleep = [each for each in residents if not each.awake and each.movable and each.demand.waits | each.demand.runs]
    free_gb = card_gb - used_gb(residents)
    starved = [each for each in asleep if each.demand.oldest_s >= rules.most_wait_s]
    for target in sorted(starved, key=lambda each: -each.demand.oldest_s):
        found = _for_the_starved(free_gb, target, residents)
        if found is not None:
            return found
    for target in sorted(asleep, key=lambda each: _rank(each, rules)):
        found = _into_idle_places(free_gb, target, residents)
        if found is None and rules.interrupts and may_interrupt and target.holds:
            found = _by_interrupt(free_gb, target, residents, rules)
        if found is not None:
            return found
    return None


def _rank(target: Resident, rules: ResidencyRules) -> tuple[float, float]:
    worth = on_time(target, target.ready_s) / max(target.ready_s, 1e-3) if rules.by_worth else float(target.holds)
    return -worth, -target.demand.oldest_s


def _victims(residents: Sequence[Resident], target: Resident) -> list[Resident]:
    """Returns who may go to sleep: those without callers first, the least recently used first."""
    awake = [each for each in residents if each.awake and each.movable and each is not target and not each.fresh]
    return sorted(awake, key=lambda each: (not each.empty, -each.idle_s))


def _into_idle_places(free_gb: float, target: Resident, residents: Sequence[Resident]) -> Switch | None:
    """Late callers hold no place against callers who can be on time, but against late ones they do."""
    idle = [each for each in _victims(residents, target) if each.empty or (target.holds and not each.holds)]
    chosen = fewest(target.awake_gb - target.held_gb - free_gb, idle)
    if chosen is None:
        return None
    seconds = moving_s(chosen, target)
    reason = "nobody needs their places" if chosen else "there is room"
    return _switch(target, chosen, seconds, on_time(target, seconds), 0, reason)


def _by_interrupt(
    free_gb: float, target: Resident, residents: Sequence[Resident], rules: ResidencyRules
) -> Switch | None:
    """Takes places of models that serve, if callers would be late without it, and nobody becomes late by it."""

    def hurt(victims: Sequence[Resident]) -> int:
        seconds = moving_s(victims, target)
        return sum(hurt_by(each, absence_s(each, target, seconds) + _drain_s(each)) for each in victims)

    ranked = sorted(_victims(residents, target), key=lambda each: (each.holds, hurt([each]), -each.idle_s))
    chosen = fewest(target.awake_gb - target.held_gb - free_gb, ranked)
    if not chosen:
        return None
    seconds = moving_s(chosen, target)
    drained_s = max(map(_drain_s, chosen))
    by_itself_s = max(each.serving_s for each in chosen)
    gained = on_time(target, seconds + drained_s) - on_time(target, seconds + by_itself_s)
    lost = hurt(chosen)
    if gained <= lost or (lost and rules.check_hurt):
        return None if rules.check_hurt or gained <= 0 else _switch(target, chosen, seconds, gained, lost, "it gains")
    return _switch(target, chosen, seconds, gained, lost, f"{gained} would be late, and nobody becomes late by it")


def _for_the_starved(free_gb: float, target: Resident, residents: Sequence[Resident]) -> Switch | None:
    ranked = sorted(_victims(residents, target), key=lambda each: (not each.empty, each.holds, -each.idle_s))
    chosen = fewest(target.awake_gb - target.held_gb - free_gb, ranked)
    if chosen is None:
        return None
    seconds = moving_s(chosen, target)
    lost = sum(hurt_by(each, absence_s(each, target, seconds)) for each in chosen)
    return _switch(target, chosen, seconds, 1, lost, f"a caller has waited for {target.demand.oldest_s:.0f} s")


def _drain_s(victim: Resident) -> float:
    return 0.0 if victim.interrupts or not victim.demand.runs else victim.demand.drain_s


def _switch(
    target: Resident, victims: Sequence[Resident], seconds: float, gained: int, hurt: int, reason: str
) -> Switch:
    drained = frozenset(each.engine for each in victims if each.demand.runs and not each.interrupts)
    names = tuple(each.engine for each in victims)
    idle = frozenset(each.engine for each in victims if each.empty)
    return Switch(
        target=target.engine,
        victims=names,
        drained=drained,
        idle=idle,
        seconds=seconds,
        gained=gained,
        hurt=hurt,
        reason=reason,
    )
