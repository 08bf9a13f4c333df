"""MaaSO's throughput decay function (MaaSO §IV-B, Eq. 1): how one request's decode speed falls under load.

    T(W) = T_1 * (1 - alpha * ln(1 + beta * (min(W, B) - 1)))

T(W) is the tokens per second of one request among W concurrent ones, T_1 that of a request alone, and B the batch size
beyond which the decay stops. The paper gives these properties in words; alpha and beta are fitted by least squares.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p

import numpy as np

BETAS = np.logspace(-4, 3, 281)


@dataclass(frozen=True, slots=True)
class ThroughputDecay:
    """A fitted decay function; `tokens_per_s` is T_1 and `batch_size` is B of the formula.

    `half_width_95` holds the half-widths of the 95 % confidence intervals of alpha and beta, `error_mean` the mean
    relative error as a share.
    """

    tokens_per_s: float
    alpha: float
    beta: float
    batch_size: int
    half_width_95: tuple[float, float]
    error_mean: float

    def at(self, workload: float) -> float:
        """Returns the tokens per second of each of `workload` concurrent requests."""
        return self.tokens_per_s * (1 - self.alpha * log1p(self.beta * (min(workload, self.batch_size) - 1)))


def fit_decay(points: Sequence[tuple[int, float]], batch_size: int) -> ThroughputDecay | None:
    """Fits the decay to points of (concurrent requests, tokens per second of each).

    Returns None unless there is a point with one request and at least two with more.
    """
    alone = [speed for load, speed in points if load == 1]
    loaded = [(min(load, batch_size), speed) for load, speed in points if load > 1]
    if not alone or len(loaded) < 2:
        return None
    base = float(np.mean(alone))
    loads = np.array([load for load, _ in loaded], dtype=float)
    lost = 1 - np.array([speed for _, speed in loaded]) / base
    curves = np.log1p(np.outer(BETAS, loads - 1))
    alphas = np.maximum(0.0, curves @ lost / np.sum(curves**2, axis=1))
    residuals = np.sum((lost - alphas[:, None] * curves) ** 2, axis=1)
    best = int(np.argmin(residuals))
    alpha, beta = float(alphas[best]), float(BETAS[best])
    jacobian = np.stack([curves[best], alpha * (loads - 1) / (1 + beta * (loads - 1))], axis=1)
    variance = float(residuals[best]) / max(1, len(loaded) - 2)
    widths = 1.96 * np.sqrt(np.clip(np.diag(variance * np.linalg.pinv(jacobian.T @ jacobian)), 0, None))
    fitted = 1 - alpha * curves[best]
    error = float(np.mean(np.abs(fitted - (1 - lost)) / (1 - lost)))
    return ThroughputDecay(base, alpha, beta, batch_size, (float(widths[0]), float(widths[1])), error)
