"""The page about refusals: what clients are told, and what it is worth to follow it."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite, isnan
from pathlib import Path

from services.sim.admission import CHUNK_TOKENS, PROFILE, TENANT, WAITS_S, Advice
from services.sim.report.markdown import table

GOAL = 0.25
GENERATED = "\n<!-- Written by `hmas sim admission`; do not edit. -->\n"


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
        "Of the refused requests a sample is sent again, as copies in runs that are the same in all else, after each "
        f"of {', '.join(map(str, WAITS_S))} s and after the `Retry-After` that the refusal carried. *Needed* is the "
        "least of these waits after which the copy met both its SLOs. *Error* is |advised - needed| / needed; where "
        f"none of them would have done, advice of at least {WAITS_S[-1]} s counts as right. *Error when followed* is "
        f"|advised - took| / took, of those told to come back within {WAITS_S[-1]} s: *took* is the time until a copy "
        "met both SLOs if each came when the one before was told to; served late, it never did. *Met* is the share of "
        "those that did at the first try.\n\n"
        + table(
            ("scenario", "refused", "sample", "median error when followed", f"goal ≤ {GOAL:.0%}", "met",
             "median error", f"goal ≤ {GOAL:.0%}", "median advised s", "needed 1 s",
             f"needed more than {WAITS_S[-1]} s"),
            rows,
        )
        + "\nWhat cannot be foreseen is the end of an overload: refusals in the midst of a long burst are told what "
        "would be right if it went on. What lies between is chance: near the price at which requests are given up, "
        "one moment takes what the next one does not.\n"
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
    sample = advice.sample
    if not sample:
        return (advice.scenario.name, f"{advice.refused} of {advice.offered}", "0", *["not measured"] * 8)
    followed = [r.met for r in sample if r.followed]
    advised = sorted(r.advised_s for r in sample)
    return (
        advice.scenario.name,
        f"{advice.refused} of {advice.offered}",
        str(len(sample)),
        *_against_goal(advice.median_followed_error),
        f"{sum(followed) / len(followed):.0%} of {len(followed)}" if followed else "nobody was told to",
        *_against_goal(advice.median_error),
        str(advised[len(advised) // 2]),
        f"{sum(r.needed_s == 1 for r in sample) / len(sample):.0%}",
        f"{sum(r.needed_s is None for r in sample) / len(sample):.0%}",
    )


def _against_goal(error: float) -> tuple[str, str]:
    if isnan(error):
        return "not measured", "not measured"
    return f"{error:.0%}" if isfinite(error) else "never on time", "met" if error <= GOAL else "**not met**"


def _number(error: float) -> float | None:
    return round(error, 4) if isfinite(error) else None
