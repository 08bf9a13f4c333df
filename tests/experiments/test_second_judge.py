"""The second judge: plans as AISimulate can run them, what it answers, what the judges say together, and the page."""

import json
import sys
from dataclasses import asdict, replace
from io import StringIO
from math import inf
from pathlib import Path
from typing import Any

import pytest

from experiments.__main__ import main
from experiments.judge import aisimulate_worker
from experiments.judge.judged_cells import (
    CELLS,
    FAR,
    JUDGED_S,
    NEAR,
    ONE,
    SECONDS,
    TWO,
    JudgedCell,
    JudgedPlan,
    deployments,
    in_class_order,
    kinds,
)
from experiments.judge.judged_page import (
    BETTER,
    DISAGREE,
    EQUAL,
    STUDY,
    WORSE,
    JudgedRow,
    JudgedTable,
    agreed,
    goals_of,
    rows_of,
    said,
)
from experiments.judge.judged_runs import (
    AISIMULATE,
    ALIKE,
    APART,
    JUDGES,
    OURS,
    SHIPPED,
    SINGLE,
    WHOLE,
    JudgedRun,
    LayoutSearch,
    OurSearch,
    OutsideSearch,
    PaceProbe,
    cells,
    code,
    compute,
    divided,
    kept,
    plans_of,
    run_of,
    searches_of,
)
from experiments.judge.outside import (
    MISSING,
    OutsideShape,
    asking,
    configuration,
    predicted,
    recommended,
    shapes_of,
    times_of,
    trace_lines,
)
from experiments.pages.paired import Paired
from experiments.study import Options
from experiments.writer import write

ANSWER: dict[str, Any] = json.loads(Path(__file__).with_name("aisimulate_answer.json").read_text())
ONE_CLASS = CELLS[0]
OURS_8 = JudgedPlan((4, 2, 2), (NEAR.slos_s[0],), (1, 2))


# --- cells and plans


def test_one_class_and_two_have_the_same_requests_but_for_their_slos() -> None:
    one, two = ONE_CLASS.workload(10.0, 3).requests, NEAR.workload(10.0, 3).requests
    assert [(r.id, r.request.arrival_s, r.output_tokens) for r in one] == [
        (r.id, r.request.arrival_s, r.output_tokens) for r in two
    ]
    assert {r.slo.tpot_s for r in one} == {0.017}
    strict, lax = ([r for r in two if r.slo.tpot_s == slo_s] for slo_s in NEAR.slos_s)
    assert max(r.output_tokens for r in strict) <= 500 < 600 <= min(r.output_tokens for r in lax)
    assert len(strict) + len(lax) == len(two)
    assert all(r.request.slo == r.slo for r in two)
    assert (ONE_CLASS.classes, NEAR.classes) == (ONE, TWO)
    assert NEAR.title == "8 cards, t4, two classes (15 and 23 ms)"


def test_a_plan_is_told_by_its_classes() -> None:
    assert OURS_8.told == "1 x 4 / 2 x 2"
    assert JudgedPlan((4, 4)).told == "2 x 4"
    assert JudgedPlan((4, 2, 2)).told == "1 x 4 + 2 x 2"
    assert [kind.gpus for kind in OURS_8.engines] == [4, 2, 2]
    assert in_class_order(JudgedPlan((2, 8, 4))).cards == (8, 4, 2)


def test_a_plan_becomes_a_deployment_for_each_class_and_size() -> None:
    workload = NEAR.workload(20.0, 1)
    strict, lax = deployments(OURS_8, workload)
    assert [(each.tensor, each.replicas) for each in (strict, lax)] == [(4, 1), (2, 2)]
    assert {workload.requests[place].slo.tpot_s for place in strict.requests} == {0.015}
    assert {workload.requests[place].slo.tpot_s for place in lax.requests} == {0.023}
    assert sorted((*strict.requests, *lax.requests)) == list(range(len(workload.requests)))


def test_engines_of_two_sizes_in_a_class_share_its_requests_by_the_speed_of_their_steps() -> None:
    workload = ONE_CLASS.workload(60.0, 1)
    fast, slow = deployments(JudgedPlan((4, 2, 2)), workload)
    assert sorted((*fast.requests, *slow.requests)) == list(range(len(workload.requests)))
    speed = {kind.gpus: 1.0 / kind.step.step_s(64, 32, 16_384, 0.0) for kind in kinds()}
    share = speed[4] / (speed[4] + 2 * speed[2])
    assert len(fast.requests) == pytest.approx(share * len(workload.requests), abs=1)
    assert 0.33 < share < 0.5


# --- what AISimulate is told and what it answers


def test_a_trace_has_each_request_at_its_time_and_no_prompt_twice() -> None:
    requests = NEAR.workload(10.0, 1).requests
    rows = [json.loads(line) for line in trace_lines(requests)]
    assert [row["session_id"] for row in rows] == [str(place) for place in range(len(requests))]
    assert [row["timestamp"] / 1000.0 for row in rows] == pytest.approx([r.request.arrival_s for r in requests])
    assert [row["input_length"] for row in rows] == [r.request.prompt_tokens for r in requests]
    blocks = [block for row in rows for block in row["hash_ids"]]
    assert blocks == list(range(len(blocks)))
    assert all(512 * (len(row["hash_ids"]) - 1) < row["input_length"] <= 512 * len(row["hash_ids"]) for row in rows)


def test_the_search_is_asked_for_goodput_under_one_sla_on_these_cards() -> None:
    told = configuration(Path("t.jsonl"), {"preset": "default"}) | asking(0.015, 8, 8)
    assert told["evaluation"]["sla"] == {"ttft_ms": 2000.0, "itl_ms": 15.0}
    assert told["optimization"]["target"] == "goodput"
    assert told["optimization"]["constraints"] == {"min_candidate_gpus": 8, "max_candidate_gpus": 8}
    engine = told["engine"]["workers"]["aggregated"]
    assert {kind.max_num_batched_tokens for kind in kinds()} == {engine["scheduler"]["max_batched_tokens"]}
    assert {kind.max_num_seqs for kind in kinds()} == {engine["scheduler"]["max_sequences"]}
    assert engine["kv_cache"] == {"prefix_caching": False}


def test_times_stand_at_the_places_of_their_requests_and_what_did_not_end_has_none() -> None:
    assert times_of(ANSWER["requests"], 4) == [(0.25, 0.0), None, (0.05, 0.0125), None]


def test_shapes_stand_in_the_order_of_the_ranking_without_those_that_failed() -> None:
    assert shapes_of(ANSWER["recommendation"]) == [
        OutsideShape(tensor=8, replicas=1, goodput=3300.0, on_time_rps=5.5),
        OutsideShape(tensor=4, replicas=2, goodput=2360.0, on_time_rps=6.0),
    ]
    assert [shape.cards for shape in shapes_of(ANSWER["recommendation"])] == [8, 8]


def test_a_request_is_on_time_if_both_its_times_keep_its_slo() -> None:
    request = replace(NEAR.workload(5.0, 1).requests[0])
    slo = request.slo
    assert kept(request, (slo.ttft_s, slo.tpot_s))
    assert not kept(request, (slo.ttft_s + 0.001, slo.tpot_s))
    assert not kept(request, (slo.ttft_s, slo.tpot_s + 0.0001))
    assert not kept(request, None)


def test_without_an_environment_the_command_says_how_to_make_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="-m venv"):
        predicted(tmp_path / "python", 4, 2, NEAR.workload(5.0, 1).requests)
    with pytest.raises(SystemExit):
        main(["second-judge", "--seeds", "1", "--judge", str(tmp_path / "python"), "--cells", str(tmp_path / "cells")])
    assert f"second-judge: {MISSING}" in capsys.readouterr().err


def test_the_worker_answers_each_line_and_tells_what_went_wrong() -> None:
    questions = StringIO('{"command": "unknown"}\n{"command": "predict", "configuration": {}}\n')
    answers = StringIO()
    aisimulate_worker.main(questions, answers)
    told = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert [list(each) for each in told] == [["error"], ["error"]]
    assert told[0]["error"].startswith("KeyError: 'unknown'")
    assert told[1]["error"].startswith("ModuleNotFoundError: No module named 'aisimulate'")


def test_what_the_worker_could_not_do_is_raised() -> None:
    with pytest.raises(RuntimeError, match="AISimulate's recommend failed: ModuleNotFoundError"):
        recommended(Path(sys.executable), 0.015, 8, 8, NEAR.workload(5.0, 1).requests)


# --- which plans are compared


def shape(tensor: int, replicas: int, rps: float) -> dict[str, Any]:
    return asdict(OutsideShape(tensor, replicas, 100.0 * rps, rps))


def searched(cell: JudgedCell, ours: JudgedPlan) -> dict[Any, Any]:
    """The searches of a cell, finished."""
    found: dict[Any, Any] = {}
    for search in searches_of(cell):
        if isinstance(search, OurSearch):
            found[search] = {"plan": json.loads(json.dumps(asdict(ours))), "expected": 0.9}
        elif search.part == WHOLE:
            found[search] = {"shapes": [shape(8, 1, 5.0), shape(4, 2, 4.0)], "version": "1"}
        else:
            found[search] = {"shapes": [shape(2, 3, 4.0), shape(4, 1, 3.5), shape(2, 1, 1.0)], "version": "1"}
    return found


def test_aisimulate_is_asked_for_all_requests_and_with_two_classes_for_each() -> None:
    asked = [each for each in searches_of(NEAR) if isinstance(each, OutsideSearch)]
    assert [(each.part, each.least, each.most) for each in asked] == [(WHOLE, 8, 8), (0, 1, 6), (1, 1, 6)]
    assert [each.part for each in searches_of(ONE_CLASS) if isinstance(each, OutsideSearch)] == [WHOLE]


def test_its_plans_are_the_first_shape_and_the_best_two_that_fit_the_cards() -> None:
    assert plans_of(NEAR, searched(NEAR, OURS_8)) == {
        OURS: OURS_8,
        SINGLE: JudgedPlan((8,)),
        APART: JudgedPlan((4, 4), (0.015,), (1, 1)),
    }
    assert plans_of(ONE_CLASS, searched(ONE_CLASS, JudgedPlan((4, 4)))) == {
        OURS: JudgedPlan((4, 4)),
        SINGLE: JudgedPlan((8,)),
    }
    assert plans_of(NEAR, {}) == {}


def test_cards_are_divided_by_what_is_on_time() -> None:
    strict = [OutsideShape(4, 1, 10.0, 3.0), OutsideShape(2, 1, 9.0, 1.0)]
    lax = [OutsideShape(2, 3, 90.0, 4.0), OutsideShape(2, 2, 80.0, 3.0)]
    assert divided(strict, lax, NEAR) == JudgedPlan((4, 2, 2), (0.015,), (1, 2))
    assert divided(strict[1:], lax, NEAR) == JudgedPlan((2, 2, 2, 2), (0.015,), (1, 3))
    with pytest.raises(ValueError, match="no two shapes fit 8 cards"):
        divided([OutsideShape(8, 1, 1.0, 1.0)], lax, NEAR)


def test_only_our_order_gets_another_layout_than_the_plan_has() -> None:
    other = JudgedPlan((4, 2, 2), (0.02,), (1, 2))
    found = {LayoutSearch(cell=NEAR, plan=JudgedPlan((4, 2, 2))): {"plan": asdict(other)}}
    plan = JudgedPlan((4, 2, 2))
    runs = {judge: run_of(NEAR, plan, judge, 1, found) for judge in JUDGES}
    assert {judge: run.plan if run else None for judge, run in runs.items()} == {
        AISIMULATE: plan, ALIKE: plan, SHIPPED: other,
    }  # fmt: skip
    assert run_of(NEAR, OURS_8, SHIPPED, 1, found) is None


def test_cells_come_cell_by_cell_and_the_probes_last() -> None:
    found = searched(NEAR, OURS_8)
    batches = [list(batch) for batch in cells(Options(seeds=2), found)]
    assert batches[0] == searches_of(CELLS[0])
    assert {type(each) for each in batches[-1]} == {PaceProbe}
    runs = [each for batch in batches for each in batch if isinstance(each, JudgedRun)]
    assert {each.cell for each in runs} == {NEAR}
    assert len(runs) == 2 * 3 * 2  # seeds, plans, and the judges whose layout is known
    found |= {LayoutSearch(cell=NEAR, plan=p): {"plan": asdict(p)} for p in plans_of(NEAR, found).values()}
    every = [each for batch in cells(Options(seeds=2), found) for each in batch if isinstance(each, JudgedRun)]
    assert len(every) == 2 * 3 * 3


def test_what_aisimulate_says_stays_when_our_order_changes() -> None:
    runs = {judge: JudgedRun(cell=NEAR, plan=OURS_8, judge=judge, seed=1) for judge in JUDGES}
    assert code(runs[ALIKE]) == code(runs[SHIPPED]) != code(runs[AISIMULATE])
    assert code(runs[AISIMULATE]) == code(searches_of(NEAR)[1])
    assert len({each.key() for each in runs.values()}) == 3


# --- what the judges say together


def gain(mean: float, half: float = 0.01) -> Paired:
    return Paired(mean, half)


def test_what_a_judge_says_is_more_than_noise() -> None:
    assert [said(gain(mean)) for mean in (0.02, 0.005, -0.005, -0.02)] == [BETTER, EQUAL, EQUAL, WORSE]
    assert said(gain(0.0, 0.0)) == EQUAL


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((0.1, 0.1, 0.1), BETTER),
        ((-0.1, -0.1, -0.1), WORSE),
        ((0.0, 0.0, 0.0), EQUAL),
        ((0.1, 0.1, 0.0), DISAGREE),
        ((0.1, -0.1, 0.1), DISAGREE),
    ],
)
def test_judges_agree_only_if_all_say_the_same(means: tuple[float, ...], expected: str) -> None:
    gains = {judge: gain(mean) for judge, mean in zip(JUDGES, means, strict=True)}
    assert agreed(gains) == expected
    assert agreed(gains | {SHIPPED: gain(means[2], inf)}) is None  # one seed says nothing
    gains.pop(SHIPPED)
    assert agreed(gains) is None


def row(cell: JudgedCell, plan: str, judge: str, shares: list[float]) -> JudgedRow:
    return JudgedRow(
        cell=cell.title, classes=cell.classes, plan=plan, engines="2 x 4", served="2 x 4", judge=judge, shares=shares,
        by_class=[0.5] * len(cell.slos_s),
    )  # fmt: skip


def rows(cell: JudgedCell, ours: float, single: float, apart: float | None = None) -> list[JudgedRow]:
    plans = {OURS: ours, SINGLE: single} | ({} if apart is None else {APART: apart})
    return [row(cell, plan, judge, [share, share]) for plan, share in plans.items() for judge in JUDGES]


def test_goals_ask_for_more_with_two_classes_and_for_no_less_with_one() -> None:
    met = [goal.met for goal in goals_of([*rows(ONE_CLASS, 0.9, 0.9), *rows(NEAR, 0.9, 0.8, 0.9)])]
    assert met == [True, True, True, None, None, None]
    assert goals_of(rows(ONE_CLASS, 0.8, 0.9))[0].met is False
    assert goals_of([replace(each, shares=each.shares[:1]) for each in rows(ONE_CLASS, 0.8, 0.9)])[0].met is None
    assert [goal.met for goal in goals_of(rows(NEAR, 0.9, 0.9, 0.95))][1:3] == [False, False]
    one_says_less = [each for each in rows(NEAR, 0.9, 0.8, 0.9) if (each.plan, each.judge) != (SINGLE, ALIKE)]
    assert goals_of([*one_says_less, row(NEAR, SINGLE, ALIKE, [0.95, 0.95])])[1].met is False


def test_gains_are_those_of_ours_over_the_seeds_that_both_have() -> None:
    some = [row(NEAR, OURS, ALIKE, [0.9, 0.8]), row(NEAR, SINGLE, ALIKE, [0.7, 0.7])]
    gains = JudgedTable(some).gains(NEAR, SINGLE)
    assert set(gains) == {ALIKE}
    assert gains[ALIKE].mean == pytest.approx(0.15)
    assert JudgedTable([some[0], replace(some[1], shares=[0.7])]).gains(NEAR, SINGLE) == {}


def finished(cell: JudgedCell, ours: JudgedPlan, late: str = "") -> dict[Any, Any]:
    """A cell of which all is finished for two seeds; the plan `late` keeps half of what the others do."""
    found = searched(cell, ours)
    plans = plans_of(cell, found)
    found |= {LayoutSearch(cell=cell, plan=plan): {"plan": asdict(plan)} for plan in plans.values()}
    for name, plan in plans.items():
        for judge in JUDGES:
            for seed in (1, 2):
                on_time = 40 if name == late else 80
                run = run_of(cell, plan, judge, seed, found)
                found[run] = {"requests": [100] * len(cell.slos_s), "on_time": [on_time] * len(cell.slos_s)}
    return found


def test_a_row_has_the_shares_of_all_requests_and_of_each_class() -> None:
    found = finished(NEAR, OURS_8)
    some = rows_of(Options(seeds=3), found)
    assert len(some) == 9
    assert (some[0].plan, some[0].judge, some[0].engines) == (OURS, AISIMULATE, "1 x 4 / 2 x 2")
    assert (some[0].shares, some[0].by_class) == ([0.8, 0.8], [0.8, 0.8])
    found[run_of(NEAR, OURS_8, AISIMULATE, 1, found)] = {"requests": [10, 30], "on_time": [10, 0]}
    assert rows_of(Options(seeds=1), found)[0].shares == [0.25]
    assert rows_of(Options(seeds=1), found)[0].by_class == [1.0, 0.0]


def test_the_page_claims_what_all_judges_say_and_nothing_else(tmp_path: Path) -> None:
    found = finished(NEAR, OURS_8, late=SINGLE) | finished(ONE_CLASS, JudgedPlan((4, 4)))
    found |= {PaceProbe(cards=4, count=8): {"ours_s": 0.010, "theirs_s": 0.011}}
    page = write(STUDY, Options(out=tmp_path, seeds=2), found)[0].read_text()
    assert f"**{NEAR.title}**, against {SINGLE}: both simulators keep more on time with our plan." in page
    assert f"**{NEAR.title}**, against {APART}: both simulators see no difference beyond that between seeds." in page
    assert f"| {NEAR.title} | {SINGLE} | +40.0 ± 0.0 points | +40.0 ± 0.0 points | +40.0 ± 0.0 points | ours |" in page
    assert f"| {NEAR.title} | ours | 1 x 4 / 2 x 2 | 0.800 | 0.800 | 0.800 |" in page
    assert "| 4 | 8 | 11.0 | 10.0 | 1.10 |" in page
    assert "AISimulate's times are 1.1 to 1.1 of ours." in page
    assert "3 of 6 goals are met, 3 not measured yet" in page
    run = run_of(NEAR, plans_of(NEAR, found)[SINGLE], ALIKE, 1, found)
    found[run] = {"requests": [100, 100], "on_time": [99, 99]}
    other = write(STUDY, Options(out=tmp_path, seeds=2), found)[0].read_text()
    assert f"**{NEAR.title}**, against {SINGLE}: the simulators do not agree, so that nothing is claimed." in other


# --- our own side


def test_our_search_plans_within_the_cards() -> None:
    easy = replace(NEAR, rate_rps=1.0, slos_s=(0.05, 0.1))
    plan = compute(OurSearch(cell=easy), None)["plan"]
    assert 0 < sum(plan["cards"]) <= 8


@pytest.mark.parametrize("judge", [ALIKE, SHIPPED])
def test_a_run_counts_the_requests_of_each_class_that_come_late_enough(judge: str) -> None:
    cell = replace(FAR, rate_rps=2.0, slos_s=(0.001, 0.1))  # no engine keeps the first, all keep the second
    found = compute(JudgedRun(cell=cell, plan=JudgedPlan((2, 2, 2, 2)), judge=judge, seed=1), None)
    later = [r for r in cell.workload(SECONDS, 1).requests if r.request.arrival_s >= JUDGED_S]
    assert sum(found["requests"]) == len(later) > 0
    assert found["on_time"] == [0, found["requests"][1]]
