"""What was measured of the hop, as rows for the terminal and as a page."""

from typing import Any

DIRECT, BARE, SINGLE, MESH = "no hop", "2 TCP relays", "FastAPI + aiohttp", "H-MAS"
COLUMNS = ("system", "µs/token", "TTFT p50", "TTFT p99", "saturated tok/s", "µs/plain", "plain/s", "errors")

HEAD = """# What the hop costs

Written by `make bench-hop PEERS=1 PAGE=1`. A relay has one core; a mock engine, the client and the mesh's other
processes have the other. Answers of 64 tokens, 20 ms apart: 50 a second for {seconds:g} s (CPU, TTFT), 1,200 at once
for {seconds:g} s (saturated), then plain requests, 32 at once, for half as long. CPU is that of the relay's processes:
of H-MAS gateway and worker, with keys, scheduling, metrics and cancellation on.
"""
FOOT = """
Two TCP relays in a row read nothing and decide nothing: they are what two Python processes cost before they do
anything, on the machine of the run. FastAPI + aiohttp parses and relays, in one process. Shared machines have slow
hours: compare with the rows of the same run, not with figures of another one.
[ADR 13](../adr/0013-plain-python-on-the-hot-path.md) tells what was tried to come closer to the goals.
"""


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
    """Of a run that measured at least the four systems named above."""
    by_name = {result["name"]: result for result in results}
    direct, ours = by_name[DIRECT], by_name[MESH]
    measured = {name: goals(direct, by_name[name]) for name in (BARE, SINGLE)}
    against = [
        _row(
            (
                f"{row['name']}, {row['unit']}",
                _number(row["value"]),
                row["goal"],
                "yes" if row["met"] else "no",
                *(_number(measured[name][i]["value"]) for name in (BARE, SINGLE)),
            )
        )
        for i, row in enumerate(goals(direct, ours))
    ]
    return "\n".join(
        [
            HEAD.format(seconds=seconds),
            _row(COLUMNS),
            "|---|" + "---:|" * (len(COLUMNS) - 1),
            *(_row(cells(result)) for result in results),
            "",
            f"| | {MESH} | goal | met | {BARE} | {SINGLE} |",
            "|---|---:|---:|---|---:|---:|",
            *against,
            FOOT,
        ]
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _row(row: tuple[str, ...]) -> str:
    return f"| {' | '.join(row)} |"
