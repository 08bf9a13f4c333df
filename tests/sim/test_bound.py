"""The bound is above everything and close to the best."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import permutations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmas.contracts.request import Slo
from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core import EngineCore
from hmas.engine.core.profile import EngineLimits, EngineProfile
from hmas.sim.estimators import linear_costs
from hmas.sim.perceived import perceived
from hmas.sim.processes.fleet import Baseline, EngineFleet, FleetSetting
from hmas.sim.workload import OfferedRequest, Workload
from hmas_lab.sim import bound as module
from hmas_lab.sim.baselines.systems import BASELINES
from hmas_lab.sim.bound import upper_bound
from hmas_lab.sim.systems import run_system
from tests.conftest import examples
from tests.sim.sim_cases import SMALL, offered, random_workload

LIMITS = EngineLimits(max_num_seqs=1, max_num_batched_tokens=512, num_gpu_blocks=256, max_model_len=2048)
SERIAL = EngineProfile("serial", StepCostModel(0.01, 1e-3, 1e-3, 1e-7), LIMITS)
REPEATED = ("hmas-perfect", "fixed-edf", "fixed-sjf", "fixed-fcfs")


@settings(max_examples=examples(25))
@given(st.integers(0, 10_000), st.sampled_from([3.0, 8.0, 20.0]), st.sampled_from(list(BASELINES)))
def test_no_baseline_passes_it(seed: int, rate: float, name: str) -> None:
    draw = Random(seed)
    base = random_workload(seed, rate, 6.0)
    slo = Slo(draw.choice([0.2, 0.5, 2.0]), draw.choice([0.02, 0.04]))
    workload = Workload("w", tuple(offered(i, r.request.arrival_s, r.request.prompt_tokens, r.output_tokens, slo)
                                   for i, r in enumerate(base.requests)), 6.0)  # fmt: skip
    baseline = BASELINES[name]
    result = EngineFleet(
        baseline, [baseline.core(SMALL, FleetSetting(i)) for i in range(2)], workload, costs=linear_costs()
    ).run()
    ok = round(result.score.goodput_rate * len(workload.requests))
    assert ok <= upper_bound(workload, SMALL, 2).requests


@pytest.mark.parametrize("system", ["hmas", *(pytest.param(name, marks=pytest.mark.long) for name in REPEATED)])
def test_no_mesh_passes_it(system: str) -> None:
    workload = random_workload(11, 250.0, 6.0)
    asked = replace(workload, requests=tuple(replace(r, prompt="Why is the sky blue?") for r in workload.requests))
    result = run_system(system, perceived(asked), SMALL, 2, 1)
    limit = upper_bound(workload, SMALL, 2)
    assert result.score.goodput_rate <= limit.goodput_rate
    assert limit.goodput_rate < 1.0


def _ranked(rank: dict[str, float], request: OfferedRequest) -> float:
    return rank[request.id]


def _brute_force(requests: list[OfferedRequest], profile: EngineProfile) -> int:
    """The best of all orders of all subsets on the real core (an order with the hopeless at its end is a subset)."""
    best = 0
    for order in permutations(range(len(requests))):
        rank = {requests[r].id: float(i) for i, r in enumerate(order)}
        baseline = Baseline(name="given", source="", core=lambda p, s: EngineCore(p), priority=partial(_ranked, rank))
        core = EngineCore(profile.with_limits(scheduling_policy="priority"))
        ordered = tuple(requests[r] for r in order)  # an idle engine starts with what comes first
        result = EngineFleet(baseline, [core], Workload("w", ordered, 5.0), network_s=0.0).run()
        best = max(best, round(result.score.goodput_rate * len(requests)))
        if best == len(requests):
            break
    return best


def _prompts(draw: Random, i: int) -> OfferedRequest:
    """Nothing but prompts to compute: Moore and Hodgson's problem."""
    return offered(i, 0.0, draw.randint(50, 900), 1, Slo(draw.uniform(0.3, 1.8), 0.05))


def _whole(draw: Random, i: int) -> OfferedRequest:
    """Prompt and decoding, judged on the last token."""
    slo = Slo(0.1, 0.1, draw.uniform(0.4, 2.5), whole=True)
    return offered(i, 0.0, draw.randint(50, 600), draw.randint(1, 40), slo)


def _streamed(draw: Random, i: int) -> OfferedRequest:
    """Both SLOs, on an engine that interleaves small chunks with decoding."""
    return offered(i, 0.0, draw.randint(64, 600), draw.randint(2, 20), Slo(draw.uniform(0.4, 2.0), 0.1))


@pytest.mark.parametrize(
    ("make", "profile"),
    [
        (_prompts, SERIAL),
        (_whole, SERIAL),
        (_streamed, SERIAL.with_limits(max_num_seqs=6, max_num_batched_tokens=64)),
    ],
)
@pytest.mark.long
def test_within_three_percent_of_brute_force_on_small_cases(
    make: Callable[[Random, int], OfferedRequest], profile: EngineProfile
) -> None:
    bounds = best = 0
    for seed in range(8):
        draw = Random(seed)
        rows = [make(draw, i) for i in range(6)]
        found = _brute_force(rows, profile)
        limit = upper_bound(Workload("w", tuple(rows), 5.0), profile, 1).requests
        assert limit >= found
        bounds, best = bounds + limit, best + found
    assert 8 < best < 48
    assert bounds <= 1.03 * best


def test_prices_come_close_to_the_largest_feasible_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both forms can be computed they agree to one request: a fractional one."""
    for seed in range(8):
        draw = Random(seed)
        rows = [
            offered(i, draw.uniform(0, 4), draw.randint(50, 900), draw.randint(1, 40), Slo(0.9, 0.05))
            for i in range(12)
        ]
        workload = Workload("w", tuple(rows), 5.0)
        exact = upper_bound(workload, SERIAL, 1).requests
        with monkeypatch.context() as patch:
            patch.setattr(module, "ENUMERATED", 0)
            assert exact <= upper_bound(workload, SERIAL, 1).requests <= exact + 1


def test_what_cannot_be_served_in_time_even_alone_is_left_out() -> None:
    rows = (offered(0, 0.0, 1000, 10, Slo(0.5, 0.05)), offered(1, 0.0, 100, 10, Slo(0.5, 0.05)))
    assert upper_bound(Workload("w", rows, 1.0), SERIAL, 4).requests == 1


def test_shared_prefixes_are_charged_once() -> None:
    rows = tuple(offered(i, 0.0, 800, 1, Slo(1.2, 0.05), hashes=48) for i in range(10))
    cold = EngineProfile("cold", SERIAL.cost, LIMITS)
    assert upper_bound(Workload("w", rows, 1.0), cold, 1).requests == 10
    uncached = cold.with_limits(enable_prefix_caching=False)
    assert upper_bound(Workload("w", rows, 1.0), uncached, 1).requests == 1


def test_range_minimum_is_the_minimum() -> None:
    draw = np.random.default_rng(0)
    values = draw.random(37)
    start = draw.integers(0, 36, 50)
    end = np.array([draw.integers(s + 1, 38) for s in start])
    found = module._range_minimum(values, start, end)
    assert found.tolist() == [values[s:e].min() for s, e in zip(start, end, strict=True)]
