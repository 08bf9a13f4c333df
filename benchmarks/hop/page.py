"""Shows the results of the hop benchmark as rows for the terminal and as a Markdown page."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from experiments.pages.paired import Paired, paired
from experiments.pages.template import percent, render

DIRECT, BARE, SINGLE, MESH = "no hop", "2 TCP relays", "FastAPI + aiohttp", "H-MAS"
PICKER = "H-MAS picker + Envoy"
BLIND = "H-MAS, prompts not followed"
UNREAD = "H-MAS, prompts not read"
MOST_ADDED = 0.05  # goal: CPU that following prompts adds to a request
RUST = ("sglang-router", "vllm-router")
OVER_TLS = ", TLS"  # after the name of a system whose clients reach it over TLS
COLUMNS = ("system", "µs/token", "TTFT p50", "TTFT p99", "saturated tok/s", "µs/plain", "plain/s", "errors")
SPREAD = ("us_per_token", "ttft_p50_s", "ttft_p99_s", "saturated_tokens_per_s", "us_per_plain_request")


def median_of(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the medians of several runs of one system, the sum of their errors, and (least, most) of the keys in
    `SPREAD` under `spread`."""
    merged: dict[str, Any] = {"name": runs[0]["name"], "runs": len(runs)}
    for key, value in runs[0].items():
        if isinstance(value, int | float):
            merged[key] = median(run[key] for run in runs)
    merged["errors"] = sum(run["errors"] for run in runs)
    merged["spread"] = {key: (min(run[key] for run in runs), max(run[key] for run in runs)) for key in SPREAD}
    return merged


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


def goals(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the goals as rows, each a ratio of two systems of this run. A goal is left out if a system that it
    compares with was not measured."""
    by_name = {result["name"]: result for result in results}
    ours, direct, single = by_name[MESH], by_name[DIRECT], by_name.get(SINGLE)
    rust = min((by_name[name]["us_per_token"] for name in RUST if name in by_name), default=None)
    rows: list[dict[str, Any]] = []

    def row(name: str, value: float, unit: str, most: float | None = None, least: float | None = None) -> None:
        goal = f"<= {most:g}" if most is not None else f">= {least:g}"
        met = (most is None or value <= most) and (least is None or value >= least)
        rows.append({"name": name, "value": value, "unit": unit, "goal": goal, "met": met})

    if single is not None:
        row("CPU per relayed token", ours["us_per_token"] / single["us_per_token"], f"× {SINGLE}", most=0.6)
    if rust is not None:
        row("CPU per relayed token", ours["us_per_token"] / rust, "× the cheaper Rust router", most=1.15)
    saturated = ours["saturated_tokens_per_s"] / direct["saturated_tokens_per_s"]
    row("saturated tokens/s", saturated, f"× {DIRECT}", least=0.8)
    if single is not None:
        for key, name in (("ttft_p50_s", "added TTFT p50"), ("ttft_p99_s", "added TTFT p99")):
            added, theirs = (result[key] - direct[key] for result in (ours, single))
            row(name, added / max(theirs, 1e-6), f"× {SINGLE}'s", most=1.0)
        plain = ours["us_per_plain_request"] / single["us_per_plain_request"]
        row("CPU per plain request", plain, f"× {SINGLE}", most=0.75)
    row("worker's CPU per further token", ours["worker_slope"] / ours["gateway_slope"], "× the gateway's", most=0.05)
    worker = ours["worker_us_per_plain_request"]
    row("worker's CPU per plain request", worker / (ours["us_per_plain_request"] - worker), "× the gateway's", most=0.4)
    row("granted by a worker", ours["granted_share"], "of the requests", least=0.99)
    return rows


def page(results: Sequence[dict[str, Any]], seconds: float, tried: str) -> str:
    """Returns the page. `results` must include the systems `DIRECT`, `BARE` and `MESH`. `seconds` is
    the length of each load; `tried` is Markdown about ways to a missed goal."""
    ours = next(result for result in results if result["name"] == MESH)
    against = [
        (row["name"], f"{_number(row['value'])} {row['unit']}", row["goal"], "yes" if row["met"] else "**no**")
        for row in goals(results)
    ]
    return render(
        Path(__file__).with_name("page.md.j2"),
        seconds=f"{seconds:g}",
        systems=map(cells, results),
        against=against,
        ours={key: _number(value) for key, value in ours.items() if isinstance(value, int | float)},
        spread=_spread(ours),
        bare_us=_number(next(result["us_per_token"] for result in results if result["name"] == BARE) / 2),
        runs=ours["runs"],
        tried=tried,
        COLUMNS=COLUMNS,
        MESH=MESH,
    )


def tls_page(results: Sequence[dict[str, Any]], seconds: float) -> str:
    """Returns the page on what TLS costs. `results` are those of systems and of the same systems over TLS."""
    by_name = {result["name"]: result for result in results}
    rows = []
    for name in (SINGLE, MESH):
        plain, tls = by_name[name], by_name[name + OVER_TLS]
        ratios = (tls[key] / plain[key] for key in ("us_per_token", "saturated_tokens_per_s", "us_per_plain_request"))
        later_ms = (tls["ttft_p50_s"] - plain["ttft_p50_s"]) * 1e3
        rows.append((name, *(f"{ratio:.2f} ×" for ratio in ratios), f"{later_ms:+.2f} ms"))
    return render(
        Path(__file__).with_name("tls_page.md.j2"),
        seconds=f"{seconds:g}",
        runs=results[0]["runs"],
        systems=map(cells, results),
        rows=rows,
        failed=[result["name"] for result in results if result["errors"]],
        COLUMNS=COLUMNS,
    )


def picker_page(results: Sequence[dict[str, Any]], seconds: float, rate: float) -> str:
    """Returns the page on the endpoint picker beside the gateway; `rate` is that of streamed requests per second."""
    by_name = {result["name"]: result for result in results}
    direct, rows = by_name[DIRECT], []
    for name in (MESH, PICKER):
        found = by_name[name]
        parts = [found[f"{part}_us_per_stream"] for part in ("gateway", "worker", "proxy")]
        slopes = [found[f"{part}_slope"] for part in ("gateway", "worker", "proxy")]
        plain, worker, proxy = (found[f"{part}us_per_plain_request"] for part in ("", "worker_", "proxy_"))
        rows.append(("streamed request", name, *(f"{us:.0f}" for us in (*parts, sum(parts)))))
        rows.append(("further token", name, *(f"{max(0.0, us):.1f}" for us in (*slopes, sum(slopes)))))
        rows.append(("plain request", name, *(f"{us:.0f}" for us in (plain - worker - proxy, worker, proxy, plain))))
    rows.sort(key=lambda row: ("streamed request", "further token", "plain request").index(row[0]))
    ttft = [(name, *(f"{(by_name[name][q] - direct[q]) * 1e3:+.1f} ms" for q in ("ttft_p50_s", "ttft_p99_s")))
            for name in (MESH, PICKER)]  # fmt: skip
    return render(
        Path(__file__).with_name("picker_page.md.j2"),
        seconds=f"{seconds:g}",
        rate=f"{rate / 2:g}",
        full=f"{rate:g}",
        runs=direct["runs"],
        errors={name: by_name[name]["errors"] for name in (MESH, PICKER)},
        rows=rows,
        ttft=ttft,
    )


def prompts_page(results: Sequence[dict[str, Any]], seconds: float, words: int) -> str:
    """Returns the page on what following prompts costs, from the single runs of `MESH` and `BLIND`, in pairs."""
    rows = []
    for name, means, added in _pairs(results, BLIND):
        least, most = added.mean - added.half, added.mean + added.half
        verdict = "met" if most <= MOST_ADDED else "**missed**" if least > MOST_ADDED else "**cannot be told**"
        rows.append((name, *means, *_added(added), verdict))
    return render(
        Path(__file__).with_name("prompts_page.md.j2"),
        seconds=f"{seconds:g}",
        words=words,
        pairs=len(results) // 2,
        most=f"{100 * MOST_ADDED:g}",
        rows=rows,
        errors=sum(result["errors"] for result in results),
    )


def perception_page(results: Sequence[dict[str, Any]], seconds: float, words: int) -> str:
    """Returns the page on what perception costs the hop, from the single runs of `MESH` and `UNREAD`, in pairs."""
    rows = []
    for name, means, added in _pairs(results, UNREAD):
        verdict = "within noise" if added.noise else "less" if added.mean < 0.0 else "**more**"
        rows.append((name, *means, *_added(added), verdict))
    ours = [result for result in results if result["name"] == MESH]
    read, left = (sum(run[name] for run in ours) for name in ("read", "left"))
    return render(
        Path(__file__).with_name("perception_page.md.j2"),
        seconds=f"{seconds:g}",
        words=words,
        pairs=len(ours),
        rows=rows,
        left=percent(left / (read + left)),
        errors=sum(result["errors"] for result in results),
    )


def _pairs(results: Sequence[dict[str, Any]], other: str) -> Iterator[tuple[str, tuple[str, str], Paired]]:
    """Yields for each kind of request its name, the mean CPU times of the mesh and of the `other`, and by which share
    the mesh takes more, pair by pair."""
    runs = {name: [result for result in results if result["name"] == name] for name in (MESH, other)}
    for key, name in (("us_per_stream", "streamed request"), ("us_per_plain_request", "plain request")):
        ours, others = ([run[key] for run in runs[each]] for each in (MESH, other))
        added = paired([a / b for a, b in zip(ours, others, strict=True)], [1.0] * len(ours))
        yield name, (f"{fmean(ours):.0f}", f"{fmean(others):.0f}"), added


def _added(added: Paired) -> tuple[str, str]:
    low, high = 100.0 * (added.mean - added.half), 100.0 * (added.mean + added.half)
    return f"{100 * added.mean:+.1f} %", f"{low:+.1f} to {high:+.1f} %"


def _spread(result: dict[str, Any]) -> str:
    low_high = result["spread"]
    us, full, plain = (low_high[key] for key in ("us_per_token", "saturated_tokens_per_s", "us_per_plain_request"))
    spans = ((us, "µs/token"), (full, "tok/s"), (plain, "µs/plain"))
    return ", ".join(f"{low:.0f} to {high:.0f} {unit}" for (low, high), unit in spans)


def _number(value: float) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.1 else 3
    return f"{value:.{digits}f}"
