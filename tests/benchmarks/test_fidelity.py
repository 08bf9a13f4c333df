"""The comparison of the emulated engine with a real one: slices, bounds, page."""

from dataclasses import replace

import pytest

from benchmarks.fidelity.page import page, verdicts
from benchmarks.fidelity.replays import COMPARED, Figures, Seen, Store
from benchmarks.fidelity.scenario import LOADS, ReplayScenario, full_rate_rps, slices
from benchmarks.fidelity.speed import Remainder, remainder, scaled, virtually
from hmas.engine.core.profile import EngineLimits, EngineProfile, StepCostModel

SCENARIO = ReplayScenario()
PROFILE = EngineProfile(
    "p",
    StepCostModel(2e-3, 5e-5, 2e-4, 5e-8),
    EngineLimits(max_num_seqs=8, max_num_batched_tokens=512, num_gpu_blocks=256, max_model_len=4096),
)
NONE_LEFT = {load.name: [Remainder(1.0, dict.fromkeys(COMPARED, 0.0))] for load in LOADS}
REAL = Figures(
    tokens_per_s=1000.0,
    ttft_p50_s=0.1,
    ttft_p95_s=0.5,
    tpot_p50_s=0.004,
    tpot_p95_s=0.008,
    requests=100,
    completed=100,
    preemptions=3,
)


def test_loads_get_different_stretches_of_the_trace_at_their_rates() -> None:
    found = slices(SCENARIO, PROFILE, None)
    lengths = {name: [(r.input_tokens, r.output_tokens) for r in trace.rows] for name, trace in found.items()}
    for number, load in enumerate(LOADS):
        trace = found[load.name]
        assert trace.duration_s == SCENARIO.seconds
        assert trace.rows[0].arrival_s == 0.0
        assert trace.rows[-1].arrival_s == pytest.approx(SCENARIO.seconds)
        assert max(r.input_tokens + r.output_tokens for r in trace.rows) < SCENARIO.max_model_len
        for other in LOADS[:number]:
            assert lengths[load.name][:20] != lengths[other.name][:20]
    counts = [len(found[load.name].rows) / load.share for load in LOADS]
    assert max(counts) - min(counts) < 4  # the same full rate for all


def test_a_full_engine_of_twice_the_speed_takes_twice_the_rate() -> None:
    trace = slices(SCENARIO, PROFILE, None)[LOADS[0].name]
    cost = PROFILE.cost
    fast = replace(PROFILE, cost=StepCostModel(cost.c0_s / 2, cost.c_p_s / 2, cost.c_d_s / 2, cost.c_k_s / 2))
    assert full_rate_rps(fast, trace) == pytest.approx(2 * full_rate_rps(PROFILE, trace))


def test_bounds_follow_the_spread_of_the_real_runs() -> None:
    steady = verdicts("light", [REAL] * 5, replace(REAL, ttft_p50_s=0.111, tpot_p95_s=0.0095))
    assert {v.name: v.holds for v in steady} == {name: name != "ttft_p50_s" for name in COMPARED}
    restless = [replace(REAL, ttft_p50_s=t) for t in (0.09, 0.1, 0.1, 0.1, 0.11)]
    (ttft,) = [v for v in verdicts("light", restless, replace(REAL, ttft_p50_s=0.125)) if v.name == "ttft_p50_s"]
    assert ttft.spread == pytest.approx(0.2)
    assert ttft.bound == pytest.approx(0.3)
    assert ttft.holds


def test_the_page_says_what_does_not_hold() -> None:
    real = {load.name: [REAL] * 5 for load in LOADS}
    off = {load.name: replace(REAL, tokens_per_s=1100.0) for load in LOADS}
    text = page(SCENARIO, PROFILE, "0.0", "some trace", real, off, NONE_LEFT)
    assert "**12 of 15 figures are within their bound, 12 also where the spread is left out of it.**" in text
    assert "differ by up to" not in text
    assert text.count("**beyond**") == 3
    assert "| throughput | 1000 tokens/s | 1100 tokens/s | +10.0% | 0.0% | 5.0% | **beyond** |" in text


def test_the_page_warns_of_a_restless_machine() -> None:
    runs = [replace(REAL, tokens_per_s=t) for t in (700.0, 1000.0, 1000.0)]
    real = {load.name: runs for load in LOADS}
    text = page(SCENARIO, PROFILE, "0.0", "some trace", real, {load.name: REAL for load in LOADS}, NONE_LEFT)
    assert "differ by up to 30% among themselves" in text


def test_a_replay_is_read_back_as_it_was(tmp_path: object) -> None:
    store = Store(tmp_path)  # type: ignore[arg-type]
    assert not store.has("real light 0")
    seen = [Seen(prompt=100, output=20, sent_s=0.5, first_s=0.7, last_s=1.1)]
    store.save("real light 0", REAL, seen)
    assert store.load("real light 0") == REAL
    assert store.seen("real light 0") == seen


def test_a_machine_half_as_fast_is_found_out() -> None:
    asked = [Seen(prompt=200 + 40 * n, output=30 + n, sent_s=0.15 * n, first_s=0.0, last_s=0.0) for n in range(40)]
    slow = virtually(scaled(PROFILE, 2.0), asked)
    assert all(r.sent_s < r.first_s < r.last_s for r in slow)
    left = remainder(PROFILE, slow)
    assert left.factor == pytest.approx(2.0, abs=0.03)
    assert max(map(abs, left.errors.values())) < 0.03


def test_a_wrong_term_is_not_hidden_by_one_number() -> None:
    asked = [Seen(prompt=200 + 40 * n, output=30 + n, sent_s=0.15 * n, first_s=0.0, last_s=0.0) for n in range(40)]
    cost = PROFILE.cost
    other = replace(PROFILE, cost=replace(cost, c_p_s=3 * cost.c_p_s))
    left = remainder(PROFILE, virtually(other, asked))
    assert left.errors["ttft_p50_s"] < -0.2
