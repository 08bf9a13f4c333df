"""The configuration of a host's arbiter."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hmas.contracts.residency import ResidentEngine
from hmas.laws.model_places import ResidencyRules, never_fits


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfig:
    """The `cards` of a host with the memory that engines may take of each, in GB, and the engines that share them.

    - A worker's report counts for `demand_expiry_s`.
    - A move that takes `patience` times what it is known to take, and at least `least_patience_s`, has failed; after
      `recycle_after_s` more its engine is stopped, unless it has shown by then what it is.
    - After a move that was not ours, ours leave the engine alone for `foreign_s`.
    - Once moves have taken `most_moving` of the last `moving_window_s` of a card, models with callers keep their
      places.
    - The host's report is repeated every `report_s`.

    Raises ValueError for a model that can never fit, with the sum.
    """

    host: str
    cards: Mapping[str, float]
    engines: tuple[ResidentEngine, ...]
    rules: ResidencyRules = field(default_factory=ResidencyRules)
    demand_expiry_s: float = 3.0
    patience: float = 5.0
    least_patience_s: float = 10.0
    recycle_after_s: float = 30.0
    foreign_s: float = 60.0
    most_moving: float = 0.25
    moving_window_s: float = 60.0
    report_s: float = 1.0

    def __post_init__(self) -> None:
        names = [each.engine for each in self.engines]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"the engines {', '.join(doubled)} are there twice: give each a name of its own")
        for each in self.engines:
            if each.card not in self.cards:
                known = ", ".join(self.cards) or "none"
                raise ValueError(f"{each.engine} is on the card {each.card!r}, which is not known: use one of {known}")
            if not 0.0 <= each.asleep_gb <= each.awake_gb:
                raise ValueError(
                    f"{each.engine} takes {each.asleep_gb:g} GB asleep and {each.awake_gb:g} GB awake: the first must "
                    "be 0 or more and at most the second"
                )
            self._check_room(each)

    def _check_room(self, engine: ResidentEngine) -> None:
        others = [each for each in self.engines if each.card == engine.card and each is not engine]
        asleep_gb = [each.asleep_gb for each in others]
        card_gb = self.cards[engine.card]
        if never_fits(card_gb, engine.awake_gb, asleep_gb):
            raise ValueError(
                f"{engine.engine} can never wake on the card {engine.card}: its {engine.awake_gb:g} GB and the "
                f"{sum(asleep_gb):g} GB that {len(others)} others keep while they sleep are "
                f"{engine.awake_gb + sum(asleep_gb):g} GB, and the card has {card_gb:g} GB; give it a smaller KV cache "
                "(--kv-cache-memory-bytes) or another card"
            )
