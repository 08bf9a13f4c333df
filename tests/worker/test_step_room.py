"""The time of an engine's step is given away to what runs there, and to no more than it has time for."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from hmas.contracts.control import (
    StepTime,
    TopologyName,
    TopologyReceived,
    TupleReceived,
)
from hmas.contracts.worker import CycleTicked
from hmas.worker.agent.agent import WorkerConfig
from hmas.worker.agent.config import EngineStateConfig
from hmas.worker.agent.engines.books import EngineBooks
from hmas.worker.agent.engines.counts import EngineCounts
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.engines.step_room import StepRoom
from hmas.worker.agent.entry.entry import QueueEntry
from tests.builders.control import control_tuple, engine_control, topology_received
from tests.worker.builders import Scripted, dispatched, engine, entry, request, sampled

COST = StepTime(base_s=0.04, sequence_s=0.001, context_s=1e-5)
SLO_S = 0.0995  # the TPOT SLO of all requests: 59.5 ms of a step are for sequences


def state(*, step: StepTime | None = COST) -> EngineState:
    found = EngineState(engine(max_num_seqs=64), EngineStateConfig())
    found.come_up(0.0)
    found.limit(64, 64)
    found.step_room.step = step
    found.aim([SLO_S] * 10)
    return found


def filled(found: EngineState, prompt_tokens: int, tokens: float) -> int:
    """Grants on the engine while it has room, and returns how many run there then."""
    while found.open and found.step_room.has_time_for(next_one := made(found, prompt_tokens, tokens)):
        found.occupy(0.0, next_one, 0.0)
    return len(found.running)


def made(found: EngineState, prompt_tokens: int, tokens: float) -> QueueEntry:
    number = len(found.running)
    return entry(number, request(f"r{number}", prompt_tokens=prompt_tokens), tokens=tokens)


@pytest.mark.parametrize(("prompt_tokens", "tokens", "most"), [(100, 200.0, 20), (400, 200.0, 10), (2500, 1000.0, 2)])
def test_an_engine_takes_as_many_as_its_step_has_time_for_by_the_middle_of_their_answers(
    prompt_tokens: int, tokens: float, most: int
) -> None:
    """Each of 100 + 100 tokens of context takes 1 + 2 ms, each of 400 + 100 takes 1 + 5 ms."""
    assert filled(state(), prompt_tokens, tokens) == most


def test_a_small_request_does_not_wait_for_long_ones_to_end() -> None:
    """Ten that take 6 ms each leave no time: one that takes 3 ms begins, until half as much again is taken."""
    found = state()
    filled(found, 400, 200.0)
    assert found.open
    assert not found.step_room.has_time_for(made(found, 400, 200.0))
    relegated = made(found, 100, 200.0)
    relegated.relegated = True
    assert not found.step_room.has_time_for(relegated)
    relegated.has_turn = True  # all others wait behind it
    assert found.step_room.has_time_for(relegated)
    assert filled(found, 100, 200.0) == 10 + 10
    assert not found.open


def test_where_small_requests_come_a_part_of_the_time_is_theirs() -> None:
    """A step has 59.5 ms for sequences; of those that take 6 ms each, only what begins below 44.6 ms may come now."""
    found = state()
    filled(found, 400, 200.0)
    for number in range(20):  # they come and go
        found.occupy(1.0, small := entry(100 + number, request(f"s{number}", prompt_tokens=100), tokens=200.0), 0.0)
        found.release(2.0, small)
    assert found.step_room._small_share > 0.2
    for each in list(found.running.values()):
        found.release(3.0, each)
    assert filled(found, 400, 200.0) == 8
    assert found.step_room.has_time_for(made(found, 100, 200.0))


def test_without_a_known_cost_the_other_limits_hold_alone() -> None:
    assert filled(state(step=None), 2500, 1000.0) == 64


def test_an_idle_engine_takes_one_request_whatever_its_step_costs() -> None:
    found = state(step=StepTime(0.2, 0.001, 1e-5))
    found.step_room.worthy_slo_s = SLO_S
    assert filled(found, 4000, 1000.0) == 1


@pytest.mark.parametrize(("measured_s", "most"), [(0.05, 20), (0.09, 10)])
def test_what_steps_are_expected_to_take_is_doubted_while_they_are_short(measured_s: float, most: int) -> None:
    found = state()
    found.see(1.0, sampled(running=0, step_s=measured_s), 0.1)
    assert filled(found, 400, 200.0) == most


def test_where_the_base_leaves_no_room_topologies_are_told_of_no_limit() -> None:
    found = state(step=StepTime(0.2, 0.001, 1e-5))
    for worthy_s in (0.1, 0.2):
        found.step_room.worthy_slo_s = worthy_s
        found._changed()
        assert found.occupancy(0.0).step is None
    found.step_room.worthy_slo_s = 0.3
    found._changed()
    assert found.occupancy(0.0).step is not None


def test_what_leaves_gives_its_time_back_and_an_answer_that_outgrows_its_prediction_takes_more() -> None:
    found = state()
    filled(found, 100, 200.0)
    first, second = list(found.running.values())[:2]
    found.produced(first, 100)
    assert found.step_room.used_s == pytest.approx(0.06)
    found.produced(first, 500)  # of 200: now 600 tokens of context
    assert found.step_room.used_s == pytest.approx(0.064)
    assert not found.step_room.has_time_for(made(found, 400, 200.0))
    found.release(1.0, first)
    assert found.step_room.used_s == pytest.approx(0.057)
    found.release(1.0, second)
    assert found.step_room.has_time_for(made(found, 400, 200.0))
    for each in list(found.running.values()):
        found.release(1.0, each)
    assert (found.step_room.used_s, found.books.contexts) == (0.0, 0.0)


def test_what_is_not_in_the_books_counts_as_what_is() -> None:
    found = state()
    found.occupy(0.0, entry(0, request("r0", prompt_tokens=100), tokens=200.0), 0.0)
    for at_s in (1.0, 2.0):  # two samples in a row
        found.see(at_s, sampled(running=20, counted=True, step_s=0.09), 0.1)
    assert not found.step_room.has_time_for(made(found, 100, 200.0))


def ordered(topology: TopologyName, seq: int = 1) -> TopologyReceived:
    return topology_received(topology, seq=seq, valid_for_s=60.0, reason="")


def tuple_of(step: StepTime | None, seq: int = 1) -> TupleReceived:
    control = engine_control(n_run=64, b_max=64, gain_b=0.0, u_low=0.85, u_high=0.95, step=step)
    told = control_tuple(engines=(control,), seq=seq, valid_for_s=2.0)
    return TupleReceived(told, 0.0)


def test_the_worker_holds_back_what_a_step_has_no_time_for_until_something_leaves_or_nothing_is_known() -> None:
    config = WorkerConfig(worker="w1", incarnation="i1", address="host:1", pool="m")
    worker = Scripted(config, engine(max_num_seqs=64))
    worker.step(0.0, tuple_of(COST))
    worker.step(0.0, ordered(TopologyName.MAX_ON_TIME))
    first = dispatched(worker.submit(0.0, request("first", prompt_tokens=400)))
    worker.step(0.5, sampled(running=1, step_s=0.09))
    worker.step(1.0, CycleTicked())  # it takes aim at what was offered
    made = [request(f"r{i}", prompt_tokens=400) for i in range(30)]
    held = first + [each for one in made for each in dispatched(worker.submit(1.1, one))]
    assert worker.state.fleet["e1"].step_room.used_s >= worker.state.fleet["e1"].step_room.room_s
    assert 1 < len(held) < 31
    more = dispatched(worker.finish(1.2, "first", 10))
    assert len(more) == 1
    after = [each for effects in (worker.step(1.3, tuple_of(None, seq=2)), worker.step(1.4, CycleTicked()))
             for each in dispatched(effects)]  # fmt: skip
    assert len(held) + len(more) + len(after) == 31


@pytest.mark.parametrize("topology", TopologyName)
def test_only_orders_that_set_aside_what_is_late_are_held_to_the_time_of_a_step(topology: TopologyName) -> None:
    worker = Scripted(WorkerConfig(worker="w1", incarnation="i1", address="host:1", pool="m"), engine())
    worker.step(0.0, tuple_of(COST))
    worker.step(0.0, ordered(topology))
    held = topology in (TopologyName.MAX_ON_TIME, TopologyName.HYBRID)
    assert (worker.state.fleet["e1"].step_room.step is not None) == held
    worker.step(1.0, ordered(TopologyName.FCFS, seq=2))
    assert worker.state.fleet["e1"].step_room.step is None


def room(step: StepTime | None, **changes: Any) -> tuple[StepRoom, EngineBooks, EngineCounts]:
    config = replace(EngineStateConfig(), **changes)
    books = EngineBooks(config, 16)
    counts = EngineCounts(config, books)
    found = StepRoom(config, books, counts)
    found.step = step
    return found, books, counts


def test_a_step_has_room_for_what_its_slo_leaves() -> None:
    step = StepTime(base_s=0.25, sequence_s=0.03125, context_s=2.0**-12)
    found, books, counts = room(step, short_step=0.5, short_room=2.0, small=0.5, small_room=1.5)
    assert found.room_s == inf
    found.aim([1.25, 1.25])
    assert found.room_s == 1.0
    assert found.used_s == 0.0
    assert found.open
    for seq in (1, 2):
        books.occupy(0.0, entry(seq, request(f"r{seq}", prompt_tokens=974), tokens=100.0), 0.0)
    counts.add_up()
    one_s = 0.03125 + 1024 / 4096
    assert found.used_s == 2 * one_s
    counts.in_flight = 3  # one is foreign
    assert found.used_s == 3 * one_s
    large, small = entry(8, request("l", prompt_tokens=1024)), entry(9, request("s", prompt_tokens=1))
    counts.in_flight = 4  # 1.125 of 1
    assert not found.has_time_for(large)
    assert found.has_time_for(small)
    large.has_turn = True
    assert found.has_time_for(large), "the head whose turn it is would hold up all"
    small.relegated = True
    assert not found.has_time_for(small)
    assert found.open
    counts.in_flight = 6  # 1.6875 of 1: more than `small_room` times it
    small.relegated = False
    assert not found.has_time_for(small)
    assert not found.has_time_for(large)
    assert not found.open
    counts.take(0.0, sampled(step_s=0.5))
    assert found.has_time_for(small), "steps are shorter than what they were expected to take"
    counts.take(0.0, sampled(step_s=0.625))
    assert not found.open, "half of the SLO is not short"
    found._small_share = 1.0
    counts.in_flight = 3  # 0.84 of 1, of which a quarter is for small ones
    large.has_turn = False
    assert not found.has_time_for(large)
    counts.in_flight = 0
    assert found.has_time_for(large), "an idle engine takes one"


def test_how_many_are_small_is_learnt_beside_others() -> None:
    step = StepTime(base_s=0.25, sequence_s=0.03125, context_s=2.0**-12)
    found, books, counts = room(step, small=0.5, small_smoothing=0.25)
    small = entry(9, request("s", prompt_tokens=1))
    found.granted(small)
    assert found._small_share == 0.0, "on an idle engine nothing is to be compared"
    books.occupy(0.0, entry(1, request("r1", prompt_tokens=974), tokens=100.0), 0.0)
    counts.add_up()
    found.granted(small)
    found.granted(small)
    assert found._small_share == 0.25 + 0.25 * 0.75
    found.granted(entry(8, request("l", prompt_tokens=1024)))
    assert found._small_share == 0.75 * 0.4375
    found.step = None
    found.granted(small)
    assert found._small_share == 0.75 * 0.4375
    assert found.used_s == 0.0
    assert found.room_s == inf
