"""Writes the page about linking: how many links between the requests of a job are found."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from experiments.jobs_linking import GATEWAYS, REPEATS, LinkRow
from experiments.report.goal import Goal
from experiments.report.template import render
from hmas_loadgen.workflows.recorded import BFCL, TAU_BENCH, WHO_AND_WHEN, Workflow

JUDGED = ("jobs start", f"with repeats, {GATEWAYS} gateways, which tell")  # how the cases begin that have goals
LEAST_F1 = {TAU_BENCH: 0.99, BFCL: 0.99, WHO_AND_WHEN: 0.9}
NAMED = "with repeats, the client names the job"
GENERATED = "\n<!-- Written by `python -m experiments jobs-linking`; do not edit. -->\n"


def goals(found: Sequence[LinkRow]) -> list[Goal]:
    """Returns what was aimed at, with the F1 that came."""
    least = [(row, LEAST_F1[row.corpus]) for row in found if row.case.startswith(JUDGED)]
    least += [(row, 1.0) for row in found if row.case == NAMED]
    return [
        Goal(f"{row.corpus}, {row.case}: F1 at least {goal:g}", f"{row.f1:.4f}", row.f1 >= goal) for row, goal in least
    ]


def write_page(
    found: Sequence[LinkRow], jobs: Sequence[Workflow], crossed: tuple[int, int], seed: int, out: Path
) -> list[Path]:
    """Writes `jobs-linking.md` and `jobs-linking.json` into `out` and returns their paths. `crossed`: the links of two
    tenants that send the same, and how many of them join two tenants."""
    out.mkdir(parents=True, exist_ok=True)
    page, facts = out / "jobs-linking.md", out / "jobs-linking.json"
    first = [next(m["content"] for m in j.calls[0].messages if m["role"] == "user") for j in jobs if j.corpus == BFCL]
    text = render(
        Path(__file__).with_name("jobs_linking.md.j2"),
        jobs=len(jobs),
        repeats=REPEATS,
        gateways=GATEWAYS,
        seed=seed,
        goals=[goal.line for goal in goals(found)],
        cells=[(r.case, r.corpus, r.requests, r.links, r.found, f"{r.f1:.4f}", f"{r.equal_f1:.4f}") for r in found],
        bfcl=len(first),
        twins=sum(first.count(message) > 1 for message in first),
        tau=sum(job.corpus == TAU_BENCH for job in jobs),
        links=crossed[0],
        crossed=crossed[1],
    )
    rows = [asdict(row) | {"f1": row.f1, "equal_f1": row.equal_f1} for row in found]
    page.write_text(text.rstrip() + "\n" + GENERATED, encoding="utf-8")
    document = {"seed": seed, "rows": rows, "tenants": {"links": crossed[0], "crossed": crossed[1]}}
    facts.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return [page, facts]
