"""Makes the page of H-MAS §2: statistics of public traces beside those of the paper's trace."""

from pathlib import Path

from experiments.pages.template import render
from hmas_loadgen.traces.reading import read_trace
from hmas_loadgen.traces.statistics import TraceStatistics, statistics
from hmas_loadgen.workloads.published import published_trace

TRACES = (
    "traces/azure_2023_code.csv.gz",
    "traces/azure_2023_conv.csv.gz",
    "traces/mooncake_fast25_conversation.csv.gz",
)
PAPER = TraceStatistics(
    requests=1_048_576,
    duration_s=float("nan"),
    mean_rps=45.15,
    peak_rps=176,
    step_rps=140,
    burst_requests=167.0,
    gap_cv=float("nan"),
    input_p50=float("nan"),
    input_p95=5894.0,
    input_p99=float("nan"),
    output_p50=float("nan"),
    output_p95=float("nan"),
    output_p99=float("nan"),
    short_share=0.2325,
    long_share=float("nan"),
    long_share_swing=0.1565,
    shared_prefix_share=float("nan"),
)
COLUMNS = (
    ("mean_rps", "mean requests/s", 2),
    ("peak_rps", "peak in 1 s", 0),
    ("step_rps", "largest step in 1 s", 0),
    ("burst_requests", "5 s burst, extra requests", 0),
    ("input_p50", "input p50", 0),
    ("input_p95", "input P95", 0),
    ("output_p50", "output p50", 0),
    ("output_p95", "output P95", 0),
    ("short_share", "share of inputs ≤ 512", 3),
    ("long_share", "share of inputs > 2048", 3),
    ("long_share_swing", "swing of that share by minute", 3),
)


def statistics_page(data: Path | None) -> str:
    """Returns the page as Markdown, with one column per trace. `data` is the folder of traces; a trace that is missing
    is shown as not measured."""
    found: dict[str, TraceStatistics | None] = {"paper's Azure trace": PAPER}
    found["azure-like, generated"] = statistics(published_trace(45.15, 1200.0, 1))
    for name in TRACES:
        path = data / name if data is not None else None
        exists = path is not None and path.exists()
        found[Path(name).name.split(".")[0]] = statistics(read_trace(path)) if exists and path is not None else None
    rows = [(title, *(_text(s, column, digits) for s in found.values())) for column, title, digits in COLUMNS]
    rows.append(("peak / mean", *(_peak(s) for s in found.values())))
    return render(Path(__file__).with_name("statistics.md.j2"), header=["", *found], rows=rows)


def _text(s: TraceStatistics | None, column: str, digits: int) -> str:
    if s is None:
        return "not measured"
    number = float(getattr(s, column))
    return "-" if number != number else f"{number:.{digits}f}"


def _peak(s: TraceStatistics | None) -> str:
    return "not measured" if s is None else f"{s.peak_rps / s.mean_rps:.2f}"
