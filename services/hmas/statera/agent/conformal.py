"""Conformal calibration of output lengths under censoring (H-MAS Eq. 4, App. B.3)."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """An answer as far as it is known: its prompt-length `bucket`, its `tokens`, and their quotient by the predicted
    90 % quantile, the `error`. If `censored`, the answer still runs or was cut off, and both are lower bounds."""

    admitted_s: float
    bucket: int
    tokens: int
    error: float
    censored: bool


def revealed_weights(observations: Sequence[KnownAnswer], weights: Sequence[float]) -> list[float]:
    """Returns the weights by which the answers that ended stand for all of them; 0 for a censored one.

    Short answers end first, so that those that ended are too short on the whole. How far an answer is known is a matter
    of when it was admitted, not of what was predicted for it. So the weight of one that ended after l tokens is divided
    by the share G(l) of answers that would be known so far, by Kaplan and Meier with the roles exchanged: what still
    runs is the event (inverse probability of censoring weighting, Robins and Rotnitzky 1992). Kaplan-Meier over the
    errors themselves would call for censoring that does not depend on the prediction, and an answer that was predicted
    long is censored at small errors.
    """
    ranks = [2 * each.tokens + each.censored for each in observations]  # of the same length, those that ended first
    order = sorted(range(len(observations)), key=ranks.__getitem__)
    at_risk, known = sum(weights), 1.0
    revealed = [0.0] * len(observations)
    for i in order:
        weight = weights[i]
        if observations[i].censored:
            known *= max(0.0, 1.0 - weight / at_risk)
        elif known > 0.0:
            revealed[i] = weight / known
        at_risk -= weight
    return revealed


def weighted_quantile(errors: Sequence[tuple[float, float]], total: float, epsilon: float) -> float:
    """Returns the conformal quantile at 1 - epsilon of `errors`, pairs (error, weight) in ascending order. What the
    weights are short of `total` counts as larger than all of them; if nothing has a weight, the largest error is
    returned. The finite-sample rank (n + 1)(1 - epsilon) is taken at the effective number n of errors, that is
    (sum of weights)^2 / sum of their squares."""
    weights = [w for _, w in errors]
    weight = sum(weights)
    if weight <= 0.0:
        return errors[-1][0]
    effective = weight * weight / sum([w * w for w in weights])
    target = max(total, weight) * (1.0 - epsilon) * (1.0 + 1.0 / effective) - 1e-9
    first = bisect_left(list(accumulate(weights)), target)
    return next((error for error, w in errors[first:] if w > 0.0), errors[-1][0])


class AdaptiveLevel:
    """Adapts epsilon so that the share of outgrown bounds stays at the target (adaptive conformal inference, Gibbs &
    Candes 2021): eps_t+1 = eps_t + gamma (eps - miss_t), clipped to [lowest, highest].

    What a request tells is late by all that were admitted since. So gamma is at most `loop` per running request: one
    delay's worth of news then moves epsilon by no more than `loop`, and it does not swing.
    """

    def __init__(self, epsilon: float, gain: float, lowest: float, highest: float, loop: float) -> None:
        self._target = epsilon
        self._gain = gain
        self._loop = loop
        self._bounds = (lowest, highest)
        self.epsilon = epsilon

    def update(self, missed: bool, running: int) -> None:
        low, high = self._bounds
        gain = min(self._gain, self._loop / max(running, 1))
        self.epsilon = min(high, max(low, self.epsilon + gain * (self._target - missed)))


def bucket_index(edges: Sequence[int], prompt_tokens: int) -> int:
    """Returns the index of the bucket whose upper edge is the first at or above the prompt's length; `len(edges)` if
    the prompt is longer than all edges."""
    return bisect_left(edges, prompt_tokens)
