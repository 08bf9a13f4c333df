"""The process of a search for plans: what it reads, what it finds, and what it says when it cannot."""

import subprocess
import sys
from dataclasses import replace

import orjson
import pytest
from pydantic import TypeAdapter

from hmas.contracts.outcome import Outcome
from hmas.contracts.pool_plan import Budget, Catalogue, Group, InstanceType, PlanCandidate, PoolPlan
from hmas.contracts.request import Slo
from hmas.contracts.step_cost import StepCostModel
from hmas.laws.request_rows import RequestRow, row_line
from hmas.sim import searched_plans
from hmas.sim.searched_plans import PlanQuestion, answer

ONE = InstanceType(
    name="m-tp1", model="m", hardware="h100", gpus=1, step=StepCostModel(0.03, 1e-5, 1e-5, 1e-8), kv_tokens=65536
)  # fmt: skip
TWO = replace(ONE, name="m-tp2", gpus=2, step=StepCostModel(0.01, 6e-6, 8e-6, 6e-9))
STRICT = RequestRow(
    arrival_s=0.0, tenant="t", prompt_tokens=100, slo=Slo(2.0, 0.02), outcome=Outcome.FINISHED, output_tokens=50
)  # fmt: skip
ROWS = [replace(STRICT, arrival_s=-60.0 + 0.5 * i) for i in range(120)]


def question(*standing: tuple[str, int], cards: int = 2, rows: int = len(ROWS)) -> PlanQuestion:
    plan = PoolPlan(pool="p", groups=tuple(Group(*each) for each in standing))
    catalogue, budgets = Catalogue((ONE, TWO)), (Budget("h100", cards),)
    return PlanQuestion(standing=(plan,), catalogue=catalogue, budgets=budgets, window_s=120.0, rows=(rows,))


def test_a_better_plan_is_found_with_what_it_is_expected_to_bring() -> None:
    (found,) = answer(question(("m-tp1", 2)), [ROWS])
    (plan,) = found.plans
    assert (plan.pool, plan.groups) == ("p", (Group("m-tp2", 1),))
    (expected,) = found.expected
    assert expected.before < 0.1
    assert expected.share > 0.9
    assert expected.before + 0.5 < expected.low < expected.share <= expected.high <= 1.0
    assert "on time expected" in found.reason
    assert found.bound >= expected.share


def test_without_the_extra_for_it_a_plan_has_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hmas.laws.placement.fluid_bound", None)
    (found,) = answer(question(("m-tp1", 2)), [ROWS])
    assert (found.bound, found.plans[0].groups) == (1.0, (Group("m-tp2", 1),))


def test_what_runs_is_not_proposed() -> None:
    assert answer(question(("m-tp2", 1)), [ROWS]) == ()


def test_the_last_requests_of_a_busy_pool_tell_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came before asked for nothing that one card cannot keep."""
    lax = [replace(each, slo=Slo(60.0, 1.0), arrival_s=each.arrival_s - 60.0) for each in ROWS]
    monkeypatch.setattr(searched_plans, "MOST_REQUESTS", len(ROWS))
    (found,) = answer(question(("m-tp1", 2)), [[*ROWS, *lax]])
    assert found.expected[0].before < 0.1
    monkeypatch.setattr(searched_plans, "MOST_REQUESTS", 3 * len(ROWS))
    (found,) = answer(question(("m-tp1", 2)), [[*ROWS, *lax]])
    assert found.expected[0].before > 0.3


def test_a_pool_without_a_past_cannot_be_planned() -> None:
    with pytest.raises(ValueError, match="the record of p has no request with a known length"):
        answer(question(("m-tp1", 2)), [[]])


def run(lines: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "hmas.sim.searched_plans"], input=lines, capture_output=True, check=False
    )


def test_the_process_reads_the_rows_pool_by_pool() -> None:
    both = TypeAdapter(PlanQuestion).dump_python(question(("m-tp1", 2), cards=4), mode="json")
    both["standing"].append(both["standing"][0] | {"pool": "q", "groups": [{"type": "n-tp1", "count": 1}]})
    other = TypeAdapter(InstanceType).dump_python(replace(ONE, name="n-tp1", model="n"), mode="json")
    both["catalogue"]["types"].append(other)
    lax = [replace(row, slo=Slo(5.0, 0.5)) for row in ROWS[:60]]
    both["rows"] = [len(ROWS), len(lax)]
    done = run(orjson.dumps(both) + b"\n" + b"".join(map(row_line, [*ROWS, *lax])))
    assert done.returncode == 0, done.stderr
    (found,) = TypeAdapter(tuple[PlanCandidate, ...]).validate_json(done.stdout)
    assert [(plan.pool, plan.groups) for plan in found.plans] == [
        ("p", (Group("m-tp2", 1),)), ("q", (Group("n-tp1", 1),)),
    ]  # fmt: skip


def test_the_process_says_in_a_line_why_it_cannot() -> None:
    asked = TypeAdapter(PlanQuestion).dump_json(question(("m-tp1", 2), rows=0))
    done = run(asked + b"\n")
    assert done.returncode == 1
    assert done.stderr.strip() == (
        b"the record of p has no request with a known length: give one of a pool that served"
    )
