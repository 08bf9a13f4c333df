"""The model of a class's pace, and the split that it says is best."""

from dataclasses import replace
from math import erf, log, sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.control import MAX_CUTS, Split
from hmas.contracts.views import DemandView, PaceView
from hmas.laws.pace import (
    BORDERS,
    Offered,
    PaceConfig,
    Served,
    base_share,
    best_split,
    expected,
    mean_pace,
    ranked,
    served,
    too_slow,
    work_s,
)

CONFIG = PaceConfig()
LOADS = PaceConfig(loads=(0.5, 1.0, 2.0))
PACE = PaceView(worker="w", engine="e", base_s=0.04, sequence_s=0.0, context_s=1e-6, prompt_s=2e-4, observations=10)


def offered(slo_s: float, rps: float, prompt: int = 200, output: int = 300) -> Offered:
    context = prompt * output + output * output / 2.0
    demand = DemandView(
        tpot_slo_s=slo_s,
        rps=rps,
        requests=10,
        prompt_tokens=10 * prompt,
        output_tokens=10 * output,
        context_tokens=10 * context,
    )
    return demand, rps


def test_the_work_of_a_request_follows_the_pace_law() -> None:
    demand, _ = offered(0.1, 1.0, prompt=200, output=300)
    assert work_s(demand, PACE) == pytest.approx(1e-6 * (200 * 300 + 300 * 300 / 2) + 2e-4 * 200)


def test_an_unloaded_class_keeps_all_and_one_below_the_base_step_nothing() -> None:
    assert served([offered(0.2, 0.1)], [PACE], CONFIG).on_time_rps == pytest.approx(0.1, rel=0.01)
    assert served([offered(0.02, 0.1)], [PACE], CONFIG).on_time_rps < 0.01


def test_under_overload_the_same_share_of_each_kind_is_late() -> None:
    cheap, costly = offered(0.2, 2.0, output=50), offered(0.2, 2.0, output=3000)
    found = served([cheap, costly], [PACE], CONFIG)
    assert 0.5 * 4.0 * found.share < found.on_time_rps <= 4.0 * found.share < 2.0
    assert served([cheap], [PACE], CONFIG).share == 1.0


def test_a_split_pays_where_strict_and_lax_requests_slow_one_another() -> None:
    demands = [offered(0.065, 2.0, output=100), offered(0.2, 2.0, output=600)]
    split, on_time = best_split(demands, [PACE] * 2, CONFIG)
    assert split == Split((0.065,), (1, 1))
    assert on_time > 1.05 * expected(demands, [PACE] * 2, Split(), CONFIG)


def test_all_stay_mixed_where_every_slo_is_met_anyway() -> None:
    fast = PaceView(worker="w", engine="e", base_s=0.01, sequence_s=0.0, context_s=1e-8, prompt_s=1e-5, observations=1)
    demands = [offered(0.1, 2.0), offered(0.2, 2.0)]
    _, on_time = best_split(demands, [fast] * 2, CONFIG)
    assert on_time <= 1.001 * expected(demands, [fast] * 2, Split(), CONFIG)


def test_one_engine_is_never_split() -> None:
    demands = [offered(0.065, 2.0), offered(0.2, 2.0)]
    assert best_split(demands, [PACE], CONFIG)[0] == Split()


@given(
    st.lists(st.tuples(st.sampled_from([0.05, 0.08, 0.12, 0.2]), st.floats(0.01, 5.0)), min_size=1, max_size=8),
    st.integers(1, 4),
)
def test_a_split_is_valid_and_no_more_are_on_time_than_come(rows: list[tuple[float, float]], engines: int) -> None:
    demands = [offered(slo_s, rps) for slo_s, rps in rows]
    split, on_time = best_split(demands, [PACE] * engines, CONFIG, classes=3)
    assert 0.0 <= on_time <= sum(rps for _, rps in demands) * (1.0 + 1e-9)
    assert expected(demands, [PACE] * engines, Split(), CONFIG) <= on_time + 1e-12
    if split.cuts_s:
        assert sum(split.engines) == engines
        assert len(split.engines) == len(split.cuts_s) + 1
        assert list(split.cuts_s) == sorted(set(split.cuts_s))


def test_an_engine_twice_as_fast_serves_twice_as_much_of_an_overload() -> None:
    fast = replace(PACE, base_s=PACE.base_s / 2, context_s=PACE.context_s / 2, prompt_s=PACE.prompt_s / 2)
    much = [offered(0.5, 50.0)]
    slow_rps, fast_rps, both_rps = (
        served(much, paces, replace(CONFIG, spread=0.01)).on_time_rps for paces in ([PACE], [fast], [PACE, fast])
    )
    assert fast_rps > 1.9 * slow_rps
    assert both_rps == pytest.approx(slow_rps + fast_rps, rel=0.02)


def test_strict_requests_get_the_faster_engine() -> None:
    fast = replace(PACE, base_s=0.02, context_s=PACE.context_s / 2)
    order = ranked({"a": PACE, "b": fast}, ["a", "b"], CONFIG)
    assert [name for name, _ in order] == ["b", "a"]
    demands = [offered(0.045, 1.5, output=100), offered(0.2, 1.5, output=600)]
    split, on_time = best_split(demands, [pace for _, pace in order], CONFIG)
    assert split == Split((0.045,), (1, 1))
    assert on_time > expected(demands, [PACE, fast], split, CONFIG)


def test_engines_that_are_alike_keep_their_order_by_name_and_share_a_law() -> None:
    paces = {"b": PACE, "a": replace(PACE, base_s=1.1 * PACE.base_s)}
    (a, a_law), (b, b_law), (c, c_law) = ranked(paces, ["b", "c", "a"], CONFIG)
    assert (a, b, c) == ("a", "b", "c")  # of c nothing is known
    assert a_law == b_law == c_law
    assert a_law.base_s == pytest.approx(1.05 * PACE.base_s)


def on_time(slo_s: float, step_s: float, spread: float = LOADS.spread) -> float:
    """The share of a lognormal time per token, around `step_s`, that is at most `slo_s`."""
    return 0.5 * (1.0 + erf(log(slo_s / step_s) / (spread * sqrt(2.0))))


def pace_view(rng: Random) -> PaceView:
    return PaceView(
        worker="w", engine=str(rng.random()), base_s=rng.uniform(0.01, 0.05), sequence_s=rng.uniform(0.0, 1e-3),
        context_s=rng.uniform(1e-7, 2e-6), prompt_s=rng.uniform(1e-5, 3e-4), observations=rng.randint(1, 9),
    )  # fmt: skip


def test_work_is_of_every_kind_of_token_over_the_requests() -> None:
    demand = DemandView(
        tpot_slo_s=0.1, rps=1.0, requests=4, prompt_tokens=800, output_tokens=100, context_tokens=20_000.0
    )
    pace = replace(PACE, sequence_s=3e-3, context_s=5e-6, prompt_s=7e-4)
    assert work_s(demand, pace) == pytest.approx((3e-3 * 100 + 5e-6 * 20_000 + 7e-4 * 800) / 4)
    assert work_s(replace(demand, requests=0), pace) == 0.0


@pytest.mark.parametrize("seed", range(6))
def test_a_class_is_served_at_the_best_of_the_steps_that_are_tried(seed: int) -> None:
    rng = Random(seed)
    paces = [pace_view(rng) for _ in range(2)] * rng.randint(1, 2)
    demands = [
        offered(rng.choice([0.04, 0.06, 0.1, 0.2]), rng.uniform(0.1, 3.0), rng.randint(9, 900), rng.randint(9, 900))
        for _ in range(5)
    ]
    step_s, tried = min(p.base_s for p in paces), list[Served]()
    for _ in range(LOADS.paces):
        step_s *= LOADS.step
        room = sum(max(0.0, 1.0 - p.base_s / step_s) / sum(work_s(d, p) * rps for d, rps in demands) for p in paces)
        share = min(1.0, room)
        tried.append(Served(share * sum(rps * on_time(d.tpot_slo_s, step_s) for d, rps in demands), step_s, share))
        if room >= 1.0:
            break
    best = max(tried, key=lambda each: each.on_time_rps)
    found = served(demands, paces, LOADS)
    assert (found.on_time_rps, found.step_s, found.share) == pytest.approx((best.on_time_rps, best.step_s, best.share))


def test_a_class_without_requests_is_served_at_the_base_step() -> None:
    assert served([], [PACE], LOADS) == Served(0.0, PACE.base_s, 0.0)
    assert served([offered(0.1, 0.0)], [PACE], LOADS) == Served(0.0, PACE.base_s, 0.0)


def test_requests_without_work_are_all_served_at_the_first_step() -> None:
    free = replace(PACE, context_s=0.0, prompt_s=0.0)
    found = served([offered(0.2, 3.0)], [free], LOADS)
    assert (found.share, found.step_s) == pytest.approx((1.0, PACE.base_s * LOADS.step))
    assert found.on_time_rps == pytest.approx(3.0 * on_time(0.2, found.step_s))


def test_no_more_steps_are_tried_than_the_configuration_says() -> None:
    demands = [offered(9.0, 1000.0)]
    for paces in (1, 3):
        assert served(demands, [PACE], replace(LOADS, paces=paces)).step_s == pytest.approx(
            PACE.base_s * LOADS.step**paces
        )
    assert served(demands, [PACE], replace(LOADS, paces=0)) == Served(0.0, PACE.base_s, 0.0)


def test_a_split_is_expected_to_keep_the_mean_over_the_loads_of_its_classes_sums() -> None:
    rng = Random(1)
    paces = [pace_view(rng) for _ in range(3)]
    demands = [offered(slo_s, 1.5) for slo_s in (0.05, 0.08, 0.081, 0.2)]
    split = Split((0.08,), (1, 2))

    def kept(load: float) -> float:
        strict, lax = ([(d, load * rps) for d, rps in part] for part in (demands[:2], demands[2:]))
        return served(strict, paces[:1], LOADS).on_time_rps + served(lax, paces[1:], LOADS).on_time_rps

    assert expected(demands, paces, split, LOADS) == pytest.approx(
        (kept(0.5) / 0.5 + kept(1.0) + kept(2.0) / 2.0) / 3.0
    )
    mixed = [served([(d, load * rps) for d, rps in demands], paces, LOADS).on_time_rps / load for load in LOADS.loads]
    assert expected(demands, paces, Split(), LOADS) == pytest.approx(sum(mixed) / 3.0)


def divisions(engines: int, classes: int, cuts: list[float]) -> list[Split]:
    """Every split of a small pool into at most `classes` classes at these cuts."""
    found = [Split()]
    if classes > 1:
        found += [Split((cut,), (bar, engines - bar)) for cut in cuts for bar in range(1, engines)]
    if classes > 2:
        found += [
            Split((low, high), (first, second - first, engines - second))
            for low in cuts for high in cuts for first in range(1, engines) for second in range(1, engines)
            if low < high and first < second
        ]  # fmt: skip
    return found


@pytest.mark.parametrize("classes", [1, 2, 3])
@pytest.mark.parametrize("engines", [1, 2, 3, 4])
def test_the_best_split_is_the_best_of_all_divisions(classes: int, engines: int) -> None:
    rng = Random(10 * classes + engines)
    paces = [pace_view(rng) for _ in range(engines)]
    demands = [offered(slo_s, rng.uniform(0.5, 3.0), 100, rng.randint(30, 900)) for slo_s in (0.03, 0.05, 0.09, 0.2)]
    split, rps = best_split(demands, paces, LOADS, classes=classes)
    cuts = [0.03, 0.05, 0.09]  # never the laxest
    assert rps == pytest.approx(max(expected(demands, paces, s, LOADS) for s in divisions(engines, classes, cuts)))
    assert rps == expected(demands, paces, split, LOADS)


def test_a_pool_is_never_cut_into_more_classes_than_a_layout_has() -> None:
    demands = [offered(0.02 * 1.5**k, 1.0) for k in range(MAX_CUTS + 4)]
    split, _ = best_split(demands, [PACE] * (MAX_CUTS + 3), LOADS, classes=99, cuts=3)
    assert len(split.cuts_s) <= min(3, MAX_CUTS)


def tried_by(demands: list[Offered], engines: int, cuts: int, monkeypatch: pytest.MonkeyPatch) -> list[Split]:
    tried = list[Split]()

    def record(_: object, __: object, split: Split, ___: object) -> float:
        tried.append(split)
        return 0.0

    monkeypatch.setattr("hmas.laws.pace.expected", record)
    assert best_split(demands, [PACE] * engines, LOADS, cuts=cuts) == (Split(), 0.0)
    return tried[1:]


def test_cuts_that_are_tried_are_spread_evenly_over_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    even = [offered(slo_s, 1.0) for slo_s in (0.1, 0.2, 0.3, 0.4, 0.4, 0.5, 0.6, 0.7)]
    found = {cuts: [s.cuts_s[0] for s in tried_by(even, 2, cuts, monkeypatch)] for cuts in (1, 3, 12)}
    assert found == {1: [0.4], 3: [0.2, 0.4, 0.5], 12: [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}
    heavy = [offered(0.1, 8.0), offered(0.2, 1.0), offered(0.3, 1.0)]
    assert [s.cuts_s[0] for s in tried_by(heavy, 2, 1, monkeypatch)] == [0.1]
    assert tried_by(even[:1], 2, 12, monkeypatch) == []


def test_borders_that_are_tried_are_all_of_a_small_pool_and_some_of_a_large_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    demands = [offered(0.1, 1.0), offered(0.2, 1.0)]
    found = {n: [s.engines[0] for s in tried_by(demands, n, 12, monkeypatch)] for n in (1, 2, 5, BORDERS + 1, 90)}
    assert found == {
        1: [], 2: [1], 5: [1, 2, 3, 4], BORDERS + 1: list(range(1, BORDERS + 1)), 90: list(range(10, 90, 10)),
    }  # fmt: skip


def test_a_demand_is_too_slow_by_the_share_that_steps_take_longer_than() -> None:
    demands = [offered(0.1, 3.0), offered(0.2, 1.0)]
    late = 1.0 - (3.0 * on_time(0.1, 0.11) + 3.0 * on_time(0.1, 0.15) + on_time(0.2, 0.11) + on_time(0.2, 0.15)) / 8.0
    assert too_slow(demands, [0.11, 0.15], LOADS) == pytest.approx(late)
    assert too_slow(demands, [0.0], LOADS) == 0.0  # nothing is known of its steps
    assert too_slow(demands, [0.0, 9.0], LOADS) == pytest.approx(0.5)
    assert (too_slow(demands, [], LOADS), too_slow([], [0.1], LOADS)) == (0.0, 0.0)
    assert too_slow([offered(0.1, 0.0)], [0.1], LOADS) == 0.0


def test_the_share_of_the_base_is_over_the_tightest_slo_that_is_not_spared() -> None:
    paces = [replace(PACE, base_s=0.02), replace(PACE, base_s=0.04)]
    demands = [offered(0.2, 6.0), offered(0.05, 1.0), offered(0.1, 3.0)]
    shares = [base_share(demands, paces, spared) for spared in (0.0, 0.09, 0.11, 0.39, 0.41, 1.0)]
    assert shares == pytest.approx([0.03 / 0.05, 0.03 / 0.05, 0.03 / 0.1, 0.03 / 0.1, 0.03 / 0.2, 0.0])
    assert base_share([offered(0.1, 1.0)], paces, 1.0) == 0.0
    assert base_share([], paces, 0.0) == 0.0


def law(engine: str, base_s: float, observations: int = 10) -> PaceView:
    return PaceView(
        worker="w", engine=engine, base_s=base_s, sequence_s=base_s / 100, context_s=base_s / 1e4,
        prompt_s=base_s / 200, observations=observations,
    )  # fmt: skip


def test_the_mean_pace_weighs_each_engine_by_its_observations() -> None:
    found = mean_pace([law("a", 0.01, 1), law("b", 0.05, 3)], 1)
    assert found is not None
    assert (found.worker, found.engine, found.observations) == ("", "", 4)
    means = found.base_s, found.sequence_s, found.context_s, found.prompt_s
    assert means == pytest.approx((0.04, 4e-4, 4e-6, 2e-4))
    assert mean_pace([law("a", 0.01, 1), law("b", 0.05, 3)], 2) is None
    assert mean_pace([], 0) is None


def test_engines_are_ranked_by_a_usual_step_in_groups_that_are_alike() -> None:
    paces = {"a": law("a", 0.05), "b": law("b", 0.01), "c": law("c", 0.0125), "d": law("d", 0.0126)}
    found = ranked(paces, ["a", "b", "c", "d"], LOADS)
    assert [name for name, _ in found] == ["b", "c", "d", "a"]
    laws = [each.base_s for _, each in found]
    assert laws == pytest.approx([0.01125, 0.01125, 0.0126, 0.05])  # a quarter more is alike, the group's first counts
    assert [name for name, _ in ranked(paces, ["d", "b"], LOADS)] == ["b", "d"]


def test_an_engine_of_which_nothing_is_known_stands_where_the_mean_does() -> None:
    paces = {"z": law("z", 0.01, 1), "y": law("y", 0.04, 1)}
    found = ranked(paces, ["y", "m", "z"], LOADS)
    assert [name for name, _ in found] == ["z", "m", "y"]
    assert [each.base_s for _, each in found] == pytest.approx([0.01, 0.025, 0.04])


@pytest.mark.parametrize("term", ["base_s", "sequence_s", "context_s", "prompt_s"])
def test_every_term_of_the_law_counts_in_the_rank(term: str) -> None:
    """A usual step has 32 sequences, 16 384 tokens of context and 64 prompt tokens."""
    sizes = {"base_s": 1.0, "sequence_s": 32.0, "context_s": 16_384.0, "prompt_s": 64.0}
    zero = replace(PACE, base_s=0.0, sequence_s=0.0, context_s=0.0, prompt_s=0.0)
    plain = replace(zero, base_s=0.01)
    for factor, alike in ((1.24, True), (1.26, False)):
        other = replace(zero, **{term: factor * 0.01 / sizes[term]})  # type: ignore[arg-type]
        found = dict(ranked({"a": other, "b": plain}, ["a", "b"], LOADS))
        assert (found["a"] == found["b"]) is alike
        assert next(iter(found)) == ("a" if alike else "b")
