"""The emulated engines' own word on how late they ran. Real ones have no clock to be late for."""

import json
import urllib.error
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
        _lag(url, "DELETE")


def read_lag(urls: tuple[str, ...]) -> EngineLag | None:
    """Since the last reset; None if none of the engines is emulated."""
    lags = [json.loads(page) for url in urls if (page := _lag(url, "GET"))]
    if not lags:
        return None
    return EngineLag(
        sum(lag["count"] for lag in lags),
        max(lag["p50_s"] or 0.0 for lag in lags),
        max(lag["p99_s"] or 0.0 for lag in lags),
    )


def _lag(url: str, method: str) -> bytes:
    """Empty where the engine knows no such path."""
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/hmas/lag", method=method), timeout=5) as reply:
            return bytes(reply.read())
    except urllib.error.HTTPError as error:
        if error.code in (404, 405):
            return b""
        raise
