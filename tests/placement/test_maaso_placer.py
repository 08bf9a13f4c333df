"""MaaSO's two algorithms on cells that are solved by hand."""

from collections.abc import Sequence
from itertools import pairwise
from math import log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmas.contracts.control import Split
from hmas.contracts.pool_plan import Group, InstanceType, PoolPlan
from hmas.contracts.request import Slo, TaskType
from hmas.contracts.step_cost import StepCostModel
from hmas.sim.workload import OfferedRequest
from hmas_lab.placement.maaso import Placer, SubCluster, batch_limited, best_cut, pace_slo_s
from hmas_lab.placement.slots import ServingScore
from tests.builders.requests import client_request


def kind(pool: str, gpus: int, step_s: float, limit: int = 4, sequence_s: float = 0.0) -> InstanceType:
    step = StepCostModel(step_s, 0.0, sequence_s, 0.0)
    name = f"{pool}{gpus}-{limit}"
    return InstanceType(
        name=name, model=pool, hardware="h", gpus=gpus, step=step, kv_tokens=9999, max_num_seqs=limit
    )  # fmt: skip


def burst(pool: str, *tpots_s: float) -> list[OfferedRequest]:
    """Requests that come at once and may not wait, one for each TPOT SLO."""
    found = []
    for i, tpot_s in enumerate(tpots_s):
        slo = Slo(0.0, tpot_s)
        request = client_request(f"{pool}{i}", model=pool, arrival_s=0.0, slo=slo)
        found.append(OfferedRequest(request=request, output_tokens=10, slo=slo, task=TaskType.QA))
    return found


SLOW, FAST = kind("a", 1, 1.0), kind("a", 2, 0.5)  # four slots each
MIX = [0.6] * 4 + [1.2] * 4
ALONE_S = {"a": 1.0, "b": 1.0}
ONLY_SLOS = ServingScore(alpha=1.0)


def test_strict_requests_get_the_fast_instance_and_lax_ones_the_slow() -> None:
    plans = Placer({"a": (SLOW, FAST)}, ONLY_SLOS).placed({"a": burst("a", *MIX)}, 3, ALONE_S)
    assert plans == (PoolPlan(pool="a", groups=(Group("a2-4", 1), Group("a1-4", 1)), split=Split((0.6,), (1, 1))),)


def test_cards_that_win_nothing_are_left_idle() -> None:
    plans = Placer({"a": (SLOW, FAST)}, ONLY_SLOS).placed({"a": burst("a", *MIX)}, 40, ALONE_S)
    assert sum({"a2-4": 2, "a1-4": 1}[g.type] * g.count for g in plans[0].groups) == 4  # two fast ones serve all


def test_a_pool_that_no_instance_helps_is_passed_over() -> None:
    kinds = {"a": (SLOW,), "b": (kind("b", 1, 1.0),)}
    found = Placer(kinds, ONLY_SLOS).filled({"a": burst("a", *[0.1] * 5), "b": burst("b", *[2.0] * 4)}, 1)
    assert found[1].counts == {"a": 0, "b": 1}


def test_the_cut_is_stated_in_the_seconds_of_each_pool() -> None:
    plans = Placer({"a": (SLOW, FAST)}, ONLY_SLOS).placed({"a": burst("a", *MIX)}, 3, {"a": 0.25})
    assert plans[0].split.cuts_s[0] == pytest.approx(0.6)


@given(st.lists(st.sampled_from([0.4, 0.6, 1.2, 3.0]), min_size=1, max_size=20), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_no_plan_has_more_cards_than_there_are(tpots_s: list[float], gpus: int) -> None:
    plans = Placer({"a": (SLOW, FAST)}, ONLY_SLOS).placed({"a": burst("a", *tpots_s)}, gpus, ALONE_S)
    assert sum({"a2-4": 2, "a1-4": 1}[g.type] * g.count for g in plans[0].groups) <= gpus


def test_one_cluster_for_all_is_kept_where_two_score_no_more() -> None:
    fast = kind("a", 2, 0.5, limit=8)
    assert Placer({"a": (SLOW, fast)}, ONLY_SLOS).placed({"a": burst("a", *MIX)}, 2, ALONE_S) == (
        PoolPlan(pool="a", groups=(Group("a2-8", 1),)),
    )


def test_the_lax_cluster_may_have_its_share_of_the_cards_alone() -> None:
    # Three strict requests of four: of four cards the lax one may have one, where no instance of it fits.
    kinds = {"a": (kind("a", 2, 0.5, limit=1),)}
    placer, requests = Placer(kinds, ONLY_SLOS), {"a": burst("a", 0.6, 0.6, 0.6, 1.2)}
    plans = placer.placed(requests, 4, ALONE_S)
    assert plans == (PoolPlan(pool="a", groups=(Group("a2-1", 2),)),)
    # Of six it may have two, and one for it is worth more than a third for the strict ones.
    plans = placer.placed(requests, 6, ALONE_S)
    assert plans == (PoolPlan(pool="a", groups=(Group("a2-1", 2), Group("a2-1", 1)), split=Split((0.6,), (2, 1))),)


def test_a_pool_for_which_a_configuration_has_no_type_gets_none_of_it() -> None:
    kinds = {"a": (SLOW,), "b": (kind("b", 2, 0.5),)}
    requests = {"a": burst("a", *[2.0] * 4), "b": burst("b", *[2.0] * 3)}
    found = Placer(kinds, ONLY_SLOS).filled(requests, 3)
    assert [each.score for each in found] == [0.0, 4 / 7, 4 / 7, 4 / 7]  # one configuration for all pools
    assert found[3] == SubCluster(1, 4 / 7, {"a": 1}, (1, 4))


def test_an_instance_goes_to_the_pool_with_the_most_requests_unserved() -> None:
    kinds = {"a": (SLOW,), "b": (kind("b", 1, 1.0),)}
    requests = {"a": burst("a", *[2.0] * 5), "b": burst("b", *[2.0] * 7)}
    found = Placer(kinds, ONLY_SLOS).filled(requests, 5)
    assert [each.counts for each in found[1:]] == [
        {"a": 0, "b": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}, {"a": 2, "b": 2},
    ]  # fmt: skip
    assert [round(12 * each.score) for each in found] == [0, 4, 8, 11, 12, 12]


def test_more_cards_never_score_less() -> None:
    found = Placer({"a": (SLOW, FAST)}, ServingScore()).filled({"a": burst("a", *MIX, *MIX)}, 9)
    assert all(fewer.score <= more.score for fewer, more in pairwise(found))


def test_of_batch_limits_that_keep_as_many_the_highest_is_tried_and_hopeless_ones_are_not() -> None:
    kinds = {"a": tuple(kind("a", 1, 1.0, limit, 0.1) for limit in (1, 2, 4, 8))}
    placer = Placer(kinds, ONLY_SLOS)
    # Full batches take 1.1, 1.2, 1.4 and 1.8 s: that of 8 keeps nobody's SLO, that of 1 no more than that of 2.
    assert placer._candidates({"a": burst("a", 1.3, 1.5)}) == [(1, 4), (1, 2)]


def test_more_cards_that_are_no_faster_are_not_tried() -> None:
    kinds = {"a": (SLOW, kind("a", 2, 1.0), kind("a", 4, 0.9))}
    assert Placer(kinds, ONLY_SLOS)._candidates({"a": burst("a", 2.0)}) == [(1, 4), (4, 4)]


def test_without_requests_there_is_nothing_to_classify() -> None:
    with pytest.raises(ValueError, match="no request"):
        Placer({"a": (SLOW,)}, ONLY_SLOS).placed({"a": []}, 2, ALONE_S)


@pytest.mark.parametrize(
    ("factors", "cut"), [([0.8, 1.0, 1.2, 1.5], 1.0), ([0.8, 0.9, 4.0, 8.0, 8.0], 0.9), ([1.0], 1.0), ([1.0, 2.0], 1.0)]
)
def test_strict_and_lax_requests_are_told_apart(factors: Sequence[float], cut: float) -> None:
    assert best_cut(factors[::-1]) == cut


@given(st.lists(st.integers(1, 20), min_size=2, max_size=8))
@settings(deadline=None)
def test_the_cut_leaves_the_least_variance(numbers: list[int]) -> None:
    factors = [float(n) for n in numbers]

    def within(part: list[float]) -> float:
        logs = [log(each) for each in part]
        mean = sum(logs) / len(logs) if logs else 0.0
        return sum((each - mean) ** 2 for each in logs)

    def variance(at: int) -> float:
        ordered = sorted(factors)
        return within(ordered[:at]) + within(ordered[at:])

    cut = best_cut(factors)
    least = min(variance(at) for at in range(1, len(factors)))
    assert cut in {sorted(factors)[at - 1] for at in range(1, len(factors)) if variance(at) <= least + 1e-9}


def test_a_deadline_is_a_pace() -> None:
    assert pace_slo_s(Slo(1.0, 0.5, 20.0, whole=True), 10) == 2.0
    assert pace_slo_s(Slo(1.0, 0.5, 20.0), 10) == 0.5


def test_every_type_gets_every_limit_that_its_token_budget_allows() -> None:
    limited = batch_limited({"a": (SLOW,)}, (16, 4096))
    assert [(each.name, each.max_num_seqs) for each in limited["a"]] == [("a1-4-b16", 16)]
