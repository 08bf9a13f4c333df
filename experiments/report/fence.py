"""Writes the page about the fence: how often answers outgrow their length bound, and what the bounds cost."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from experiments.fence import (
    ALLOWED,
    ALLOWED_IN_BUCKET,
    ALLOWED_IN_FIFTH,
    ALLOWED_LOSS,
    LEAST_IN_BUCKET,
    SAME_LOAD,
    FenceRow,
)
from experiments.report.carried import merged, told
from experiments.report.template import render
from hmas.sim.experiment import Experiment

GENERATED = "\n<!-- Written by `python -m experiments fence`; do not edit. -->\n"
BEFORE = "fence_before.json"  # the rows of the additive fence that was measured before this one, by the same command


def write_page(found: Sequence[FenceRow], experiment: Experiment, out: Path) -> list[Path]:
    """Writes `fence.md` and `fence.json` into `out` and returns their paths. What lies there of settings that were not
    found anew stands with its commit. If `fence_before.json` lies there, its goodput stands beside."""
    out.mkdir(parents=True, exist_ok=True)
    page, facts = out / "fence.md", out / "fence.json"
    now = found[0].commit if found else ""
    found = merged(found, facts, lambda row: FenceRow(**row), lambda row: (row.workload, row.load))
    before = {(r["workload"], r["load"]): r for r in json.loads((out / BEFORE).read_text())} if (
        out / BEFORE
    ).exists() else {}  # fmt: skip
    rows = [(row, before.get((row.workload, row.load))) for row in found]
    changes = {(r.workload, r.load): r.change_from(then) for r, then in rows if then is not None}
    losses = [(-change, row) for row, _ in rows if (change := changes.get((row.workload, row.load))) is not None]
    text = render(
        Path(__file__).with_name("fence.md.j2"),
        experiment=experiment,
        rows=rows,
        broken=[row for row in found if not row.holds],
        compared=len(losses),
        others=sum(change is None for change in changes.values()),
        changes=changes,
        SAME_LOAD=SAME_LOAD,
        lost=[(100.0 * lost, row) for lost, row in sorted(losses, key=lambda pair: -pair[0]) if lost > ALLOWED_LOSS],
        most_lost=100.0 * max((lost for lost, _ in losses), default=0.0),
        carried=told(found, now),
        ALLOWED=ALLOWED,
        ALLOWED_IN_BUCKET=ALLOWED_IN_BUCKET,
        ALLOWED_IN_FIFTH=ALLOWED_IN_FIFTH,
        ALLOWED_LOSS=ALLOWED_LOSS,
        LEAST_IN_BUCKET=LEAST_IN_BUCKET,
    )
    page.write_text(text.rstrip() + "\n" + GENERATED, encoding="utf-8")
    facts.write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n", encoding="utf-8")
    return [page, facts]
