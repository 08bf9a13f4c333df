"""Other laws than ours, which know no deadline: what peers do, on the same host with the same states and prices."""

from collections.abc import Sequence

from hmas.laws.model_places import ResidencyRules, Resident, Switch, fewest, moving_s, used_gb

IDLE_S = 30.0  # of the idle rule


def _callers(residents: Sequence[Resident]) -> list[Resident]:
    """Returns the engines that are asked for and asleep, the one with the oldest caller first."""
    asked = [each for each in residents if not each.awake and each.movable and not each.empty]
    return sorted(asked, key=lambda each: -each.demand.oldest_s)


def _awake(residents: Sequence[Resident]) -> list[Resident]:
    """Returns the engines that may go to sleep, the least recently used first."""
    return sorted((each for each in residents if each.awake and each.movable), key=lambda each: -each.idle_s)


def _into(card_gb: float, target: Resident, victims: list[Resident], residents: Sequence[Resident]) -> Switch | None:
    chosen = fewest(target.awake_gb - target.held_gb - (card_gb - used_gb(residents)), victims)
    if chosen is None:
        return None
    drained = frozenset(each.engine for each in chosen if each.demand.runs)
    seconds = moving_s(chosen, target)
    idle = frozenset(each.engine for each in chosen if each.empty)
    names = tuple(each.engine for each in chosen)
    return Switch(target=target.engine, victims=names, drained=drained, idle=idle, seconds=seconds)


def collated(
    card_gb: float, residents: Sequence[Resident], rules: ResidencyRules, may_interrupt: bool = True
) -> Switch | None:
    """As llama-swap since May 2026: a model keeps its place while it has callers or runs; the model of the oldest
    caller takes the least recently used one's."""
    empty = [each for each in _awake(residents) if each.empty]
    found = (_into(card_gb, target, empty, residents) for target in _callers(residents))
    return next((switch for switch in found if switch), None)


def first_come(
    card_gb: float, residents: Sequence[Resident], rules: ResidencyRules, may_interrupt: bool = True
) -> Switch | None:
    """As Ollama, and llama-swap before: the oldest caller's model is next. It takes the least recently used one's place
    once what runs there has ended; callers that wait there wait on."""
    first = _callers(residents)[:1]
    ranked = sorted(_awake(residents), key=lambda each: not each.empty)
    found = (_into(card_gb, target, [each for each in ranked if not each.fresh], residents) for target in first)
    return next(found, None)


def idle_rule(
    card_gb: float, residents: Sequence[Resident], rules: ResidencyRules, may_interrupt: bool = True
) -> Switch | None:
    """As AIBrix's ModelClaim and kvcached: a model gives up its place after some idle time (300 s there, `IDLE_S`
    here), and a caller wakes one where there is room."""
    idle = [each for each in _awake(residents) if each.empty and each.idle_s >= IDLE_S]
    found = (_into(card_gb, target, idle, residents) for target in _callers(residents))
    return next((switch for switch in found if switch), None)
