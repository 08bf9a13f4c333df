"""The emulated engines' own word on how late they ran."""

import json
import urllib.request
from dataclasses import dataclass

MAX_LAG_P99_S = 0.005


@dataclass(frozen=True, slots=True)
class EngineLag:
    """Lag of the engines' steps behind their virtual end, seconds; the worst engine's."""

    steps: int
    p50_s: float
    p99_s: float

    @property
    def valid(self) -> bool:
        return self.p99_s <= MAX_LAG_P99_S


def reset_lag(urls: tuple[str, ...]) -> None:
    for url in urls:
        urllib.request.urlopen(urllib.request.Request(f"{url}/hmas/lag", method="DELETE"), timeout=5).close()


def read_lag(urls: tuple[str, ...]) -> EngineLag:
    """Since the last reset."""
    lags = []
    for url in urls:
        with urllib.request.urlopen(f"{url}/hmas/lag", timeout=5) as reply:
            lags.append(json.load(reply))
    return EngineLag(
        sum(lag["count"] for lag in lags),
        max(lag["p50_s"] or 0.0 for lag in lags),
        max(lag["p99_s"] or 0.0 for lag in lags),
    )
