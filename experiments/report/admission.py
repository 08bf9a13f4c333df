"""Writes the page about refusals: how accurate `Retry-After` is, and what clients gain by following it."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite, isnan
from pathlib import Path
from statistics import median_high

from experiments.admission import CHUNK_TOKENS, PROFILE, TENANT, WAITS_S, Advice
from experiments.report.template import render
from hmas.statera.agent.config import FenceConfig

GOAL = 0.25
GENERATED = "\n<!-- Written by `python -m experiments admission`; do not edit. -->\n"


def write_page(found: Sequence[Advice], capacity_rps: float, seeds: int, out: Path) -> list[Path]:
    """Writes `admission.md` and `admission.json` into `out` and returns their paths. `found` holds the results per
    scenario, `capacity_rps` is λ* in requests/s, `seeds` the number of seeds."""
    out.mkdir(parents=True, exist_ok=True)
    page, facts = out / "admission.md", out / "admission.json"
    text = render(
        Path(__file__).with_name("admission.md.j2"),
        TENANT=TENANT,
        PROFILE=PROFILE,
        CHUNK_TOKENS=CHUNK_TOKENS,
        WAITS_S=WAITS_S,
        GOAL=GOAL,
        capacity_rps=capacity_rps,
        seeds=seeds,
        rows=[_row(advice) for advice in found],
        EPSILON=FenceConfig().epsilon,
        bounds=[(advice.scenario.name, advice.outgrown) for advice in found],
    )
    page.write_text(text.rstrip() + "\n" + GENERATED, encoding="utf-8")
    document = [
        asdict(advice)
        | {"median_error": _number(advice.median_error), "median_followed_error": _number(advice.median_followed_error)}
        | {"outgrown": _number(advice.outgrown)}
        for advice in found
    ]
    facts.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return [page, facts]


def _row(advice: Advice) -> tuple[str, ...]:
    sample, followed = advice.sample, advice.followed
    head = (advice.scenario.name, f"{advice.refused} of {advice.offered}", str(len(followed)))
    if not sample or not followed:
        return (*head, *["not measured"] * 10)
    return (
        *head,
        *_against_goal(advice.median_followed_error),
        f"{sum(f.met for f in followed) / len(followed):.0%}",
        f"{median_high(f.advised_s for f in followed)}",
        " / ".join(f"{rate:.3f}" for rate in advice.others),
        str(len(sample)),
        *_against_goal(advice.median_error),
        f"{sum(r.needed_s == 1 for r in sample) / len(sample):.0%}",
        f"{sum(r.needed_s is None for r in sample) / len(sample):.0%}",
    )


def _against_goal(error: float) -> tuple[str, str]:
    if isnan(error):
        return "not measured", "not measured"
    return f"{error:.0%}" if isfinite(error) else "never on time", "met" if error <= GOAL else "**not met**"


def _number(error: float) -> float | None:
    return round(error, 4) if isfinite(error) else None
