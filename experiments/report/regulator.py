"""Writes the page about what each part of Statera is worth."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from experiments.regulator import (
    CHUNK_TOKENS,
    DRIFT,
    FROZEN,
    LEAST_COST,
    MEMORY,
    MOVED,
    OTHERS,
    PARTS,
    REGIMES,
    UNTIMED,
    Course,
    RegulatorRow,
    regime_rows,
)
from experiments.report.figures import lines
from experiments.report.regimes import put_rows
from experiments.report.template import percent, render
from hmas.sim.systems import HMAS

WITHIN = 1.0  # points by which the full mesh should be behind the best fixed N_run at most
GENERATED = "\n<!-- Written by `python -m experiments regulator`; do not edit. -->\n"


def write_page(
    rows: Sequence[RegulatorRow], courses: Sequence[Course], seconds: float, missing: int, out: Path
) -> list[Path]:
    """Writes `regulator.md`, `regulator.json`, its rows of `regimes.json` and the pictures into `out`, and returns the
    paths but those of the pictures."""
    short = [row for row in rows if row.regime == MEMORY and row.system == FROZEN]
    fixed = [row for row in rows if row.system.startswith("nrun-")]
    ahead = [row for row in rows if row.regime == MEMORY and row.system != HMAS and not row.system.startswith("nrun-")]
    drift = [row for row in fixed if row.regime == DRIFT]
    notable = [row for row in rows if abs(row.behind_full.mean) >= WITHIN / 100.0]
    seeds = sorted({len(row.by_seed) for row in rows})
    text = render(
        Path(__file__).with_name("regulator.md.j2"),
        seconds=seconds,
        seeds=seeds,
        chunk_tokens=CHUNK_TOKENS,
        missing=missing,
        cost=100.0 * fmean(row.behind_full.mean for row in short) if short else None,
        least=LEAST_COST,
        ahead=[_told(row) for row in ahead if _surely_ahead(row)],
        fixed=len(fixed),
        within=WITHIN,
        better=[_told(row) for row in fixed if row.behind_full.mean < -WITHIN / 100.0],
        drift=[_told(row) for row in drift],
        untimed=[_told(row) for row in notable if row.system == UNTIMED],
        moved=[_told(row) for row in notable if row.system == MOVED],
        longer={regime.name: regime.least_s for regime in REGIMES if regime.least_s > seconds},
        parts=[(part, *_counts([r for r in rows if r.system == part])) for part in (FROZEN, *PARTS, *OTHERS)],
        pictures=_pictures(courses, out),
        rows=[_cells(row) + ((str(len(row.by_seed)),) if len(seeds) > 1 else ()) for row in rows],
    )
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "regulator.md", out / "regulator.json"]
    paths[0].write_text(text.rstrip() + "\n" + GENERATED, encoding="utf-8")
    paths[1].write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return [*paths, put_rows(regime_rows(rows), out)]


def _surely_ahead(row: RegulatorRow) -> bool:
    return row.behind_full.mean < 0 and not row.behind_full.noise


def _told(row: RegulatorRow) -> str:
    return (
        f"{row.regime}, {row.workload} at {row.load:g} λ* ({row.system}, {-100 * row.behind_full.mean:+.1f} points"
        f"{', within chance' if row.behind_full.noise else ''})"
    )


def _counts(rows: Sequence[RegulatorRow]) -> tuple[str, str, str, str]:
    """Returns in how many settings the full mesh is ahead, level and behind, and by how many points in the mean."""
    level = sum(row.behind_full.noise for row in rows)
    ahead = sum(row.behind_full.mean > 0 and not row.behind_full.noise for row in rows)
    mean = f"{100 * fmean(row.behind_full.mean for row in rows):+.1f}" if rows else "-"
    return str(ahead), str(level), str(len(rows) - level - ahead), mean


def _pictures(courses: Sequence[Course], out: Path) -> list[tuple[str, str]]:
    """Draws utilisation with its band, N_run, what runs, and B_token over time, one picture per regime. Returns (what
    is shown, path) of each."""
    found: list[tuple[str, str]] = []
    for regime in dict.fromkeys(course.regime for course in courses):
        panels: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
        own = [course for course in courses if course.regime == regime]
        for course in own:
            times = [float(row["at_s"]) for row in course.rows]
            for panel, columns in (
                ("utilisation and band", ("utilisation", "band_low", "band_high")),
                ("sequences", ("n_run", "running", "b_token", "queued")),
            ):
                series = {name: (times, [float(row[name]) for row in course.rows]) for name in columns}
                panels[f"{course.system}: {panel}"] = series
        slug = f"regulator-{regime.name.replace(' ', '-').lower()}-{regime.kind}.svg"
        path = out / "figures" / slug
        lines(path, panels, "s", legends=True)
        found.append((f"{regime.name}, {regime.kind} at {own[0].load:g} λ*", f"figures/{slug}"))
    return found


def _cells(row: RegulatorRow) -> tuple[str, ...]:
    behind = f"{-100 * row.behind_full.mean:+.1f} ± {100 * row.behind_full.half:.1f}"
    return (
        row.regime, row.workload, "all" if row.kv_blocks is None else str(row.kv_blocks), f"{row.load:g}", row.system,
        f"{row.goodput_rate:.3f}", "" if row.system == HMAS else behind, f"{row.esg:.0f}",
        f"{row.ttft_p50:.2f}", f"{row.preemptions:.0f}", "" if row.outgrown is None else percent(row.outgrown),
    )  # fmt: skip
