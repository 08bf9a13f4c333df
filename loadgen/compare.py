"""Runs side by side: one table, and the shares they differ by."""

from collections.abc import Sequence

from rich.table import Table

from loadgen.result import RunResult
from services.contracts.metrics import Score

COLUMNS = (
    "run",
    "offered",
    "completed",
    "TTFT ok",
    "TPOT ok",
    "goodput/s",
    "goodput rate",
    "ESG/s",
    "TTFT p50/p95/p99 ms",
    "TPOT p50/p95/p99 ms",
    "lag p50/p99 ms",
)


def compare_table(results: Sequence[RunResult], title: str = "") -> Table:
    """One row a run, the columns of `Score`. Invalid runs are marked, and their reasons stand in the caption."""
    table = Table(*COLUMNS, title=title or None)
    for column in table.columns[1:]:
        column.justify = "right"
    for result in results:
        name = result.name if result.valid else f"{result.name} [red](invalid)[/red]"
        lag = f"{result.lag_p50_s * 1000:.1f} / {result.lag_p99_s * 1000:.1f}"
        table.add_row(name, *score_cells(result.score()), lag)
    invalid = [f"{result.name}: {reason}" for result in results for reason in result.reasons]
    if invalid:
        table.caption = "invalid: " + "; ".join(invalid)
    return table


def score_cells(score: Score) -> list[str]:
    """The score's columns as text, in the order of `COLUMNS`."""
    ttft = (score.ttft_p50_s, score.ttft_p95_s, score.ttft_p99_s)
    tpot = (score.tpot_p50_s, score.tpot_p95_s, score.tpot_p99_s)
    return [
        str(score.offered),
        str(score.completed),
        f"{score.ttft_compliance:.1%}",
        f"{score.tpot_compliance:.1%}",
        f"{score.goodput:.2f}",
        f"{score.goodput_rate:.1%}",
        f"{score.esg_rate:.0f}",
        " / ".join(f"{value * 1000:.0f}" for value in ttft),
        " / ".join(f"{value * 1000:.1f}" for value in tpot),
    ]


def error_table(result: RunResult) -> Table | None:
    """Errors by group with one message each; None if there were none."""
    counts = result.errors()
    if not counts:
        return None
    table = Table("error", "requests", "for example", title=f"errors of {result.name}")
    for error, count in counts.items():
        example = next((r.message for r in result.records if r.error == error and r.message), "")
        table.add_row(error, str(count), example[:80])
    return table
