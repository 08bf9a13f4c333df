"""The study of plans: equal runs are one, each way gets its engines and split, and the page judges what is finished."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from experiments.plans.cases import ALONE, CASES, LOOSE, SERIES, SMALL, TWO, WIDE, PlanCase, kinds_of, loaded
from experiments.plans.page import STUDY, Table, goals_of
from experiments.plans.planning import (
    ALPASERVE,
    MAASO,
    ONE_SIZE,
    ONE_TYPE,
    OURS,
    SYSTEMS,
    PlacedEngines,
    PlanCell,
    compute_plans,
    engines_from,
)  # fmt: skip
from experiments.plans.runs import (
    CLASSES,
    DISTRIBUTOR,
    FCFS,
    MESH,
    PLANNED,
    QUICK,
    PlanRow,
    PoolRun,
    chosen_cases,
    compute,
    plan_cell,
    rows_of,
    run_of,
    runs_of,
    systems_of,
    ways_of,
)  # fmt: skip
from experiments.study import Options
from experiments.writer import write
from hmas.contracts.control import Split
from hmas_lab.placement.traces import traffic_workload

TP2, TP4 = (kind.name for kind in kinds_of("llama") if kind.gpus in (2, 4))
LAYOUT, OWN_SPLIT = Split((0.02,), (1, 2)), Split((0.015,), (2, 1))
PLAN = PlacedEngines("llama", ((TP2, 2, 64), (TP4, 1, 128)), OWN_SPLIT, LAYOUT)
ORDERED = ((TP4, 1, 0), (TP2, 2, 0))


@pytest.mark.parametrize(
    ("way", "groups", "split"),
    [
        (FCFS, ORDERED, Split()),
        (MESH, ORDERED, Split()),
        (QUICK, ORDERED, LAYOUT),
        (PLANNED, ORDERED, LAYOUT),
        (DISTRIBUTOR, PLAN.groups, OWN_SPLIT),
        (CLASSES, ((TP2, 2, 0), (TP4, 1, 0)), OWN_SPLIT),
    ],
)
def test_each_way_gets_the_engines_limits_and_split_that_it_knows(
    way: str, groups: tuple[tuple[str, int, int], ...], split: Split
) -> None:
    run = run_of(SMALL, PLAN, way, 1)
    assert (run.groups, run.cuts_s, run.counts) == (groups, split.cuts_s, split.engines)
    assert (run.seconds, run.judged_s, run.traffic) == (SMALL.seconds, SMALL.judged_s, SMALL.traffic("llama"))


def test_without_classes_of_its_own_a_plan_gets_those_of_our_layout() -> None:
    run = run_of(SMALL, replace(PLAN, own=Split()), CLASSES, 1)
    assert (run.groups, run.cuts_s) == (ORDERED, LAYOUT.cuts_s)


def test_plans_that_differ_in_what_a_way_does_not_see_share_its_run() -> None:
    other = PlacedEngines("llama", ((TP4, 1, 32), (TP2, 1, 32), (TP2, 1, 64)), Split((0.1,), (1, 2)), Split())
    assert run_of(SMALL, PLAN, FCFS, 1) == run_of(SMALL, other, FCFS, 1)
    assert run_of(SMALL, PLAN, DISTRIBUTOR, 1) != run_of(SMALL, other, DISTRIBUTOR, 1)


def test_limits_are_those_of_the_plan_only_where_they_are_asked_for() -> None:
    assert [kind.max_num_seqs for kind in PLAN.instances(kinds_of("llama"), limited=True)] == [64, 64, 128]
    assert [kind.max_num_seqs for kind in PLAN.instances(kinds_of("llama"))] == [256] * 3
    assert engines_from(asdict(PLAN)) == PLAN


def test_cases_are_what_their_names_say() -> None:
    assert len({(case.series, case.name) for case in (*CASES, *SERIES)}) == len(CASES) + len(SERIES)
    assert [kind.gpus for kind in WIDE.kinds["qwen-fp8"]] == [1, 2, 4, 8]
    assert [kind.gpus for kind in WIDE.kinds["llama"]] == [2, 4, 8]
    assert WIDE.alone_s["llama"] == pytest.approx(0.01678, abs=1e-5)
    assert dict(loaded(TWO, 0.5).rates) == {"qwen-fp8": 11.0, "llama": 4.2}
    assert chosen_cases(Options(only=("cases",))) == CASES
    assert chosen_cases(Options(only=(SMALL.name,))) == (SMALL,)
    assert chosen_cases(Options()) == (*CASES, *SERIES)
    with pytest.raises(ValueError, match="no part nothing"):
        chosen_cases(Options(only=("nothing",)))


def plans(case: PlanCase, engines: PlacedEngines) -> dict[Any, Any]:
    """A store with the same engines for every system and pool."""
    own = [asdict(replace(engines, pool=pool)) for pool, _ in case.rates]
    said = {"expected": 0.9, "bound": 1.0, "one_type_is_enough": True}
    return {plan_cell(case): {"plans": dict.fromkeys(SYSTEMS, own), "cpu_s": dict.fromkeys(SYSTEMS, 2.0), **said}}


def run(on_time: int) -> dict[str, Any]:
    return {"requests": 10, "on_time": on_time, "served": 5, "first_s": 10.0, "tokens_per_s": 250.0}


def test_a_row_has_the_seeds_whose_runs_are_all_finished() -> None:
    found = plans(SMALL, PLAN)
    found |= {run_of(SMALL, PLAN, MESH, seed): run(seed) for seed in (1, 3)}
    rows = rows_of(Options(seeds=3), found)
    [row] = [row for row in rows if row.system == OURS]
    assert (row.way, row.shares, row.latency_s, row.tokens_per_s) == (MESH, [0.1, 0.3], 2.0, 50.0)
    assert (row.engines, row.cards, row.solver_s, row.enough) == ("llama 2 x 2 + 1 x 4", 8, 2.0, True)


def test_a_pool_without_engines_keeps_nothing_of_its_requests() -> None:
    found = plans(SMALL, replace(PLAN, groups=(), own=Split()))
    rows = rows_of(Options(seeds=1), found)
    assert {tuple(row.shares) for row in rows} == {(0.0,)}


def test_a_row_adds_up_its_pools() -> None:
    both = Plans(TWO)
    assert rows_of(Options(seeds=1), both.found | {both.run("llama"): run(8)}) == []
    [mesh] = rows_of(Options(seeds=1), both.found | {both.run("llama"): run(8), both.run("qwen-fp8"): run(5)})[:1]
    assert mesh.shares == [13 / 20]
    alone = Plans(TWO, without="llama")
    [mesh] = rows_of(Options(seeds=1), alone.found | {alone.run("qwen-fp8"): run(5)})[:1]
    late = [
        r for r in traffic_workload((TWO.traffic("llama"),), TWO.seconds, 1).requests if r.request.arrival_s >= 40.0
    ]
    assert mesh.shares == [5 / (10 + len(late))]


class Plans:
    """A case whose systems all have one engine of four cards for each pool, but for one."""

    def __init__(self, case: PlanCase, without: str = "") -> None:
        self._case = case
        self._engines = {
            pool: PlacedEngines(pool, () if pool == without else ((kind.name, 1, 64),), Split(), Split())
            for pool, _ in case.rates
            for kind in kinds_of(pool)
            if kind.gpus == 4
        }
        [(cell, stored)] = plans(case, PLAN).items()
        own = [asdict(engines) for engines in self._engines.values()]
        self.found: dict[Any, Any] = {cell: {**stored, "plans": dict.fromkeys(SYSTEMS, own)}}

    def run(self, pool: str) -> PoolRun:
        return run_of(self._case, self._engines[pool], MESH, 1)


def row(case: PlanCase, system: str, way: str, shares: list[float], **changes: Any) -> PlanRow:
    made = PlanRow(
        case=case.name, series="", gpus=case.gpus, system=system, way=way, shares=shares, latency_s=None,
        tokens_per_s=None, engines="llama 2 x 4", cards=case.gpus, solver_s=1.0, enough=True,
    )  # fmt: skip
    return replace(made, **changes)


def test_goals_are_met_missed_or_open() -> None:
    ours = {TWO: 0.93, WIDE: 0.94, ALONE: 0.99, LOOSE: 0.905}
    rows = [row(case, OURS, way, [share, share]) for case, share in ours.items() for way in (PLANNED, QUICK)]
    rows += [row(case, ONE_TYPE, PLANNED, [0.91, 0.91]) for case in (TWO, WIDE, LOOSE)]
    rows += [row(case, ONE_SIZE, PLANNED, [0.88, 0.88]) for case in (TWO, WIDE, LOOSE)]
    rows += [row(SMALL, OURS, QUICK, [0.9])]
    rows += [row(TWO, MAASO, DISTRIBUTOR, [0.8, 0.8]), row(TWO, ALPASERVE, FCFS, [0.6, 0.7])]
    met = [goal.met for goal in goals_of(rows)]
    assert met == [True, False, False, False, True, None, None, True, True, True, True, True]
    assert [goal.met for goal in goals_of([])] == [None] * 12
    other = row(SMALL, OURS, QUICK, [0.9], engines="llama 1 x 4 + 2 x 2")
    assert goals_of([other])[10].met is False
    assert goals_of([row(WIDE, OURS, QUICK, [0.9], cards=20)])[4].met is False
    assert goals_of([row(LOOSE, OURS, QUICK, [0.9], enough=False)])[9].met is False


def test_gains_are_paired_with_the_better_plan_of_one_size() -> None:
    rows = [
        row(TWO, OURS, PLANNED, [0.9, 0.8]),
        row(TWO, ONE_TYPE, PLANNED, [0.7, 0.7]),
        row(TWO, ONE_SIZE, PLANNED, [0.8, 0.7]),
    ]
    gain = Table(rows).gain(TWO)
    assert gain is not None
    assert gain.mean == pytest.approx(0.1)
    assert gain.half == pytest.approx(0.0)
    assert Table([*rows[:1], replace(rows[1], shares=[0.7])]).gain(TWO) is None


def test_every_case_has_its_ways_and_equal_runs_are_asked_for_once(tmp_path: Any) -> None:
    assert ways_of(TWO, MAASO) == (FCFS, CLASSES, QUICK, PLANNED, DISTRIBUTOR)
    assert ways_of(TWO, OURS) == (FCFS, CLASSES, QUICK, PLANNED, MESH)
    assert DISTRIBUTOR not in ways_of(TWO, ALPASERVE)
    one = SERIES[0]
    assert ONE_SIZE not in systems_of(one)
    assert (ways_of(one, ALPASERVE), ways_of(one, MAASO), ways_of(one, OURS)) == ((FCFS,), (DISTRIBUTOR,), (QUICK,))
    found = plans(SMALL, PLAN)
    assert len(set(runs_of(SMALL, found, [1]))) == 6
    assert runs_of(TWO, found, [1]) == []
    found |= {each: run(8) for each in runs_of(SMALL, found, [1, 2])}
    page = write(STUDY, Options(out=tmp_path, seeds=2), found)[0].read_text()
    assert f"| {SMALL.name} | 0.800 | 0.800 | 0.800 | 0.800 | 0.800 | 0.800 | +0.0 ± 0.0 points |" in page


@pytest.mark.parametrize("way", [FCFS, CLASSES, DISTRIBUTOR, QUICK])
def test_a_run_counts_what_came_late_enough(way: str) -> None:
    case = replace(SMALL, seconds=12.0, judged_s=6.0)
    found = compute(run_of(case, PLAN, way, 1))
    assert 0 <= found["on_time"] <= found["requests"]
    assert 25 <= found["requests"] <= 80
    if way == FCFS:
        assert found["served"] == found["requests"]
        assert found["on_time"] < found["requests"]  # strict ones on the slow engines are late
        assert 0.0 < found["first_s"] / found["served"] < 2.0


def test_systems_plan_within_the_cards_and_say_what_is_possible() -> None:
    case = replace(SMALL, rates=(("llama", 2.0),), seconds=40.0)
    found = compute_plans(PlanCell(case=case))
    sizes = {kind.name: kind.gpus for kind in kinds_of("llama")}
    for system, own in found["plans"].items():
        [engines] = map(engines_from, own)
        assert 0 < sum(sizes[name] * count for name, count, _ in engines.groups) <= 8, system
    assert found["expected"] <= found["bound"]
    assert set(found["cpu_s"]) == set(SYSTEMS)
    assert isinstance(compute(PlanCell(case=replace(case, series="x"), only=(MAASO,)))["plans"][MAASO], list)


def test_a_run_is_kept_under_all_that_it_depends_on() -> None:
    one = run_of(SMALL, PLAN, QUICK, 1)
    assert (
        len({each.key() for each in (one, replace(one, seed=2), replace(one, way=FCFS), replace(one, counts=()))}) == 4
    )
    assert isinstance(one, PoolRun)
