"""Writes the page about what bad proposers cost."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments import length_bounds
from experiments.proposers import (
    CHUNK_TOKENS,
    ENGINES,
    LATE_S,
    PROFILE,
    PROPOSERS,
    RATE_RPS,
    REHEARSED,
    SEARCH_SEED,
    SECONDS,
    UNREHEARSED,
    ProposerCell,
    cells_of,
)
from experiments.report.goal import Goal
from experiments.report.template import render
from experiments.worth import Paired, paired
from hmas.sim.systems import HMAS

COST = 0.005  # the most that a bad proposer may cost
GENERATED = "\n<!-- Written by `python -m experiments proposers`; do not edit. -->\n"
Found = Mapping[ProposerCell, dict[str, Any]]


def costs(found: Found, worst: str, seeds: Sequence[int]) -> dict[str, Paired]:
    """Returns what the mesh that ships has more on time than each, seed by seed. Raises KeyError if a run is
    missing."""
    rates = {(cell.system, cell.seed): found[cell]["goodput_rate"] for cell in cells_of(worst, seeds)}
    ours = [rates[HMAS, seed] for seed in seeds]
    return {s: paired(ours, [rates[s, seed] for seed in seeds]) for s in (UNREHEARSED, *PROPOSERS)}


def goals(cost: Mapping[str, Paired]) -> list[Goal]:
    def told(system: str) -> str:
        return f"{100 * cost[system].mean:+.1f} ± {100 * cost[system].half:.1f} points"

    control = cost[UNREHEARSED]
    return [
        Goal("the control, the worst topology without a rehearsal, loses", told(UNREHEARSED), _loses(control)),
        *(Goal(f"{s}: costs at most {100 * COST:g} points", told(s), cost[s].mean <= COST) for s in PROPOSERS),
    ]


def _loses(cost: Paired) -> bool:
    return cost.mean > COST and not cost.noise


def write_page(found: Found, worst: str, seeds: Sequence[int], out: Path) -> list[Path]:
    """Writes the page and its figures as JSON into `out`, and returns their paths."""
    cost = costs(found, worst, seeds)
    runs = {system: [c for c in cells_of(worst, seeds) if c.system == system] for system in (HMAS, *cost)}
    text = render(
        Path(__file__).with_name("proposers.md.j2"),
        profile=PROFILE,
        engines=ENGINES,
        chunk_tokens=CHUNK_TOKENS,
        rate=RATE_RPS,
        seconds=SECONDS,
        seeds=seeds,
        worst=worst,
        search_seed=SEARCH_SEED,
        window_s=REHEARSED.window_s,
        late_s=LATE_S,
        bounds=length_bounds.told(found.values()),
        goals=[goal.line for goal in goals(cost)],
        rows=[
            (
                system,
                f"{fmean(found[cell]['goodput_rate'] for cell in cells):.3f}",
                " ".join(f"{found[cell]['goodput_rate']:.3f}" for cell in cells),
                ", ".join(sorted({name for cell in cells for name in found[cell]["topologies"]})),
            )
            for system, cells in runs.items()
        ],
    )
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "proposers.md", out / "proposers.json"]
    paths[0].write_text(text.rstrip() + "\n" + GENERATED, encoding="utf-8")
    body = [asdict(cell) | found[cell] for cells in runs.values() for cell in cells]
    paths[1].write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    return paths
