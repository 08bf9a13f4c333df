"""Plan, measurements, decay, limits and journal of a calibration."""

from dataclasses import replace
from math import log1p
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core.profile import EngineLimits, parse_profiles
from hmas.mesh.calibrate.decay import fit_decay
from hmas.mesh.calibrate.journal import MeasurementJournal
from hmas.mesh.calibrate.limits import Stated, limits_of, seen_kv_tokens, seen_max_seqs
from hmas.mesh.calibrate.measurement import EngineGauges, Measurement, StreamTimes, measured, overhead_s
from hmas.mesh.calibrate.outcome import calibrated, poor_fits, table
from hmas.mesh.calibrate.points import DECODE_TOKENS, ROUNDS, PlanPoint, make_plan, requests_of

COST = StepCostModel(0.004, 2e-5, 2e-4, 1e-7)
OVERHEAD_S = 0.003
LIMITS = EngineLimits(max_num_seqs=16, max_num_batched_tokens=2048, num_gpu_blocks=4096, max_model_len=4096)


@given(st.integers(64, 100_000), st.integers(1, 512), st.integers(40, 5000))
def test_a_plan_stays_within_its_budget(max_prompt: int, max_batch: int, budget: int) -> None:
    points = make_plan(max_prompt, max_batch, budget)
    assert requests_of(points) <= budget
    assert all(p.prompt_tokens <= max_prompt and p.batch <= max_batch for p in points)
    assert len({p.id for p in points}) == len(points)


def test_what_is_left_of_the_budget_goes_into_whole_rounds() -> None:
    once, often = make_plan(4000, 8, 70), make_plan(4000, 8, 10_000)
    assert often[: len(once)] == once
    assert len(often) == ROUNDS * len(once)
    nominal = [(p.kind, p.prompt_tokens, p.batch) for p in often]
    assert {nominal.count(point) for point in nominal if point[0] == "decode"} == {ROUNDS}


def test_a_plan_that_allows_no_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 40"):
        make_plan(4096, 64, 10)


def steady(point: PlanPoint, step_s: float, sent_s: float = 0.0, per_event: int = 1) -> StreamTimes:
    first_s = sent_s + 0.1
    events = point.output_tokens // per_event
    stamps = tuple(first_s + i * step_s * per_event for i in range(events))
    return StreamTimes(sent_s, stamps, point.prompt_tokens, point.output_tokens)


def test_ttft_is_measured_from_the_sending() -> None:
    point = PlanPoint("prefill", 100, 1, 1)
    m = measured(point, [steady(point, 0.01, sent_s=7.0)], EngineGauges())
    assert m.seconds == pytest.approx(0.1)
    assert (m.prompt_tokens, m.held_tokens) == (100, 101)


@pytest.mark.parametrize("per_event", [1, 4])
def test_a_step_is_measured_while_all_decode(per_event: int) -> None:
    point = PlanPoint("decode", 50, 2, 64)
    streams = [steady(point, 0.02, 0.0, per_event), steady(point, 0.02, 0.2, per_event)]
    m = measured(point, streams, EngineGauges())
    assert m.seconds == pytest.approx(0.02, rel=0.1)
    assert 2 * 50 < m.context_tokens < 2 * (50 + 64)


def test_a_batch_that_never_ran_at_once_has_no_step() -> None:
    point = PlanPoint("decode", 50, 2, 64)
    m = measured(point, [steady(point, 0.02), steady(point, 0.02, sent_s=5.0)], EngineGauges(running=1, waiting=1))
    assert m.seconds is None
    assert seen_max_seqs([m]) == 1


def exact() -> list[Measurement]:
    """What a client of an engine with `COST` would see."""
    result = []
    for n in (16, 50, 150, 500, 1500, 4000):
        seconds = OVERHEAD_S + -(-n // 2048) * COST.c0_s + COST.c_p_s * n + COST.c_d_s * 0
        result.append(Measurement(f"p{n}", "prefill", 1, n, seconds))
    for batch in (1, 2, 4, 8, 16):
        for prompt in (50, 1500):
            context = batch * (prompt + 32)
            seconds = COST.step_s(0, batch, context, 0)
            result.append(Measurement(f"d{batch}-{prompt}", "decode", batch, prompt, seconds, context))
    return result


def test_known_costs_are_found_again() -> None:
    made = calibrated("known", "test", exact(), LIMITS)
    assert made.overhead_s == pytest.approx(OVERHEAD_S, abs=5e-4)
    assert parse_profiles(made.yaml())["known"].request_overhead_s == pytest.approx(made.overhead_s, rel=1e-3)
    assert made.fit.cost.c0_s == pytest.approx(COST.c0_s, rel=0.03)
    assert made.fit.cost.c_p_s == pytest.approx(COST.c_p_s, rel=0.05)
    assert made.fit.cost.c_d_s == pytest.approx(COST.c_d_s, rel=0.05)
    assert made.fit.cost.c_k_s == pytest.approx(COST.c_k_s, rel=0.05)
    assert made.decay is not None
    assert made.decay.error_mean < 0.05


def test_prompts_that_are_mostly_overhead_do_not_bend_the_fit() -> None:
    slow = [replace(m, seconds=(m.seconds or 0) + 0.05) if m.kind == "prefill" else m for m in exact()]
    noisy = [replace(m, seconds=(m.seconds or 0) * 1.03) if m.prompt_tokens == 50 else m for m in slow]
    made = calibrated("known", "test", noisy, LIMITS)
    assert made.overhead_s == pytest.approx(0.053, rel=0.1)
    assert made.fit.cost.c_p_s == pytest.approx(COST.c_p_s, rel=0.25)


def test_a_poor_fit_is_remarked() -> None:
    assert poor_fits(calibrated("known", "test", exact(), LIMITS)) == []
    wild = [replace(m, seconds=(m.seconds or 0) * (1.6 if n % 2 else 0.7)) if m.kind == "decode" else m
            for n, m in enumerate(exact())]  # fmt: skip
    (remark,) = poor_fits(calibrated("known", "test", wild, LIMITS))
    assert remark.startswith("the fitted times of decode are off by ")
    assert "--fresh" in remark


def test_what_is_written_is_a_profile() -> None:
    made = calibrated("known", "test", exact(), LIMITS)
    profile = parse_profiles(made.yaml())["known"]
    assert (profile.cost, profile.limits, profile.fit) == (made.fit.cost, LIMITS, made.fit.error)
    assert "throughput_decay" in made.yaml()
    assert table(made).row_count >= 10


def test_overhead_is_none_where_nothing_tells_it() -> None:
    assert overhead_s([]) == 0.0


@pytest.mark.parametrize(("alpha", "beta"), [(0.2, 0.5), (0.35, 0.1), (0.1, 5.0)])
def test_a_known_decay_is_found_again(alpha: float, beta: float) -> None:
    points = [(w, 100 * (1 - alpha * log1p(beta * (min(w, 32) - 1)))) for w in (1, 2, 4, 8, 16, 32, 64)]
    decay = fit_decay(points, 32)
    assert decay is not None
    assert decay.error_mean < 0.002
    assert decay.at(64) == decay.at(32) == pytest.approx(points[5][1], rel=0.01)
    assert decay.alpha == pytest.approx(alpha, rel=0.1)


def test_no_decay_without_the_unloaded_speed() -> None:
    assert fit_decay([(2, 50.0), (4, 40.0), (8, 30.0)], 32) is None


def test_memory_is_told_by_metrics_or_seen() -> None:
    full = Measurement("d", "decode", 8, 500, 0.01, kv_usage=0.25, held_tokens=4096)
    assert seen_kv_tokens([full]) == 16384
    page = b'vllm:cache_config_info{block_size="32",num_gpu_blocks="100",engine="0"} 1.0\n'
    told, _ = limits_of(page, 2048, [full], Stated(max_num_seqs=8))
    assert (told.block_size, told.num_gpu_blocks, told.max_num_seqs) == (32, 100, 8)
    seen, _ = limits_of(b"", 2048, [full], Stated(max_num_seqs=8))
    assert seen.num_gpu_blocks * seen.block_size == 16384
    _, remarks = limits_of(b"", 2048, [], Stated())
    assert len(remarks) == 2


def test_an_interrupted_calibration_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "points.jsonl"
    subject = {"url": "u", "model": "m"}
    journal = MeasurementJournal(path, subject)
    first = measured(PlanPoint("prefill", 100, 1, 1), [steady(PlanPoint("prefill", 100, 1, 1), 0.01)], EngineGauges())
    journal.add(first)
    with path.open("ab") as file:
        file.write(b'{"id": "cut off')
    assert MeasurementJournal(path, subject).done == {first.id: first}
    with pytest.raises(ValueError, match="--fresh"):
        MeasurementJournal(path, {**subject, "url": "other"})


def test_plan_asks_for_enough_tokens_to_see_a_step() -> None:
    assert all(p.output_tokens == DECODE_TOKENS for p in make_plan(4096, 8, 200) if p.kind == "decode")
