import random
from math import isclose
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.laws.scoring import jain_index
from hmas.qos.agent.arrivals import ArrivalProcess
from hmas.qos.agent.ring import Ring
from hmas.qos.agent.shares import OTHER, ShareCounts, Shares, merged_shares, share_views
from hmas.qos.agent.statistics import (
    HISTOGRAM_BUCKETS,
    LatencySketch,
    Moments,
    histogram_bucket,
    merged_moments,
    merged_sketch,
    relative_slope,
)


@given(st.lists(st.floats(0.1, 1e5), min_size=2, max_size=60), st.integers(1, 5))
def test_merged_moments_are_those_of_the_whole(values: list[float], parts: int) -> None:
    pieces = [Moments() for _ in range(parts)]
    for i, value in enumerate(values):
        pieces[i % parts].add(value)
    whole = merged_moments(pieces)
    assert isclose(whole.mean, fmean(values), rel_tol=1e-9)
    assert isclose(whole.cv, pstdev(values) / fmean(values), rel_tol=1e-4, abs_tol=1e-5)


def test_merged_sketch_is_within_two_percent_of_the_sorted_sample() -> None:
    rng = random.Random(1)
    values = [rng.lognormvariate(0.0, 1.0) for _ in range(5000)]
    parts = [LatencySketch() for _ in range(7)]
    for i, value in enumerate(values):
        parts[i % 7].add(value)
    tail = merged_sketch(parts).tail()
    ordered = sorted(values)
    assert tail.count == 5000
    for got, q in ((tail.p50_s, 0.50), (tail.p95_s, 0.95), (tail.p99_s, 0.99)):
        assert got == pytest.approx(ordered[int(q * 4999)], rel=0.02)


def test_merging_leaves_the_parts_alone() -> None:
    first, second = LatencySketch(), LatencySketch()
    first.add(1.0)
    second.add(2.0)
    merged_sketch([first, second])
    assert (first.tail().count, second.tail().count) == (1, 1)


@pytest.mark.parametrize(
    ("tokens", "index"),
    [(0, 0), (1, 0), (64, 0), (65, 1), (128, 1), (129, 2), (256, 2), (65536, 10), (65537, 11), (10**7, 11)],
)
def test_histogram_buckets_are_powers_of_two_from_64(tokens: int, index: int) -> None:
    assert histogram_bucket(tokens) == index < HISTOGRAM_BUCKETS


def test_jain_index() -> None:
    assert jain_index([5.0, 5.0, 5.0]) == pytest.approx(1.0)
    assert jain_index([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain_index([3.0]) == 1.0
    assert jain_index([0.0, 0.0]) == 1.0


def test_relative_slope() -> None:
    assert relative_slope([(0.0, 10.0), (1.0, 11.0), (2.0, 12.0)], 1.0) == pytest.approx(1.0 / 11.0)
    assert relative_slope([(0.0, 1.0), (1.0, 2.0)], 1.0) == 0.0
    assert relative_slope([(0.0, 0.0), (1.0, 0.001), (2.0, 0.002)], 0.01) == pytest.approx(0.1)


def test_ring_forgets_and_knows_what_time_it_stands_for() -> None:
    ring: Ring[list[int]] = Ring(2.0, 0.5, list)
    ring.at(10.0).append(1)
    assert ring.span_s(10.1) == 0.5
    ring.at(11.9).append(2)
    assert [ago for ago, _ in ring.indexed(11.9)] == [3, 0]
    assert ring.span_s(11.9) == pytest.approx(1.9)
    assert ring.live(12.0) == [[2]]
    assert ring.live(100.0) == []
    assert 1.5 <= ring.span_s(100.3) <= 2.0


def test_arrivals_of_several_gateways_are_put_in_order() -> None:
    process = ArrivalProcess(60.0, 5.0, reorder_s=0.5)
    times = [0.1 * i for i in range(100)]
    for gateway in (0, 1):  # one gateway has the even arrivals, another the odd ones, each in batches
        for batch in range(10):
            for t in times[gateway::2][batch * 5 : batch * 5 + 5]:
                process.offer(t, t)
    process.settle(20.0)
    assert process.cv(20.0) == pytest.approx(0.0, abs=1e-6)


def test_bursts_raise_cv_and_burstiness() -> None:
    process = ArrivalProcess(60.0, 5.0, reorder_s=0.0)
    for second in range(0, 40, 10):
        for i in range(20):
            process.offer(float(second), second + i * 0.001)
        process.settle(second + 1.0)
    assert process.burstiness(39.9) == pytest.approx(10.0, rel=0.05)
    assert process.cv(39.9) > 3.0


def test_shares_name_the_busiest_and_count_the_rest_together() -> None:
    buckets = [Shares(2) for _ in range(3)]
    for index, bucket in enumerate(buckets):
        for n in range(40):  # far beyond the bound of 8 names a bucket
            bucket.of(f"t{n}").offered += 10 if n == index else 1
    totals = merged_shares(buckets)
    rows = share_views(totals, 2)
    assert [r.name for r in rows] == ["t0", "t1", OTHER]
    assert sum(r.offered for r in rows) == 3 * (39 + 10)
    assert len(totals) <= 3 * 8 + 1
    assert share_views({"a": ShareCounts(offered=1)}, 2)[-1].name == "a"


def test_an_arrival_that_is_told_too_late_for_its_place_has_no_gap() -> None:
    process = ArrivalProcess(60.0, 5.0, reorder_s=0.5)
    for arrived_s in (10.0, 11.0, 12.0):
        process.offer(12.0, arrived_s)
    process.settle(12.5)
    process.offer(13.0, 11.25)
    process.settle(13.0)
    process.offer(13.0, 13.0)
    process.settle(13.5)
    gaps = [1.0, 1.0, 0.0, 1.0]
    assert process.cv(13.5) == pytest.approx(pstdev(gaps) / fmean(gaps))


def test_a_ring_holds_the_buckets_of_its_window() -> None:
    ring: Ring[list[int]] = Ring(2.0, 0.5, list)
    assert ring.span_s(7.0) == 0.5
    for number, now_s in enumerate((7.1, 7.4, 7.6, 8.6)):
        ring.at(now_s).append(number)
    assert ring.indexed(8.6) == [(3, [0, 1]), (2, [2]), (0, [3])]
    assert ring.span_s(8.6) == pytest.approx(1.6)
    assert ring.indexed(9.0) == [(3, [2]), (1, [3])]
    assert ring.span_s(9.4) == pytest.approx(1.9)
    assert ring.live(11.0) == []
    assert ring.span_s(11.0) == pytest.approx(1.5)


def test_moments() -> None:
    one = Moments()
    assert (one.mean, one.cv) == (0.0, 0.0)
    one.add(4.0)
    assert (one.mean, one.cv) == (4.0, 0.0)
    two = Moments()
    for value in (2.0, 6.0):
        two.add(value)
    one.merge(two)
    assert (one.count, one.mean) == (3, 4.0)
    assert one.cv == pytest.approx(pstdev([2, 4, 6]) / 4.0)


@pytest.mark.parametrize(
    ("tokens", "bucket"), [(0, 0), (64, 0), (65, 1), (128, 1), (129, 2), (65_536, 10), (65_537, 11)]
)
def test_histogram_buckets_double(tokens: int, bucket: int) -> None:
    assert histogram_bucket(tokens) == bucket


def test_a_slope_is_relative_to_the_mean_or_the_floor() -> None:
    rising = [(float(x), 10.0 + 2.0 * x) for x in range(5)]
    assert relative_slope(rising, 1.0) == pytest.approx(2.0 / 14.0)
    assert relative_slope(rising, 40.0) == pytest.approx(2.0 / 40.0)
    assert relative_slope(rising[:2], 1.0) == 0.0
    assert relative_slope([(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)], 1.0) == 0.0


def test_names_beyond_those_of_a_view_are_other_in_the_order_of_demand() -> None:
    bucket, later = Shares(1), Shares(1)  # each counts four names
    for name, offered, weight in (("a", 1, 1.0), ("b", 5, 2.0), ("c", 3, 1.0), ("d", 3, 1.0), ("e", 9, 1.0)):
        counts = bucket.of(name)
        counts.offered, counts.weight = counts.offered + offered, weight
    later.of("b").offered, later.of("b").weight = 1, 7.0
    totals = merged_shares([bucket, later])
    assert {name: s.offered for name, s in totals.items()} == {"a": 1, "b": 6, "c": 3, "d": 3, OTHER: 9}
    assert totals["b"].weight == 7.0
    totals["c"].settled = 1
    rows = share_views(totals, 2)
    assert [(r.name, r.offered, r.weight) for r in rows] == [("b", 6, 7.0), ("c", 3, 1.0), (OTHER, 13, 1.0)]
    assert share_views({"a": ShareCounts(offered=1)}, 1)[-1].name == "a"


def test_settlements_alone_do_not_change_a_weight() -> None:
    offers, ends = Shares(4), Shares(4)
    offers.of("a").offered, offers.of("a").weight = 3, 5.0
    ends.of("a").settled = 3
    assert merged_shares([offers, ends])["a"].weight == 5.0
