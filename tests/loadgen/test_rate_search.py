"""lambda*: found with few runs, also under noise."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas_loadgen.search import GOODPUT_RATE, find_rate


async def test_the_bracket_closes_around_the_knee() -> None:
    calls: list[float] = []

    async def measure(rate: float) -> float:
        calls.append(rate)
        return 1.0 if rate <= 7.3 else 0.5

    found = await find_rate(measure, 2.0)
    assert found.failing_rps is not None
    assert found.rate_rps <= 7.3 < found.failing_rps <= 1.05 * found.rate_rps
    assert [point.rate_rps for point in found.points] == calls
    assert len(calls) <= 8


@given(st.floats(0.2, 300.0), st.floats(0.5, 50.0), st.integers(0, 9))
async def test_any_knee_from_any_start(knee: float, start: float, seed: int) -> None:
    noise = random.Random(seed)

    async def measure(rate: float) -> float:
        return min(1.0, 1.0 - 0.3 * (rate / knee - 1.0) - 0.05 + noise.uniform(-0.01, 0.01))

    found = await find_rate(measure, start, max_runs=24)
    assert 0.85 * knee < found.rate_rps < 1.15 * knee
    assert found.failing_rps is not None
    assert all(p.goodput_rate >= GOODPUT_RATE for p in found.points if p.rate_rps == found.rate_rps)


async def test_noise_that_lets_a_higher_rate_pass_does_not_widen_the_bracket() -> None:
    values = {4.0: 1.0, 8.0: 0.9, 32.0**0.5: 0.99}

    async def measure(rate: float) -> float:
        return values.get(rate, 0.96)

    found = await find_rate(measure, 4.0, max_runs=4)
    assert found.failing_rps == 8.0
    assert 4.0 < found.rate_rps < 8.0


async def test_the_runs_may_be_spent_without_a_failure() -> None:
    async def measure(rate: float) -> float:
        return 1.0

    found = await find_rate(measure, 1.0, max_runs=3)
    assert (found.rate_rps, found.failing_rps) == (4.0, None)


async def test_nothing_passes() -> None:
    async def measure(rate: float) -> float:
        return 0.2

    with pytest.raises(ValueError, match=r"goodput rate is 0\.200 even at 0\.25 requests/s"):
        await find_rate(measure, 1.0, max_runs=3)
    with pytest.raises(ValueError, match="must be above 0"):
        await find_rate(measure, 0.0)
