"""Split requests before their first token: which engine computes each prompt, and since when what is waited for.

Such a request is given up where its engine for the prompt has stood still for far longer than it usually needs for what
it has to do, long before a run that one engine serves would be: its prompt is still here, and any engine can serve it
whole. What an engine hands over it hands over in order, so that a sign of life from it is one for all that wait there.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from hmas.gateway.agent.config import LegConfig
from hmas.gateway.agent.requests.ledger import LedgerEntry, RequestState
from hmas.gateway.agent.requests.stalls import EnginePace


@dataclass(slots=True)
class Leg:
    """`prefill` computes the prompt, and has done so if `computed`. `proceeds`: the answering engine has the request,
    from the beginning where both get it at once. `since_s`: when the last of these three began."""

    entry: LedgerEntry
    run: int
    prefill: str
    since_s: float
    computed: bool = False
    proceeds: bool = False

    @property
    def reads(self) -> bool:
        """Whether all that is missing is that the answering engine reads the prompt."""
        return self.computed and self.proceeds


class Legs:
    """The split requests of one gateway that have no token yet. Instants are in s on the agent's clock."""

    def __init__(self, config: LegConfig) -> None:
        self._config = config
        self._legs: dict[str, Leg] = {}  # by request id
        self._computing = EnginePace()  # how long prompts usually take to compute
        self._reading = EnginePace()  # from going on to the first token
        self._moved_s: dict[str, float] = {}  # when an engine last computed a prompt or had one read

    def begin(self, now_s: float, entry: LedgerEntry, prefill: str, *, at_once: bool = False) -> None:
        self._legs[entry.request.id] = Leg(entry, entry.run, prefill, now_s, proceeds=at_once)

    def of(self, entry: LedgerEntry) -> Leg | None:
        """Returns how far a request has got that runs split and has no token; None: it does not, or has one."""
        leg = self._legs.get(entry.request.id)
        return leg if leg is not None and leg.run == entry.run and entry.state is RequestState.RUNNING else None

    def computed(self, now_s: float, leg: Leg) -> None:
        self._learn(now_s, leg, self._computing)
        leg.computed, leg.since_s = True, now_s

    def proceeded(self, now_s: float, leg: Leg) -> None:
        leg.proceeds, leg.since_s = True, now_s

    def answered(self, now_s: float, leg: Leg) -> None:
        """Records that the first token came."""
        self._learn(now_s, leg, self._reading if leg.computed else self._computing)
        del self._legs[leg.entry.request.id]

    def undirected(self, now_s: float) -> Iterator[Leg]:
        """Yields those whose worker has not said for `word_s` where they go on."""
        for leg in self._running():
            if leg.computed and not leg.proceeds and now_s - leg.since_s >= self._config.word_s:
                yield leg

    def stuck(self, now_s: float) -> Iterator[tuple[Leg, float]]:
        """Yields those that a part of takes too long, with the seconds that were allowed. Of an answer that is not
        streamed the first token is not seen: it is among them if another request shows that the engine stands still."""
        legs = [leg for leg in self._running() if leg.reads or not leg.computed]
        tokens = Counter[tuple[str, bool]]()
        for leg in legs:
            tokens[leg.prefill, leg.reads] += leg.entry.request.prompt_tokens
        bounds_s = {at: self._bound_s(self._reading if at[1] else self._computing, n) for at, n in tokens.items()}
        still, unseen = set(), []
        for leg in legs:
            moved_s, bound_s = self._moved_s.get(leg.prefill, leg.since_s), bounds_s[leg.prefill, leg.reads]
            waited_s = now_s - leg.since_s
            if leg.reads and not leg.entry.request.stream:
                if leg.since_s >= moved_s and waited_s > bound_s:
                    unseen.append((leg, bound_s))
            elif now_s - max(moved_s, leg.since_s) > bound_s or waited_s > self._config.starved * bound_s:
                still.add(leg.prefill)
                yield leg, bound_s
        yield from (each for each in unseen if each[0].prefill in still)

    def _running(self) -> list[Leg]:
        """Returns those that still run, and forgets the others, and the engines that have none."""
        self._legs = {name: leg for name, leg in self._legs.items() if self.of(leg.entry) is leg}
        engines = {leg.prefill for leg in self._legs.values()}
        self._moved_s = {name: at_s for name, at_s in self._moved_s.items() if name in engines}
        return list(self._legs.values())

    def _learn(self, now_s: float, leg: Leg, pace: EnginePace) -> None:
        tokens = leg.entry.request.prompt_tokens
        pace.learn_first(now_s - leg.since_s, tokens, self._config.smoothing, streamed=True)
        self._moved_s[leg.prefill] = now_s

    def _bound_s(self, pace: EnginePace, prompt_tokens: int) -> float:
        usual_s = pace.usual_first_s(prompt_tokens)
        return self._config.unknown_s if usual_s is None else max(self._config.least_s, self._config.factor * usual_s)
