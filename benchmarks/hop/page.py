"""Shows the results of the hop benchmark as rows for the terminal and as a Markdown page."""

from pathlib import Path
from typing import Any

from experiments.report.template import render

DIRECT, BARE, SINGLE, MESH = "no hop", "2 TCP relays", "FastAPI + aiohttp", "H-MAS"
COLUMNS = ("system", "µs/token", "TTFT p50", "TTFT p99", "saturated tok/s", "µs/plain", "plain/s", "errors")


def cells(result: dict[str, Any]) -> tuple[str, ...]:
    return (
        result["name"],
        f"{result['us_per_token']:.0f}",
        f"{result['ttft_p50_s'] * 1e3:.2f} ms",
        f"{result['ttft_p99_s'] * 1e3:.2f} ms",
        f"{result['saturated_tokens_per_s']:.0f}",
        f"{result['us_per_plain_request']:.0f}",
        f"{result['plain_per_s']:.0f}",
        str(result["errors"]),
    )


def goals(direct: dict[str, Any], ours: dict[str, Any]) -> list[dict[str, Any]]:
    def row(name: str, value: float, unit: str, goal: str, met: bool) -> dict[str, Any]:
        return {"name": name, "value": value, "unit": unit, "goal": goal, "met": met}

    us, plain = ours["us_per_token"], ours["us_per_plain_request"]
    p50 = (ours["ttft_p50_s"] - direct["ttft_p50_s"]) * 1e3
    p99 = (ours["ttft_p99_s"] - direct["ttft_p99_s"]) * 1e3
    rate = ours["saturated_tokens_per_s"]
    return [
        row("CPU per relayed token", us, "µs", "<= 70", us <= 70),
        row("added TTFT p50", p50, "ms", "<= 0.7", p50 <= 0.7),
        row("added TTFT p99", p99, "ms", "<= 3", p99 <= 3),
        row("saturated", rate, "tokens/s", ">= 40000", rate >= 40_000),
        row("CPU per plain request", plain, "µs", "<= 250", plain <= 250),
    ]


def page(results: list[dict[str, Any]], seconds: float) -> str:
    """Returns the page. `results` must include the systems `DIRECT`, `BARE`, `SINGLE` and `MESH`; raises KeyError
    otherwise. `seconds` is the length of each load."""
    by_name = {result["name"]: result for result in results}
    direct, ours = by_name[DIRECT], by_name[MESH]
    measured = {name: goals(direct, by_name[name]) for name in (BARE, SINGLE)}
    against = [
        (
            f"{row['name']}, {row['unit']}",
            _number(row["value"]),
            row["goal"],
            "yes" if row["met"] else "no",
            *(_number(measured[name][i]["value"]) for name in (BARE, SINGLE)),
        )
        for i, row in enumerate(goals(direct, ours))
    ]
    values = {"BARE": BARE, "COLUMNS": COLUMNS, "MESH": MESH, "SINGLE": SINGLE, "against": against}
    return render(Path(__file__).with_name("page.md.j2"), seconds=f"{seconds:g}", systems=map(cells, results), **values)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}" if value < 10 else f"{value:.1f}"
