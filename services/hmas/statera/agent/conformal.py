"""Conformal calibration of output-length errors under censoring (H-MAS Eq. 4, App. B.3)."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from math import ceil
from operator import itemgetter

Observation = tuple[float, bool]  # (error l_real - l_pred, censored: the true error is at least this)


def conformal_rank(count: int, epsilon: float) -> int:
    """ceil((n + 1)(1 - eps)): the order statistic with finite-sample coverage; above n where n is too small."""
    return ceil((count + 1) * (1.0 - epsilon) - 1e-9)


def survival_quantile(observations: Iterable[Observation], epsilon: float) -> float:
    """The conformal quantile of errors some of which are only lower bounds.

    Kaplan-Meier: the smallest e with 1 - S(e) >= ceil((n + 1)(1 - eps)) / n. Without censoring this is the order
    statistic itself. Where the estimate does not reach that far, the largest observation. Raises ValueError if empty.
    """
    ordered = sorted(observations)  # at a tie events come before the censored, as the estimator wants
    if not ordered:
        raise ValueError("a quantile needs at least one observation")
    count = len(ordered)
    rank = conformal_rank(count, epsilon)
    if not any(map(itemgetter(1), ordered)):
        return ordered[min(max(rank, 1), count) - 1][0]
    target = 1.0 - rank / count
    survival = 1.0
    for index, (error, censored) in enumerate(ordered):
        if not censored:
            at_risk = count - index
            survival *= 1.0 - 1.0 / at_risk
            if survival <= target + 1e-9:
                return error
    return ordered[-1][0]


class AdaptiveLevel:
    """Adaptive conformal inference (Gibbs & Candes 2021): eps_t+1 = eps_t + gamma (eps - miss_t), clipped."""

    def __init__(self, epsilon: float, gain: float, lowest: float, highest: float) -> None:
        self._target = epsilon
        self._gain = gain
        self._bounds = (lowest, highest)
        self.epsilon = epsilon

    def update(self, missed: bool) -> None:
        low, high = self._bounds
        self.epsilon = min(high, max(low, self.epsilon + self._gain * (self._target - missed)))


class ErrorBuffer:
    """The last errors of one prompt-length bucket.

    Requests still running count as censored while nothing has left the buffer yet: then the finished ones are the
    short ones. Once it slides, long requests enter it as often as they occur, and running ones would count twice.
    """

    def __init__(self, size: int, level: AdaptiveLevel) -> None:
        self._observations: deque[Observation] = deque(maxlen=size)
        self._running: Sequence[Observation] = ()
        self._slid = False
        self.level = level
        self.quantile: float | None = None  # as last published

    def __len__(self) -> int:
        return len(self._observations)

    def add(self, error: float, censored: bool) -> None:
        """Scores the published bound first, then learns. A censored error below the bound tells nothing about it."""
        if self.quantile is not None and (not censored or error > self.quantile):
            self.level.update(error > self.quantile)
        self._slid = self._slid or len(self._observations) == self._observations.maxlen
        self._observations.append((error, censored))

    def see_running(self, running: Sequence[Observation]) -> None:
        self._running = running

    def observations(self) -> list[Observation]:
        return [*self._observations, *(() if self._slid else self._running)]


def bucket_index(edges: Sequence[int], prompt_tokens: int) -> int:
    """Index of the bucket whose upper edge is the first at or above the prompt's length."""
    return bisect_left(edges, prompt_tokens)
