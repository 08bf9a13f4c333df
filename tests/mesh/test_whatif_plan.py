"""`hmas whatif --plan`: the engines that it asks for, the steps that it tells, and what it refuses."""

from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hmas.contracts.control import Split, TopologyName
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.pool_plan import Budget, Catalogue, InstanceType
from hmas.contracts.rehearsal import Policy, PoolEngine, PoolFacts
from hmas.contracts.step_cost import StepCostModel
from hmas.contracts.views import PaceView
from hmas.mesh.past_files import Past, write_own
from hmas.mesh.whatif import candidates_of
from hmas.mesh.whatif_cli import whatif
from hmas.mesh.whatif_plan import WantedEngines, planned
from hmas.runtime.catalogue_file import render_catalogue
from tests.sim.test_past_replay import row

PACE = PaceView(worker="", engine="", base_s=0.01, sequence_s=2e-4, context_s=1e-7, prompt_s=5e-5, observations=9)
TP1 = InstanceType(
    name="m-tp1", model="m", hardware="h100", gpus=1, step=StepCostModel(0.01, 1e-5, 1e-5, 1e-8), kv_tokens=8192
)  # fmt: skip
TP2 = replace(TP1, name="m-tp2", gpus=2, kv_tokens=32768, start_s=90.0)
SMALL = PoolEngine(
    max_num_seqs=16, max_model_len=4096, kv_capacity_tokens=8192, block_size=16, kind=EngineKind("", "H100"), pace=PACE
)  # fmt: skip
LARGE, ODD = replace(SMALL, kv_capacity_tokens=32768), replace(SMALL, kv_capacity_tokens=100)
PAST = Past(pool="p", in_force=Policy(topology=TopologyName.MAX_ON_TIME, split=Split((0.09,), (2, 2))), rows=())
FACTS = PoolFacts(engines=(LARGE, SMALL, SMALL, ODD), workers=1)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A plan of two pools, and the catalogue of its types."""
    plan, catalogue = tmp_path / "plan.yaml", tmp_path / "catalogue.yaml"
    plan.write_text(
        "p: {engines: {m-tp2: 2, m-tp1: 1}, split: {cuts_s: [0.05], engines: [1, 2]}}\nq: {engines: {n: 1}}\n"
    )
    others = replace(TP1, name="n", model="n"), replace(TP1, name="n-twin", model="n")
    catalogue.write_text(render_catalogue(Catalogue((*others, TP1, TP2))))
    return plan, catalogue


def wanted(files: tuple[Path, Path], pool: str = "p") -> WantedEngines:
    return planned(pool, FACTS, *files)


def counts(found: WantedEngines) -> list[tuple[InstanceType, int]]:
    assert isinstance(found.engines, tuple)
    return [(each.instance_type, each.count) for each in found.engines]


def test_a_plan_is_read_with_the_types_of_what_is_there(files: tuple[Path, Path]) -> None:
    found = wanted(files)
    assert counts(found) == [(TP2, 2), (TP1, 1)]
    assert found.split == Split((0.05,), (1, 2))
    assert [each.split for each in candidates_of(PAST, (), None, found, ())] == [found.split]
    assert [each.split for each in candidates_of(PAST, (), None, WantedEngines(3, FACTS), ())] == [PAST.in_force.split]
    assert [each.instance_type for each in found.facts.engines] == [TP2, TP1, TP1, None]


def test_the_steps_are_told(files: tuple[Path, Path]) -> None:
    assert wanted(files).steps == (
        "1 x m-tp2 stay, 1 x m-tp2 join after 90 s, 1 x m-tp1 stay, 1 x m-tp1 drain, "
        "1 like no type of the catalogue drain"
    )


def test_engines_leave_once_those_that_join_have_started_where_there_are_cards_for_both(
    files: tuple[Path, Path],
) -> None:
    facts = replace(FACTS, engines=(LARGE, SMALL, SMALL))  # 4 cards; the plan has 5 here, and 1 elsewhere
    for cards, leaves_s in (([], 0.0), ([7], 90.0), ([6], 0.0), ([5], 0.0)):
        found = planned("p", facts, *files, [Budget("h100", each) for each in cards])
        assert found.leave_after_s == leaves_s
        (policy,) = candidates_of(PAST, (), None, found, ())
        assert policy.leave_after_s == leaves_s
    assert planned("p", facts, *files, [Budget("h100", 7)]).steps.endswith("1 x m-tp1 drain after 90 s")
    assert planned("p", FACTS, *files, [Budget("h100", 99)]).leave_after_s == 0.0  # one is of no known type


def test_a_plan_without_the_pool_is_refused_unless_the_record_has_no_name(files: tuple[Path, Path]) -> None:
    with pytest.raises(ValueError, match="says nothing of the pool 'z': it has p, q"):
        wanted(files, "z")
    with pytest.raises(ValueError, match="says nothing of the pool '': it has p, q"):
        wanted(files, "")
    files[0].write_text("p: {engines: {m-tp1: 1}}")
    assert counts(wanted(files, "")) == [(TP1, 1)]


def test_types_are_of_the_catalogue_that_ships_unless_another_one_is_named(files: tuple[Path, Path]) -> None:
    files[0].write_text("p: {engines: {qwen3-32b-fp8-trtllm-h100-tp1: 1}}")
    ((kind, count),) = counts(planned("p", FACTS, files[0], None))
    assert (kind.gpus, count) == (1, 1)


def test_the_command_plays_a_plan(files: tuple[Path, Path], tmp_path: Path) -> None:
    past = tmp_path / "past.jsonl"
    rows = tuple(row(-100.0 + i, 0.2, 1.0) for i in range(90))
    policy = Policy(topology=TopologyName.MAX_ON_TIME)
    write_own(Past(pool="p", in_force=policy, rows=rows, facts=FACTS), past)
    plan, catalogue = map(str, files)
    asked = [str(past), "--plan", plan, "--catalogue", catalogue]
    command = typer.Typer()
    command.command()(whatif)
    done = CliRunner().invoke(command, asked)
    assert done.exit_code == 3, done.output  # of too few requests
    assert "steps of the plan: 1 x m-tp2 stay, 1 x m-tp2 join after 90 s" in done.output
    both = CliRunner().invoke(command, [*asked, "--engines", "+1"])
    assert both.exit_code == 1
