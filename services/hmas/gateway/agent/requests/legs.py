"""Split requests before their first token: which engine computes each prompt, and since when what is waited for.

Such a request is given up where a part of it takes far longer than that part usually does, long before a run that one
engine serves would be: its prompt is still here, and any engine can serve it whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hmas.gateway.agent.config import LegConfig
from hmas.gateway.agent.requests.ledger import LedgerEntry, RequestState


@dataclass(slots=True)
class Leg:
    """`prefill` computes the prompt, and has done so if `computed`. `proceeds`: the answering engine has the request.
    `since_s`: when the last of these three began."""

    entry: LedgerEntry
    run: int
    prefill: str
    since_s: float
    computed: bool = False
    proceeds: bool = False


class Legs:
    """The split requests of one gateway that have no token yet. Instants are in s on the agent's clock."""

    def __init__(self, config: LegConfig) -> None:
        self._config = config
        self._legs: dict[str, Leg] = {}  # by request id
        self._prefill_token_s: float | None = None  # what a prompt's token takes to compute, as learnt
        self._read_s: float | None = None  # from going on to the first token, as learnt

    def begin(self, now_s: float, entry: LedgerEntry, prefill: str) -> None:
        self._legs[entry.request.id] = Leg(entry, entry.run, prefill, now_s)

    def of(self, entry: LedgerEntry) -> Leg | None:
        """Returns how far a request has got that runs split and has no token; None: it does not, or has one."""
        leg = self._legs.get(entry.request.id)
        return leg if leg is not None and leg.run == entry.run and entry.state is RequestState.RUNNING else None

    def computed(self, now_s: float, leg: Leg) -> None:
        took_s = (now_s - leg.since_s) / max(1, leg.entry.request.prompt_tokens)
        self._prefill_token_s = self._smoothed(self._prefill_token_s, took_s)
        leg.computed, leg.since_s = True, now_s

    def proceeded(self, now_s: float, leg: Leg) -> None:
        leg.proceeds, leg.since_s = True, now_s

    def answered(self, now_s: float, leg: Leg) -> None:
        """Records that the first token came."""
        self._read_s = self._smoothed(self._read_s, now_s - leg.since_s)
        del self._legs[leg.entry.request.id]

    def undirected(self, now_s: float) -> Iterator[Leg]:
        """Yields those whose worker has not said for `word_s` where they go on."""
        for leg in self._running():
            if leg.computed and not leg.proceeds and now_s - leg.since_s >= self._config.word_s:
                yield leg

    def stuck(self, now_s: float) -> Iterator[tuple[Leg, float]]:
        """Yields those that a part of takes too long, with the seconds that were allowed."""
        for leg in self._running():
            if leg.computed and not leg.proceeds:
                continue
            bound_s = self._bound_s(leg)
            if now_s - leg.since_s > bound_s:
                yield leg, bound_s

    def _running(self) -> list[Leg]:
        """Returns those that still run, and forgets the others."""
        self._legs = {name: leg for name, leg in self._legs.items() if self.of(leg.entry) is leg}
        return list(self._legs.values())

    def _bound_s(self, leg: Leg) -> float:
        usual_s = self._read_s
        if not leg.computed and self._prefill_token_s is not None:
            usual_s = self._prefill_token_s * leg.entry.request.prompt_tokens
        return self._config.unknown_s if usual_s is None else max(self._config.least_s, self._config.factor * usual_s)

    def _smoothed(self, mean: float | None, seen: float) -> float:
        return seen if mean is None else mean + self._config.smoothing * (seen - mean)
