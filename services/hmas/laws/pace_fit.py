"""The pace law of one engine, fitted to what was measured of its steps.

Least squares over means of some seconds each, in which older ones count less and less. No coefficient is below 0: a
sequence, a token of context or a prompt token never makes a step shorter. The small sum of squares is kept instead of
the observations, so that memory and time do not grow. An observation lasts as long as the time over which an engine's
mean step is taken, so that both tell of the same steps.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log, sqrt
from statistics import fmean

from hmas.contracts.telemetry import EngineSample
from hmas.contracts.views import PaceView


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceFitConfig:
    """How the pace law of an engine is fitted."""

    observe_s: float = 5.0  # samples of this many seconds make one observation: as long as a mean step is taken over
    least_busy: float = 0.3  # share of time in which an engine must have worked for its rates to tell about its steps
    keep: float = 0.995  # of an observation's weight after another one: half is left after twelve minutes
    rounds: int = 10  # in which a law for all engines of a kind, and how slow each is, are fitted in turn
    slowest: float = 4.0  # the most that an engine is taken to be slower, or quicker, than that law
    alike: float = 4.0  # observations of an engine at which those of its like count half as much as its own
    singular: float = 1e-6  # share of a term's square that the other terms must leave, or it cannot be told from them


_TERMS = 4  # base, sequences, context, prompt tokens


class PaceFit:
    """Takes an engine's samples and tells its pace law. Samples of an engine that has nothing to do say nothing."""

    __slots__ = ("_config", "_due_s", "_products", "_samples", "_squares", "_sums", "observations")

    def __init__(self, config: PaceFitConfig) -> None:
        self._config = config
        self._squares = [[0.0] * _TERMS for _ in range(_TERMS)]
        self._products = [0.0] * _TERMS
        self._sums = [0.0] * _TERMS
        self._samples = 0
        self._due_s: float | None = None
        self.observations = 0

    def add(self, now_s: float, sample: EngineSample) -> None:
        if sample.step_s <= 0.0 or sample.busy < self._config.least_busy or not sample.up:
            return
        values = sample.busy, sample.decode_tokens_per_s, sample.kv_usage, sample.prefill_tokens_per_s
        for i, value in enumerate(values):
            self._sums[i] += value
        self._samples += 1
        if self._due_s is None:
            self._due_s = now_s + self._config.observe_s
        elif now_s >= self._due_s:
            busy, decode, usage, prefill = (total / self._samples for total in self._sums)
            # Rates are per second, of which the engine works a share `busy`; its steps depend on what comes per step.
            step_s = sample.step_s
            steps_s = step_s / busy
            self._observe((1.0, decode * steps_s, usage * sample.kv_capacity_tokens, prefill * steps_s), step_s)
            self._sums, self._samples = [0.0] * _TERMS, 0
            self._due_s = now_s + self._config.observe_s

    def _observe(self, means: tuple[float, ...], step_s: float) -> None:
        keep = self._config.keep
        for i in range(_TERMS):
            self._products[i] = keep * self._products[i] + means[i] * step_s
            for j in range(_TERMS):
                self._squares[i][j] = keep * self._squares[i][j] + means[i] * means[j]
        self.observations += 1

    def view(self, worker: str, engine: str, alike: Iterable[tuple["PaceFit", float]] = ()) -> PaceView:
        """Returns the law. Until the engine has been observed often, what was observed of those that are `alike`, being
        of the same hardware, counts as well: two engines then tell in a quarter of a minute what one tells in half.
        With each comes how many times as long as it this engine takes for a step, and its steps count as so much
        longer."""
        squares, products = [row[:] for row in self._squares], self._products[:]
        share = self._config.alike / (self._config.alike + self.observations)
        for other, slowness in alike:
            for i in range(_TERMS):
                products[i] += share * slowness * other._products[i]
                for j in range(_TERMS):
                    squares[i][j] += share * other._squares[i][j]
        base_s, sequence_s, context_s, prompt_s = _solve(squares, products, self._config.singular)
        return PaceView(
            worker=worker,
            engine=engine,
            base_s=base_s,
            sequence_s=sequence_s,
            context_s=context_s,
            prompt_s=prompt_s,
            observations=self.observations if base_s > 0.0 else 0,
        )

    def _slowness(self, law: list[float]) -> float:
        """Returns how many times as long as by `law` this engine takes for a step: the factor by which the law fits its
        observations best, by least squares; 1 before there are any."""
        squares = sum(law[i] * law[j] * self._squares[i][j] for i in range(_TERMS) for j in range(_TERMS))
        products = sum(law[i] * self._products[i] for i in range(_TERMS))
        slowest = self._config.slowest
        return min(slowest, max(1.0 / slowest, products / squares)) if squares > 0.0 else 1.0


def slownesses(fits: Sequence[PaceFit]) -> list[float]:
    """Returns how slow each of several engines of the same hardware is, beside the others: 1 in the (geometric) mean,
    2 for one whose steps take twice as long.

    Of one law for all, whose steps take so much longer on each, law and factors are fitted in turn. All are 1 while
    there are fewer than twice as many observations as unknowns.
    """
    found = [1.0] * len(fits)
    if sum(fit.observations for fit in fits) < 2 * (_TERMS + len(fits) - 1) or len(fits) < 2:
        return found
    config = fits[0]._config
    squares = [[sum(fit._squares[i][j] for fit in fits) for j in range(_TERMS)] for i in range(_TERMS)]
    for _ in range(config.rounds):
        products = [sum(fit._products[i] / f for fit, f in zip(fits, found, strict=True)) for i in range(_TERMS)]
        law = _solve(squares, products, config.singular)
        found = [fit._slowness(law) for fit in fits]
        mean = exp(fmean(map(log, found)))
        found = [f / mean for f in found]
    return found


def _solve(squares: list[list[float]], products: list[float], singular: float) -> list[float]:
    """Returns the coefficients of least squares under the condition that none is below 0: those of the subset of
    terms that fits best, among the subsets whose own least squares are above 0."""
    best, most = [0.0] * _TERMS, 0.0
    for count in range(1, _TERMS + 1):
        for chosen in combinations(range(_TERMS), count):
            found = _least_squares(chosen, squares, products, singular)
            explained = sum(found[i] * products[i] for i in range(_TERMS))
            if min(found[i] for i in chosen) > 0.0 and explained > most:
                best, most = found, explained
    return best


def _least_squares(
    chosen: tuple[int, ...], squares: list[list[float]], products: list[float], singular: float
) -> list[float]:
    """Returns the least squares of the chosen terms, by elimination; zeros if they cannot be told apart."""
    scales = [sqrt(squares[i][i]) or 1.0 for i in chosen]
    rows = [
        [squares[i][j] / (a * b) for j, b in zip(chosen, scales, strict=True)] + [products[i] / a]
        for i, a in zip(chosen, scales, strict=True)
    ]
    found = [0.0] * _TERMS
    for k, row in enumerate(rows):
        if row[k] < singular:
            return found
        for other in rows[k + 1 :]:
            share = other[k] / row[k]
            for j in range(k, len(row)):
                other[j] -= share * row[j]
    for k in range(len(rows) - 1, -1, -1):
        rest = sum(rows[k][j] * found[chosen[j]] * scales[j] for j in range(k + 1, len(rows)))
        found[chosen[k]] = (rows[k][-1] - rest) / rows[k][k] / scales[k]
    return found
