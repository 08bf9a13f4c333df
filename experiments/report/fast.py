"""Writes the page about short requests that go first where the others have time."""

import json
from collections.abc import Sequence
from pathlib import Path

from experiments import length_bounds
from experiments.fast import BEFORE, CHUNK_TOKENS, DIRECT, ENGINES, PROFILE, SYSTEMS, FastRow
from experiments.report.template import render
from hmas.sim.systems import HMAS

GENERATED = "\n<!-- Written by `python -m experiments fast`; do not edit. -->\n"
NAMES = {HMAS: "default", BEFORE: "by deadline alone", DIRECT: "plain FCFS"}


def write_page(rows: Sequence[FastRow], seconds: float, out: Path) -> list[Path]:
    """Writes `fast.md` and `fast.json` into `out` and returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    text = render(
        Path(__file__).with_name("fast.md.j2"),
        profile=PROFILE,
        engines=ENGINES,
        chunk_tokens=CHUNK_TOKENS,
        seconds=", ".join(f"{s:g}" for s in sorted({min(seconds, row.setting.seconds) for row in rows})),
        bounds=length_bounds.told(run.bounds for row in rows for runs in row.runs.values() for run in runs),
        settings=[_figures(row, system) for row in rows for system in SYSTEMS],
        pairs=[_pair(row) for row in rows],
        missed=[f"{row.setting.name}: {', '.join(row.missed())}" for row in rows if row.missed()],
        trades=[_trade(row) for row in rows if row.mean(HMAS, "esg") < row.mean(DIRECT, "esg")],
    )
    paths = [out / "fast.md", out / "fast.json"]
    paths[0].write_text(text.rstrip() + "\n" + GENERATED, encoding="utf-8")
    paths[1].write_text(json.dumps([_plain(r, s) for r in rows for s in SYSTEMS], indent=1) + "\n", encoding="utf-8")
    return paths


def _figures(row: FastRow, system: str) -> tuple[str, ...]:
    return (
        row.setting.name,
        NAMES[system],
        f"{row.mean(system, 'goodput_rate'):.3f}",
        f"{row.mean(system, 'ttft_p50_s'):.2f}",
        f"{row.mean(system, 'ttft_p95_s'):.1f}",
        f"{row.mean(system, 'esg'):.0f}",
    )


def _pair(row: FastRow) -> tuple[str, ...]:
    by_seed = " ".join(f"{100 * gained:+.1f}" for gained in row.gained())
    missed = "; ".join(row.missed()) or "-"
    return row.setting.name, str(len(row.seeds)), by_seed, f"{row.ttft_ratio:.2f} ×", missed


def _trade(row: FastRow) -> str:
    """Returns what a setting in which plain FCFS has more ESG gets for it, and whether the switch gives it back."""
    direct, now, before = (row.mean(system, "esg") for system in (DIRECT, HMAS, BEFORE))
    more = row.mean(HMAS, "goodput_rate") - row.mean(DIRECT, "goodput_rate")
    back = "has as much ESG as FCFS" if before >= direct else f"is {_less(before, direct)} below FCFS as well"
    return (
        f"{row.setting.name}: {_less(now, direct)} less ESG than plain FCFS for {100 * more:.1f} points more goodput; "
        f"the order by deadline alone {back}"
    )


def _less(esg: float, direct: float) -> str:
    return f"{100 * (1 - esg / direct):.1f} %"


def _plain(row: FastRow, system: str) -> dict[str, object]:
    figures = ("goodput_rate", "ttft_p50_s", "ttft_p95_s", "esg")
    means: dict[str, object] = {figure: round(row.mean(system, figure), 4) for figure in figures}
    by_seed = [round(run.goodput_rate, 4) for run in row.runs[system]]
    names: dict[str, object] = {"setting": row.setting.name, "system": system, "seeds": list(row.seeds)}
    return names | means | {"goodput_rate_by_seed": by_seed}
