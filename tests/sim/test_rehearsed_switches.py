"""The meta controller in the simulator rehearses by the function that the live one uses, on the ring as it would be."""

from dataclasses import replace
from itertools import cycle

import pytest

from experiments.proposers import FixedProposer
from hmas.contracts.control import TopologyName
from hmas.meta.agent.config import MetaConfig, RehearsalConfig, RulesConfig
from hmas.meta.agent.selectors.table import SELECTORS
from hmas.sim import scripted_llm
from hmas.sim.mesh import MeshSim
from hmas.sim.rehearsal import of_blocks
from hmas.sim.result import SimResult
from hmas.sim.systems import NOISY
from tests.sim.sim_cases import SMALL, random_workload

pytestmark = pytest.mark.timeout(600)

REHEARSED = RehearsalConfig(enabled=True, window_s=20.0)
ANSWER = '{"topology": "fcfs", "bypass": false, "reason": "", "hints": {}}'
COST = 0.005  # the most that a bad proposer may cost, as a share of requests


def ran(meta: MetaConfig, rate: float = 36.0, duration_s: float = 30.0) -> SimResult:
    setup = replace(NOISY, meta_config=replace(meta, decide_every_s=5.0, min_dwell_s=5.0))
    return MeshSim(setup, SMALL, 2, random_workload(3, rate, duration_s), 3, rehearsal=of_blocks).run()


@pytest.fixture(scope="module")
def usual() -> float:
    return ran(MetaConfig()).score.goodput_rate


def test_the_worst_proposal_costs_next_to_nothing_if_it_is_rehearsed(
    usual: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SELECTORS, "worst", lambda config: FixedProposer(TopologyName.FCFS))
    unrehearsed = ran(MetaConfig(selector="worst")).score.goodput_rate
    rehearsed = ran(MetaConfig(selector="worst", rehearsal=REHEARSED))
    assert unrehearsed < usual - 0.03
    assert rehearsed.score.goodput_rate >= usual - COST
    assert {span.topology for span in rehearsed.run.topologies if span.start_s > 8.0} <= {"max_on_time"}


def test_nonsense_of_a_language_model_costs_next_to_nothing(usual: float, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = cycle(['{"topology": "fcfs"}', '{"topology": "fcfs", "bypass": true, "reason": "x", "hints": {}}'])
    monkeypatch.setattr(scripted_llm, "answer", lambda ask: next(answers))
    nonsense = ran(MetaConfig(selector="llm", rehearsal=REHEARSED))
    assert nonsense.score.goodput_rate >= usual - COST


@pytest.mark.parametrize("answer_s", [12.0, 1e9], ids=["late", "never"])
def test_a_language_model_that_answers_late_or_never_costs_next_to_nothing(
    usual: float, monkeypatch: pytest.MonkeyPatch, answer_s: float
) -> None:
    """The others propose meanwhile, and what comes after the time-out changes nothing."""
    monkeypatch.setattr(scripted_llm, "ANSWER_S", answer_s)
    monkeypatch.setattr(scripted_llm, "answer", lambda ask: ANSWER)
    alone = ran(MetaConfig(selector="llm"))
    beside = ran(MetaConfig(selector="llm,rules", rehearsal=REHEARSED))
    for silent in (alone, beside):
        assert silent.score.goodput_rate >= usual - COST
        assert "fcfs" not in {span.topology for span in silent.run.topologies if span.start_s > 8.0}


def test_a_better_topology_is_found_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch is rehearsed, made, and said to be; what follows is the guards' matter."""
    monkeypatch.setitem(SELECTORS, "better", lambda config: FixedProposer(TopologyName.MAX_ON_TIME))
    slow = RulesConfig(usual=TopologyName.FCFS)
    turns = ran(MetaConfig(selector="better", rules=slow, rehearsal=REHEARSED), 34.0, 60.0)
    reasons = [span.reason for span in turns.run.topologies if span.topology == "max_on_time"]
    assert any("points predicted" in reason for reason in reasons)
