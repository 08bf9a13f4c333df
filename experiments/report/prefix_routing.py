"""Writes the page about routing by prefix: cache hits and times to first token with and without it."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from experiments.prefix_routing import BY_PREFIX, ENGINES, GAP_MEDIAN_S, LEAST_LOADED, PROFILE, RoutingRow
from experiments.report.template import percent, render

GENERATED = "\n<!-- Written by `python -m experiments prefix-routing`; do not edit. -->\n"


def write_page(found: Sequence[RoutingRow], jobs: int, out: Path) -> list[Path]:
    """Writes `prefix-routing.md` and `prefix-routing.json` into `out` and returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    page, facts = out / "prefix-routing.md", out / "prefix-routing.json"
    cells, ratios = list[tuple[str, ...]](), list[dict[str, str]]()
    for rate in sorted({row.jobs_per_s for row in found}):
        p90 = {}
        for routing in (LEAST_LOADED, BY_PREFIX):
            some = [row for row in found if row.jobs_per_s == rate and row.routing == routing]
            p90[routing] = fmean(row.ttft_p90_s for row in some)
            cells.append(
                (
                    f"{rate:g}",
                    routing,
                    percent(fmean(row.hit for row in some)),
                    f"{1000 * fmean(row.ttft_p50_s for row in some):.0f} ms",
                    f"{1000 * p90[routing]:.0f} ms",
                    f"{fmean(row.busiest for row in some):.2f}",
                    percent(fmean(row.goodput for row in some)),
                )
            )
        ratios.append({"rate": f"{rate:g}", "ratio": f"{p90[BY_PREFIX] / p90[LEAST_LOADED]:.2f}"})
    text = render(
        Path(__file__).with_name("prefix_routing.md.j2"),
        jobs=jobs,
        engines=ENGINES,
        profile=PROFILE,
        gap=f"{GAP_MEDIAN_S:g}",
        seeds=len({row.seed for row in found}),
        cells=cells,
        ratios=ratios,
    )
    page.write_text(text.rstrip() + "\n" + GENERATED, encoding="utf-8")
    facts.write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n", encoding="utf-8")
    return [page, facts]
