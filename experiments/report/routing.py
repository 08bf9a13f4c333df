"""Writes the page about routing by prefix: routers side by side, several gateways, and several workers."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import stdev

from experiments.length_bounds import told
from experiments.report.goal import Goal
from experiments.report.template import percent, render
from experiments.routing import many
from experiments.routing.measure import AFTER_S, ENGINES, POOLED, PROFILE, PROFILES
from experiments.routing.plan import BASELINE, LOADS, PRECISION, SECONDS, TARGET, Plan, by_seed, mean_of
from experiments.routing.rules import EXACT, HMAS, LEAST_BACKLOG
from experiments.routing.workloads import GAP_MEDIAN_S, KINDS, LOOPS, MOONCAKE, SLO, SLOS
from hmas.sim.cells import CellStore

GENERATED = "\n<!-- Written by `python -m experiments routing`; do not edit. -->\n"
APART = 3.0  # points between the best and the worst router, from which on a load tells routers apart
Figures = dict[str, float]


def write_page(store: CellStore, plan: Plan, rates: dict[str, float], page: Path, missing: int) -> list[Path]:
    """Writes `routing.md` and `routing.json` beside it from the finished runs, and returns their paths. `rates` has
    λ*_job of the workloads for which it was found."""
    found = routers(store, plan, rates)
    scaled = gateways(store, plan, rates)
    shapes = shapes_of(store, plan)
    text = render(
        Path(__file__).with_name("routing.md.j2"),
        engines=ENGINES, profile=PROFILE, profiles=PROFILES, gap=f"{GAP_MEDIAN_S:g}", slo=SLO, slos=SLOS,
        target=percent(TARGET), precision=percent(PRECISION), baseline=BASELINE,
        seeds=plan.seeds, more_seeds=len(plan.seeds_of(LOOPS)), seconds=plan.seconds, factors=SECONDS,
        missing=missing, after=f"{AFTER_S:g}", many=many,
        rates={kind: f"{rate:.3g}" for kind, rate in rates.items()},
        bounds=told(store.get(cell) for cell in plan.cells(rates)),
        goals=[goal.line for goal in goals(found, scaled, shapes)],
        tables=[(kind, load, table_of(found, kind, load)) for kind in KINDS for load in LOADS if (kind, load) in found],
        scaled=[
            (kind, name, *(percent(f[x]) for x in ("hit", "job_goodput")), f"{1000 * f['ttft_p90_s']:.0f} ms")
            for (kind, name), f in scaled.items()
        ],
        shapes=[
            (kind, f"{load:g}", f"{workers} × {number}" + (", stale" if stale else ""), percent(f["goodput"]),
             points(f["goodput"], shapes.get((kind, load, 1, 1, False))), f"{f['busy_ratio']:.2f}")
            for (kind, load, workers, number, stale), f in shapes.items()
        ],
    )  # fmt: skip
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text.rstrip() + "\n" + GENERATED, encoding="utf-8")
    facts = page.with_suffix(".json")
    facts.write_text(json.dumps(rows(found, scaled, shapes), indent=1) + "\n", encoding="utf-8")
    return [page, facts]


def routers(store: CellStore, plan: Plan, rates: dict[str, float]) -> dict[tuple[str, float], dict[str, Figures]]:
    """Returns the means over the seeds, with `spread`: the standard deviation over the seeds of the distance of a
    router's jobs on time from ours."""
    found: dict[tuple[str, float], dict[str, Figures]] = {}
    shares: dict[tuple[str, float], dict[str, list[float]]] = {}
    for (load, cell), some in by_seed(plan.routers(rates)):
        figures = mean_of(store, some)
        if figures is not None:
            found.setdefault((cell.workload, load), {})[cell.system] = figures
            stored = [run for each in some if (run := store.get(each)) is not None]
            runs = [run["job_goodput"] for run in stored if "job_goodput" in run]
            shares.setdefault((cell.workload, load), {})[cell.system] = runs
    for key, systems in found.items():
        ours = shares[key].get(HMAS, [])
        for system, figures in systems.items():
            runs = shares[key][system]
            if len(runs) == len(ours) > 1:
                figures["spread"] = stdev(a - b for a, b in zip(runs, ours, strict=True))
    return found


def gateways(store: CellStore, plan: Plan, rates: dict[str, float]) -> dict[tuple[str, str], Figures]:
    found = {}
    for (name, cell), some in by_seed(plan.gateways(rates)):
        figures = mean_of(store, some)
        if figures is not None:
            found[cell.workload, name] = figures
    return found


Shapes = dict[tuple[str, float, int, int, bool], Figures]


def shapes_of(store: CellStore, plan: Plan) -> Shapes:
    found = {}
    every = [(None, cell) for cell in many.cells(range(1, plan.seeds + 1), plan.seconds)]
    for (_, cell), some in by_seed(every):
        figures = mean_of(store, some)
        if figures is not None:
            found[cell.workload, cell.load, cell.workers, cell.gateways, cell.stale] = figures
    return dict(sorted(found.items()))


def table_of(found: dict[tuple[str, float], dict[str, Figures]], kind: str, load: float) -> list[tuple[str, ...]]:
    some = found[kind, load]
    exact, pooled, base = (some.get(name) for name in (EXACT, POOLED, BASELINE))
    lines = []
    for system, figures in some.items():
        hit = figures["hit"]
        line = [system, percent(hit), share(hit, exact, "hit"), share(hit, pooled, "hit")]
        if system == POOLED:
            line += ["-"] * 5
        else:
            line += [percent(figures["job_goodput"]), f"{1000 * figures['ttft_p50_s']:.0f} ms"]
            line += [f"{1000 * figures['ttft_p90_s']:.0f} ms", share(figures["ttft_p90_s"], base, "ttft_p90_s")]
            line.append(f"{figures['busy_ratio']:.2f}")
        lines.append((*line, f"{figures['seeds']:.0f}"))
    return lines


def share(value: float, other: Figures | None, name: str) -> str:
    return f"{value / other[name]:.3f}" if other is not None and other[name] > 0.0 else "-"


def points(value: float, other: Figures | None) -> str:
    return "-" if other is None else f"{100 * (value - other['goodput']):+.1f}"


def goals(
    found: dict[tuple[str, float], dict[str, Figures]], scaled: dict[tuple[str, str], Figures], shapes: Shapes
) -> list[Goal]:
    """Returns what was aimed at, and whether it is met by the finished runs."""
    result = []
    chat = found.get((MOONCAKE, LOADS[-1]), {})
    for name, least in ((EXACT, 0.98), (POOLED, 0.95)):
        words = f"Mooncake's conversations at {LOADS[-1]:g} λ*_job: hit tokens at least {least:g} of *{name}*"
        result.append(_ratio(words, chat.get(HMAS), chat.get(name), "hit", least=least))
    busy = chat.get(HMAS)
    words = f"Mooncake's conversations at {LOADS[-1]:g} λ*_job: busiest engine at most 1.10 of the mean"
    value = None if busy is None else busy["busy_ratio"]
    result.append(Goal(words, f"{value or 0.0:.2f}", None if value is None else value <= 1.10))
    loops = found.get((LOOPS, LOADS[-1]), {})
    words = f"Agents' loops at {LOADS[-1]:g} λ*_job: TTFT p90 at most 0.5 of *{LEAST_BACKLOG}*"
    result.append(_ratio(words, loops.get(HMAS), loops.get(LEAST_BACKLOG), "ttft_p90_s", most=0.5))
    result += [_against_the_best(found.get((kind, load), {}), kind, load) for load in LOADS for kind in KINDS]
    for kind in (LOOPS, MOONCAKE):
        one = scaled.get((kind, "1 gateways"))
        for name, least in (("8 gateways", 0.97), ("16 gateways", 0.95)):
            words = f"{kind}: {name} keep at least {least:g} of one gateway's hits"
            several = scaled.get((kind, name))
            goal = _ratio(words, several, one, "hit", least=least)
            if several is not None and one is not None:
                goal = replace(goal, found=f"{goal.found}, with {_on_time(several)} beside {_on_time(one)}")
            result.append(goal)
        killed, whole = scaled.get((kind, "8, one killed")), scaled.get((kind, "8 gateways"))
        words = f"{kind}: {AFTER_S:g} s after one of 8 was killed the others have at least 0.95 of the hits"
        result.append(_ratio(words, killed, whole, "hit_late", least=0.95))
    apart = [
        100 * (f["goodput"] - shapes[kind, load, 1, 1, False]["goodput"])
        for (kind, load, workers, number, _), f in shapes.items()
        if (workers, number) != (1, 1) and (kind, load, 1, 1, False) in shapes
    ]
    words = "Several workers and gateways: goodput at most 1.5 points behind one central queue"
    told = f"{sum(x >= -1.5 for x in apart)} of {len(apart)} settings, the worst {min(apart, default=0.0):+.1f} points"
    result.append(Goal(words, told, min(apart) >= -1.5 if apart else None))
    return result


def _against_the_best(systems: dict[str, Figures], kind: str, load: float) -> Goal:
    """Returns the goal against the best other router, and whether routers differ enough there to tell."""
    words = f"{kind} at {load:g} λ*_job: jobs on time at most 0.5 points behind the best other router"
    others = {s: f["job_goodput"] for s, f in systems.items() if s not in (HMAS, EXACT, POOLED)}
    if HMAS not in systems or len(others) < 2:
        return Goal(words, "", None)
    best, worst = max(others, key=others.__getitem__), min(others.values())
    behind = 100 * (systems[HMAS]["job_goodput"] - others[best])
    apart = 100 * (others[best] - worst)
    deviation = f" ± {100 * systems[best]['spread']:.1f}" if "spread" in systems[best] else ""
    found = f"{behind:+.1f}{deviation} points against {best} (best and worst are {apart:.1f} points apart"
    return Goal(words, found + (")" if apart >= APART else ", too little to tell routers apart)"), behind >= -0.5)


def _on_time(figures: Figures) -> str:
    return f"{percent(figures['job_goodput'])} on time and a TTFT p90 of {1000 * figures['ttft_p90_s']:.0f} ms"


def _ratio(
    words: str, figures: Figures | None, other: Figures | None, name: str, *, least: float = 0.0, most: float = 1e9
) -> Goal:
    if figures is None or other is None or not other[name]:
        return Goal(words, "", None)
    ratio = figures[name] / other[name]
    return Goal(words, f"{ratio:.3f}", least <= ratio <= most)


def rows(
    found: dict[tuple[str, float], dict[str, Figures]], scaled: dict[tuple[str, str], Figures], shapes: Shapes
) -> Sequence[dict[str, object]]:
    """Returns all figures as rows. `share_of_bound` and `wasted` are not measured here."""
    told = [
        _row("routing", kind, load, system, figures, figures.get("job_goodput"))
        for (kind, load), some in found.items()
        for system, figures in some.items()
    ]
    told += [
        _row(f"gateways: {name}", kind, LOADS[-1], HMAS, figures, figures["job_goodput"])
        for (kind, name), figures in scaled.items()
    ]
    return told + [
        _row(f"{workers} workers, {number} gateways" + (", stale" if stale else ""), kind, load, HMAS, f, f["goodput"])
        for (kind, load, workers, number, stale), f in shapes.items()
    ]


def _row(
    experiment: str, workload: str, load: float, system: str, figures: Figures, goodput: float | None
) -> dict[str, object]:
    cached = "hit" in figures
    return {
        "experiment": experiment, "workload": f"{workload}+cache" if cached else workload, "load": load,
        "seeds": int(figures["seeds"]), "system": system, "job_goodput": _rounded(goodput), "share_of_bound": None,
        "wasted": None, "hit": _rounded(figures.get("hit")), "busy_ratio": _rounded(figures.get("busy_ratio")),
        "paper": None, "ttft_p90_s": _rounded(figures.get("ttft_p90_s")),
    }  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
