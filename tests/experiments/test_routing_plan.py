"""Which runs the comparison of routers consists of."""

from collections import Counter

from experiments.routing.plan import LOADS, SEEDS, Plan
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
