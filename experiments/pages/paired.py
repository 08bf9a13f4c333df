"""Differences of two systems over seeds that both have, and how sure they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan, sqrt
from statistics import fmean, stdev

from scipy.stats import t as student

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Paired:
    """The mean difference of two systems over seeds that both have, and half the width of its confidence interval
    (Student's t, `CONFIDENCE`)."""

    mean: float
    half: float

    @property
    def noise(self) -> bool:
        """Whether 0 lies within the interval."""
        return abs(self.mean) <= self.half


def paired(a: Sequence[float], b: Sequence[float]) -> Paired:
    """Returns the difference a - b, seed by seed. Of fewer than two seeds nothing is certain."""
    differences = [x - y for x, y in zip(a, b, strict=True)]
    n = len(differences)
    if n < 2:
        return Paired(fmean(differences) if differences else nan, float("inf"))
    quantile = float(student.ppf((1 + CONFIDENCE) / 2, n - 1))
    return Paired(fmean(differences), quantile * stdev(differences) / sqrt(n))
