"""`hmas up --plan`: two models whose engines follow a plan, also one that another takes the place of under load, while
the controller that carries it out is killed."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from hmas.contracts.pool_plan import Catalogue, InstanceType
from hmas.contracts.step_cost import StepCostModel
from hmas.runtime.catalogue_file import render_catalogue
from tests.chaos.hurt import metric, page
from tests.chaos.load import Answered, Load
from tests.conftest import eventually

pytestmark = pytest.mark.e2e
START_S = 6.0
SLO_MS = (2000, 80)
TOKENS = 40
STEP = StepCostModel(0.030, 2e-5, 2e-4, 1e-8)
SMALL2 = InstanceType(
    name="small-tp2", model="m/small", hardware="h100", gpus=2, step=STEP, kv_tokens=65536, max_num_seqs=32,
    start_s=START_S,
)  # fmt: skip
SMALL4 = InstanceType(
    name="small-tp4", model="m/small", hardware="h100", gpus=4, step=StepCostModel(0.020, 1e-5, 2e-4, 1e-8),
    kv_tokens=65536, max_num_seqs=32, start_s=START_S,
)  # fmt: skip
LARGE2 = InstanceType(
    name="large-tp2", model="m/large", hardware="h100", gpus=2, step=STEP, kv_tokens=65536, max_num_seqs=32,
    start_s=START_S,
)  # fmt: skip


def on_time(load: Load, from_s: float, to_s: float) -> float:
    """The share of the streams sent between two instants that kept their SLOs."""

    def kept(each: Answered) -> bool:
        tpot_s = (each.ended_s - each.first_s) / (TOKENS - 1)
        return each.first_s - each.sent_s <= SLO_MS[0] / 1000 and tpot_s <= SLO_MS[1] / 1000

    found = [kept(each) for each in load.answered if each.first_s and from_s <= each.sent_s < to_s]
    return sum(found) / max(1, len(found))


def named(mesh: Any, number: int) -> list[str]:
    return [each["name"] for each in json.loads((mesh.directory / "plan" / f"pool-{number}.json").read_text())]


def ordered(meta: str, name: str) -> float:
    """How many engines of a type are ordered; below 0 if the controller does not tell."""
    try:
        return metric(meta, "hmas_plan_replicas", type=name) if "hmas_plan_replicas{" in page(meta) else -1.0
    except httpx.TransportError:
        return -1.0


def running(mesh: Any, name: str) -> bool:
    try:
        return bool(mesh.pid(name))
    except LookupError:
        return False


@pytest.mark.long
async def test_a_plan_replaces_another_under_load_and_nothing_is_lost(tmp_path: Path, start_mesh: Any) -> None:
    catalogue, first, second = (tmp_path / name for name in ("catalogue.yaml", "first.yaml", "second.yaml"))
    catalogue.write_text(render_catalogue(Catalogue((SMALL2, SMALL4, LARGE2))))
    first.write_text("m/small: {engines: {small-tp4: 1}}\nm/large: {engines: {large-tp2: 2}}\n")
    second.write_text("m/small: {engines: {small-tp2: 2}}\nm/large: {engines: {large-tp2: 2}}\n")
    args = ("--replay", "--plan", str(first), "--catalogue", str(catalogue), "--gpus", "12xh100")
    with start_mesh(tmp_path / "mesh", *args) as mesh:
        meta = mesh.state["ops_urls"]["meta"]
        assert named(mesh, 1) == ["small-tp4-0"]
        assert named(mesh, 2) == ["large-tp2-0", "large-tp2-1"]
        common: Any = {"rate": 3.0, "output_tokens": TOKENS, "slos": (SLO_MS,)}
        async with (
            Load(mesh.url, model="m/small", **common) as small,
            Load(mesh.url, model="m/large", **common) as large,
        ):
            await eventually(lambda: ordered(meta, "small-tp4") == 1, 90)
            await asyncio.sleep(5.0)
            told = mesh.hmas("plan", "diff", str(second))
            assert "2 x small-tp2 start" in told.stdout, told.stdout + told.stderr
            assert "1 x small-tp4 drain" in told.stdout
            applied_s = time.monotonic()
            assert mesh.hmas("plan", "apply", str(second)).returncode == 0
            await eventually(lambda: "small-tp2-1" in named(mesh, 1), 60)
            ordered_s = time.monotonic()
            mesh.kill("meta")  # in the middle: the engines start, and the old one is still to leave
            await eventually(lambda: ordered(meta, "small-tp4") == 0, 120)
            leaves_s = time.monotonic()
            await eventually(lambda: not running(mesh, "small-tp4-0"), 60)
            gone_s = time.monotonic()
            await asyncio.sleep(5.0)
            end_s = time.monotonic()
            shown = mesh.hmas("plan", "show")
        assert named(mesh, 1) == ["small-tp2-0", "small-tp2-1"]
        assert "nothing is left to do" in shown.stdout, shown.stdout + shown.stderr
        for load in (small, large):
            assert set(load.ends) == {"finished"}, (load.ends, load.details)
    print(f"ordered after {ordered_s - applied_s:.1f} s, drained {gone_s - leaves_s:.1f} s after it was told to leave")
    for name, load in (("small", small), ("large", large)):
        shares = (on_time(load, 0.0, applied_s), on_time(load, applied_s, gone_s), on_time(load, gone_s, end_s))
        print(f"{name} on time before, during and after the change: " + ", ".join(f"{each:.3f}" for each in shares))
