import math

from hmas.contracts.request import TaskType
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.models.catalogue import NAMES, accelerator, model_facts, row


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


def test_a_row_has_a_number_for_every_name() -> None:
    values = dict(zip(NAMES, row(query("llama-13b", "A100x2")), strict=True))
    assert values["concurrency"] == 6  # the request itself beside three that run and two that wait
    assert values["devices"] == 2
    assert values["weights_read_ms"] == 13 * 2 / (1555 * 2) * 1e3
    assert len(row(query("mystery", "abacus"))) == len(NAMES)
