"""The page about refusals: what clients are told, and what it is worth to follow it."""

import json
from collections.abc import Sequence
from dataclasses import asdict
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
        f"none of them would have done, advice of at least {WAITS_S[-1]} s counts as right. *Followed* is the share of "
        f"the copies sent when told that met both SLOs, of those told to come back within {WAITS_S[-1]} s.\n\n"
        + table(
            ("scenario", "refused", "sample", "median error", "goal", "error at most 25 %", "followed",
             "median advised s", "needed 1 s", f"needed more than {WAITS_S[-1]} s"),
            rows,
        )
        + "\nWhat cannot be foreseen is the end of an overload: refusals in the midst of a long burst are told what "
        "would be right if it went on. What lies between is chance: near the price at which requests are given up, "
        "one moment takes what the next one does not.\n"
    )  # fmt: skip
    page.write_text(text.rstrip() + "\n" + GENERATED, encoding="utf-8")
    document = [asdict(advice) | {"median_error": round(advice.median_error, 4)} for advice in found]
    facts.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return [page, facts]


def _row(advice: Advice) -> tuple[str, ...]:
    sample = advice.sample
    if not sample:
        return (advice.scenario.name, f"{advice.refused} of {advice.offered}", "0", *["not measured"] * 7)
    within = [r.met for r in sample if r.met is not None]
    advised = sorted(r.advised_s for r in sample)
    return (
        advice.scenario.name,
        f"{advice.refused} of {advice.offered}",
        str(len(sample)),
        f"{advice.median_error:.0%}",
        f"≤ {GOAL:.0%}: {'met' if advice.median_error <= GOAL else '**not met**'}",
        f"{sum(r.error <= GOAL for r in sample) / len(sample):.0%}",
        f"{sum(within) / len(within):.0%} of {len(within)}" if within else "nobody was told to",
        str(advised[len(advised) // 2]),
        f"{sum(r.needed_s == 1 for r in sample) / len(sample):.0%}",
        f"{sum(r.needed_s is None for r in sample) / len(sample):.0%}",
    )
