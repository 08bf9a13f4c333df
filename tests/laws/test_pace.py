"""The model of a class's pace, and the split that it says is best."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.control import Split
from hmas.contracts.views import DemandView, PaceView
from hmas.laws.pace import Offered, PaceConfig, best_split, expected, ranked, served, work_s

CONFIG = PaceConfig()
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
