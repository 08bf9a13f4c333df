"""Each threshold of the rules, at it and just beside it."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.views import ShareView
from hmas.meta.agent.config import RulesConfig
from hmas.meta.agent.selectors.rules import RulesSelector
from hmas.meta.agent.selectors.selector import Choice
from tests.meta.selectors.test_rules_selector import CALM, EDF, FCFS, LANES, LATE, MOT, SHARES, SJF, WFQ, select

NEAR = {"mismatch_p95": 0.3}  # neither overload nor slack


@pytest.mark.parametrize(
    ("changes", "topology"),
    [
        ({"mismatch_mean": 0.1, "predicted_total_cv": 3.0}, SJF),
        ({"mismatch_mean": 0.0999, "mismatch_p95": 0.3, "predicted_total_cv": 3.0}, LANES),
        ({"queued": 40, "predicted_total_cv": 3.0}, SJF),
        ({"queued": 39, "predicted_total_cv": 3.0}, LANES),
        ({"mismatch_p95": 0.5, "predicted_total_cv": 3.0}, SJF),
        ({"mismatch_p95": 0.4999, "predicted_total_cv": 3.0}, LANES),
        ({**NEAR, "predicted_total_cv": 1.0}, LANES),
        ({**NEAR, "predicted_total_cv": 0.9999}, SJF),
        ({"mismatch_p95": 0.2}, EDF),
        ({"mismatch_p95": 0.2001}, SJF),
        ({"mismatch_p95": 0.2, "queued": 10}, EDF),
        ({"mismatch_p95": 0.2, "queued": 11}, SJF),
        ({"arrival_rps": 0.0, "queued": 1}, SJF),
        ({"arrival_rps": 0.0, "queued": 0}, EDF),
    ],
)
def test_a_pattern_begins_at_its_threshold(changes: dict[str, Any], topology: TopologyName) -> None:
    assert select(FCFS, **LATE, **changes).topology is topology


@pytest.mark.parametrize(
    ("violation", "ttft", "topology"),
    [(0.02, 0.9, LANES), (0.0201, 0.05, EDF), (0.0201, 0.0499, LANES), (0.5, 0.0499, LANES)],
)
def test_nothing_is_repaired_where_few_are_late_or_not_their_first_tokens(
    violation: float, ttft: float, topology: TopologyName
) -> None:
    assert select(LANES, violation_rate=violation, ttft_violation_rate=ttft).topology is topology


@pytest.mark.parametrize("current", [FCFS, WFQ])
def test_without_a_pattern_the_baseline_and_fairness_give_way_to_the_usual_topology(current: TopologyName) -> None:
    for rate in (0.0, 0.03):
        choice = select(current, EDF, violation_rate=rate, ttft_violation_rate=0.0)
        assert (choice.topology, choice.hints, choice.bypass) == (EDF, Hints(), False)


def test_the_reason_names_what_is_late() -> None:
    assert select(violation_rate=0.2, tpot_violation_rate=0.03, ttft_violation_rate=0.03).reason.endswith("pattern")
    assert "Statera" in select(violation_rate=0.2, tpot_violation_rate=0.031, ttft_violation_rate=0.03).reason
    assert "backlog 4.5 s" in select(**LATE, queued=45).reason
    assert select(**LATE).reason.startswith("20% of first tokens late")


def shares(*rows: tuple[str, int, int, int, float]) -> tuple[ShareView, ...]:
    """Tenants by name, settled, ok, tokens served and weight."""
    return tuple(
        replace(SHARES[0], name=name, settled=settled, ok=ok, tokens_served=tokens, weight=weight)
        for name, settled, ok, tokens, weight in rows
    )


@pytest.mark.parametrize(("settled", "judged"), [((15, 15), True), ((15, 14), False), ((0, 0), False), ((60, 0), True)])
def test_a_view_is_judged_from_thirty_settled_requests_on(settled: tuple[int, int], judged: bool) -> None:
    tenants = shares(*((name, count, count, 9, 1.0) for name, count in zip("ab", settled, strict=True)))
    choice = select(LANES, **LATE, mismatch_p95=0.1, tenants=tenants)
    assert (choice.topology is EDF) is judged
    assert judged or f"{sum(settled)} requests settled" in choice.reason


BEST = ("a", 100, 100, 1000, 1.0)


@pytest.mark.parametrize(
    ("row", "starved"),
    [
        (("b", 20, 11, 428, 1.0), True), (("b", 19, 11, 428, 1.0), False), (("b", 20, 12, 428, 1.0), False),
        (("b", 20, 11, 430, 1.0), False), (("b", 20, 11, 856, 2.0), True), (("b", 20, 11, 214, 0.5), True),
        (("other", 20, 11, 428, 1.0), False), (("b", 20, 0, 0, 1.0), True),
    ],
)  # fmt: skip
def test_a_tenant_starves_below_six_tenths_of_the_mean_service_and_of_the_best_rate(
    row: tuple[str, int, int, int, float], starved: bool
) -> None:
    """Six tenths of the mean of 1000 and 428.6 are 428.6."""
    choice = select(jain_index=0.5, tenants=shares(BEST, row))
    assert (choice.topology is WFQ) is starved
    if starved:
        assert (choice.hints, choice.reason) == (Hints(), "tenant b is served below its share, Jain index 0.50")


@pytest.mark.parametrize(
    ("current", "jain", "starved"),
    [(SJF, 0.7999, True), (SJF, 0.8, False), (WFQ, 0.8999, True), (WFQ, 0.9, False), (FCFS, 0.8, False)],
)
def test_shares_are_unfair_below_a_limit_which_is_higher_once_they_were(
    current: TopologyName, jain: float, starved: bool
) -> None:
    choice = select(current, jain_index=jain, tenants=shares(BEST, ("b", 20, 0, 0, 1.0)))
    assert (choice.topology is WFQ) is starved


def test_the_first_of_several_that_starve_is_named_and_fairness_comes_before_calm() -> None:
    rows = shares(BEST, ("b", *BEST[1:]), ("c", 50, 0, 1, 1.0), ("d", 50, 0, 0, 1.0))
    assert "tenant c" in select(jain_index=0.5, violation_rate=0.0, tenants=rows).reason
    assert select(jain_index=0.5, tenants=shares(("c", 50, 0, 1, 1.0))).topology is not WFQ


def test_the_usual_topology_comes_with_its_hints() -> None:
    hints = Hints(slack_share=0.1)
    rules = RulesSelector(RulesConfig(usual=MOT, hints=hints))
    late = replace(CALM, **LATE)
    for view, current in ((late, SJF), (CALM, FCFS), (replace(CALM, violation_rate=0.3), FCFS)):
        choice = rules.select(0.0, view, Choice(current, Hints(), ""))
        assert (choice.topology, choice.hints) == (MOT, hints)
