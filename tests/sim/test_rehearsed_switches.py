"""The meta controller in the simulator rehearses by the function that the live one uses, on the ring as it would be."""

from dataclasses import replace
from itertools import cycle

import pytest

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.views import VLong
from hmas.meta.agent.config import MetaConfig, RehearsalConfig, RulesConfig
from hmas.meta.agent.selectors.selector import Choice
from hmas.meta.agent.selectors.table import SELECTORS
from hmas.sim.past.rehearsal import of_blocks
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.result import SimResult
from hmas.sim.scripted_llm import SimulatedModel
from hmas_lab.sim.systems import NOISY
from tests.sim.sim_cases import SMALL, random_workload

pytestmark = pytest.mark.timeout(600)

REHEARSED = RehearsalConfig(enabled=True, window_s=20.0)
ANSWER = '{"topology": "fcfs", "bypass": false, "reason": "", "hints": {}}'
COST = 0.005  # the most that a bad proposer may cost, as a share of requests


class FixedProposer:
    """A selector that proposes one topology each time."""

    name = "fixed"

    def __init__(self, topology: TopologyName) -> None:
        self._topology = topology

    def select(self, now_s: float, view: VLong, current: Choice) -> Choice:
        return Choice(self._topology, Hints(), "always")


def ran(
    meta: MetaConfig,
    rate: float = 36.0,
    duration_s: float = 30.0,
    proposed: TopologyName = TopologyName.FCFS,
    model: SimulatedModel | None = None,
) -> SimResult:
    """A run in which the selector `fixed` proposes a topology, and `model` answers what `llm` asks."""
    setup = replace(
        NOISY,
        meta_config=replace(meta, decide_every_s=5.0, min_dwell_s=5.0),
        selectors={**SELECTORS, "fixed": lambda config: FixedProposer(proposed)},
        language_model=model or SimulatedModel(),
    )
    return MeshSim(setup, SMALL, 2, random_workload(3, rate, duration_s), 3, rehearsal=of_blocks).run()


@pytest.fixture(scope="module")
def usual() -> float:
    return ran(MetaConfig()).score.goodput_rate


@pytest.mark.long
def test_the_worst_proposal_costs_next_to_nothing_if_it_is_rehearsed(usual: float) -> None:
    unrehearsed = ran(MetaConfig(selector="fixed")).score.goodput_rate
    rehearsed = ran(MetaConfig(selector="fixed", rehearsal=REHEARSED))
    assert unrehearsed < usual - 0.03
    assert rehearsed.score.goodput_rate >= usual - COST
    assert {span.topology for span in rehearsed.run.topologies if span.start_s > 8.0} <= {"max_on_time"}


def test_nonsense_of_a_language_model_costs_next_to_nothing(usual: float) -> None:
    answers = cycle(['{"topology": "fcfs"}', '{"topology": "fcfs", "bypass": true, "reason": "x", "hints": {}}'])
    nonsense = ran(MetaConfig(selector="llm", rehearsal=REHEARSED), model=SimulatedModel(lambda ask: next(answers)))
    assert nonsense.score.goodput_rate >= usual - COST


@pytest.mark.parametrize("answer_s", [12.0, 1e9], ids=["late", "never"])
@pytest.mark.long
def test_a_language_model_that_answers_late_or_never_costs_next_to_nothing(usual: float, answer_s: float) -> None:
    """The rules propose instead, and what comes after the time-out changes nothing."""
    model = SimulatedModel(lambda ask: ANSWER, answer_s)
    alone = ran(MetaConfig(selector="llm"), model=model)
    rehearsed = ran(MetaConfig(selector="llm", rehearsal=REHEARSED), model=model)
    for silent in (alone, rehearsed):
        assert silent.score.goodput_rate >= usual - COST
        assert "fcfs" not in {span.topology for span in silent.run.topologies if span.start_s > 8.0}


@pytest.mark.long
def test_a_better_topology_is_found_by_itself() -> None:
    """The switch is rehearsed, made, and said to be; what follows is the guards' matter."""
    slow = RulesConfig(usual=TopologyName.FCFS)
    turns = ran(MetaConfig(selector="fixed", rules=slow, rehearsal=REHEARSED), 34.0, 60.0, TopologyName.MAX_ON_TIME)
    reasons = [span.reason for span in turns.run.topologies if span.topology == "max_on_time"]
    assert any("points predicted" in reason for reason in reasons)
