"""Least-squares fit of the step cost model to observed times, for published measurements and live calibration."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core.profile import FitError

Vector = NDArray[np.float64]
COEFFICIENTS = 5
TOLERANCE, ROUNDS = 1e-10, 10  # of `non_negative`: relative, and per coefficient


@dataclass(frozen=True, slots=True)
class Observation:
    """A measured time (s) and the work done in it, in the terms of `StepCostModel`; counts may be means over steps."""

    kind: Literal["prefill", "decode"]
    seconds: float
    steps: float = 1.0
    prefill_tokens: float = 0.0
    decode_seqs: float = 0.0
    context_tokens: float = 0.0
    prefill_pairs: float = 0.0

    def features(self) -> tuple[float, ...]:
        return (self.steps, self.prefill_tokens, self.decode_seqs, self.context_tokens, self.prefill_pairs)


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted cost model with its error.

    `half_width_95` holds the half-widths of the coefficients' 95 % confidence intervals, in the cost model's order and
    in seconds; 0 for a coefficient at its bound of 0.
    """

    cost: StepCostModel
    error: FitError
    half_width_95: tuple[float, ...]


def fit_cost(observations: Sequence[Observation]) -> Fit:
    """Returns the non-negative coefficients with the least squared *relative* error.

    Prefill and decode observations have the same total weight. Raises ValueError if there are too few observations,
    a time is not positive, or the observations do not determine the cost of an empty step.
    """
    if len(observations) < COEFFICIENTS:
        raise ValueError(f"a fit needs at least {COEFFICIENTS} observations, got {len(observations)}")
    seconds = np.array([o.seconds for o in observations])
    if not (seconds > 0).all():
        raise ValueError("every observed time must be above 0 seconds: leave the others out of the fit")
    design = np.array([o.features() for o in observations])
    kinds = np.array([o.kind for o in observations])
    weights = 1.0 / seconds
    for kind in ("prefill", "decode"):
        chosen = kinds == kind
        weights[chosen] /= np.sqrt(max(1, chosen.sum()))
    solution, used = non_negative(design * weights[:, None], seconds * weights)
    if solution[0] <= 0.0:
        raise ValueError(
            "the observations do not determine the cost of an empty step (c0_s came out as 0): add "
            "measurements of decoding with few sequences"
        )
    error = _error(np.abs(design @ solution - seconds) / seconds, kinds)
    return Fit(_cost(solution), error, _half_widths(design * weights[:, None], seconds * weights, solution, used))


def non_negative(design: Vector, target: Vector) -> tuple[Vector, list[int]]:
    """Solves non-negative least squares exactly, by Lawson and Hanson's active-set method (Solving Least Squares
    Problems, algorithm NNLS).

    Returns the best solution and the indices of its non-zero coefficients.
    """
    scale = np.where((norm := np.linalg.norm(design, axis=0)) > 0, norm, 1.0)
    scaled = design / scale
    solution, used = np.zeros(design.shape[1]), list[int]()
    least = TOLERANCE * float(np.linalg.norm(target))
    for _ in range(ROUNDS * design.shape[1]):
        gain = scaled.T @ (target - scaled @ solution)
        gain[used] = 0.0
        if float(gain.max()) <= least:
            break
        used.append(int(gain.argmax()))
        while True:
            part = np.linalg.lstsq(scaled[:, used], target, rcond=None)[0]
            if (part > 0.0).all():
                break
            now = solution[used]
            low = (part <= 0.0) & (now > part)  # the rest stays at 0
            step = float(np.min(now[low] / (now[low] - part[low]), initial=1.0))
            solution[used] = now + step * (part - now)
            solution[[i for i, p in zip(used, part, strict=True) if p <= 0.0 and solution[i] <= TOLERANCE]] = 0.0
            used = [i for i in used if solution[i] > 0.0]
        solution = np.zeros(design.shape[1])
        solution[used] = part
    return solution / scale, sorted(used)


def _half_widths(design: Vector, target: Vector, solution: Vector, used: list[int]) -> tuple[float, ...]:
    """Returns 1.96 standard errors of ordinary least squares over the coefficients in `used`; 0 for the others."""
    freedom = max(1, len(target) - len(used))
    variance = float(np.sum((design @ solution - target) ** 2)) / freedom
    covariance = variance * np.linalg.pinv(design[:, used].T @ design[:, used])
    widths = np.zeros(len(solution))
    widths[used] = 1.96 * np.sqrt(np.clip(np.diag(covariance), 0.0, None))
    return tuple(float(w) for w in widths)


def _cost(solution: Vector) -> StepCostModel:
    c0, c_p, c_d, c_k, c_pp = (float(f"{value:.4g}") for value in solution)
    return StepCostModel(c0, c_p, c_d, c_k, c_pp)


def _error(relative: Vector, kinds: NDArray[Any]) -> FitError:
    def of(kind: str, reduce: str) -> float | None:
        chosen = relative[kinds == kind]
        if not len(chosen):
            return None
        return round(float(chosen.mean() if reduce == "mean" else np.quantile(chosen, 0.9)), 4)

    return FitError(
        points=len(relative),
        prefill_mean=of("prefill", "mean"),
        prefill_p90=of("prefill", "p90"),
        decode_mean=of("decode", "mean"),
        decode_p90=of("decode", "p90"),
    )
