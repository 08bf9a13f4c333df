"""The fence of lengths beside its definition: which answers count, by which predictor, and when it is made."""

from dataclasses import dataclass, replace
from random import Random

import pytest

from hmas.contracts.control import Fence
from hmas.contracts.outcome import Outcome
from hmas.statera.agent.config import FenceConfig
from hmas.statera.agent.conformal import KnownAnswer
from hmas.statera.agent.fence import UNBOUNDED_PROMPT, FenceCalibration
from tests.builders.telemetry import request_finished
from tests.statera.plain_quantiles import plain_quantile, plain_weights
from tests.statera.test_fence import FINISHED, RUNNING, STEADY, feed


@dataclass(frozen=True)
class Row:
    admitted_s: float
    prompt: int
    tokens: int
    p90: float
    censored: bool

    @property
    def error(self) -> float:
        return self.tokens / max(self.p90, 1.0)


@pytest.mark.parametrize("seed", range(3))
def test_every_bucket_has_the_quantile_of_its_own_and_of_what_it_borrows(seed: int) -> None:
    rng = Random(seed)
    config = FenceConfig(
        aci_gain=0.0, prompt_edges=(100, 1000), cohort=60, half_life=25.0, borrowed=6.0, epsilon=0.15,
        shared_factor=1.5, min_samples=10,
    )  # fmt: skip
    calibration, ended, running = FenceCalibration(config), list[Row](), dict[str, list[Row]]()

    def some(at_s: float, *, censored: bool) -> Row:
        return Row(
            at_s, rng.choice((50, 100, 101, 1000, 1001)), rng.randint(1, 900), rng.choice((0.5, 60.0, 300.0)), censored
        )

    for number in range(150):
        row = some(100.0 + number, censored=rng.random() < 0.1)
        ended.append(row)
        calibration.finished(
            row.admitted_s + 3.0,
            rng.choice("vw"),
            replace(
                FINISHED, request_id=str(number), prompt_tokens=row.prompt, output_tokens=row.tokens,
                predicted_output_tokens_p90=row.p90, censored=row.censored, age_s=1.0, run_s=2.0,
            ),
        )  # fmt: skip
    for worker in ("v", "w", "v"):  # the later report of a worker takes the place of its earlier one
        running[worker] = [some(rng.uniform(200.0, 300.0), censored=True) for _ in range(8)]
        calibration.running(400.0, worker, [
            replace(
                RUNNING, request_id=f"{worker}{i}", prompt_tokens=r.prompt, output_tokens=r.tokens,
                predicted_output_tokens_p90=r.p90, run_s=400.0 - r.admitted_s,
            )
            for i, r in enumerate(running[worker])
        ])  # fmt: skip
    rows = [*ended[-120:], *running["v"], *running["w"]]
    rows = sorted(rows, key=lambda r: -r.admitted_s)[:60]
    weights = [0.5 ** (rank / 25.0) for rank in range(60)]
    revealed = plain_weights([(r.tokens, r.censored) for r in rows], weights)
    fence = calibration.fence(400.0)
    (table,) = fence.tables
    assert [b.prompt_upto for b in table.buckets] == [100, 1000, UNBOUNDED_PROMPT]
    for bucket, (low, high) in zip(table.buckets, ((0, 100), (101, 1000), (1001, 10**9)), strict=True):
        share = [6.0 / sum(weights) + (low <= r.prompt <= high) for r in rows]
        pairs = sorted((r.error, v * s) for r, v, s in zip(rows, revealed, share, strict=True))
        expected = plain_quantile(pairs, sum(w * s for w, s in zip(weights, share, strict=True)), 0.15)
        assert bucket.factor == pytest.approx(expected)
        assert bucket.shared == min(1.5, bucket.factor)
    lengths = ended[-60:]
    plain = plain_weights([(r.tokens, r.censored) for r in lengths], [1.0] * 60)
    pairs = sorted((float(r.tokens), v) for r, v in zip(lengths, plain, strict=True))
    assert fence.rolling_upper == pytest.approx(plain_quantile(pairs, 60.0, config.rolling_epsilon))


def test_lengths_of_all_predictors_together_make_the_rolling_bound() -> None:
    calibration = FenceCalibration(FenceConfig())
    feed(calibration, 15, "a")
    feed(calibration, 14, "b")
    assert calibration.fence(1.0) == Fence()
    feed(calibration, 1, "b", low=5000)
    fence = calibration.fence(2.0)
    assert (fence.tables, fence.rolling_upper) == ((), 5001.0)


def test_the_fence_is_made_at_the_end_of_its_period_and_not_before_anything_ended() -> None:
    calibration = FenceCalibration(replace(STEADY, refresh_s=2.0))
    assert calibration.fence(0.0) == Fence()
    feed(calibration, 30)
    fence = calibration.fence(0.0)
    assert fence.tables
    feed(calibration, 99, low=900)
    assert calibration.fence(1.999) is fence
    assert calibration.fence(2.0) is not fence


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, True), ({"predictor": ""}, False), ({"predicted_output_tokens_p90": 0.0}, False),
        ({"predicted_output_tokens_p90": 0.5}, True), ({"output_tokens": 0}, False), ({"output_tokens": 1}, True),
        ({"output_tokens": 0, "censored": True}, True), ({"outcome": Outcome.ENGINE_ERROR}, True),
    ],
)  # fmt: skip
def test_which_ended_requests_tell_of_lengths(changes: dict[str, object], counts: bool) -> None:
    calibration = FenceCalibration(FenceConfig())
    for _ in range(30):
        calibration.finished(1.0, "w", replace(FINISHED, **changes))  # type: ignore[arg-type]
    assert bool(calibration.fence(1.0).tables) is counts


def test_the_predictor_that_was_used_least_of_late_is_forgotten() -> None:
    calibration = FenceCalibration(replace(STEADY, max_versions=2))
    feed(calibration, 100, "often")
    feed(calibration, 30, "seldom")
    feed(calibration, 30, "new")
    assert [t.version for t in calibration.fence(1.0).tables] == ["new", "often"]
    feed(calibration, 300, "new")
    feed(calibration, 30, "newer")
    assert [t.version for t in calibration.fence(2.0).tables] == ["new", "newer"]


def test_an_answer_is_dated_by_its_admission() -> None:
    calibration = FenceCalibration(FenceConfig())
    calibration.finished(100.0, "w", request_finished(age_s=2.0, run_s=7.0, predicted_output_tokens_p90=20.0))
    calibration.running(100.0, "w", [replace(RUNNING, run_s=30.0, predictor="v1")])
    cohort = calibration._all.known["v1", ""]
    assert list(cohort._ended) == [KnownAnswer(91.0, 0, 50, 2.5, False)]
    assert cohort._running == {"w": [KnownAnswer(70.0, 0, 900, 9.0, True)]}
    calibration.running(101.0, "w", [replace(RUNNING, predictor="v2")])
    assert cohort._running == {"w": []}
