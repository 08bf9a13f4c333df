import random
from dataclasses import replace

import pytest

from hmas.contracts.control import Fence, FenceTable
from hmas.contracts.outcome import Outcome
from hmas.contracts.telemetry import RequestRunning
from hmas.statera.agent.config import FenceConfig
from hmas.statera.agent.fence import UNBOUNDED_PROMPT, FenceCalibration, VersionCohort
from tests.builders.telemetry import request_finished

FINISHED = request_finished(predicted_output_tokens_p90=100.0, upper_output_tokens=1e9)
RUNNING = RequestRunning(
    request_id="x",
    engine="e",
    prompt_tokens=100,
    output_tokens=900,
    predicted_output_tokens_p90=100.0,
    upper_output_tokens=1e9,
    predictor="v1",
    run_s=1.0,
)
STEADY = FenceConfig(aci_gain=0.0)  # without the level, so that the quantiles alone are seen


def feed(
    calibration: FenceCalibration, count: int, version: str = "v1", prompt: int = 100, low: int = 0, at_s: float = 1.0
) -> None:
    """Lengths of `low` + 1 to 100 tokens, each as often; errors are hundredths of that."""
    for i in range(count):
        row = replace(FINISHED, predictor=version, prompt_tokens=prompt, output_tokens=low + 1 + i * 37 % 100)
        calibration.finished(at_s, "w", row)


def table(fence: Fence, version: str = "v1") -> FenceTable:
    (found,) = [t for t in fence.tables if t.version == version]
    return found


def first(fence: Fence) -> float:
    return table(fence).buckets[0].factor


def test_no_factor_before_enough_requests_have_ended() -> None:
    calibration = FenceCalibration(FenceConfig())
    assert calibration.fence(0.0) == Fence()
    feed(calibration, 29)
    assert calibration.fence(1.0) == Fence()
    feed(calibration, 1)
    assert len(table(calibration.fence(2.0)).buckets) == 5


def test_a_thin_bucket_borrows_from_all() -> None:
    calibration = FenceCalibration(STEADY)
    feed(calibration, 500)
    feed(calibration, 3, prompt=5000, low=1000)
    buckets = table(calibration.fence(1.0)).buckets
    assert [b.prompt_upto for b in buckets] == [128, 512, 2048, 8192, UNBOUNDED_PROMPT]
    assert buckets[0].factor == pytest.approx(0.91, abs=0.02)
    assert buckets[1].factor == pytest.approx(0.91, abs=0.03)
    feed(calibration, 200, prompt=5000, low=1000)
    assert table(calibration.fence(2.0)).buckets[3].factor == pytest.approx(10.8, abs=0.2)


def test_every_predictor_in_use_has_its_own_factors() -> None:
    calibration = FenceCalibration(STEADY)
    feed(calibration, 300, "v1")
    feed(calibration, 300, "worker-prior", low=1000)
    fence = calibration.fence(1.0)
    assert first(fence) == pytest.approx(0.91, abs=0.02)
    assert table(fence, "worker-prior").buckets[0].factor > 10.0


def test_versions_are_bounded() -> None:
    calibration = FenceCalibration(FenceConfig(max_versions=2))
    for i in range(20):
        feed(calibration, 40, f"v{i}")
    assert [t.version for t in calibration.fence(1.0).tables] == ["v18", "v19"]


def test_the_fence_is_refreshed_at_its_own_pace() -> None:
    calibration = FenceCalibration(FenceConfig(refresh_s=1.0))
    feed(calibration, 100)
    fence = calibration.fence(1.0)
    feed(calibration, 400, low=500)
    assert calibration.fence(1.9) is fence
    assert first(calibration.fence(2.0)) > first(fence)


def test_a_request_that_was_never_admitted_or_failed_at_once_says_nothing() -> None:
    calibration = FenceCalibration(FenceConfig())
    for _ in range(100):
        calibration.finished(1.0, "w", replace(FINISHED, outcome=Outcome.ENGINE_ERROR, output_tokens=0))
        calibration.finished(1.0, "w", replace(FINISHED, outcome=Outcome.SLO_UNREACHABLE, predictor="", censored=True))
    assert calibration.fence(1.0) == Fence()


def test_running_requests_lift_the_bound_while_only_short_ones_have_ended() -> None:
    calibration = FenceCalibration(STEADY)
    feed(calibration, 60)
    short = first(calibration.fence(1.0))
    feed(calibration, 3, low=1500)
    calibration.running(2.5, "w", [replace(RUNNING, request_id=str(i)) for i in range(40)])
    assert first(calibration.fence(2.5)) > 10.0 * short
    calibration.forget_worker("w")
    assert first(calibration.fence(4.0)) == pytest.approx(short, abs=0.2)


def test_the_ended_stand_for_those_that_run() -> None:
    """Of the last half, all that are longer than 50 tokens still run; the quantile is that of all."""
    calibration, running = FenceCalibration(replace(STEADY, half_life=1e6)), []
    for i in range(900):
        tokens, run_s = 1 + i * 37 % 100, 900.0 - i
        if i >= 450 and tokens > 50:
            running.append(replace(RUNNING, request_id=str(i), output_tokens=50, run_s=run_s))
        else:
            calibration.finished(900.0, "w", replace(FINISHED, output_tokens=tokens, run_s=run_s))
    calibration.running(900.0, "w", running)
    assert first(calibration.fence(900.0)) == pytest.approx(0.905, abs=0.01)


def test_requests_count_in_the_order_of_their_admission() -> None:
    """Long answers admitted long ago end last; the short ones admitted since are what is admitted now."""
    config = replace(STEADY, cohort=200)
    calibration = FenceCalibration(config)
    feed(calibration, 200, at_s=100.0)
    for i in range(200):
        calibration.finished(101.0, "w", replace(FINISHED, output_tokens=2000 + i, run_s=90.0))
    assert first(calibration.fence(101.0)) < 1.0
    feed(calibration, 200, low=500, at_s=102.0)
    assert first(calibration.fence(102.0)) > 5.0


def test_one_that_outgrows_its_bound_counts_at_once_and_once() -> None:
    config = FenceConfig(aci_gain=0.02, aci_loop=1000.0)
    cohort = VersionCohort(config)
    for i in range(40):
        cohort.add("w", 0.0, replace(FINISHED, output_tokens=50 + i))
    cohort.buckets()
    level = cohort._levels[0]
    over = replace(RUNNING, upper_output_tokens=800.0)
    cohort.see_running("w", 1.0, [over])
    assert level.epsilon == pytest.approx(0.1 - 0.018)
    cohort.see_running("w", 2.0, [replace(over, output_tokens=950)])
    cohort.add("w", 0.0, replace(FINISHED, request_id="x", output_tokens=990, upper_output_tokens=800.0))
    assert level.epsilon == pytest.approx(0.1 - 0.018)
    cohort.see_running("w", 3.0, [])
    cohort.add("w", 0.0, replace(FINISHED, request_id="y", output_tokens=990, upper_output_tokens=800.0))
    assert level.epsilon == pytest.approx(0.1 - 0.036)
    cohort.add("w", 0.0, replace(FINISHED, request_id="z", output_tokens=10, censored=True))
    assert level.epsilon == pytest.approx(0.1 - 0.036)  # one that was cut off below its bound shows nothing


def test_rolling_upper_covers_nearly_all_lengths() -> None:
    calibration = FenceCalibration(FenceConfig())
    feed(calibration, 500)
    assert calibration.fence(1.0).rolling_upper >= 98.0


def loop(config: FenceConfig, *, drift: float, jump: float, see: bool) -> list[bool]:
    """A worker in small: 5 requests a second, 20 tokens a second each, and news as a worker sends it: running requests
    once a second if `see`, ended ones when they end. Lengths grow by `drift` over the run of 600 s, and `jump`-fold in
    its second half. Returns whether each request outgrew its bound."""
    rng, calibration, running, misses = random.Random(1), FenceCalibration(config), list[list[float]](), []
    fence, per_s, tokens_per_s = Fence(), 5, 20.0
    for second in range(600):
        now_s = float(second)
        for _ in range(per_s):
            typical = rng.choice((60.0, 600.0)) * (1 + drift * second / 600) * (jump if second >= 300 else 1.0)
            length, p90 = float(round(1 + typical * rng.lognormvariate(0.0, 0.7))), typical * 1.5 / jump
            factor = first(fence) if fence.tables else 1.0
            running.append([now_s, length, p90, factor * p90])
            misses.append(length > factor * p90)
        ended = [r for r in running if r[0] + r[1] / tokens_per_s <= now_s]
        running = [r for r in running if r not in ended]
        for admitted_s, length, p90, upper in ended:
            calibration.finished(now_s, "w", replace(
                FINISHED, request_id=f"{admitted_s} {length}", output_tokens=int(length),
                predicted_output_tokens_p90=p90, upper_output_tokens=upper, run_s=now_s - admitted_s,
            ))  # fmt: skip
        if see:
            calibration.running(now_s, "w", [
                replace(
                    RUNNING, request_id=f"{admitted_s} {length}",
                    output_tokens=int((now_s - admitted_s) * tokens_per_s), predicted_output_tokens_p90=p90,
                    upper_output_tokens=upper, run_s=now_s - admitted_s,
                )
                for admitted_s, length, p90, upper in running
            ])  # fmt: skip
        fence = calibration.fence(now_s)
    return misses


def shares(misses: list[bool]) -> list[float]:
    """The share of misses in each fifth of the run."""
    size = len(misses) // 5
    return [sum(misses[i * size : (i + 1) * size]) / size for i in range(5)]


@pytest.mark.parametrize(("drift", "jump"), [(0.0, 1.0), (1.3, 1.0), (0.0, 2.0)])
def test_one_in_ten_outgrows_its_bound_with_late_news(drift: float, jump: float) -> None:
    misses = loop(FenceConfig(), drift=drift, jump=jump, see=True)
    assert sum(misses) / len(misses) == pytest.approx(0.1, abs=0.025)
    assert all(share == pytest.approx(0.1, abs=0.06) for share in shares(misses)[1:])


def test_without_running_requests_the_first_bounds_are_too_low() -> None:
    blind = shares(loop(STEADY, drift=1.3, jump=2.0, see=False))
    seen = shares(loop(FenceConfig(), drift=1.3, jump=2.0, see=True))
    assert max(blind[1:]) > max(seen[1:]) + 0.03


def test_memory_is_reserved_by_the_bound_but_no_more_than_the_predicted_quantile() -> None:
    calibration = FenceCalibration(STEADY)
    feed(calibration, 1000)
    bucket = table(calibration.fence(1.0)).buckets[0]
    assert bucket.factor == pytest.approx(0.9, abs=0.02)
    assert bucket.shared == bucket.factor
    calibration = FenceCalibration(STEADY)
    feed(calibration, 1000, low=100)  # all of them outgrow what was predicted
    bucket = table(calibration.fence(1.0)).buckets[0]
    assert bucket.factor == pytest.approx(1.9, abs=0.02)
    assert bucket.shared == 1.0
