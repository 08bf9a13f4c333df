"""The table of a comparison, and its figures as JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import mean
from typing import Any, Protocol

from rich.table import Table
from rich.text import Text

from hmas.laws.scoring import Score
from hmas.mesh.compare.engines import EngineLag


class Scored(Protocol):
    """A run with a score, live or simulated; `lag` and `reasons` are those of `Replay`."""

    @property
    def score(self) -> Score: ...
    @property
    def lag(self) -> EngineLag | None: ...
    @property
    def reasons(self) -> list[str]: ...


ROWS: tuple[tuple[str, str, float, str], ...] = (
    ("offered", "offered", 1, "{:.0f}"),
    ("completed", "completed", 1, "{:.0f}"),
    ("ttft_compliance", "TTFT compliance", 100, "{:.1f} %"),
    ("tpot_compliance", "TPOT compliance", 100, "{:.1f} %"),
    ("goodput", "goodput", 1, "{:.2f} req/s"),
    ("goodput_rate", "goodput rate", 100, "{:.1f} %"),
    ("esg_rate", "ESG", 1, "{:.0f} /s"),
    ("ttft_p50_s", "TTFT p50", 1000, "{:.0f} ms"),
    ("ttft_p95_s", "TTFT p95", 1000, "{:.0f} ms"),
    ("ttft_p99_s", "TTFT p99", 1000, "{:.0f} ms"),
    ("tpot_p50_s", "TPOT p50", 1000, "{:.1f} ms"),
    ("tpot_p95_s", "TPOT p95", 1000, "{:.1f} ms"),
    ("tpot_p99_s", "TPOT p99", 1000, "{:.1f} ms"),
)


def comparison_table(title: str, runs: Mapping[str, Sequence[Scored]]) -> Table:
    """Returns a table with one column per system and one row per metric; several runs show as mean (min-max)."""
    heading = Text(title, style="italic", no_wrap=True, overflow="ignore")  # it may be wider than its table
    table = Table(title=heading, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for name in runs:
        table.add_column(name, justify="right", overflow="fold")
    for label, *cells in comparison_rows(runs):
        table.add_row(label, *("[red]no[/red]" if label == "valid" and cell == "no" else cell for cell in cells))
    return table


def comparison_rows(runs: Mapping[str, Sequence[Scored]]) -> list[tuple[str, ...]]:
    """Returns one row per metric: its label and a cell per system; the engines' lag only if some engine is emulated."""
    every = runs.values()
    rows = [
        (label, *(_cell([getattr(r.score, name) * factor for r in rs], form) for rs in every))
        for name, label, factor, form in ROWS
    ]
    if any(r.lag for rs in every for r in rs):
        rows.append(("engine lag p99", *(_cell([1e3 * _lag_s(r) for r in rs], "{:.1f} ms") for rs in every)))
    return [*rows, ("valid", *("no" if any(r.reasons for r in rs) else "yes" for rs in every))]


def _cell(values: list[float], form: str) -> str:
    known = [v for v in values if not math.isnan(v)]
    if not known:
        return "-"
    middle = form.format(mean(known))
    if len(known) == 1:
        return middle
    return f"{middle} ({form.format(min(known)).split()[0]}-{form.format(max(known)).split()[0]})"


def scores_json(runs: Sequence[Scored]) -> dict[str, Any]:
    """Returns the mean of each metric over the runs, and the runs themselves under `runs`; NaN becomes None."""
    fields = list(asdict(runs[0].score))
    columns = {f: _mean([getattr(r.score, f) for r in runs]) for f in fields}
    return {
        **columns,
        "valid": not any(r.reasons for r in runs),
        "invalid_reasons": sorted({reason for r in runs for reason in r.reasons}),
        "engine_lag_p99_s": max((r.lag.p99_s for r in runs if r.lag), default=None),
        "runs": [{**_finite(r.score), "engine_lag_p99_s": r.lag.p99_s if r.lag else None} for r in runs],
    }


def _lag_s(run: Scored) -> float:
    return run.lag.p99_s if run.lag else math.nan


def _mean(values: list[float]) -> float | None:
    known = [v for v in values if not math.isnan(v)]
    return mean(known) if known else None


def _finite(score: Score) -> dict[str, float | None]:
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in asdict(score).items()}
