"""Reads from emulated engines how far their steps lagged; real engines have no virtual time and report none."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass

MAX_LAG_P99_S = 0.005


@dataclass(frozen=True, slots=True)
class EngineLag:
    """How late engine steps ended, in s: quantiles of the worst engine. `steps` counts the steps of all engines."""

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
    """Returns the lag since the last reset; None if no engine is emulated."""
    lags = [json.loads(page) for url in urls if (page := _lag(url, "GET"))]
    if not lags:
        return None
    return EngineLag(
        sum(lag["count"] for lag in lags),
        max(lag["p50_s"] or 0.0 for lag in lags),
        max(lag["p99_s"] or 0.0 for lag in lags),
    )


def _lag(url: str, method: str) -> bytes:
    """Sends a request to the engine's lag page and returns the body; b"" if the engine has no such page."""
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/hmas/lag", method=method), timeout=5) as reply:
            return bytes(reply.read())
    except urllib.error.HTTPError as error:
        if error.code in (404, 405):
            return b""
        raise
