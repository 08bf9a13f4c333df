from dataclasses import replace

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import TaskType
from hmas.contracts.telemetry import RequestFinished, RequestRunning
from hmas.statera.agent.config import FenceConfig
from hmas.statera.agent.fence import UNBOUNDED_PROMPT, FenceCalibration

FINISHED = RequestFinished(
    request_id="r",
    tenant="a",
    task=TaskType.QA,
    engine="e",
    outcome=Outcome.FINISHED,
    prompt_tokens=100,
    output_tokens=50,
    predicted_output_tokens=60.0,
    upper_output_tokens=80.0,
    predictor="v1",
    prefill_s=0.1,
    tpot_s=0.05,
    tpot_slo_s=0.07,
    censored=False,
    age_s=0.0,
)


def feed(calibration: FenceCalibration, count: int, version: str = "v1", prompt: int = 100, low: int = 0) -> None:
    for i in range(count):
        calibration.finished(
            replace(FINISHED, predictor=version, prompt_tokens=prompt, output_tokens=60 + low + i % 100)
        )


def test_no_quantile_before_the_pooled_errors_suffice() -> None:
    calibration = FenceCalibration(FenceConfig())
    assert calibration.fence(0.0).buckets == ()
    feed(calibration, 29)
    fence = calibration.fence(1.0)
    assert (fence.version, fence.buckets, fence.rolling_upper) == ("v1", (), 0.0)


def test_a_thin_bucket_borrows_the_pooled_quantile() -> None:
    calibration = FenceCalibration(FenceConfig())
    feed(calibration, 500)  # errors 0..99 in the first bucket
    feed(calibration, 5, prompt=5000, low=1000)
    buckets = calibration.fence(1.0).buckets
    assert [b.prompt_upto for b in buckets] == [128, 512, 2048, 8192, UNBOUNDED_PROMPT]
    assert buckets[0].quantile == pytest.approx(90.0, abs=1.5)
    assert buckets[3].quantile == buckets[1].quantile == pytest.approx(91.0, abs=2.0)


def test_versions_are_never_calibrated_together_and_the_one_in_use_rules() -> None:
    calibration = FenceCalibration(FenceConfig())
    feed(calibration, 300, "v1")
    feed(calibration, 29, "v2", low=1000)
    assert calibration.fence(1.0).version == "v1"
    feed(calibration, 171, "v2", low=1000)
    fence = calibration.fence(3.0)
    assert fence.version == "v2"
    assert min(b.quantile for b in fence.buckets) > 1000.0
    feed(calibration, 10, "v1")  # the prior steps in now and then
    assert calibration.fence(5.0).version == "v2"


def test_versions_are_bounded() -> None:
    calibration = FenceCalibration(FenceConfig(max_versions=2))
    for i in range(20):
        feed(calibration, 40, f"v{i}")
    assert calibration.fence(1.0).version == "v19"
    assert len(calibration._versions) == 2


def test_the_fence_is_refreshed_at_its_own_pace() -> None:
    calibration = FenceCalibration(FenceConfig(refresh_s=1.0))
    feed(calibration, 100)
    first = calibration.fence(1.0)
    feed(calibration, 400, low=500)
    assert calibration.fence(1.9) is first
    assert calibration.fence(2.0).buckets[0].quantile > first.buckets[0].quantile


def test_a_failure_before_the_first_token_says_nothing() -> None:
    calibration = FenceCalibration(FenceConfig())
    for _ in range(100):
        calibration.finished(replace(FINISHED, outcome=Outcome.ENGINE_ERROR, output_tokens=0))
    assert calibration.fence(1.0).version == ""


def test_running_requests_lift_the_bound_while_only_short_ones_have_finished() -> None:
    calibration = FenceCalibration(FenceConfig())
    feed(calibration, 60)
    short = calibration.fence(1.0).buckets[0].quantile
    running = [
        RequestRunning(
            engine="e",
            prompt_tokens=100,
            output_tokens=900,
            predicted_output_tokens=60.0,
            upper_output_tokens=150.0,
            predictor="v1",
        )
    ] * 40
    calibration.running("w", running)
    assert calibration.fence(2.5).buckets[0].quantile == 840.0 > short
    calibration.forget_worker("w")
    assert calibration.fence(4.0).buckets[0].quantile == pytest.approx(short, abs=5.0)


def test_rolling_upper_covers_nearly_all_lengths() -> None:
    calibration = FenceCalibration(FenceConfig())
    feed(calibration, 500)
    assert calibration.fence(1.0).rolling_upper >= 157.0
