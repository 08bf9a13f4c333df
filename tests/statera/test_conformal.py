import random
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.statera.agent.conformal import (
    AdaptiveLevel,
    KnownAnswer,
    bucket_index,
    revealed_weights,
    weighted_quantile,
)
from tests.statera.plain_quantiles import plain_quantile, plain_weights

EPSILON = 0.1


def observation(tokens: int, error: float, censored: bool = False) -> KnownAnswer:
    return KnownAnswer(admitted_s=0.0, bucket=0, tokens=tokens, error=error, censored=censored)


def test_equal_weights_give_the_finite_sample_order_statistic() -> None:
    errors = [(float(n), 1.0) for n in range(1, 100)]
    assert weighted_quantile(errors, 99.0, EPSILON) == 90.0  # rank (99 + 1) 0.9
    assert weighted_quantile(errors[:8], 8.0, EPSILON) == 8.0  # too few for that coverage: the largest


def test_weight_that_is_missing_lies_above_all_errors() -> None:
    errors = [(float(n), 1.0) for n in range(1, 1000)]
    assert weighted_quantile(errors, 1050.0, EPSILON) == pytest.approx(946.0, abs=1.0)
    assert weighted_quantile([(3.0, 0.0), (7.0, 0.0)], 2.0, EPSILON) == 7.0


@given(st.lists(st.tuples(st.integers(1, 50), st.booleans()), min_size=1, max_size=60))
def test_what_ended_stands_for_no_more_than_all(rows: list[tuple[int, bool]]) -> None:
    seen = [observation(tokens, float(tokens), censored) for tokens, censored in rows]
    weights = revealed_weights(seen, [1.0] * len(seen))
    assert all(w == 0.0 for o, w in zip(seen, weights, strict=True) if o.censored)
    assert all(w >= 1.0 for o, w in zip(seen, weights, strict=True) if not o.censored)
    assert sum(weights) <= len(seen) + 1e-6
    longest = max(seen, key=lambda o: (o.tokens, o.censored))
    # Where the longest still runs, nothing longer ended that could stand for it.
    assert (sum(weights) == pytest.approx(len(seen))) is not longest.censored


def test_known_weights() -> None:
    # Of four at risk one still runs at 10 tokens: G falls to 3/4 (one of the four had ended before it, so 2/3).
    seen = [observation(5, 1.0), observation(10, 2.0, censored=True), observation(20, 3.0), observation(30, 4.0)]
    assert revealed_weights(seen, [1.0] * 4) == pytest.approx([1.0, 0.0, 1.5, 1.5])


def window(rng: random.Random, count: int, per_s: float) -> list[KnownAnswer]:
    """Requests admitted one after another, 20 tokens a second, seen at the end. Their lengths have nothing to do with
    what was predicted, so that errors are smallest for the longest predictions."""
    found = []
    for i in range(count):
        length, predicted = int(1 + rng.expovariate(1 / 400)), rng.choice((100.0, 1600.0))
        age_s = (count - i) / per_s
        tokens = min(length, int(20 * age_s))
        found.append(KnownAnswer(i / per_s, 0, tokens, tokens / predicted, tokens < length))
    return found


def bound(seen: list[KnownAnswer], weights: list[float]) -> float:
    rows = sorted((o.error, w) for o, w in zip(seen, weights, strict=True))
    return weighted_quantile(rows, float(len(seen)), EPSILON)


def coverage(rng: random.Random, factor: float) -> float:
    fresh = [(1 + rng.expovariate(1 / 400)) / rng.choice((100.0, 1600.0)) for _ in range(20_000)]
    return sum(error <= factor for error in fresh) / len(fresh)


@pytest.mark.parametrize("seed", range(4))
def test_requests_that_still_run_are_not_forgotten(seed: int) -> None:
    """A sixth of them still run. What ended alone, or what runs taken as ended, bounds too low."""
    rng = random.Random(seed)
    seen = window(rng, 5000, 50.0)
    assert sum(o.censored for o in seen) > 700
    assert coverage(rng, bound(seen, revealed_weights(seen, [1.0] * len(seen)))) == pytest.approx(0.9, abs=0.02)
    ended = [o for o in seen if not o.censored]
    assert coverage(rng, bound(ended, [1.0] * len(ended))) < 0.88
    assert coverage(rng, bound(seen, [1.0] * len(seen))) < 0.88


def steps(draw: Callable[[random.Random], bool], level: AdaptiveLevel, running: int, count: int) -> list[float]:
    rng, found = random.Random(1), []
    for _ in range(count):
        level.update(draw(rng), running)
        found.append(level.epsilon)
    return found


def test_the_level_answers_misses_within_its_limits() -> None:
    level = AdaptiveLevel(EPSILON, 0.02, 0.01, 0.4, 0.5)
    level.update(True, 1)
    assert level.epsilon == pytest.approx(0.082)
    level.update(False, 1)
    assert level.epsilon == pytest.approx(0.084)
    assert min(steps(lambda _: True, level, 1, 100)) == 0.01
    assert max(steps(lambda _: False, level, 1, 1000)) == 0.4


def test_many_running_requests_make_the_level_slow() -> None:
    """Without this the level swings between its limits, because each of many late misses is answered once more."""
    level = AdaptiveLevel(EPSILON, 0.02, 0.01, 0.4, 0.5)
    level.update(True, 500)
    assert level.epsilon == pytest.approx(EPSILON - 0.9 * 0.5 / 500)


@pytest.mark.parametrize(("loop", "settles"), [(0.5, True), (1000.0, False)])
def test_late_news_does_not_make_the_level_swing(loop: float, settles: bool) -> None:
    """The share of misses is the level itself, told 300 requests late."""
    rng, late = random.Random(3), 300
    level = AdaptiveLevel(EPSILON, 0.02, 0.01, 0.4, loop)
    levels: list[float] = [0.3] * late
    for _ in range(12_000):
        level.update(rng.random() < levels[-late], late)
        levels.append(level.epsilon)
    spread = max(levels[-3000:]) - min(levels[-3000:])
    assert (spread < 0.1) is settles


def test_bucket_edges_are_inclusive() -> None:
    assert [bucket_index((128, 512), n) for n in (0, 128, 129, 512, 513)] == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("seed", range(8))
def test_weights_and_quantiles_follow_their_definitions(seed: int) -> None:
    rng = Random(seed)
    rows = [(rng.randint(1, 12), rng.random() < 0.3) for _ in range(40)] + [(13, False)]
    weights = [rng.choice((1.0, rng.uniform(0.1, 2.0))) for _ in rows]
    seen = [KnownAnswer(0.0, 0, tokens, float(tokens), cut) for tokens, cut in rows]
    expected = plain_weights(rows, weights)
    assert revealed_weights(seen, weights) == pytest.approx(expected)
    pairs = sorted((float(tokens), w) for (tokens, _), w in zip(rows, expected, strict=True))
    for total in (1.0, sum(expected), 1.3 * sum(expected)):
        for epsilon in (0.02, 0.1, 0.3, 0.6):
            assert weighted_quantile(pairs, total, epsilon) == plain_quantile(pairs, total, epsilon)


def test_what_ended_after_all_that_run_stands_for_them() -> None:
    seen = [KnownAnswer(0.0, 0, 5, 5.0, True), KnownAnswer(0.0, 0, 5, 5.0, False), KnownAnswer(0.0, 0, 6, 6.0, False)]
    assert revealed_weights(seen, [1.0, 1.0, 1.0]) == pytest.approx([0.0, 1.0, 2.0])
    assert revealed_weights(seen, [3.0, 1.0, 1.0]) == pytest.approx([0.0, 1.0, 4.0])
    longest = [KnownAnswer(0.0, 0, 5, 5.0, False), KnownAnswer(0.0, 0, 9, 9.0, True)]
    assert revealed_weights(longest, [1.0, 1.0]) == [1.0, 0.0]


def test_a_quantile_takes_the_error_at_its_rank_and_none_without_weight() -> None:
    assert weighted_quantile([(1.0, 1.0), (2.0, 0.0), (3.0, 1.0)], 2.0, 0.67) == 1.0  # the rank is 0.99 of 2
    assert weighted_quantile([(1.0, 1.0), (2.0, 0.0), (3.0, 1.0)], 2.0, 0.6) == 3.0
    assert weighted_quantile([(1.0, 1.0), (2.0, 1.0)], 2.0, 0.0) == 2.0
    assert weighted_quantile([(1.0, 1.0), (2.0, 0.0)], 9.0, 0.0) == 2.0  # what is missing lies above all
