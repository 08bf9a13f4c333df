"""Writes the page about what `hmas whatif` foretold of live switches."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

from experiments.report.goal import Goal
from experiments.report.template import render
from experiments.whatif_live import MOVING, TOKEN_BUDGET, WITHIN, LiveOutcome, counted, plans
from hmas.sim.past_replay import CHUNK_TOKENS

RIGHT, MOVED = 18, 10
GENERATED = "\n<!-- Written by `python -m experiments whatif-live`; do not edit. -->\n"


def goals(outcomes: Sequence[LiveOutcome]) -> list[Goal]:
    """Judges all switches together; None: some are still to be made."""
    counts, whole = counted(outcomes), len(outcomes) == len(plans())
    return [
        Goal(
            f"foretold within {100 * WITHIN:g} points in at least {RIGHT} of {len(plans())}",
            f"{counts['right']}, abstained in {counts['made'] - counts['told']}",
            counts["right"] >= RIGHT if whole else None,
        ),
        Goal(
            f"the switch moves the share on time by {100 * MOVING:g} points in at least {MOVED}",
            str(counts["moves"]),
            counts["moves"] >= MOVED if whole else None,
        ),
    ]


def repeated(outcomes: Sequence[LiveOutcome]) -> list[float]:
    """Returns how far apart the shares on time are that were observed of the same traffic under the same order, for
    each traffic and order that was observed more than once."""
    switches = {plan.name: plan for plan in plans()}
    seen: dict[tuple[str, str], list[float]] = {}
    for each in outcomes:
        if plan := switches.get(each.run):
            traffic = f"{plan.kind} at {plan.rate:g}/s, seed {plan.seed}"
            seen.setdefault((traffic, plan.before), []).append(each.before)
            seen.setdefault((traffic, plan.after), []).append(each.after)
    return [max(shares) - min(shares) for shares in seen.values() if len(shares) > 1]


def write_page(outcomes: Sequence[LiveOutcome], seconds: int, out: Path) -> list[Path]:
    """Writes the page and its figures as JSON into `out`, and returns their paths."""
    unstated = [replace(each, predicted=each.unstated, abstained=each.unstated_abstained) for each in outcomes]
    alone = [replace(each, predicted=each.predicted - each.before + each.simulated) for each in outcomes]
    text = render(
        Path(__file__).with_name("whatif_live.md.j2"),
        seconds=seconds,
        planned=len(plans()),
        counts=counted(outcomes),
        goals=[goal.line for goal in goals(outcomes)],
        budget=TOKEN_BUDGET,
        assumed=CHUNK_TOKENS,
        within=100 * WITHIN,
        unstated=counted(unstated),
        alone=counted(alone),
        repeated=(apart := repeated(outcomes)),
        usual=median(apart) if apart else 0.0,
        rows=[
            (
                each.run, str(each.requests), f"{each.before:.3f}", f"{each.simulated:.3f}", f"{each.predicted:.3f}",
                f"{each.after:.3f}", f"{100 * (each.predicted - each.after):+.1f}", each.abstained,
                "abstained" if each.unstated_abstained else f"{100 * (each.unstated - each.after):+.1f}",
            )
            for each in outcomes
        ],
    )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / "whatif-live.md", out / "whatif-live.json"]
    paths[0].write_text(text.rstrip() + "\n" + GENERATED, encoding="utf-8")
    paths[1].write_text(json.dumps([asdict(each) for each in outcomes], indent=1) + "\n", encoding="utf-8")
    return paths
