"""Which runs the comparison of routers consists of."""

from collections import Counter

from experiments.report.routing import goals
from experiments.routing.grid import LOADS, SEEDS, Plan
from experiments.routing.rules import HMAS, RULES
from experiments.routing.workloads import LOOPS, MOONCAKE


def test_short_runs_get_more_seeds_and_all_routers_the_same() -> None:
    runs = [cell for _, cell in Plan(2, 40.0).routers({LOOPS: 18.0, MOONCAKE: 9.0})]
    of = Counter((run.workload, run.system) for run in runs)
    assert {of[LOOPS, system] for system in RULES} == {2 * SEEDS * len(LOADS)}
    assert {of[MOONCAKE, system] for system in RULES} == {2 * len(LOADS)}
    seeds = [run.seed for run in runs if run.system == HMAS]
    assert seeds == sorted(seeds), "an interrupted comparison has some seeds of all"
    assert len(set(runs)) == len(runs)


def test_a_router_that_is_behind_at_any_load_is_told() -> None:
    def on_time(shares: dict[str, float]) -> dict[str, dict[str, float]]:
        return {system: {"job_goodput": share, "hit": 0.5, "seeds": 1} for system, share in shares.items()}

    found = {
        (LOOPS, LOADS[0]): on_time({HMAS: 0.90, "llm-d": 0.89, "round robin": 0.80}),
        (LOOPS, LOADS[1]): on_time({HMAS: 0.97, "llm-d": 0.99, "round robin": 0.98}),
    }
    told = {goal.words.partition(" λ")[0]: goal for goal in goals(found, {}, {}) if goal.words.startswith(LOOPS)}
    ahead, behind = (told[f"{LOOPS} at {load:g}"] for load in LOADS)
    assert ahead.met
    assert "best and worst are 9.0 points apart)" in ahead.found
    assert behind.met is False
    assert behind.found.startswith("-2.0 points against llm-d")
    assert "too little" in behind.found
