"""Writes the page about routing by prefix: routers side by side, several gateways, and several workers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import stdev
from typing import Any

from experiments.length_bounds import told
from experiments.pages.goal import Goal
from experiments.pages.template import percent
from experiments.routing import many
from experiments.routing.grid import (
    BASELINE,
    LOADS,
    PRECISION,
    SECONDS,
    TARGET,
    Plan,
    by_seed,
    cells,
    compute,
    digest,
    given,
    mean_of,
    rates_of,
)
from experiments.routing.measure import AFTER_S, ENGINES, POOLED, PROFILE, PROFILES
from experiments.routing.rules import EXACT, HMAS, LEAST_BACKLOG
from experiments.routing.workloads import GAP_MEDIAN_S, KINDS, LOOPS, MOONCAKE, SLO, SLOS
from experiments.study import Finished, Options, Study

APART = 3.0  # points between the best and the worst router, from which on a load tells routers apart
Figures = dict[str, float]


def page_of(options: Options, store: Finished) -> dict[str, object]:
    plan = Plan(options.seeds, options.seconds)
    rates = rates_of(store, plan)
    found, scaled, shapes = routers(store, plan, rates), gateways(store, plan, rates), shapes_of(store, plan)
    every = [store.get(cell) for cell in plan.every(rates)]
    judged = goals(found, scaled, shapes)
    return {
        "engines": ENGINES, "profile": PROFILE, "profiles": PROFILES, "gap": f"{GAP_MEDIAN_S:g}", "slo": SLO,
        "slos": SLOS, "target": percent(TARGET), "precision": percent(PRECISION), "baseline": BASELINE,
        "seeds": plan.seeds, "more_seeds": len(plan.seeds_of(LOOPS)), "seconds": plan.seconds, "factors": SECONDS,
        "missing": every.count(None), "after": f"{AFTER_S:g}", "many": many,
        "rates": {kind: f"{rate:.3g}" for kind, rate in rates.items()}, "bounds": told(every),
        "goals": [goal.line for goal in judged], "met": sum(goal.met is True for goal in judged),
        "overview": [_overview(found, k, load) for k in KINDS for load in LOADS if (k, load) in found],
    }  # fmt: skip


def rows_of(options: Options, store: Finished) -> Sequence[dict[str, object]]:
    plan = Plan(options.seeds, options.seconds)
    rates = rates_of(store, plan)
    return rows(routers(store, plan, rates), gateways(store, plan, rates), shapes_of(store, plan))


def routers(store: Finished, plan: Plan, rates: dict[str, float]) -> dict[tuple[str, float], dict[str, Figures]]:
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


def gateways(store: Finished, plan: Plan, rates: dict[str, float]) -> dict[tuple[str, str], Figures]:
    found = {}
    for (name, cell), some in by_seed(plan.gateways(rates)):
        figures = mean_of(store, some)
        if figures is not None:
            found[cell.workload, name] = figures
    return found


Shapes = dict[tuple[str, float, int, int, bool], Figures]


def shapes_of(store: Finished, plan: Plan) -> Shapes:
    found = {}
    every = [(None, cell) for cell in many.cells(range(1, plan.seeds + 1), plan.seconds)]
    for (_, cell), some in by_seed(every):
        figures = mean_of(store, some)
        if figures is not None:
            found[cell.workload, cell.load, cell.workers, cell.gateways, cell.stale] = figures
    return dict(sorted(found.items()))


def _overview(found: dict[tuple[str, float], dict[str, Figures]], kind: str, load: float) -> tuple[str, ...]:
    """Returns a table row: what our choice reached in a setting, and the best other router."""
    some = found[kind, load]
    setting = f"{kind}, {load:g} λ*_job"
    if HMAS not in some:
        return (setting, *["not measured"] * 7)
    ours, others = some[HMAS], _others(some)
    best = max(others, key=others.__getitem__, default="")
    its = percent(others[best]) if best else "-"
    waits = f"{1000 * ours['ttft_p90_s']:.0f} ms", share(ours["ttft_p90_s"], some.get(BASELINE), "ttft_p90_s")
    hits = percent(ours["hit"]), share(ours["hit"], some.get(EXACT), "hit")
    return (setting, percent(ours["job_goodput"]), best, its, *waits, *hits)


def _others(systems: dict[str, Figures]) -> dict[str, float]:
    """Returns the jobs on time of the other routers, those left out that know more than one can."""
    return {s: f["job_goodput"] for s, f in systems.items() if s not in (HMAS, EXACT, POOLED)}


def share(value: float, other: Figures | None, name: str) -> str:
    return f"{value / other[name]:.3f}" if other is not None and other[name] > 0.0 else "-"


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
    others = _others(systems)
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
        | {"ttft_p50_s": _rounded(figures.get("ttft_p50_s"))}
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


STUDY: Study[Any, dict[str, object]] = Study(
    name="routing",
    about="Compares routers by prefix, several gateways with one, and several workers with one central queue (--only "
    "routers, gateways, many: these parts alone). It needs --data with agentic/ and traces/.",
    takes=("out", "seeds", "seconds", "processes", "cells", "data", "only", "pages_only"),
    defaults=Options(seeds=3, seconds=40.0, cells=Path("out/routing-cells")),
    cells=cells,
    compute=compute,
    given=given,
    code=digest,
    rows=rows_of,
    values=lambda rows, options, found: page_of(options, found),
)
