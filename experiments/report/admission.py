"""The page about refusals: what clients are told, and what it is worth to follow it."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite, isnan
from pathlib import Path
from statistics import median_high

from experiments.admission import CHUNK_TOKENS, PROFILE, TENANT, WAITS_S, Advice
from experiments.report.markdown import table

GOAL = 0.25
GENERATED = "\n<!-- Written by `python -m experiments admission`; do not edit. -->\n"


def write_page(found: Sequence[Advice], capacity_rps: float, seeds: int, out: Path) -> list[Path]:
    """Writes `admission.md` and `admission.json`; returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    page, facts = out / "admission.md", out / "admission.json"
    rows = [_row(advice) for advice in found]
    text = (
        "# Refusals, and when to come back\n\n"
        f"Tenant {TENANT}, with 4 of 10 requests, prefers a refusal to a late answer (`on_miss: refuse`). MaxOnTime, "
        f"one `{PROFILE}`, {CHUNK_TOKENS} tokens per step, H-MAS Table 6's task types, Poisson arrivals; λ* = "
        f"{capacity_rps:.1f} requests/s. Seeds: {seeds}.\n\n"
        "All who are refused come again when the header says so, again where they are refused again: *error when "
        "followed* is |advised - took| / took, where *took* is the time until a copy met both SLOs (served late, it "
        "never did), and *met* the share of those that did at the first try. In other runs, the same in all else, "
        "copies of a sample of those whom a run without them refuses come after each of "
        f"{', '.join(map(str, WAITS_S))} s: *needed* is the least of these waits after which the copy met both its "
        "SLOs, *error* |advised - needed| / needed; where none of them would have done, advice of at least "
        f"{WAITS_S[-1]} s counts as right.\n\n"
        + table(
            ("scenario", "refused", "followed", "median error when followed", f"goal ≤ {GOAL:.0%}", "met",
             "median advised s", "others' goodput rate: nobody comes back / all do", "sample", "median error",
             f"goal ≤ {GOAL:.0%}", "needed 1 s", f"needed more than {WAITS_S[-1]} s"),
            rows,
        )
        + "\nWho comes back in time is given up last, for a tenth of the measured rate; the header is no sooner than "
        "that share has room. What could have been done without it is chance: near the price at which requests are "
        "given up, one moment takes what the next one does not.\n"
    )  # fmt: skip
    page.write_text(text.rstrip() + "\n" + GENERATED, encoding="utf-8")
    document = [
        asdict(advice)
        | {"median_error": _number(advice.median_error), "median_followed_error": _number(advice.median_followed_error)}
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
