"""Layouts in virtual time: a pool is split where TPOT is short and stays mixed where it is not, and a class that loses
its engines loses no request."""

from collections import Counter
from random import Random
from statistics import fmean

import pytest

from hmas.contracts.control import Split, TopologyName
from hmas.contracts.gateway import StartRun
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo
from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core.profile import EngineLimits, EngineProfile, builtin_profile
from hmas.meta.agent.config import LayoutConfig, MetaConfig
from hmas.sim.effect_log import EffectLog
from hmas.sim.faults import Fault, FaultKind
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.result import SimResult
from hmas.sim.setup import POOL, MeshSetup, PoolSetup
from hmas.sim.workload import OfferedRequest, Workload
from tests.sim.sim_cases import offered

LIMITS = EngineLimits(max_num_seqs=64, max_num_batched_tokens=1024, num_gpu_blocks=8192, max_model_len=8192)
SHORT_PACE = EngineProfile("short-pace", StepCostModel(0.04, 2e-4, 0.0, 3e-6), LIMITS)
SHORT_COMPUTE = EngineProfile("short-compute", StepCostModel(0.008, 2e-4, 1e-4, 0.0), LIMITS)
MIXED_ALWAYS = MetaConfig(layout=LayoutConfig(adaptive=False))


def two_paces(rate: float, duration_s: float, seed: int = 1) -> Workload:
    """Half of the requests are short and strict, half long and lax."""
    draw, at_s, rows = Random(seed), 0.0, list[OfferedRequest]()
    while (at_s := at_s + draw.expovariate(rate)) < duration_s:
        strict = draw.random() < 0.5
        slo = Slo(4.0, 0.06) if strict else Slo(10.0, 0.2)
        output = draw.randint(40, 100) if strict else draw.randint(200, 400)
        rows.append(offered(len(rows), at_s, draw.randint(50, 300), output, slo))
    return Workload("two paces", tuple(rows), duration_s)


def run(profile: EngineProfile, workload: Workload, **setup: object) -> SimResult:
    made = MeshSetup(estimator="perfect", costs="engine", **setup)  # type: ignore[arg-type]
    return MeshSim(made, profile, 2, workload, seed=1).run()


@pytest.mark.long
def test_a_pool_is_split_where_tpot_is_short_and_gains() -> None:
    workload = two_paces(3.0, 240.0)
    mixed = run(SHORT_PACE, workload, meta_config=MIXED_ALWAYS)
    chosen = run(SHORT_PACE, workload)
    assert mixed.run.layouts == ()
    assert chosen.run.layouts
    assert chosen.score.goodput_rate > mixed.score.goodput_rate + 0.05


def test_a_pool_stays_mixed_where_compute_is_short() -> None:
    workload = two_paces(6.0, 120.0)
    assert run(SHORT_COMPUTE, workload).run.layouts == ()


@pytest.mark.parametrize("lost", ["e0", "e1"])
def test_a_class_that_loses_its_engine_is_merged_and_loses_nothing(lost: str) -> None:
    workload = two_paces(1.5, 60.0)
    fault = Fault(at_s=20.0, kind=FaultKind.FREEZE, target=lost, until_s=50.0)
    result = run(SHORT_PACE, workload, pin=TopologyName.EDF, split=Split((0.1,), (1, 1)), faults=(fault,))
    began = [span.start_s for span in result.run.layouts if span.start_s > 20.0]
    assert began
    assert began[0] < 20.0 + 3.0 + 1.0  # the engine is given up after 3 s
    assert all(s.outcome is not None for s in result.settlements)
    lost_ids = {s.request_id for s in result.settlements if s.outcome is not Outcome.FINISHED}
    late = {r.id for r in workload.requests if r.request.arrival_s > began[0]}
    assert not lost_ids & late
    assert result.run.lost == 0


class Started(EffectLog):
    """Keeps when and where runs of strict requests were started."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.strict = {each.id for each in workload.requests if each.slo.tpot_s < 0.1}
        self.runs: list[tuple[float, str]] = []

    def add(self, now_s: float, agent: str, effect: object) -> None:
        if isinstance(effect, StartRun) and effect.request_id in self.strict:
            self.runs.append((now_s, effect.engine))


def test_a_class_whose_engine_cannot_be_reached_runs_on_the_other_within_two_seconds_and_returns() -> None:
    """What is sent to its engine fails at once, while the worker still sees it."""
    lost_s, back_s = 20.0, 50.0
    workload = two_paces(1.5, 80.0)
    log = Started(workload)
    fault = Fault(at_s=lost_s, kind=FaultKind.PART, target="*-e0", until_s=back_s)
    setup = MeshSetup(
        estimator="perfect", costs="engine", pin=TopologyName.EDF, split=Split((0.1,), (1, 1)), faults=(fault,)
    )  # fmt: skip
    result = MeshSim(setup, SHORT_PACE, 2, workload, seed=1, log=log).run()
    assert result.run.lost == 0
    ends = Counter(settlement.outcome for settlement in result.settlements)
    assert set(ends) <= {Outcome.FINISHED, Outcome.ENGINE_ERROR}
    assert ends[Outcome.ENGINE_ERROR] <= SHORT_PACE.limits.max_num_seqs  # answers that had begun
    assert {engine for at_s, engine in log.runs if at_s < lost_s} == {"e0"}
    first_s = min(at_s for at_s, engine in log.runs if at_s >= lost_s and engine == "e1") - lost_s
    print(f"on the other engine after {first_s:.2f} s; {ends[Outcome.ENGINE_ERROR]} answers broke off")
    assert first_s < 2.0
    assert {engine for at_s, engine in log.runs if at_s > back_s + 15.0} == {"e0"}


@pytest.mark.long
def test_a_worker_an_engine_goes_by_class_too() -> None:
    workload = two_paces(3.0, 120.0)
    mixed = run(SHORT_PACE, workload, workers=2, meta_config=MIXED_ALWAYS)
    chosen = run(SHORT_PACE, workload, workers=2)
    split = run(SHORT_PACE, workload, workers=2, pin=TopologyName.MAX_ON_TIME, split=Split((0.1,), (1, 1)))
    assert split.score.goodput_rate > mixed.score.goodput_rate + 0.05
    assert chosen.score.goodput_rate > mixed.score.goodput_rate + 0.03


@pytest.mark.parametrize("workers", [1, 2])
def test_a_pool_may_have_engines_of_two_cards(workers: int) -> None:
    """One H100 and one A100, with a layout that gives the strict class the first engine, once each of them."""
    fast, slow = builtin_profile("llama2-70b-h100x4"), builtin_profile("llama2-70b-a100x4")
    workload = two_paces(2.0, 30.0)
    tpots_s = []
    for first, other in ((fast, slow), (slow, fast)):
        pools = (PoolSetup(POOL, first, 1, workers=workers, others=((other, 1),)),)
        result = run(first, workload, pin=TopologyName.EDF, split=Split((0.1,), (1, 1)), pools=pools)
        assert all(s.outcome is Outcome.FINISHED for s in result.settlements)
        tpots_s.append(fmean(s.tpot_s or 0.0 for s in result.settlements if s.slo.tpot_s < 0.1))
    assert tpots_s[0] < 0.8 * tpots_s[1]
