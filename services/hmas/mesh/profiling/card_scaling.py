"""How an engine's costs change with the number of cards it runs on (tensor parallelism).

    c(g) = a + b / g                for each coefficient of the step law, a and b 0 or more
    c_d(g) = a + b / g + d (g - 1)  with talk between cards that grows with their number, d 0 or more

Work divides by the cards, and what is done once per step or on each card does not; the ring all-reduce after each layer
passes g - 1 hops. All numbers of cards are fitted together, by the squared relative error of their times.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hmas.contracts.step_cost import StepCostModel
from hmas.engine.fitting import COEFFICIENTS, Observation, Vector, non_negative

LEAST_SIZES = 3  # numbers of cards with measurements: without one of them, two must determine a and b
_DECODE = 2  # the coefficient c_d among those of the step law


@dataclass(frozen=True, slots=True)
class CardScaling:
    """Fitted costs over the number of cards: `once` is a, `divided` b (s, in the step law's order), and `talk_s` d."""

    once: tuple[float, ...]
    divided: tuple[float, ...]
    talk_s: float = 0.0

    def at(self, gpus: int) -> StepCostModel:
        """Returns the step law on so many cards. Raises ValueError if an empty step would take no time."""
        costs = [a + b / gpus for a, b in zip(self.once, self.divided, strict=True)]
        costs[_DECODE] += self.talk_s * (gpus - 1)
        return StepCostModel(*(float(f"{cost:.4g}") for cost in costs))


@dataclass(frozen=True, slots=True)
class CheckedScaling:
    """A scaling with its mean relative error on each number of cards when that one was left out of the fit (LTO)."""

    scaling: CardScaling
    left_out: Mapping[int, float]

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.left_out.values())))


def fit_scaling(sizes: Mapping[int, Sequence[Observation]], *, talks: bool) -> CardScaling:
    """Fits the observations by number of cards; with `talks`, c_d has its third term."""
    rows = [(gpus, o) for gpus, observed in sizes.items() for o in observed]
    features = np.array([o.features() for _, o in rows])
    gpus = np.array([float(gpus) for gpus, _ in rows])[:, None]
    seconds = np.array([o.seconds for _, o in rows])
    columns = [features, features / gpus, *([features[:, [_DECODE]] * (gpus - 1)] if talks else [])]
    solution, _ = non_negative(np.hstack(columns) / seconds[:, None], np.ones(len(rows)))
    once, divided, talk = np.split(solution, [COEFFICIENTS, 2 * COEFFICIENTS])
    return CardScaling(tuple(map(float, once)), tuple(map(float, divided)), float(talk.sum()))


def best_scaling(sizes: Mapping[int, Sequence[Observation]]) -> CheckedScaling:
    """Returns the scaling, with or without talk, whose error on numbers of cards left out is less. Raises ValueError
    if there are fewer than `LEAST_SIZES` or a fit has no cost of an empty step."""
    if len(sizes) < LEAST_SIZES:
        raise ValueError(f"it takes measurements on {LEAST_SIZES} numbers of cards to check a fit over them")
    checked = [CheckedScaling(fit_scaling(sizes, talks=talks), left_out(sizes, talks=talks)) for talks in (False, True)]
    return min(checked, key=lambda each: each.mean)


def left_out(sizes: Mapping[int, Sequence[Observation]], *, talks: bool) -> dict[int, float]:
    """Returns the mean relative error on each number of cards of the fit to the others."""
    result = {}
    for gpus, observed in sizes.items():
        others = {other: found for other, found in sizes.items() if other != gpus}
        result[gpus] = mean_error(fit_scaling(others, talks=talks).at(gpus), observed)
    return result


def mean_error(cost: StepCostModel, observed: Sequence[Observation]) -> float:
    """Returns the mean relative error of a step law's times."""
    return float(np.mean(np.abs(predicted_s(cost, observed) / np.array([o.seconds for o in observed]) - 1.0)))


def predicted_s(cost: StepCostModel, observed: Sequence[Observation]) -> Vector:
    """Returns the seconds that a step law gives for the work of each observation."""
    coefficients = np.array([cost.c0_s, cost.c_p_s, cost.c_d_s, cost.c_k_s, cost.c_pp_s])
    seconds: Vector = np.array([o.features() for o in observed]) @ coefficients
    return seconds
