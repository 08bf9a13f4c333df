"""`hmas up --plan`: which engines it begins with, how they follow what is ordered, and what it refuses."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hmas.contracts.control import Split
from hmas.contracts.pool_plan import Budget, Catalogue
from hmas.engine.__main__ import chosen_profile, parser
from hmas.mesh import planned_engines
from hmas.mesh.options import MeshOptions
from hmas.mesh.planned_engines import PlannedEngines, replicas_in, with_plan
from hmas.mesh.planned_pools import PlanFolder, PlannedPools, budget_of
from hmas.mesh.process import ProcessSpec
from hmas.runtime.catalogue_file import render_catalogue
from hmas.runtime.plan_file import read_plan, rendered_plan
from tests.builders.instance_types import CATALOGUE, instance_type, pool_plan
from tests.conftest import eventually

PLANS = (pool_plan("m", Split((0.02,), (1, 1)), tp4=1, tp2=1), pool_plan("n", other2=1))
POOLS = PlannedPools(PLANS, CATALOGUE, (Budget("h100", 16),))


class Host:
    """Runs nothing, and notes what it is asked."""

    def __init__(self) -> None:
        self.launched: list[ProcessSpec] = []
        self.retired: list[str] = []

    def launch(self, spec: ProcessSpec) -> None:
        self.launched.append(spec)

    async def retire(self, name: str) -> None:
        self.retired.append(name)


@pytest.fixture
def engines(tmp_path: Path) -> PlannedEngines:
    ports = iter(range(1, 100))
    return PlannedEngines(POOLS, PlanFolder(tmp_path / "plan"), lambda: next(ports), lambda *args: list(args))


def named(folder: Path, number: int) -> list[str]:
    return [each["name"] for each in json.loads(PlanFolder(folder).engines(number).read_text())]


def value(spec: ProcessSpec, flag: str) -> str:
    return spec.argv[list(spec.argv).index(flag) + 1]


def test_a_mesh_begins_with_the_engines_of_its_plan_and_its_files(engines: PlannedEngines) -> None:
    specs = engines.first()
    assert [spec.name for spec in specs] == ["tp4-0", "tp2-0", "other2-0"]
    assert [value(spec, "--served-model-name") for spec in specs] == ["m", "m", "n"]
    assert {value(spec, "--start-delay-s") for spec in specs} == {"0"}
    assert (named(engines.folder, 1), named(engines.folder, 2)) == (["tp4-0", "tp2-0"], ["other2-0"])
    first = json.loads(PlanFolder(engines.folder).engines(1).read_text())[0]
    assert (first["hardware"], first["model"], first["max_num_seqs"]) == ("h100x4", "m", 256)
    assert read_plan(PlanFolder(engines.folder).plan, CATALOGUE) == PLANS
    profile = chosen_profile(parser().parse_args(list(specs[0].argv)))
    assert (profile.hardware, profile.cost) == ("h100x4", CATALOGUE.named("tp4").step)


async def test_engines_start_and_leave_as_they_are_ordered(
    engines: PlannedEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planned_engines, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(planned_engines, "UNREAD_S", 0.01)
    busy = {"http://127.0.0.1:2"}
    monkeypatch.setattr(planned_engines, "_busy", busy.__contains__)
    host, orders = Host(), {"tp2": 3, "strange": 4, "slow1": 0}

    async def ordered() -> Mapping[str, int]:
        return orders

    engines.first()
    following = asyncio.create_task(engines.follow(host, ordered))
    await eventually(lambda: named(engines.folder, 1) == ["tp4-0", "tp2-0", "tp2-1", "tp2-2"], 60)
    assert [(spec.name, value(spec, "--start-delay-s")) for spec in host.launched] == [
        ("tp2-1", "100"),
        ("tp2-2", "100"),
    ]
    orders |= {"tp2": 0, "tp4": 0}
    await eventually(lambda: set(host.retired) == {"tp4-0", "tp2-1", "tp2-2"}, 60)
    assert named(engines.folder, 1) == []
    orders["tp2"] = 1
    await eventually(lambda: len(named(engines.folder, 1)) == 1, 60)
    # tp2-0 is still busy; the numbers of the others are free once it has been seen that they have ended
    assert named(engines.folder, 1)[0] in {"tp2-1", "tp2-2", "tp2-3"}
    assert "tp2-0" not in host.retired
    busy.clear()
    await eventually(lambda: "tp2-0" in host.retired, 60)
    assert not following.done()
    following.cancel()


async def test_what_is_still_drained_ends_with_the_mesh(
    engines: PlannedEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planned_engines, "LOOK_EVERY_S", 0.01)
    host = Host()

    async def ordered() -> Mapping[str, int]:
        return {"tp4": 0}

    engines.first()
    following = asyncio.create_task(engines.follow(host, ordered))
    await eventually(lambda: named(engines.folder, 1) == ["tp2-0"], 60)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert host.retired == []


def test_what_is_ordered_is_read_from_the_controllers_metrics() -> None:
    text = '# TYPE hmas_plan_replicas gauge\nhmas_plan_replicas{type="tp2"} 2.0\nhmas_plan_replicas{type="tp4"} 0.0\n'
    assert replicas_in(text + 'hmas_plan_wanted_replicas{type="tp1"} 7.0\n') == {"tp2": 2, "tp4": 0}
    assert replicas_in("") == {}


@pytest.mark.parametrize(
    ("plans", "changes", "told"),
    [
        (PLANS, {"engine_urls": ("http://x",)}, "starts its engines itself: leave --engine out"),
        ((pool_plan("m", tp4=3),), {}, "cannot be carried out: it takes 12 h100, and the budget has 8"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(
    tmp_path: Path, plans: Any, changes: dict[str, Any], told: str
) -> None:
    plan, catalogue = tmp_path / "plan.yaml", tmp_path / "catalogue.yaml"
    plan.write_text(rendered_plan(plans))
    catalogue.write_text(render_catalogue(CATALOGUE))
    with pytest.raises(ValueError, match=told):
        with_plan(MeshOptions(**changes), plan, catalogue, ["8xh100"])


def test_types_that_look_alike_cannot_be_planned(tmp_path: Path) -> None:
    plan, catalogue = tmp_path / "plan.yaml", tmp_path / "catalogue.yaml"
    plan.write_text(rendered_plan(PLANS))
    catalogue.write_text(render_catalogue(Catalogue((*CATALOGUE.types, instance_type("twin", 4)))))
    with pytest.raises(ValueError, match="tp4 and twin cannot be told apart"):
        with_plan(MeshOptions(), plan, catalogue, [])


def test_what_a_plan_is_made_of_needs_a_plan(tmp_path: Path) -> None:
    assert with_plan(MeshOptions(), None, None, []) == MeshOptions()
    for catalogue, gpus in ((tmp_path, []), (None, ["8xh100"])):
        with pytest.raises(ValueError, match="give --plan, too"):
            with_plan(MeshOptions(), None, catalogue, gpus)


def test_a_mesh_may_use_the_cards_of_its_plan_unless_told_otherwise(tmp_path: Path) -> None:
    plan, catalogue = tmp_path / "plan.yaml", tmp_path / "catalogue.yaml"
    plan.write_text(rendered_plan(PLANS))
    catalogue.write_text(render_catalogue(CATALOGUE))
    options = with_plan(MeshOptions(data_dir=tmp_path), plan, catalogue, [])
    assert options.planned is not None
    assert options.planned.cards == "8xh100"
    assert (options.pool, sorted(options.models.values())) == ("m", ["m", "n"])
    assert len(options.sources) == 2
    assert options.planned.pools() == {"tp1": "m", "tp2": "m", "tp4": "m", "other2": "n", "slow1": "m"}
    assert budget_of("16xH100") == Budget("h100", 16)
