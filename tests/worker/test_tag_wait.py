"""A request waits a moment for its tags where that costs nothing, or where the load has made requests wait for long."""

from dataclasses import replace

from hmas.contracts.control import TopologyName, TopologyReceived
from hmas.contracts.execution import Withdraw
from hmas.contracts.request import Slo
from hmas.contracts.worker import CycleTicked
from hmas.worker.agent.agent import WorkerConfig
from hmas.worker.agent.config import (
    TagWaitConfig,
)
from hmas.worker.agent.estimates.tag_wait import TagWait
from tests.builders.control import topology_decision
from tests.worker.builders import Scripted, annotation, dispatched, engine, request

EDF = topology_decision(valid_for_s=900.0)
CONFIG = WorkerConfig(worker="w1", incarnation="i1", address="host:1", pool="m", static_n_run=1)
WAIT = CONFIG.tag_wait


def worker(prompt: bool = True) -> Scripted:
    """A worker whose one engine runs one request, `busy`; tags came in time lately, or not."""
    agent = Scripted(CONFIG, engine())
    for n in range(20):
        agent.state.tag_wait.came(0.01 if prompt else 1.0)
        agent.state.tag_wait.observe(n - 20.0, waiting=n % 5 == 0)  # for a fifth of the time
    agent.step(0.0, TopologyReceived(EDF))
    agent.submit(0.0, request("busy"))
    return agent


def pressed(agent: Scripted, until_s: int = 60) -> None:
    for now_s in range(until_s):
        agent.state.tag_wait.observe(float(now_s), waiting=True)


def test_one_that_has_its_tags_goes_before_one_that_waits_for_them() -> None:
    agent = worker()
    agent.submit(1.0, request("tagged", arrival_s=1.0, slo=Slo(9.0, 0.1)))
    agent.annotate(1.0, "tagged", annotation())
    agent.submit(1.01, request("urgent", arrival_s=1.01, slo=Slo(0.2, 0.1)))
    assert dispatched(agent.finish(1.02, "busy")) == [("tagged", "e1")]


def test_its_tags_let_it_compete_at_once() -> None:
    agent = worker()
    agent.submit(1.0, request("tagged", arrival_s=1.0, slo=Slo(9.0, 0.1)))
    agent.annotate(1.0, "tagged", annotation())
    agent.submit(1.01, request("urgent", arrival_s=1.01, slo=Slo(0.2, 0.1)))
    agent.annotate(1.02, "urgent", annotation(slo=Slo(0.2, 0.1)))
    assert dispatched(agent.finish(1.03, "busy")) == [("urgent", "e1")]


def test_with_nobody_else_it_is_dispatched_at_once() -> None:
    agent = worker()
    agent.finish(1.0, "busy")
    assert dispatched(agent.submit(1.0, request("r1", arrival_s=1.0))) == [("r1", "e1")]


def test_it_goes_as_soon_as_no_other_waits_any_more() -> None:
    agent = worker()
    agent.submit(1.0, request("tagged", arrival_s=1.0))
    agent.annotate(1.0, "tagged", annotation())
    agent.submit(1.0, request("late", arrival_s=1.0))
    agent.finish(1.01, "busy")
    assert dispatched(agent.finish(1.02, "tagged")) == [("late", "e1")]


def test_under_a_load_that_lasts_it_waits_alone_as_well_but_not_for_long() -> None:
    agent = worker()
    pressed(agent)
    agent.finish(60.0, "busy")
    assert not dispatched(agent.submit(60.0, request("r1", arrival_s=60.0)))
    assert not dispatched(agent.step(60.0 + WAIT.patience_s / 2, CycleTicked()))
    assert dispatched(agent.step(60.0 + WAIT.patience_s + 0.001, CycleTicked())) == [("r1", "e1")]


def test_where_tags_come_late_nobody_waits_for_them() -> None:
    agent = worker(prompt=False)
    pressed(agent)
    agent.finish(60.0, "busy")
    assert dispatched(agent.submit(60.0, request("r1", arrival_s=60.0))) == [("r1", "e1")]


def test_a_cognition_that_falls_silent_is_waited_for_a_few_times_only() -> None:
    agent, held = worker(), 0
    pressed(agent)
    agent.finish(60.0, "busy")
    for n in range(30):
        now_s = 60.0 + n
        held += not dispatched(agent.submit(now_s, request(f"r{n}", arrival_s=now_s)))
        agent.step(now_s + WAIT.patience_s + 0.001, CycleTicked())
        agent.finish(now_s + 0.5, f"r{n}")
    assert 0 < held < 10


def test_the_pressure_is_the_share_of_time_in_which_requests_wait() -> None:
    wait = TagWait(TagWaitConfig(pressed=0.4))
    for _ in range(20):
        wait.came(0.01)
    for now_s in range(10):
        wait.observe(float(now_s), waiting=now_s % 4 == 0)
    assert wait.patience_s(alone=True) == 0.0 < wait.patience_s(alone=False)
    for now_s in range(10, 20):
        wait.observe(float(now_s), waiting=True)
    assert wait.patience_s(alone=True) == WAIT.patience_s
    for now_s in range(20, 400):
        wait.observe(float(now_s), waiting=False)
    assert wait.patience_s(alone=True) == wait.patience_s(alone=False) == 0.0


def test_in_order_of_arrival_nobody_waits_for_tags() -> None:
    agent = worker()
    agent.step(1.0, TopologyReceived(replace(EDF, topology=TopologyName.FCFS, seq=2)))
    for number, name in enumerate(("tagged", "late", "prompt")):
        now_s = 1.0 + number / 100
        agent.submit(now_s, request(name, arrival_s=now_s))
        if name != "late":
            agent.annotate(now_s, name, annotation())
    assert dispatched(agent.finish(1.04, "busy")) == [("tagged", "e1")]
    assert dispatched(agent.finish(1.05, "tagged")) == [("late", "e1")]


def test_how_long_tags_are_waited_for_by_definition() -> None:
    config = TagWaitConfig(patience_s=0.125, smoothing=0.5, least_in_time=0.5, window_s=60.0, busy=0.25, pressed=0.5)
    wait = TagWait(config)
    wait.came(0.125)  # in time
    wait.observe(100.0, waiting=True)  # the first one tells of no time
    wait.observe(103.0, waiting=False)
    assert wait.patience_s(alone=False) == 0.0
    wait.observe(104.0, waiting=True)  # one second of four
    assert (wait.patience_s(alone=False), wait.patience_s(alone=True)) == (0.125, 0.0)
    wait.observe(104.0, waiting=False)  # no time has passed
    wait.observe(106.0, waiting=True)  # three of six
    assert (wait.patience_s(alone=False), wait.patience_s(alone=True)) == (0.125, 0.125)
    wait.overdue()
    assert wait.patience_s(alone=False) == 0.0
    wait.came(0.25)
    wait.came(0.1)
    assert wait.patience_s(alone=False) == 0.125
    wait.came(0.25)
    assert wait.patience_s(alone=False) == 0.0


def test_the_time_in_which_tagged_requests_wait_for_an_engine_counts() -> None:
    for waits in (False, True):
        agent = Scripted(CONFIG, engine())
        for _ in range(20):
            agent.state.tag_wait.came(0.01)
        agent.step(0.0, TopologyReceived(EDF))
        agent.submit(0.0, request("busy"))
        if waits:
            agent.submit(0.0, request("waits"))
            agent.annotate(0.0, "waits", annotation())
        for now_s in range(1, 61):
            agent.step(float(now_s), CycleTicked())
        assert (agent.state.tag_wait.patience_s(alone=False) > 0.0) is waits


def test_one_that_is_withdrawn_while_it_waits_for_its_tags_is_not_waited_for_any_more() -> None:
    agent = worker()
    agent.submit(1.0, request("tagged", arrival_s=1.0, slo=Slo(9.0, 0.1)))
    agent.annotate(1.0, "tagged", annotation())
    agent.submit(1.01, request("urgent", arrival_s=1.01, slo=Slo(0.2, 0.1)))
    assert "urgent" in agent.state.untagged
    agent.say(1.02, Withdraw("urgent", 1))
    assert dispatched(agent.finish(1.03, "busy")) == [("tagged", "e1")]
    for now_s in (1.1, 2.0, 10.0):
        assert dispatched(agent.step(now_s, CycleTicked())) == []
    assert dispatched(agent.finish(10.0, "tagged")) == []
    assert not agent.state.untagged
