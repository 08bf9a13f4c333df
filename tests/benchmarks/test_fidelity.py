"""The comparison of the emulated engine with a real one: slices, bounds, page."""

import json
from dataclasses import replace

import pytest

from benchmarks.fidelity.page import page, verdicts
from benchmarks.fidelity.replays import COMPARED, Figures, Seen, Store
from benchmarks.fidelity.scenario import LOADS, ReplayScenario, full_rate_rps, slices
from benchmarks.fidelity.speed import AT_ONCE, OUTPUT, PROMPT, TRIES, EmulatedRun, paired, probe_s, scaled, virtually
from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core.profile import EngineLimits, EngineProfile
from tests.worker.adapters.scripted_engine import ScriptedEngine

SCENARIO = ReplayScenario()
PROFILE = EngineProfile(
    "p",
    StepCostModel(2e-3, 5e-5, 2e-4, 5e-8),
    EngineLimits(max_num_seqs=8, max_num_batched_tokens=512, num_gpu_blocks=256, max_model_len=4096),
)
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
        assert trace.rows[0].arrival_s == 0.0
        assert len(trace.rows) >= SCENARIO.requests
        assert trace.duration_s > 0.99 * SCENARIO.seconds
        assert min(len(trace.rows) - SCENARIO.requests, trace.duration_s - SCENARIO.seconds) < 1
        assert max(r.input_tokens + r.output_tokens for r in trace.rows) < SCENARIO.max_model_len
        for other in LOADS[:number]:
            assert lengths[load.name][:20] != lengths[other.name][:20]
    rates = [len(found[load.name].rows) / found[load.name].rows[-1].arrival_s / load.share for load in LOADS]
    assert max(rates) == pytest.approx(min(rates))  # the same full rate for all


def test_a_full_engine_of_twice_the_speed_takes_twice_the_rate() -> None:
    trace = slices(SCENARIO, PROFILE, None)[LOADS[0].name]
    cost = PROFILE.cost
    fast = replace(PROFILE, cost=StepCostModel(cost.c0_s / 2, cost.c_p_s / 2, cost.c_d_s / 2, cost.c_k_s / 2))
    assert full_rate_rps(fast, trace) == pytest.approx(2 * full_rate_rps(PROFILE, trace))


def pairs(**errors: float) -> list[EmulatedRun]:
    """Emulations of three runs on a restless machine; the median error of each figure is as given, else 0."""
    found = {name: errors.get(name, 0.0) for name in COMPARED}
    shifts = (-0.3, 0.0, 0.3)
    emulated = {name: getattr(REAL, name) for name in COMPARED}
    return [EmulatedRun(1.0 + s, emulated, {name: error + s for name, error in found.items()}) for s in shifts]


def test_the_median_of_the_pairs_is_judged_whatever_their_spread() -> None:
    found = verdicts([REAL] * 3, replace(REAL, tokens_per_s=1100.0), pairs(ttft_p50_s=-0.11, tpot_p95_s=0.19))
    assert {v.name: v.holds for v in found} == {name: name != "ttft_p50_s" for name in COMPARED}
    assert found[0].served_error == pytest.approx(0.1)


def test_the_page_says_what_does_not_hold() -> None:
    real = {load.name: [REAL] * 3 for load in LOADS}
    served = {load.name: REAL for load in LOADS} | {LOADS[1].name: replace(REAL, tokens_per_s=1060.0)}
    emulations = {load.name: pairs(tokens_per_s=0.1) for load in LOADS}
    text = page(SCENARIO, PROFILE, "0.0", "some trace", real, served, emulations)
    assert "**12 of 15 figures are within their bound.** At the calibrations' speed" in text
    assert "without that correction, 14 are (*served*)" in text
    assert text.count("**beyond**") == 3
    assert (
        "| throughput | 1000 tokens/s | 1000 tokens/s | +10.0% | -20.0% to +40.0% | 5% | **beyond** | +0.0% |" in text
    )
    assert "the machine took 0.70 to 1.30 of the calibrations' time" in text


def test_a_replay_is_read_back_as_it_was(tmp_path: object) -> None:
    store = Store(tmp_path)  # type: ignore[arg-type]
    assert not store.has("real light 0")
    seen = [Seen(prompt=100, output=20, sent_s=0.5, first_s=0.7, last_s=1.1)]
    store.save("real light 0", REAL, seen, (1.5, 1.6))
    assert store.load("real light 0") == REAL
    assert store.seen("real light 0") == seen
    assert store.probes_s("real light 0") == (1.5, 1.6)


ASKED = [Seen(prompt=200 + 40 * n, output=30 + n, sent_s=0.15 * n, first_s=0.0, last_s=0.0) for n in range(40)]


def test_a_run_on_a_machine_half_as_fast_is_emulated_at_that_speed() -> None:
    slow = virtually(scaled(PROFILE, 2.0), ASKED)
    assert all(r.sent_s < r.first_s < r.last_s for r in slow)
    assert max(map(abs, paired(PROFILE, slow, 2.0).errors.values())) < 1e-9
    assert paired(PROFILE, slow, 1.0).errors["tpot_p50_s"] < -0.3


def test_a_wrong_term_is_not_hidden_by_the_speed() -> None:
    cost = PROFILE.cost
    other = replace(PROFILE, cost=replace(cost, c_p_s=3 * cost.c_p_s))
    assert paired(PROFILE, virtually(other, ASKED), 1.0).errors["ttft_p50_s"] < -0.2


async def test_the_probe_is_the_same_work_each_time() -> None:
    engine = ScriptedEngine({"/v1/completions": lambda peer: peer.reply(b"{}")})
    await engine.start()
    assert await probe_s(engine.url, "m") > 0.0
    await engine.stop()
    asked = [json.loads(peer.body) for peer in engine.requests]
    assert len(asked) == AT_ONCE * TRIES
    assert {(len(b["prompt"]), b["max_tokens"], b["ignore_eos"]) for b in asked} == {(PROMPT, OUTPUT, True)}
