from dataclasses import replace

import numpy as np
import pytest

from hmas.contracts.request import TaskType
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.models.catalogue import facts
from hmas.prediction.models.roofline import (
    DECODE_TERMS,
    LEARNABLE,
    NAMES,
    PREFILL_TERMS,
    READ,
    Roofline,
    RooflineCostModel,
    inputs,
    rows_of,
    slots,
)

QUERY = CostQuery(
    prompt_tokens=1000, output_tokens=100.0, model="llama-13b", hardware="A100x2", running=0, waiting=0, kv_usage=0.0,
    task=TaskType.QA,
)  # fmt: skip
ONES = Roofline((1.0,) * len(PREFILL_TERMS), (1.0,) * len(DECODE_TERMS))


def term(query: CostQuery, name: str) -> float:
    return float(rows_of([query])[0, NAMES.index(name)])


def test_terms_are_bytes_over_bandwidth_and_operations_over_their_rate() -> None:
    assert term(QUERY, "decode_weights") == pytest.approx(13 * 2 / (1555 * 2) * 1e3)
    assert term(QUERY, "prefill_multiply") == pytest.approx(2 * 13 * 1000 / (312 * 2))
    assert term(QUERY, "decode_kv") == pytest.approx(1050 * 2 * 40 * 5120 * 2 / 1e9 / (1555 * 2) * 1e3)
    halved = replace(QUERY, model="llama-13b-fp8", hardware="H100x2")
    assert term(halved, "decode_weights") == pytest.approx(13 / (3350 * 2) * 1e3)
    assert term(halved, "prefill_multiply") == pytest.approx(13 * 1000 / (989 * 2))  # 8-bit operands: twice the rate


def test_a_mixture_reads_more_of_its_weights_the_more_requests_run() -> None:
    one, many = (term(replace(QUERY, model="qwen3-30b-a3b", running=n), "decode_weights") for n in (0, 63))
    assert one == pytest.approx(3 * 2 / (1555 * 2) * 1e3)
    assert 0.9 * 30 * 2 / (1555 * 2) * 1e3 < many < 30 * 2 / (1555 * 2) * 1e3


def test_slots_are_the_sequences_that_fit_beside_the_weights() -> None:
    fact = np.array([facts("llama-7b", "A100"), facts("bloom-176b", "A100")])
    fits, none = slots(fact, np.array([1000.0, 1000.0]))
    assert fits == pytest.approx((40 * 0.9 - 14) / (2 * 32 * 4096 * 2 / 1e9) / 1000)
    assert none == 1.0


def test_load_and_slow_hardware_cost_more() -> None:
    model = RooflineCostModel(ONES)
    idle, busy, slow = model.predict([QUERY, replace(QUERY, running=30, waiting=5), replace(QUERY, hardware="T4x2")])
    assert busy.ttft_s > idle.ttft_s
    assert busy.tpot_s > idle.tpot_s
    assert slow.ttft_s > idle.ttft_s
    assert slow.tpot_s > idle.tpot_s
    assert model.predict([]) == []


def test_the_trees_read_shares_that_add_up_to_one() -> None:
    rows = rows_of([QUERY, replace(QUERY, model="mystery", hardware="abacus", prompt_tokens=0, output_tokens=0.0)])
    seconds, read = ONES.learnable(rows)
    assert read.shape == (2, len(LEARNABLE))
    assert np.isfinite(read).all()
    for columns, total in zip(READ, seconds.T, strict=True):
        own = dict(zip(LEARNABLE[columns], read[:, columns].T, strict=True))
        np.testing.assert_allclose(sum(v for k, v in own.items() if k.endswith("_share")), 1.0, rtol=1e-5)
        (log,) = (v for k, v in own.items() if k.startswith("log_"))
        np.testing.assert_allclose(np.exp(log) / 1e3, total, rtol=1e-5)
    assert "params" not in LEARNABLE  # a size would tell the model's name
    assert Roofline.named(ONES.names()) == ONES


def test_rows_are_the_same_alone_and_in_a_batch() -> None:
    queries = [replace(QUERY, running=n, prompt_tokens=10 * n + 1) for n in range(5)]
    fact = np.array([facts(q.model, q.hardware) for q in queries])
    state = np.array([(q.running + 1.0, q.running, 0.0, q.prompt_tokens, 100.0, 1.0) for q in queries])
    np.testing.assert_array_equal(inputs(fact, state), np.concatenate([rows_of([q]) for q in queries]))
