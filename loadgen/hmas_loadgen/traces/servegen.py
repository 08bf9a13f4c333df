"""Reads ServeGen client rates (alibaba/ServeGen, Apache-2.0) and draws requests from them. They hold no requests but,
per client and 600 s window, the arrival rate, its CV and the fitted distribution of the gaps between arrivals.

NAME_client_rates.csv has the columns `client,window_start_s,rate_rps,cv,iat_dist,dist_p1,dist_p2`; lengths are drawn
from NAME_length_hist.csv, `kind,tokens,prob`. `dist_p1` is the shape of a Gamma or Weibull distribution. Its scale
follows from the window's rate: the published scale was fitted to gaps that the windows cut short, and does not give the
published rate.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hmas_loadgen.traces.lines import Record, csv_records
from hmas_loadgen.traces.row import Trace, TraceError, TraceRow

WINDOW_S = 600.0
MAX_ROWS = 5_000_000
COLUMNS = ("client", "window_start_s", "rate_rps", "cv", "iat_dist", "dist_p1", "dist_p2")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientWindow:
    """The arrivals of one client in one window of 600 s. `shape` is that of the Gamma or Weibull `distribution` of
    gaps; a higher one means steadier arrivals."""

    client: str
    start_s: float
    rate_rps: float
    distribution: str
    shape: float

    def gaps(self, rate_rps: float, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draws `count` gaps between arrivals in seconds, of mean 1 / `rate_rps`."""
        if self.distribution == "Weibull":
            return rng.weibull(self.shape, count) / (math.gamma(1 + 1 / self.shape) * rate_rps)
        return rng.gamma(self.shape, 1 / (self.shape * rate_rps), count)


@dataclass(frozen=True, slots=True)
class ServeGenRates:
    """The client rates of one file, and the histograms of prompt and answer lengths that belong to it."""

    name: str
    windows: tuple[ClientWindow, ...]
    input_hist: tuple[NDArray[np.float64], NDArray[np.float64]]  # tokens, probabilities
    output_hist: tuple[NDArray[np.float64], NDArray[np.float64]]

    def busiest_start_s(self) -> float:
        """Returns the start, in seconds, of the window with the highest total rate."""
        totals: dict[float, float] = {}
        for window in self.windows:
            totals[window.start_s] = totals.get(window.start_s, 0.0) + window.rate_rps
        return max(totals, key=lambda start: (totals[start], -start))

    def generate(self, start_s: float, duration_s: float, rate_rps: float | None, seed: int) -> Trace:
        """Draws requests for [start_s, start_s + duration_s). With `rate_rps`, the rates of all clients are scaled by
        the same factor to that mean; each client keeps its burstiness. Raises TraceError if no client is active or more
        than 5 million requests would be drawn."""
        rng = np.random.default_rng(seed)
        end_s = start_s + duration_s
        chosen = [w for w in self.windows if w.start_s < end_s and w.start_s + WINDOW_S > start_s]
        expected = sum(w.rate_rps * _overlap_s(w, start_s, end_s) for w in chosen)
        if expected == 0:
            raise TraceError(
                self.name, None, f"no client is active in [{start_s:g}, {end_s:g}) s", "Choose another --start"
            )
        scale = 1.0 if rate_rps is None else rate_rps * duration_s / expected
        if expected * scale > MAX_ROWS:
            raise TraceError(
                self.name, None, f"{expected * scale:.0f} requests are too many", "Give a lower --rate or --duration"
            )
        rows = [row for window in chosen for row in self._rows(window, scale, start_s, end_s, rng)]
        note = f"ServeGen arrivals from {start_s:g} s for {duration_s:g} s, rates x {scale:.4g}, seed {seed}"
        return Trace(
            name=self.name,
            rows=tuple(sorted(rows, key=lambda row: row.arrival_s)),
            note=note,
            span_s=duration_s,
            drawn=True,
        )

    def _rows(
        self, window: ClientWindow, scale: float, start_s: float, end_s: float, rng: np.random.Generator
    ) -> list[TraceRow]:
        low, high = max(window.start_s, start_s), min(window.start_s + WINDOW_S, end_s)
        rate = window.rate_rps * scale
        arrivals: list[float] = []
        # The window begins at a random moment between two arrivals, so up to one mean gap before it is dropped.
        at = low - float(rng.random()) / rate
        while at < high:
            block = at + np.cumsum(window.gaps(rate, max(16, int(rate * (high - low) * 1.2)), rng))
            arrivals += [float(t) for t in block if low <= t < high]
            at = float(block[-1])
        tokens_in = _draw(self.input_hist, len(arrivals), rng)
        tokens_out = _draw(self.output_hist, len(arrivals), rng)
        tenant = f"client-{window.client}"
        return [
            TraceRow(arrival_s=t - start_s, input_tokens=int(a), output_tokens=int(b), tenant=tenant)
            for t, a, b in zip(arrivals, tokens_in, tokens_out, strict=True)
        ]


def _overlap_s(window: ClientWindow, start_s: float, end_s: float) -> float:
    return min(window.start_s + WINDOW_S, end_s) - max(window.start_s, start_s)


def _draw(
    hist: tuple[NDArray[np.float64], NDArray[np.float64]], count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    tokens, probabilities = hist
    drawn = rng.choice(tokens, size=count, p=probabilities)
    whole: NDArray[np.int64] = np.maximum(1, np.rint(drawn)).astype(np.int64)
    return whole


def _window(record: Record) -> ClientWindow | None:
    rate, cv = record.number("rate_rps"), record.number("cv")
    if rate == 0:
        return None
    distribution = record.text("iat_dist")
    if distribution not in ("Gamma", "Weibull"):
        raise record.error(f"field 'iat_dist' must be Gamma or Weibull, not {distribution!r}")
    shape = record.number("dist_p1") or (1 / cv**2 if cv else 1.0)
    # Below a shape of 0.02 the mean of a Weibull overflows; such a client sends one burst per window either way.
    return ClientWindow(
        client=record.text("client"),
        start_s=record.number("window_start_s"),
        rate_rps=rate,
        distribution=distribution,
        shape=max(shape, 0.02),
    )


def histogram_path(path: Path) -> Path:
    """Returns the path of the length histogram that belongs to a client-rate file."""
    return path.with_name(path.name.replace("client_rates", "length_hist"))


def _histogram(path: Path, kind: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    records = [record for record in csv_records(path) if record.text("kind") == kind]
    if not records:
        raise TraceError(path, None, f"the file has no rows of kind '{kind}'", "Fetch the file again")
    probabilities = np.array([record.number("prob") for record in records])
    return np.array([record.number("tokens") for record in records]), probabilities / probabilities.sum()


def read(path: Path) -> ServeGenRates:
    """Reads NAME_client_rates.csv(.gz) and the file NAME_length_hist.csv(.gz) beside it. Raises TraceError if one is
    missing or malformed."""
    lengths = histogram_path(path)
    if lengths == path or not lengths.exists():
        remedy = "Name the files NAME_client_rates.csv and NAME_length_hist.csv and put both in one folder"
        raise TraceError(path, None, "its length histogram is missing", remedy)
    windows = tuple(window for record in csv_records(path) if (window := _window(record)) is not None)
    return ServeGenRates(path.name, windows, _histogram(lengths, "input"), _histogram(lengths, "output"))
