"""When a run has stalled: its engine has given it no token for far longer than the engine usually takes.

A stalled run is given up: before its first token it runs elsewhere, afterwards it ends with an error. The bound follows
the engine's own pace, so that a slow engine is never cut off:

    bound = max(least_s, factor * usual)

with the usual time to a first token (in proportion to the prompt, where that is more) or between two tokens, as learnt
here from answers of this engine; `unknown_s` until there were any. A run has stalled if it got no token for longer than
its bound, and neither did the engine, for as long: no other run here got one, and the worker saw the engine's own
counters stand still all the while. Where the engine serves others, or nobody can tell, a streamed run is given
`starved` times its bound. An answer that is not streamed shows nothing before its end; it is given `factor` times what
an answer of `max_tokens` usually takes.

Time during which this process did not run counts for nobody, and time during which an engine is asleep counts for no
run there: that somebody has paused it says nothing about whether it is well.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from hmas.contracts.execution import Load
from hmas.gateway.agent.config import StallConfig
from hmas.gateway.agent.requests.ledger import EngineRef, Ledger, LedgerEntry, RequestState


@dataclass(slots=True)
class EnginePace:
    """How long an engine usually takes; None while that is unknown.

    `first_s` and `first_tokens`: the mean time to first token, and the mean of the prompt tokens that were computed for
    it. `step_s`: the mean time between two tokens of a request.
    """

    first_s: float | None = None
    first_tokens: float = 1.0
    step_s: float | None = None
    streamed: bool = False  # whether `first_s` was seen; otherwise it is that of whole answers, which is too much

    def learn_first(self, took_s: float, tokens: int, weight: float, *, streamed: bool) -> None:
        """Learns from an answer to a prompt of which `tokens` tokens were computed. `took_s` is the time to its first
        token or, if it was not streamed, to its end, which counts only until a streamed one came."""
        if self.streamed and not streamed:
            return
        if self.first_s is None or self.streamed is not streamed:
            self.first_s, self.first_tokens, self.streamed = took_s, float(max(1, tokens)), streamed
        else:
            self.first_s += weight * (took_s - self.first_s)
            self.first_tokens += weight * (max(1, tokens) - self.first_tokens)

    def learn_step(self, took_s: float, weight: float) -> None:
        self.step_s = took_s if self.step_s is None else self.step_s + weight * (took_s - self.step_s)

    def usual_first_s(self, prompt_tokens: int) -> float | None:
        return None if self.first_s is None else self.first_s * max(1.0, prompt_tokens / self.first_tokens)


@dataclass(slots=True)
class _Engine:
    """What was seen of one engine. `moved_s`: when a run of this gateway last got a token there. `still_since_s`: since
    when its worker sees its counters stand still; None: it does not, or cannot tell. `asleep`: its worker says so."""

    pace: EnginePace = field(default_factory=EnginePace)
    moved_s: float = -inf
    still_since_s: float | None = None
    asleep: bool = False


@dataclass(frozen=True, slots=True)
class Stall:
    """A run that has stalled: it got no token for `silent_s` seconds, of which `bound_s` were allowed."""

    entry: LedgerEntry
    silent_s: float
    bound_s: float


class StallWatch:
    """Learns the pace of each engine from this gateway's runs, and finds those that have stalled.

    Instants that it keeps, `LedgerEntry.moved_s` among them, are on a clock that stands still while the process does.
    """

    def __init__(self, config: StallConfig, ledger: Ledger) -> None:
        self._config, self._ledger = config, ledger
        self._engines: dict[EngineRef, _Engine] = {}
        self._slept_s = 0.0
        self._ticked_s = inf
        self._checked_s = -inf

    def pace(self, ref: EngineRef) -> EnginePace:
        return self._engine(ref).pace

    # --- what happens to runs ---

    def started(self, now_s: float, entry: LedgerEntry) -> None:
        entry.moved_s, entry.first_wait_s = now_s - self._slept_s, None

    def first_token(self, now_s: float, entry: LedgerEntry) -> None:
        awake_s = now_s - self._slept_s
        entry.first_wait_s = awake_s - entry.moved_s
        entry.moved_s = self._engine(entry.ref).moved_s = awake_s

    def progressed(self, now_s: float, entry: LedgerEntry, output_tokens: int) -> None:
        """Records that a streamed run has `output_tokens` tokens, more than `entry` says."""
        awake_s, engine = now_s - self._slept_s, self._engine(entry.ref)
        further = output_tokens - max(1, entry.output_tokens)
        if further > 0:
            engine.pace.learn_step((awake_s - entry.moved_s) / further, self._config.smoothing)
        entry.moved_s = engine.moved_s = awake_s

    def finished(self, now_s: float, entry: LedgerEntry, output_tokens: int, cached_tokens: int | None) -> None:
        """Records that a run ended with a whole answer; of 0 `output_tokens`, nobody counted them."""
        awake_s, engine, weight = now_s - self._slept_s, self._engine(entry.ref), self._config.smoothing
        computed = entry.request.prompt_tokens - (cached_tokens or 0)
        if entry.first_wait_s is not None:
            engine.pace.learn_first(entry.first_wait_s, computed, weight, streamed=True)
        else:
            took_s = awake_s - entry.moved_s
            engine.pace.learn_first(took_s, computed, weight, streamed=False)
            if output_tokens:
                engine.pace.learn_step(took_s / output_tokens, weight)
        engine.moved_s = awake_s

    # --- what workers say ---

    def report(self, now_s: float, worker: str, load: Load) -> None:
        """Takes what a worker says of its engines' own counters; it is silent about those that are down."""
        self._see_sleep(now_s, worker, {share.engine for share in load.shares if share.asleep})
        still = {share.engine for share in load.shares if share.generating is False and not share.asleep}
        self._lose(worker, keep=still)
        for name in still:
            engine = self._engine((worker, name))
            if engine.still_since_s is None:
                engine.still_since_s = now_s - self._slept_s

    def lose(self, now_s: float, worker: str) -> None:
        """Records that nothing is heard of a worker any more."""
        self._see_sleep(now_s, worker, set())
        self._lose(worker, keep=set())

    def _see_sleep(self, now_s: float, worker: str, asleep: set[str]) -> None:
        """Records which of a worker's engines are asleep. What runs on one that wakes has its whole bound anew."""
        woken = {
            ref for ref, each in self._engines.items() if ref[0] == worker and each.asleep and ref[1] not in asleep
        }
        for ref in woken:
            self._engines[ref].asleep = False
        for name in asleep:
            self._engine((worker, name)).asleep = True
        for entry in self._ledger.running() if woken else ():
            if entry.ref in woken:
                entry.moved_s = now_s - self._slept_s

    def _lose(self, worker: str, keep: set[str]) -> None:
        for (name, engine), seen in self._engines.items():
            if name == worker and engine not in keep:
                seen.still_since_s = None

    def is_still(self, ref: EngineRef) -> bool:
        """Returns whether the worker sees the engine's counters stand still."""
        return self._engine(ref).still_since_s is not None

    # --- time ---

    def tick(self, now_s: float) -> list[Stall]:
        """Returns the runs that have stalled; to be called at every tick."""
        self._slept_s += max(0.0, now_s - self._ticked_s - self._config.most_gap_s)
        self._ticked_s = now_s
        if now_s - self._checked_s < self._config.check_s:
            return []
        self._checked_s = now_s
        return list(self._stalls(now_s - self._slept_s))

    def _stalls(self, awake_s: float) -> Iterator[Stall]:
        for entry in self._ledger.running():
            silent_s = awake_s - entry.moved_s
            if silent_s > self._config.least_s and not self._engine(entry.ref).asleep:  # no bound is smaller
                bound_s = self._bound_s(awake_s, entry)
                if silent_s > bound_s:
                    yield Stall(entry, silent_s, bound_s)

    def _bound_s(self, awake_s: float, entry: LedgerEntry) -> float:
        """Returns how long a run may be without a token now."""
        engine, config, request = self._engine(entry.ref), self._config, entry.request
        first_s, step_s = engine.pace.usual_first_s(request.prompt_tokens), engine.pace.step_s
        if not request.stream:  # which of the two it waits for cannot be seen
            bound_s = max(self._times(first_s), self._times(step_s))
        else:
            bound_s = self._times(step_s if entry.state is RequestState.COMMITTED else first_s)
        if engine.still_since_s is not None and awake_s - max(engine.still_since_s, engine.moved_s) > bound_s:
            return bound_s
        if request.stream:
            return config.starved * bound_s
        if request.max_tokens is None or first_s is None or step_s is None:
            return inf
        return self._times(first_s + request.max_tokens * step_s)

    def _times(self, usual_s: float | None) -> float:
        config = self._config
        return max(config.least_s, config.unknown_s if usual_s is None else config.factor * usual_s)

    def _engine(self, ref: EngineRef) -> _Engine:
        engine = self._engines.get(ref)
        if engine is None:
            if len(self._engines) >= self._config.max_engines:
                del self._engines[next(iter(self._engines))]
            engine = self._engines[ref] = _Engine()
        return engine
