"""The traces of MaaSO's Table I and our own: what is drawn from them has their lengths, SLOs, parts and arrivals."""

from dataclasses import replace
from itertools import pairwise
from statistics import fmean, stdev

import pytest

from hmas.contracts.step_cost import StepCostModel
from hmas_lab.placement.traces import PROMPT_MEDIAN, TRACES, PoolTraffic, alone_step_s, traffic_workload

TRAFFIC = PoolTraffic(pool="a", trace="t4", rate_rps=20.0, alone_s=0.01)


def test_every_trace_is_whole() -> None:
    assert list(TRACES) == [*(f"t{i}" for i in range(1, 11)), "t9 brief", "t9 long"]
    assert TRACES["t9"] == tuple(
        replace(part, share=0.5) for name in ("brief", "long") for part in TRACES[f"t9 {name}"]
    )
    for parts in TRACES.values():
        assert sum(part.share for part in parts) == pytest.approx(1.0)


@pytest.mark.parametrize("name", TRACES)
def test_requests_have_the_lengths_and_slos_of_their_part(name: str) -> None:
    traffic = replace(TRAFFIC, trace=name, kappa=1.5)
    requests = traffic_workload((traffic,), 200.0, 1).requests
    counts = [0] * len(TRACES[name])
    for each in requests:
        factor = each.slo.tpot_s / (1.5 * 0.01)
        assert each.slo == each.request.slo
        assert each.slo.ttft_s == 2.0
        assert not each.slo.whole
        within = [
            i
            for i, part in enumerate(TRACES[name])
            if part.tokens[0] <= each.output_tokens <= part.tokens[1] and part.factors[0] <= factor <= part.factors[1]
        ]
        assert within, (each.output_tokens, factor)
        counts[within[0]] += 1
    if len(TRACES[name]) == 2 and name != "t3":  # whose parts overlap in nothing
        for part, count in zip(TRACES[name], counts, strict=True):
            assert count / len(requests) == pytest.approx(part.share, abs=0.03)


def test_the_longest_and_the_shortest_answer_are_drawn() -> None:
    tokens = {r.output_tokens for r in traffic_workload((replace(TRAFFIC, trace="t9"),), 400.0, 1).requests}
    assert {50, 200, 600, 1000} <= tokens


@pytest.mark.parametrize("cv", [1.0, 4.0])
def test_arrivals_have_the_rate_and_the_variation(cv: float) -> None:
    times = [
        r.request.arrival_s for seed in range(4)
        for r in traffic_workload((replace(TRAFFIC, cv=cv),), 500.0, seed).requests
    ]  # fmt: skip
    gaps = [b - a for a, b in pairwise(times) if b >= a]
    assert len(times) / 2000.0 == pytest.approx(20.0, rel=0.1)
    assert stdev(gaps) / fmean(gaps) == pytest.approx(cv, rel=0.1)
    prompts = sorted(r.request.prompt_tokens for r in traffic_workload((TRAFFIC,), 500.0, 1).requests)
    assert prompts[len(prompts) // 2] == pytest.approx(PROMPT_MEDIAN, rel=0.05)


def test_a_deadline_for_the_last_token_covers_the_whole_answer() -> None:
    whole = traffic_workload((replace(TRAFFIC, whole=True, kappa=2.0),), 50.0, 3).requests
    each = traffic_workload((replace(TRAFFIC, kappa=2.0),), 50.0, 3).requests
    for one, other in zip(whole, each, strict=True):
        assert one.slo.whole
        assert one.slo.ttlt_s == pytest.approx(other.slo.tpot_s * other.output_tokens)
        assert one.output_tokens == other.output_tokens


def test_pools_are_merged_in_order_and_independent_of_each_other() -> None:
    other = replace(TRAFFIC, pool="b", trace="t9", rate_rps=5.0)
    both = traffic_workload((TRAFFIC, other), 60.0, 1)
    alone = traffic_workload((TRAFFIC,), 60.0, 1)
    times = [r.request.arrival_s for r in both.requests]
    assert times == sorted(times)
    assert both.duration_s == 60.0
    assert both.name == "t4+t9"
    assert tuple(r for r in both.requests if r.request.model == "a") == alone.requests
    assert {r.request.model for r in both.requests} == {"a", "b"}
    assert traffic_workload((TRAFFIC,), 60.0, 2).requests != alone.requests


def test_a_token_alone_takes_a_step_with_one_sequence() -> None:
    assert alone_step_s(StepCostModel(0.01, 1.0, 0.002, 1e-6, 1.0)) == pytest.approx(0.01 + 0.002 + 800e-6)
