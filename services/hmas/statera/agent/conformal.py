"""Conformal calibration of output-length errors under censoring (H-MAS Eq. 4, App. B.3)."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from math import ceil
from operator import itemgetter

Observation = tuple[float, bool]  # (error l_real - l_pred, censored: the true error is at least this)


def conformal_rank(count: int, epsilon: float) -> int:
    """Returns ceil((n + 1)(1 - eps)), the rank of the order statistic that has the coverage 1 - eps in finite samples;
    it is above n if n is too small for that."""
    return ceil((count + 1) * (1.0 - epsilon) - 1e-9)


def survival_quantile(observations: Iterable[Observation], epsilon: float) -> float:
    """Returns the conformal quantile of errors, some of which are only lower bounds (censored).

    By Kaplan-Meier it is the smallest e with 1 - S(e) >= ceil((n + 1)(1 - eps)) / n. Without censored errors this is
    the order statistic itself. If the estimate does not reach that far, it is the largest observation. Raises
    ValueError if there are no observations.
    """
    ordered = sorted(observations)  # at a tie, exact errors come before censored ones, as the estimator requires
    if not ordered:
        raise ValueError("a conformal quantile needs at least one observed error: none was given")
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
    """Adapts epsilon so that the share of missed bounds stays at the target (adaptive conformal inference, Gibbs &
    Candes 2021): eps_t+1 = eps_t + gamma (eps - miss_t), clipped to [lowest, highest]."""

    def __init__(self, epsilon: float, gain: float, lowest: float, highest: float) -> None:
        self._target = epsilon
        self._gain = gain
        self._bounds = (lowest, highest)
        self.epsilon = epsilon

    def update(self, missed: bool) -> None:
        low, high = self._bounds
        self.epsilon = min(high, max(low, self.epsilon + self._gain * (self._target - missed)))


class ErrorBuffer:
    """The last `size` length errors of one prompt-length bucket.

    Until the buffer is full, running requests count as censored errors, because the finished ones are mostly the short
    ones. Once old errors leave it, long requests enter it as often as they occur, and running ones would count twice.
    """

    def __init__(self, size: int, level: AdaptiveLevel) -> None:
        self._observations: deque[Observation] = deque(maxlen=size)
        self._running: Sequence[Observation] = ()
        self._slid = False
        self.level = level
        self.quantile: float | None = None  # the quantile that was last published

    def __len__(self) -> int:
        return len(self._observations)

    def add(self, error: float, censored: bool) -> None:
        """Adds an error, after telling the level whether the error exceeded the published quantile. A censored error
        below that quantile does not show whether it would have."""
        if self.quantile is not None and (not censored or error > self.quantile):
            self.level.update(error > self.quantile)
        self._slid = self._slid or len(self._observations) == self._observations.maxlen
        self._observations.append((error, censored))

    def see_running(self, running: Sequence[Observation]) -> None:
        self._running = running

    def observations(self) -> list[Observation]:
        return [*self._observations, *(() if self._slid else self._running)]


def bucket_index(edges: Sequence[int], prompt_tokens: int) -> int:
    """Returns the index of the bucket whose upper edge is the first at or above the prompt's length; `len(edges)` if
    the prompt is longer than all edges."""
    return bisect_left(edges, prompt_tokens)
