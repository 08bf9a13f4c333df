"""The engines of a rehearsal have each its own pace and limits."""

from dataclasses import replace

import pytest

from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.pool_plan import InstanceType
from hmas.contracts.rehearsal import PoolEngine, PoolFacts
from hmas.contracts.step_cost import StepCostModel
from hmas.contracts.views import PaceView
from hmas.sim.past.fitted import CHUNK_TOKENS, FITTED, fitted_profiles

PACE = PaceView(worker="", engine="", base_s=0.01, sequence_s=2e-4, context_s=1e-7, prompt_s=5e-5, observations=9)
ENGINE = PoolEngine(max_num_seqs=16, max_model_len=4096, kv_capacity_tokens=8192, block_size=16)
STRONG = replace(ENGINE, max_num_seqs=64, max_model_len=8192, kv_capacity_tokens=65536, kind=EngineKind("m", "H100x2"))
TYPE = InstanceType(
    name="m-tp2", model="m", hardware="h100", gpus=2, step=StepCostModel(0.5, 0.0, 0.0, 0.0), kv_tokens=65536,
    max_num_batched_tokens=512,
)  # fmt: skip


def slower(base_s: float) -> PaceView:
    return replace(PACE, base_s=base_s)


def test_a_pool_whose_pace_is_not_known_cannot_be_fitted() -> None:
    facts = PoolFacts(engines=(ENGINE, ENGINE), workers=1)
    with pytest.raises(ValueError, match="has not been measured yet"):
        fitted_profiles(facts)
    with pytest.raises(ValueError, match="has not been measured yet"):
        fitted_profiles(replace(facts, pace=slower(0.0)))
    first, second = fitted_profiles(replace(facts, pace=PACE))
    assert (first.name, first.cost, first.limits.num_gpu_blocks) == (FITTED, StepCostModel(0.01, 5e-5, 2e-4, 1e-7), 512)
    assert second == first


def test_each_engine_has_its_own_pace_and_limits() -> None:
    engines = replace(ENGINE, pace=slower(0.03)), replace(STRONG, pace=slower(0.02))
    weak, strong = fitted_profiles(PoolFacts(engines=engines, workers=1, pace=PACE))
    assert (weak.cost.c0_s, weak.limits.max_num_seqs, weak.limits.max_model_len) == (0.03, 16, 4096)
    assert (strong.cost.c0_s, strong.limits.max_num_seqs, strong.limits.max_model_len) == (0.02, 64, 8192)
    assert (weak.limits.num_gpu_blocks, strong.limits.num_gpu_blocks) == (512, 4096)
    assert (strong.model, strong.hardware) == ("m", "H100x2")


def test_an_engine_of_which_no_pace_is_known_has_the_mean_of_the_pool() -> None:
    facts = PoolFacts(engines=(ENGINE, replace(STRONG, pace=slower(0.03))), workers=1, pace=slower(0.07))
    assert [each.cost.c0_s for each in fitted_profiles(facts)] == [0.07, 0.03]


def test_an_engine_of_a_known_type_has_its_name_and_token_budget_and_the_measured_pace() -> None:
    plain, typed = fitted_profiles(
        PoolFacts(engines=(ENGINE, replace(STRONG, instance_type=TYPE)), workers=1, pace=PACE)
    )
    assert (plain.name, plain.limits.max_num_batched_tokens) == (FITTED, CHUNK_TOKENS)
    assert (typed.name, typed.limits.max_num_batched_tokens, typed.cost.c0_s) == ("m-tp2", 512, 0.01)
