"""Tables for the terminal: the scores of runs side by side, and the errors of one run."""

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from hmas.laws.scoring import Score
from hmas_loadgen.jobs import JobsScore
from hmas_loadgen.result import LoadResult

RUNS_A_TABLE = 4  # as many runs as fit in 80 characters
METRICS = (
    "offered",
    "completed",
    "TTFT met",
    "TPOT met",
    "goodput, ok/s",
    "goodput rate",
    "ESG/s",
    "TTFT p50 ms",
    "TTFT p95 ms",
    "TTFT p99 ms",
    "TPOT p50 ms",
    "TPOT p95 ms",
    "TPOT p99 ms",
    "Jain index of service",
)


def compare_table(results: Sequence[LoadResult], title: str = "") -> Group:
    """Returns tables with one column per run and one row per metric of `METRICS`, at most four runs per table. Invalid
    runs are marked, and the caption gives the reasons."""
    parts = (results[at : at + RUNS_A_TABLE] for at in range(0, len(results), RUNS_A_TABLE))
    return Group(*(_table(part, title) for part in parts))


def _table(results: Sequence[LoadResult], title: str) -> Table:
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for result in results:
        name = Text(result.name) if result.valid else Text.assemble(result.name, "\n", ("invalid", "red"))
        table.add_column(name, justify="right", overflow="fold")
    cells = [score_cells(result.score()) for result in results]
    for row, metric in enumerate(METRICS):
        table.add_row(metric, *(column[row] for column in cells))
    if any(result.worth for result in results):
        table.add_row("utility", *(f"{result.score().utility_rate:.1%}" if result.worth else "-" for result in results))
    table.add_row("lag p50 / p99 ms", *(f"{r.lag_p50_s * 1000:.1f} / {r.lag_p99_s * 1000:.1f}" for r in results))
    invalid = [f"{result.name}: {reason}" for result in results for reason in result.reasons]
    if invalid:
        table.caption = "invalid: " + "; ".join(invalid)
    return table


def score_cells(score: Score) -> list[str]:
    """Returns the values of a score as text, in the order of `METRICS`."""
    return [
        str(score.offered),
        str(score.completed),
        f"{score.ttft_compliance:.1%}",
        f"{score.tpot_compliance:.1%}",
        f"{score.goodput:.2f}",
        f"{score.goodput_rate:.1%}",
        f"{score.esg_rate:.0f}",
        *(f"{value * 1000:.0f}" for value in (score.ttft_p50_s, score.ttft_p95_s, score.ttft_p99_s)),
        *(f"{value * 1000:.1f}" for value in (score.tpot_p50_s, score.tpot_p95_s, score.tpot_p99_s)),
        f"{score.jain_index:.3f}",
    ]


JOB_METRICS = ("jobs", "calls", "on time", "job goodput", "job time p50 s", "job time p90 s", "lost")


def job_cells(score: JobsScore) -> list[str]:
    """Returns the values of a score of jobs as text, in the order of `JOB_METRICS`."""
    times = [f"{value:.2f}" if value == value else "-" for value in (score.time_p50_s, score.time_p90_s)]
    return [str(score.offered), str(score.calls), str(score.on_time), f"{score.goodput:.1%}", *times, str(score.lost)]


def jobs_table(result: LoadResult) -> Table | None:
    """Returns a table of the run's jobs, a row for all and one for each template; None if it had none."""
    scores = result.jobs()
    if not scores:
        return None
    table = Table(title=f"jobs of {result.name}", title_justify="left", box=None, pad_edge=False)
    table.add_column("", overflow="fold")
    for metric in JOB_METRICS:
        table.add_column(metric, justify="right")
    for name, score in scores.items():
        table.add_row(name or "all", *job_cells(score))
    return table


def error_table(result: LoadResult) -> Table | None:
    """Returns a table of the run's failed requests by kind of error, with an example message for each; None if no
    request failed."""
    counts = result.errors()
    if not counts:
        return None
    table = Table(title=f"errors of {result.name}", title_justify="left", box=None, pad_edge=False)
    table.add_column("error", overflow="fold")
    table.add_column("requests", justify="right", no_wrap=True)
    table.add_column("for example", overflow="fold")
    for error, count in counts.items():
        table.add_row(error, str(count), result.example(error)[:80])
    return table
