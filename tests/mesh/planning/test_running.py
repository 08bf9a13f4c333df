"""`hmas plan diff`, `show` and `apply`: what they say of a mesh that runs."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from hmas.contracts.control import Split
from hmas.contracts.pool_plan import Budget, ExpectedShare, Group, PlanDecision
from hmas.mesh.planning.cli import app
from hmas.mesh.planning.running import counts_in, plan_table, steps_table, steps_to, unsettled_in
from hmas.operator.mesh_view import MeshView
from tests.builders.instance_types import CATALOGUE, pool_plan
from tests.builders.registry import engine_info, worker_heartbeat


def running(**cards: int) -> MeshView:
    """A mesh with an engine of the model m on so many H100 cards for each name; below 0: it does not serve."""
    view = MeshView()
    engines = tuple(
        engine_info(name, up=number > 0, model="m", hardware=f"H100x{abs(number)}") for name, number in cards.items()
    )
    view.hear(0.0, worker_heartbeat("w", pool="m", engines=engines))
    return view


def text(shown: object) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(shown)
    return " ".join(capture.get().split())


def test_the_steps_to_a_plan_are_told_with_their_seconds() -> None:
    plans = [pool_plan("m", tp2=2)]
    found = steps_to(running(a=4), plans, CATALOGUE, [Budget("h100", 4)])
    told = text(steps_table(found, plans))
    assert "1 x tp4 drain, then 2 x tp2 start" in told
    assert " 160 " in told  # 60 s to drain and 100 s to start
    free = steps_to(running(a=4), plans, CATALOGUE, [Budget("h100", 8)])
    assert [(step.type, step.count_from, step.count_to) for step in free] == [("tp2", 0, 2), ("tp4", 1, 0)]
    assert "1 x tp4 drain" in text(steps_table(free, plans))
    assert "nothing is left to do" in text(steps_table((), plans))


def test_a_change_of_classes_is_a_step() -> None:
    plans = [pool_plan("m", Split((0.02,), (1, 1)), tp4=2)]
    assert "<= 20 ms: 1, > 20 ms: 1" in text(steps_table(steps_to(running(a=4, b=4), plans, CATALOGUE, []), plans))


def test_without_a_budget_there_are_the_cards_of_the_plan_or_those_in_use() -> None:
    def kinds(view: MeshView, **counts: Any) -> list[str]:
        return [step.kind.value for step in steps_to(view, [pool_plan("m", **counts)], CATALOGUE, [])]

    assert kinds(running(a=4), tp2=2) == ["replace"]
    assert kinds(running(a=4), tp4=2) == ["scale"]
    assert kinds(running(a=4), tp4=1, tp2=1) == ["scale"]
    with pytest.raises(ValueError, match="cannot be carried out: it takes 8 h100, and the budget has 4"):
        steps_to(running(a=4), [pool_plan("m", tp4=2)], CATALOGUE, [Budget("h100", 4)])


def test_engines_of_another_pool_keep_their_cards() -> None:
    view = running(a=4)
    other = engine_info("x", up=True, model="n", hardware="H100x2")
    view.hear(0.0, worker_heartbeat("v", pool="n", engines=(other,)))
    steps = steps_to(view, [pool_plan("m", tp2=2)], CATALOGUE, [])
    assert [(step.type, step.leaving) for step in steps] == [("tp2", (Group("tp4", 1),))]


def test_a_plan_is_shown_beside_what_there_is() -> None:
    decision = PlanDecision(
        plans=(pool_plan("m", tp2=2),), expected=(ExpectedShare(pool="m", share=0.95, low=0.9, high=0.97, before=0.8),),
        bound=1.0, steps=(), ordered=(Group("tp2", 1),), epoch=1, seq=1, valid_for_s=15.0,
        reason="tight", selector="pin",
    )  # fmt: skip
    view = running(a=2, b=-2, c=4)
    told = text(plan_table(decision, counts_in(view, CATALOGUE, decision.plans)))
    assert "plan by pin: tight" in told
    assert "m │ tp2 │ 2 │ 1 │ 1 │ 1 │ 0 │ 95.0% (90.0% to 97.0%)" in told
    assert "m │ tp4 │ 0 │ - │ 1 │ 0 │ 0" in told


def test_engines_that_were_ordered_are_told_until_they_are_there() -> None:
    counts = counts_in(running(a=2, c=4), CATALOGUE, [], {"tp2": 2, "tp4": 0})
    assert unsettled_in(counts) == "under way: 1 x tp2 start, 1 x tp4 leave"
    assert "1 x tp2 start" in text(steps_table((), (), unsettled_in(counts)))
    assert unsettled_in(counts_in(running(a=2), CATALOGUE, [], {"tp2": 1})) == ""


def test_a_mesh_that_follows_no_plan_can_apply_none(tmp_path: Path) -> None:
    (tmp_path / "mesh.json").write_text(
        '{"gateway_url": "", "nats_url": "", "nats_password_file": "", "ops_token_file": "", "pool": "m", '
        '"engine_urls": [], "ops_urls": {}, "pids": {}}'
    )
    plan = tmp_path / "plan.yaml"
    plan.write_text("m: {engines: {tp4: 1}}")
    done = CliRunner().invoke(app, ["apply", str(plan), "--data-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert "start it with `hmas up --plan`" in done.output
