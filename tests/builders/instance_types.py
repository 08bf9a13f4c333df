"""Plain instance types, catalogues and plans, in which a test changes what it is about."""

from dataclasses import replace
from typing import Any

from hmas.contracts.control import Split
from hmas.contracts.pool_plan import Catalogue, Group, InstanceType, PoolPlan
from hmas.contracts.step_cost import StepCostModel

STEP = StepCostModel(0.01, 1e-4, 1e-4, 1e-8)
TYPE = InstanceType(name="", model="m", hardware="h100", gpus=1, step=STEP, kv_tokens=100_000, start_s=100.0)


def instance_type(name: str, gpus: int, **changes: Any) -> InstanceType:
    """A type of the model m on H100 cards that takes 100 s to start."""
    return replace(TYPE, name=name, gpus=gpus, **changes)


def pool_plan(pool: str = "m", split: Split | None = None, **counts: int) -> PoolPlan:
    """A plan of so many engines of each type; `split` None: mixed."""
    return PoolPlan(pool=pool, groups=tuple(Group(*each) for each in counts.items()), split=split or Split())


CATALOGUE = Catalogue((
    instance_type("tp1", 1), instance_type("tp2", 2), instance_type("tp4", 4),
    instance_type("other2", 2, model="n"), instance_type("slow1", 1, hardware="l40s"),
))  # fmt: skip
