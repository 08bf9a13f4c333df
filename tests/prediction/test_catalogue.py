import math

from hmas.contracts.request import TaskType
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.models.catalogue import (
    FACTS,
    TYPICAL_DEVICE,
    TYPICAL_PARAMS,
    accelerator,
    architecture,
    card,
    facts,
    knows,
    model_facts,
)


def query(model: str, hardware: str) -> CostQuery:
    return CostQuery(
        prompt_tokens=100,
        output_tokens=50.0,
        model=model,
        hardware=hardware,
        running=3,
        waiting=2,
        kv_usage=0.5,
        task=TaskType.QA,
    )


def test_accelerators_are_told_by_name_and_counted() -> None:
    assert accelerator("A100-80GBx2")[0].memory == 80
    assert accelerator("A100x4") == (accelerator("A100")[0], 4)
    assert accelerator("2 x H100")[1] == 2
    assert accelerator("NVIDIA GeForce RTX 4090")[1] == 1
    assert accelerator("RTX4090")[1] == 1
    assert accelerator("h200_sxmx8") == (accelerator("H200")[0], 8)
    assert accelerator("gb200x4")[0].memory > accelerator("b200x4")[0].bandwidth / 100
    assert math.isnan(accelerator("abacus")[0].bandwidth)


def test_models_say_their_size() -> None:
    assert model_facts("meta-llama/Llama-3.1-8B").params == 8
    moe = model_facts("Qwen/Qwen3-30B-A3B-Instruct-2507")
    assert (moe.params, moe.active) == (30, 3)
    assert model_facts("some/model-1.7b-chat").params == 1.7
    assert model_facts("some/Model-7B-FP8").weight_bytes == 1.0
    assert math.isnan(model_facts("mystery").params)


def test_models_of_one_architecture_count_as_one() -> None:
    assert architecture("deepseek-ai/DeepSeek-R1-fp4") == architecture("deepseek-ai/DeepSeek-V3-fp8") == "deepseek-r1"
    assert architecture("meta-llama/Llama-3.1-70B-fp8") == architecture("llama2-70b")
    assert architecture("mystery") == "mystery"
    assert card("a100-80gb") == card("A100x4") == "a100"
    assert card("abacus") == ""


def test_what_is_unknown_is_typical() -> None:
    unknown = dict(zip(FACTS, facts("mystery", "abacus"), strict=True))
    assert unknown["params"] == TYPICAL_PARAMS
    assert unknown["bandwidth"] == TYPICAL_DEVICE.bandwidth
    sized = dict(zip(FACTS, facts("some/model-1.7b-chat", "2 x abacus"), strict=True))
    assert (sized["params"], sized["devices"]) == (1.7, 2.0)
    assert all(math.isfinite(value) for value in (*unknown.values(), *sized.values()))
    assert not knows(query("mystery", "A100"))
    assert not knows(query("llama-13b", "abacus"))
    assert knows(query("some/model-1.7b-chat", "A100"))
