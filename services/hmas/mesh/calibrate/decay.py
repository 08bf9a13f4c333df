"""MaaSO's throughput decay function (MaaSO §IV-B, Eq. 1): what one request's decode speed becomes under load.

    T(W) = T_1 * (1 - alpha * ln(1 + beta * (min(W, B) - 1)))

T_1 is the tokens per second of a request alone, W the requests at once, B the batch size at which the logarithmic
decay is cut off. The published text gives these properties in words; alpha and beta are found by least squares.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p

import numpy as np

BETAS = np.logspace(-4, 3, 281)


@dataclass(frozen=True, slots=True)
class ThroughputDecay:
    """`half_width_95`: of alpha and beta. `error_mean`: mean relative error as a share."""

    tokens_per_s: float
    alpha: float
    beta: float
    batch_size: int
    half_width_95: tuple[float, float]
    error_mean: float

    def at(self, workload: float) -> float:
        """Tokens per second of each of `workload` requests."""
        return self.tokens_per_s * (1 - self.alpha * log1p(self.beta * (min(workload, self.batch_size) - 1)))


def fit_decay(points: Sequence[tuple[int, float]], batch_size: int) -> ThroughputDecay | None:
    """From (workload, tokens per second of one request); None without the unloaded speed or with fewer than three."""
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
