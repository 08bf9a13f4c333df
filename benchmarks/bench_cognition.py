"""Measures perception and prediction together on one core, one request at a time and in batches, on prompts of the
corpus."""

import os
from pathlib import Path

from experiments.cognition.latency import measure, prompts

GOAL_MEAN_MS, GOAL_P80_MS, GOAL_P98_MS, GOAL_RATE = 1.64, 2.0, 4.0, 600.0  # H-MAS App. E.4


def rows() -> list[dict[str, object]]:
    figures = measure(prompts(Path(os.environ.get("HMAS_DATA") or "data")))
    goals = {"mean_ms": GOAL_MEAN_MS, "p80_ms": GOAL_P80_MS, "p98_ms": GOAL_P98_MS}
    table: list[dict[str, object]] = [
        {"name": f"perception + prediction, {name}", "value": figures[name], "unit": "ms",
         "goal": f"<= {goal}", "met": figures[name] <= goal}
        for name, goal in goals.items()
    ]  # fmt: skip
    table.append(
        {"name": "perception + prediction, batched", "value": figures["rate"], "unit": "req/s",
         "goal": f">= {GOAL_RATE:g}", "met": figures["rate"] >= GOAL_RATE}
    )  # fmt: skip
    shares: list[dict[str, object]] = [
        {"name": f"{part}'s share", "value": figures[f"{part}_share"], "unit": "", "goal": None, "met": None}
        for part in ("perception", "tokenizer")
    ]
    return [*table, *shares]
