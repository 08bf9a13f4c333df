"""Runs every benchmark `bench_*.py` in a process of its own, and prints all results as one table."""

import argparse
import importlib
import json
import math
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
PAGE = """# Hot paths

What `make bench` measures: each figure on one of two shared cores, as a ratio to a baseline of the same run where that
says more than a time. {met} of {goals} goals are met{missed}

| benchmark | value | unit | goal | met |
|---|---|---|---|---|
{lines}

<!-- Written by `make bench PAGE=1`; do not edit. -->
"""


def collect(only: str | None) -> list[dict[str, Any]]:
    """Runs every benchmark whose module name contains `only` (None: all) and returns the rows of their results,
    `{name, value, unit, goal, met}`."""
    rows: list[dict[str, Any]] = []
    console = Console(stderr=True)
    for path in sorted(HERE.glob("bench_*.py")):
        if only is None or only in path.stem:
            console.print(f"[dim]{path.stem} ...[/dim]")
            with ProcessPoolExecutor(
                1, get_context("spawn")
            ) as fresh:  # a fresh process, because the heap that one leaves slows the next
                rows += fresh.submit(_rows, path.stem).result()
    return rows


def _rows(module: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = importlib.import_module(f"benchmarks.{module}").rows()
    return found


def table_of(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("benchmark", "value", "unit", "goal", "met"):
        left = column in ("benchmark", "unit")
        table.add_column(column, justify="left" if left else "right", no_wrap=not left, overflow="fold")
    for row in rows:
        goal = row.get("goal")
        met = row.get("met")
        mark = "" if met is None else "[green]yes[/green]" if met else "[red]no[/red]"
        table.add_row(
            str(row["name"]), f"{row['value']:.4g}", str(row["unit"]), "" if goal is None else str(goal), mark
        )
    return table


def write_page(path: Path, rows: list[dict[str, Any]]) -> None:
    """Writes the rows as a page. Raises OSError if the file cannot be written."""
    goals = [row for row in rows if row.get("met") is not None]
    missed = [f"{row['name']} ({row['value']:.3g} {row['unit']})" for row in goals if not row["met"]]
    lines = []
    for row in rows:
        mark = "" if row.get("met") is None else "yes" if row["met"] else "**no**"
        lines.append(f"| {row['name']} | {row['value']:.4g} | {row['unit']} | {row.get('goal') or ''} | {mark} |")
    told = ". **Missed**:\n\n" + "\n".join(f"- {each}" for each in missed) if missed else "."
    page = PAGE.format(met=len(goals) - len(missed), goals=len(goals), missed=told, lines="\n".join(lines))
    path.write_text(page, encoding="utf-8")


def write_json(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=2) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--page", type=Path, help="also write them as a page (Markdown) to this file")
    parser.add_argument("--only", help="run only benchmarks whose module name contains this")
    parser.add_argument("--smoke", action="store_true", help="exit with 1 if a value is not finite and positive")
    args = parser.parse_args()
    rows = collect(args.only)
    Console().print(table_of(rows))
    if args.json:
        write_json(args.json, rows)
    if args.page:
        write_page(args.page, rows)
    if args.smoke:
        broken = [r["name"] for r in rows if not math.isfinite(float(r["value"])) or float(r["value"]) <= 0]
        if broken or not rows:
            print(
                f"these benchmarks gave no finite, positive value: {broken or 'none ran; check --only'}",
                file=sys.stderr,
            )
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
