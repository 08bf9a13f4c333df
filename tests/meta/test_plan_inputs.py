"""What plans begin with, from outside: settings, an operator's file; and the metrics by which engines are scaled."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from hmas.contracts.control import Split
from hmas.contracts.control_agents import PlanPinChanged, PlanPinned
from hmas.contracts.pool_plan import Budget, Catalogue, Group, PlanDecision, PlanPin, PoolPlan
from hmas.meta.agent.config import PlanActs, PlanConfig
from hmas.meta.metrics import MetaMetrics
from hmas.meta.plan_inputs import LastPlan, PinnedPlanFile, read_budgets
from hmas.meta.settings import MetaSettings
from hmas.runtime.bucket import BucketUnavailable
from hmas.runtime.catalogue_file import render_catalogue
from tests.builders.instance_types import CATALOGUE, instance_type, pool_plan


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    path = tmp_path / "catalogue.yaml"
    path.write_text(render_catalogue(CATALOGUE))
    return path


def test_without_a_catalogue_nothing_is_planned() -> None:
    assert MetaSettings().meta_config().plan == PlanConfig()
    with pytest.raises(ValidationError, match="HMAS_PLAN and HMAS_PLAN_FILE need HMAS_CATALOGUE"):
        MetaSettings(plan=PlanActs.SCALE)
    with pytest.raises(ValidationError, match="HMAS_PLAN and HMAS_PLAN_FILE need HMAS_CATALOGUE"):
        MetaSettings(plan_file=Path("plan.yaml"))


def test_catalogue_budget_and_power_of_plans_are_settings(catalogue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = MetaSettings(catalogue=catalogue, plan_budget="8xh100, 2xl40s").meta_config().plan
    assert config == PlanConfig(catalogue=CATALOGUE, budgets=(Budget("h100", 8), Budget("l40s", 2)))
    for name, value in (("CATALOGUE", str(catalogue)), ("PLAN_BUDGET", "8xh100"), ("PLAN", "routing")):
        monkeypatch.setenv(f"HMAS_{name}", value)
    assert MetaSettings().meta_config().plan.acts is PlanActs.ROUTING


@pytest.mark.parametrize("text", ["", "8", "8xa100", "8xh100,4xh100", "8xh100,", "-1xh100", "x8h100"])
def test_a_budget_names_cards_of_the_catalogue_once(text: str) -> None:
    with pytest.raises(ValueError, match="must be numbers of cards such as 16xh100,8xh200, each of one of h100, l40s"):
        read_budgets(text, {"h100", "l40s"})


def test_a_catalogue_that_cannot_be_read_or_told_apart_is_an_error(catalogue: Path) -> None:
    with pytest.raises(ValidationError, match=r"HMAS_CATALOGUE: .*no\.yaml"):
        MetaSettings(catalogue=catalogue.with_name("no.yaml"))
    alike = Catalogue((*CATALOGUE.types, instance_type("like-tp4", 4)))
    catalogue.write_text(render_catalogue(alike))
    with pytest.raises(ValidationError, match="engines of tp4 and like-tp4 cannot be told apart: keep one"):
        MetaSettings(catalogue=catalogue, plan_budget="8xh100")


PLAN = """
m: {engines: {tp4: 1, tp2: 2}, split: {cuts_s: [0.02], engines: [1, 2]}}
n: {engines: {other2: 1}}
"""
PLANS = (pool_plan("m", Split((0.02,), (1, 2)), tp4=1, tp2=2), pool_plan("n", other2=1))


def test_an_operators_file_is_told_when_it_changes_and_lifted_when_it_goes(tmp_path: Path) -> None:
    posted: list[object] = []
    path = tmp_path / "plan.yaml"
    file = PinnedPlanFile(path, CATALOGUE, posted.append)
    for text in (None, PLAN, PLAN, "m: {engines: {tp4: x}}", "a: [", "m: {engines: {tp9: 1}}", PLAN, "\n"):
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        file.look()
    path.unlink()
    file.look()  # as empty
    assert posted == [PlanPinned(()), PlanPinned(PLANS), PlanPinned(PLANS), PlanPinned(())]


def test_a_plan_file_without_end_is_not_read(tmp_path: Path) -> None:
    posted: list[object] = []
    path = tmp_path / "plan.yaml"
    path.write_text("# " + "x" * 2**20 + PLAN)
    PinnedPlanFile(path, CATALOGUE, posted.append).look()
    assert posted == []


def decision(*plans: PoolPlan, ordered: tuple[Group, ...]) -> PlanDecision:
    return PlanDecision(
        plans=plans, expected=(), bound=1.0, steps=(), ordered=ordered, epoch=1, seq=1, valid_for_s=15.0, reason="",
        selector="search",
    )  # fmt: skip


class KeptValues:
    """A bucket that has these values, or that cannot be reached."""

    def __init__(self, values: dict[str, Any] | None) -> None:
        self._values = values

    async def read(self, cls: type, key: str) -> tuple[Any, float] | None:
        if self._values is None:
            raise BucketUnavailable("gone")
        return (self._values[key], 1.0) if isinstance(self._values.get(key), cls) else None


async def test_the_last_plan_and_the_consoles_are_read_when_the_bucket_is_reached() -> None:
    last, pin = decision(*PLANS, ordered=()), PlanPin(plans=PLANS, by="the console")
    told: list[object] = []
    for values in ({"plan": last, "plan_pin": pin}, {"plan": last}, {"plan_pin": pin}, {}, None):
        bucket: Any = KeptValues(values)
        await LastPlan(bucket, told.append, told.append).restore()
    assert told == [last, PlanPinChanged(pin), last, PlanPinChanged(pin)]


def test_engines_that_are_ordered_and_wanted_are_metrics() -> None:
    registry = CollectorRegistry()
    metrics = MetaMetrics(registry)

    def told() -> dict[tuple[str, str], float]:
        found = (sample for metric in registry.collect() for sample in metric.samples if "plan" in sample.name)
        return {(sample.name, sample.labels["type"]): sample.value for sample in found}

    metrics.show_plan(decision(pool_plan(tp4=1, tp2=2), ordered=(Group("tp4", 1), Group("tp1", 0))))
    assert told() == {
        ("hmas_plan_replicas", "tp4"): 1.0, ("hmas_plan_replicas", "tp1"): 0.0,
        ("hmas_plan_wanted_replicas", "tp4"): 1.0, ("hmas_plan_wanted_replicas", "tp2"): 2.0,
    }  # fmt: skip
    metrics.show_plan(decision(pool_plan(tp4=2), ordered=()))
    assert told() == {("hmas_plan_wanted_replicas", "tp4"): 2.0}
