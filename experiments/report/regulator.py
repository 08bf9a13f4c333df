"""Writes the page about what each part of Statera is worth."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from experiments.regulator import CHUNK_TOKENS, FROZEN, LEAST_COST, MEMORY, PARTS, RegulatorRow
from experiments.report.template import percent, render
from hmas.sim.systems import HMAS

WITHIN = 1.0  # points by which the full mesh should be behind the best fixed N_run at most
GENERATED = "\n<!-- Written by `python -m experiments regulator`; do not edit. -->\n"


def write_page(rows: Sequence[RegulatorRow], seeds: int, seconds: float, missing: int, out: Path) -> list[Path]:
    """Writes `regulator.md` and `regulator.json` into `out`, and returns their paths."""
    short = [row for row in rows if row.regime == MEMORY and row.system == FROZEN]
    fixed = [row for row in rows if row.system.startswith("nrun-")]
    better = [row for row in fixed if row.behind_full.mean < -WITHIN / 100.0 and not row.behind_full.noise]
    text = render(
        Path(__file__).with_name("regulator.md.j2"),
        seconds=seconds,
        seeds=seeds,
        chunk_tokens=CHUNK_TOKENS,
        missing=missing,
        cost=100.0 * fmean(row.behind_full.mean for row in short) if short else None,
        least=LEAST_COST,
        ahead=[_setting(row) for row in short if row.behind_full.mean < 0 and not row.behind_full.noise],
        fixed=len(fixed),
        within=WITHIN,
        better=[f"{_setting(row)} ({row.system}, {-100 * row.behind_full.mean:+.1f} points)" for row in better],
        parts=[(part, *_counts([row for row in rows if row.system == part])) for part in (FROZEN, *PARTS)],
        rows=[_cells(row) for row in rows],
    )
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "regulator.md", out / "regulator.json"]
    paths[0].write_text(text.rstrip() + "\n" + GENERATED, encoding="utf-8")
    paths[1].write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return paths


def _setting(row: RegulatorRow) -> str:
    return f"{row.regime}, {row.workload} at {row.load:g} λ*"


def _counts(rows: Sequence[RegulatorRow]) -> tuple[str, str, str]:
    """Returns in how many settings the full mesh is ahead, level and behind."""
    level = sum(row.behind_full.noise for row in rows)
    ahead = sum(row.behind_full.mean > 0 and not row.behind_full.noise for row in rows)
    return str(ahead), str(level), str(len(rows) - level - ahead)


def _cells(row: RegulatorRow) -> tuple[str, ...]:
    behind = f"{-100 * row.behind_full.mean:+.1f} ± {100 * row.behind_full.half:.1f}"
    return (
        row.regime, row.workload, "all" if row.kv_blocks is None else str(row.kv_blocks), f"{row.load:g}", row.system,
        f"{row.goodput_rate:.3f}", "" if row.system == HMAS else behind, f"{row.esg:.0f}", f"{row.ttft_p50:.2f}",
        f"{row.preemptions:.0f}", "" if row.outgrown is None else percent(row.outgrown),
    )  # fmt: skip
