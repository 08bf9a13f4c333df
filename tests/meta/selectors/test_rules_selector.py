from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.views import ShareView
from hmas.meta.agent.config import RulesConfig
from hmas.meta.agent.selectors.rules import RulesSelector
from hmas.meta.agent.selectors.selector import Choice
from tests.builders.views import share_view, v_long

SHARES = (
    share_view(offered=100, settled=100, ok=90, ttft_ok=95, tpot_ok=95),
    ShareView(name="b", offered=100, settled=100, ok=90, ttft_ok=95, tpot_ok=95, tokens_served=50_000, weight=1.0),
)
CALM = v_long(tenants=SHARES)
LATE: dict[str, Any] = {"violation_rate": 0.2, "ttft_violation_rate": 0.2}
MOT, SJF, EDF, FCFS, WFQ, LANES = (
    TopologyName.MAX_ON_TIME,
    TopologyName.SJF,
    TopologyName.EDF,
    TopologyName.FCFS,
    TopologyName.WFQ,
    TopologyName.TWO_LANE,
)


def select(current: TopologyName = SJF, usual: TopologyName = SJF, **changes: Any) -> Choice:
    hints = Hints(fast_weight=0.6)
    rules = RulesSelector(RulesConfig(usual=usual))
    return rules.select(0.0, replace(CALM, **changes), Choice(current, hints, "before"))


@pytest.mark.parametrize("current", [SJF, EDF, LANES])
def test_calm_keeps_what_is_in_force_with_its_hints(current: TopologyName) -> None:
    choice = select(current)
    assert (choice.topology, choice.hints) == (current, Hints(fast_weight=0.6))
    assert choice.reason.startswith("kept: ")


@pytest.mark.parametrize("current", [FCFS, WFQ])
def test_calm_leaves_the_baseline_and_fairness_behind(current: TopologyName) -> None:
    assert select(current).topology is SJF
    assert select(current, MOT).topology is MOT


def test_max_on_time_answers_every_pattern_of_late_first_tokens() -> None:
    assert RulesConfig().usual is MOT
    for pattern in ({"mismatch_mean": 0.4}, {"mismatch_p95": 0.1}, {"mismatch_p95": 0.3, "predicted_total_cv": 1.5}):
        assert select(FCFS, MOT, **LATE, **pattern).topology is MOT
    assert select(MOT, MOT, violation_rate=0.3, tpot_violation_rate=0.3).topology is MOT


@pytest.mark.parametrize(
    ("pattern", "topology"),
    [
        ({"mismatch_mean": 0.4, "mismatch_p95": 0.6}, SJF),  # sustained overload
        ({"mismatch_mean": 0.4, "predicted_total_cv": 3.0}, SJF),  # isolation cannot help an overload
        ({"queued": 100}, SJF),  # ten seconds of arrivals wait
        ({"mismatch_mean": 0.05, "mismatch_p95": 0.8}, SJF),  # bursts
        ({"mismatch_p95": 0.3, "predicted_total_cv": 1.5}, LANES),  # long work blocks short
        ({"mismatch_p95": 0.1}, EDF),  # deadlines missed although there is room
        ({"mismatch_p95": 0.3}, SJF),  # near capacity
        ({"mismatch_p95": 0.1, "queued": 20}, SJF),  # a queue of two seconds stands
    ],
)
def test_failure_patterns(pattern: dict[str, Any], topology: TopologyName) -> None:
    for current in (SJF, EDF, FCFS, LANES):
        assert select(current, **LATE, **pattern).topology is topology


def test_late_tokens_are_not_repaired_by_order() -> None:
    choice = select(EDF, violation_rate=0.3, tpot_violation_rate=0.3)
    assert (choice.topology, "Statera" in choice.reason) == (EDF, True)


def test_too_few_requests_decide_nothing() -> None:
    few = (ShareView(name="a", offered=10, settled=10, ok=0, ttft_ok=0, tpot_ok=0, tokens_served=100, weight=1.0),)
    assert select(FCFS, **LATE, mismatch_mean=1.0, tenants=few).topology is FCFS


HOG = share_view("hog", offered=800, ttft_ok=480, tpot_ok=480, tokens_served=900_000)
STARVED = ShareView(
    name="starved", offered=200, settled=100, ok=20, ttft_ok=30, tpot_ok=90, tokens_served=60_000, weight=1.0
)


def test_a_starved_tenant_brings_weighted_sharing_and_hysteresis_keeps_it() -> None:
    unfair: dict[str, Any] = {"tenants": (HOG, STARVED), "jain_index": 0.57}
    choice = select(SJF, **LATE, mismatch_mean=0.3, **unfair)
    assert (choice.topology, "starved" in choice.reason) == (WFQ, True)
    better = replace(STARVED, tokens_served=250_000)
    assert select(WFQ, **LATE, tenants=(HOG, better), jain_index=0.85).topology is WFQ
    assert select(SJF, **LATE, mismatch_mean=0.3, tenants=(HOG, better), jain_index=0.85).topology is SJF


@pytest.mark.parametrize(
    "small",
    [
        replace(STARVED, ok=95),  # asked for little and got it in time
        replace(STARVED, settled=10, ok=1),  # hardly there
        replace(STARVED, weight=0.1),  # as much as its weight grants
        replace(STARVED, name="other"),  # many, not one
    ],
)
def test_little_service_alone_is_no_unfairness(small: ShareView) -> None:
    view: dict[str, Any] = {"tenants": (HOG, small), "jain_index": 0.57}
    assert select(SJF, **LATE, mismatch_mean=0.3, **view).topology is SJF
