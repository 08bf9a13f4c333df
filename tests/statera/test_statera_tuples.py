"""When Statera sends which tuple to which worker: exact effects at the boundary of each period."""

import json
from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.control import ControlTuple
from hmas.contracts.control_agents import (
    EpochGranted,
    EpochLost,
    PublishAudit,
    ShortViewReceived,
    TimerTicked,
    TupleRestored,
    WorkerReported,
)
from hmas.contracts.registry import HeartbeatReceived
from hmas.laws.epochs import FORGOTTEN_AFTER_S, MAX_SEQ
from hmas.statera.agent import StateraAgent
from hmas.statera.agent.config import NRunConfig, NRunRule, StateraConfig
from tests.builders.control import control_tuple, engine_control, topology_received
from tests.builders.registry import engine_info, worker_heartbeat
from tests.builders.telemetry import request_finished, worker_telemetry
from tests.statera.test_statera_agent import HEARTBEAT, SAMPLE, VIEW, audits, telemetry, tuples

CONFIG = StateraConfig()
BAND = StateraConfig(band=NRunConfig(rule=NRunRule.BAND))


def running(config: StateraConfig = CONFIG, at_s: float = 0.0) -> StateraAgent:
    """An agent that leads, and has sent its first tuple to the worker `w` of the pool `m`."""
    agent = StateraAgent(config)
    agent.step(at_s, HeartbeatReceived(HEARTBEAT))
    agent.step(at_s, telemetry())
    assert tuples(agent.step(at_s, EpochGranted(5)))
    return agent


def sent(agent: StateraAgent, now_s: float, *events: Any) -> list[ControlTuple]:
    return tuples([effect for event in (*events, TimerTicked()) for effect in agent.step(now_s, event)])


def beat(agent: StateraAgent, now_s: float) -> None:
    agent.step(now_s, HeartbeatReceived(HEARTBEAT))


def test_a_tuple_that_changed_is_sent_once_its_least_time_has_passed() -> None:
    agent = running()
    assert sent(agent, 0.249, telemetry(replace(SAMPLE, running=9))) == []
    (control,) = sent(agent, 0.25)
    assert (control.engines[0].b_min, control.seq, control.epoch, control.valid_for_s) == (10, 2, 5, 5.0)
    assert sent(agent, 0.3, telemetry(replace(SAMPLE, running=10))) == []
    assert len(sent(agent, 0.5)) == 1


def test_a_tuple_that_did_not_change_is_sent_again_after_a_third_of_its_validity() -> None:
    agent = running()
    assert sent(agent, 1.666, HeartbeatReceived(HEARTBEAT)) == []
    assert len(sent(agent, 5.0 / 3.0)) == 1


def test_tuples_end_when_the_view_is_stale() -> None:
    agent = running()
    for now_s in (2.0, 4.0):
        beat(agent, now_s)
    assert len(sent(agent, 5.0)) == 1
    for now_s in (6.0, 7.0):
        beat(agent, now_s)
    assert sent(agent, 7.0) == []
    assert len(sent(agent, 7.1, ShortViewReceived(VIEW))) == 1


def test_a_worker_is_lost_after_its_silence_and_its_memory_goes_with_it() -> None:
    lost_s = CONFIG.worker_lost_after_s
    agent = running()
    agent.step(lost_s - 1.0, ShortViewReceived(VIEW))
    assert len(sent(agent, lost_s, telemetry(replace(SAMPLE, running=9)))) == 1
    assert sent(agent, lost_s + 0.5, telemetry(replace(SAMPLE, running=10))) == []
    beat(agent, lost_s + 1.0)
    assert sent(agent, lost_s + 1.0)[0].engines == ()  # nothing is known of its engines
    (again,) = sent(agent, lost_s + 1.3, telemetry())
    assert again.engines[0].n_run == 64


def test_a_view_of_another_pool_moves_and_keeps_nothing_here() -> None:
    other = worker_heartbeat("x", pool="n", engines=HEARTBEAT.engines)
    agent = running()
    agent.step(0.0, HeartbeatReceived(other))
    agent.step(0.0, WorkerReported(worker_telemetry("x", pool="n", engines=(SAMPLE,))))
    for now_s in (2.0, 4.0, 6.0):
        beat(agent, now_s)
        agent.step(now_s, HeartbeatReceived(other))
    found = sent(agent, 6.0, ShortViewReceived(replace(VIEW, pool="n")))
    assert [control.worker for control in found] == ["x"]


def test_every_worker_of_a_pool_gets_its_own_tuple() -> None:
    agent = running()
    agent.step(0.1, HeartbeatReceived(replace(HEARTBEAT, worker="v", engines=(engine_info("e", max_num_seqs=8),))))
    found = sent(agent, 0.3, WorkerReported(worker_telemetry("v", engines=(SAMPLE,))))
    assert [(control.worker, control.engines[0].n_run) for control in found] == [("v", 8)]


# --- who leads


def test_a_standby_sends_nothing_and_one_that_lost_its_epoch_neither() -> None:
    agent = running()
    agent.step(0.1, EpochLost())
    assert sent(agent, 2.0, HeartbeatReceived(HEARTBEAT), ShortViewReceived(VIEW), telemetry()) == []
    (control,) = tuples(agent.step(2.1, EpochGranted(8)))
    assert (control.epoch, control.seq) == (8, 2)


@pytest.mark.parametrize(("seq", "following"), [(7, 8), (MAX_SEQ, MAX_SEQ + 1), (MAX_SEQ + 99, MAX_SEQ + 1), (0, 1)])
def test_numbers_go_on_from_the_last_tuple_within_bounds(seq: int, following: int) -> None:
    agent = StateraAgent(CONFIG)
    agent.step(0.0, TupleRestored(control_tuple("w", seq=seq)))
    agent.step(0.0, TupleRestored(control_tuple("x", seq=0)))
    agent.step(0.0, HeartbeatReceived(HEARTBEAT))
    (control,) = tuples(agent.step(0.0, EpochGranted(5)))
    assert control.seq == following


def test_a_restored_tuple_that_comes_after_the_first_own_one_is_outdated() -> None:
    agent = running()
    old = control_tuple("w", engines=(engine_control("e", n_run=7),), seq=40)
    found = sent(agent, 2.0, HeartbeatReceived(HEARTBEAT), TupleRestored(old))
    assert [(control.engines[0].n_run, control.seq) for control in found] == [(64, 41)]


def test_a_restored_set_point_waits_for_its_engine() -> None:
    agent = StateraAgent(CONFIG)
    agent.step(0.0, HeartbeatReceived(replace(HEARTBEAT, engines=())))
    agent.step(
        0.0, TupleRestored(control_tuple("w", engines=(engine_control("e", n_run=7), engine_control("f", n_run=9))))
    )
    agent.step(0.1, HeartbeatReceived(HEARTBEAT))
    agent.step(0.1, EpochGranted(5))
    (control,) = sent(agent, 0.5, telemetry())
    assert control.engines[0].n_run == 7
    bigger = replace(HEARTBEAT, engines=(replace(HEARTBEAT.engines[0], max_num_seqs=128),))
    (control,) = sent(agent, 1.0, HeartbeatReceived(bigger))
    assert control.engines[0].n_run == 128  # it is another engine by now; its set-point is used once


def test_engines_are_told_in_order_of_name_and_only_those_that_report() -> None:
    agent = StateraAgent(CONFIG)
    engines = tuple(engine_info(name, max_num_seqs=n) for name, n in (("b", 8), ("a", 4), ("c", 2)))
    agent.step(0.0, HeartbeatReceived(replace(HEARTBEAT, engines=engines)))
    agent.step(0.0, EpochGranted(5))
    reports = tuple(replace(SAMPLE, engine=name) for name in ("b", "a", "x"))
    (control,) = sent(agent, 0.5, WorkerReported(worker_telemetry(engines=reports)))
    assert [(each.engine, each.n_run) for each in control.engines] == [("a", 4), ("b", 8)]
    (control,) = sent(agent, 1.0, HeartbeatReceived(replace(HEARTBEAT, engines=engines[1:])))
    assert [each.engine for each in control.engines] == ["a"]


@pytest.mark.parametrize(
    ("n_run", "changes", "adopted"),
    [
        (23, {}, 23),
        (1, {}, 1),
        (0, {}, 64),
        (23, {"control_expired": True}, 64),
        (99, {}, 64),
        (23, {"bypass": True}, 23),
    ],
)
def test_a_standby_adopts_the_set_point_that_is_in_force(n_run: int, changes: dict[str, Any], adopted: int) -> None:
    agent = StateraAgent(CONFIG)
    agent.step(0.0, HeartbeatReceived(HEARTBEAT))
    agent.step(0.0, telemetry(replace(SAMPLE, n_run=n_run), **changes))
    (control,) = tuples(agent.step(0.1, EpochGranted(9)))
    assert control.engines[0].n_run == adopted


def test_one_that_leads_adopts_nothing() -> None:
    agent = running()
    (control,) = sent(agent, 0.5, telemetry(replace(SAMPLE, n_run=23, running=9)))
    assert control.engines[0].n_run == 64


# --- epochs of others


def test_views_and_decisions_of_an_older_epoch_count_again_after_a_silence() -> None:
    agent = running(replace(CONFIG, worker_lost_after_s=1e9))
    agent.step(1.0, ShortViewReceived(replace(VIEW, epoch=3)))
    late_s = 1.0 + FORGOTTEN_AFTER_S
    assert sent(agent, late_s, ShortViewReceived(replace(VIEW, epoch=2))) == []
    assert len(sent(agent, late_s + 0.1, ShortViewReceived(replace(VIEW, epoch=2)))) == 1
    agent.step(20.0, topology_received(epoch=4))
    agent.step(20.0 + FORGOTTEN_AFTER_S, topology_received(epoch=3, bypass=True))
    (control,) = sent(agent, 20.0 + FORGOTTEN_AFTER_S, ShortViewReceived(replace(VIEW, epoch=2)))
    assert not control.frozen
    (control,) = sent(agent, 20.3 + FORGOTTEN_AFTER_S, topology_received(epoch=3, bypass=True))
    assert control.frozen


# --- moves


HOT = replace(SAMPLE, running=64, utilisation=1.5, b_token=65, b_saturated=-1)


def heated(agent: StateraAgent, start_s: float, view: Any = VIEW, **changes: Any) -> list[Any]:
    """Two seconds of samples above the band, and a view at their end."""
    effects = list[Any]()
    for tenth in range(21):
        now_s = start_s + tenth / 10
        agent.step(now_s, HeartbeatReceived(HEARTBEAT))
        effects += agent.step(now_s, telemetry(replace(HOT, **changes), queued_count=9))
        if tenth in (0, 20):
            effects += agent.step(now_s, ShortViewReceived(view))
    return effects


@pytest.mark.parametrize(
    ("changes", "idle"),
    [({}, True), ({"queued": 1}, False), ({"arrival_rps": 0.1}, False), ({"settled_rps": 0.1}, False)],
)
def test_n_run_stays_while_nothing_comes_waits_or_ends(changes: dict[str, Any], idle: bool) -> None:
    calm = replace(VIEW, **({"queued": 0, "arrival_rps": 0.0, "settled_rps": 0.0} | changes))
    agent = running(BAND)
    moved = tuples(heated(agent, 0.5, calm))[-1].engines[0].n_run < 64
    assert moved is not idle


def test_an_idle_mesh_whose_engine_is_empty_lets_n_run_recover() -> None:
    calm = replace(VIEW, arrival_rps=0.0, settled_rps=0.0)
    agent = StateraAgent(BAND)
    agent.step(0.0, HeartbeatReceived(HEARTBEAT))
    agent.step(0.0, telemetry(replace(SAMPLE, n_run=20)))
    agent.step(0.0, EpochGranted(5))
    empty = {"running": 0, "waiting": 0, "utilisation": 0.0, "b_saturated": 1}
    for tenth in range(21):
        agent.step(1.0 + tenth / 10, telemetry(replace(HOT, **empty)))  # type: ignore[arg-type]
        agent.step(1.0 + tenth / 10, HeartbeatReceived(HEARTBEAT))
        if tenth in (0, 20):
            effects = agent.step(1.0 + tenth / 10, ShortViewReceived(calm))
    assert tuples(effects)[-1].engines[0].n_run == 21
    for tenth in range(21):
        agent.step(4.0 + tenth / 10, telemetry(replace(HOT, **empty | {"waiting": 1})))  # type: ignore[arg-type]
        agent.step(4.0 + tenth / 10, HeartbeatReceived(HEARTBEAT))
        effects = agent.step(4.0 + tenth / 10, ShortViewReceived(calm))
    assert sent(agent, 8.0, HeartbeatReceived(HEARTBEAT))[-1].engines[0].n_run == 21


@pytest.mark.parametrize("what", ["bypass of the worker", "bypass of the pool", "an engine that is down", "nothing"])
def test_samples_that_tell_nothing_move_nothing(what: str) -> None:
    agent = running(BAND)
    if what == "bypass of the pool":
        agent.step(0.1, topology_received(bypass=True))
    for tenth in range(21):
        now_s = 0.5 + tenth / 10
        agent.step(now_s, HeartbeatReceived(HEARTBEAT))
        sample = replace(HOT, up=what != "an engine that is down")
        agent.step(now_s, telemetry(sample, queued_count=9, bypass=what == "bypass of the worker"))
        agent.step(now_s, ShortViewReceived(VIEW))
    (control,) = sent(agent, 4.0, HeartbeatReceived(HEARTBEAT))
    assert (control.engines[0].n_run == 64) is (what != "nothing")
    assert control.frozen is (what == "bypass of the pool")


# --- audits


def notable(n_run: int, before: int = 20) -> list[str]:
    """What is told of a worker's engine whose N_run went from `before` to `n_run` while another copy led."""
    agent = StateraAgent(CONFIG)
    agent.step(0.0, HeartbeatReceived(HEARTBEAT))
    agent.step(0.0, telemetry(replace(SAMPLE, n_run=before)))
    agent.step(0.0, EpochGranted(5))
    agent.step(0.1, EpochLost())
    agent.step(0.2, telemetry(replace(SAMPLE, n_run=n_run)))
    return audits(agent.step(0.5, EpochGranted(6)))


def test_a_move_by_more_than_a_tenth_is_told() -> None:
    assert [notable(n) for n in (17, 18, 20, 22, 23)] == [
        ["w: e: N_run 20 -> 17"], [], [], [], ["w: e: N_run 20 -> 23"],
    ]  # fmt: skip


def test_moves_add_up_until_they_are_told() -> None:
    agent = StateraAgent(CONFIG)
    agent.step(0.0, HeartbeatReceived(HEARTBEAT))
    found = []
    for number, n_run in enumerate((20, 21, 22, 23, 24, 25, 26)):
        agent.step(float(number), EpochLost())
        agent.step(float(number), telemetry(replace(SAMPLE, n_run=n_run)))
        agent.step(float(number), ShortViewReceived(VIEW))
        agent.step(float(number), HeartbeatReceived(HEARTBEAT))
        found.append(audits(agent.step(number + 0.5, EpochGranted(number + 1))))
    assert found == [[], [], [], ["w: e: N_run 20 -> 23"], [], [], ["w: e: N_run 23 -> 26"]]


def test_a_record_says_why_on_which_view_and_for_which_tuple() -> None:
    agent = running(BAND)
    effects = heated(agent, 0.5, replace(VIEW, utilisation=1.234))
    records = [effect.record for effect in effects if isinstance(effect, PublishAudit)]
    (control,) = [each for each in tuples(effects) if each.engines[0].n_run < 64]
    assert [(r.source, r.kind, r.pool, r.selector, r.epoch, r.seq) for r in records] == [
        ("statera", "tuple", "m", "band", 5, control.seq)
    ]
    assert records[0].reason == "utilisation 1.23, band [0.85, 0.95]"
    assert json.loads(records[0].view_json)["utilisation"] == 1.234


def test_a_freeze_is_told_at_its_beginning_and_its_end_alone() -> None:
    agent = running()
    told = []
    for now_s, bypass in ((0.5, True), (1.0, True), (1.5, False), (2.0, False), (2.5, True)):
        agent.step(now_s, HeartbeatReceived(HEARTBEAT))
        agent.step(now_s, topology_received(bypass=bypass))
        told.append(audits(agent.step(now_s, TimerTicked())))
    assert told == [["w: frozen"], [], ["w: released"], [], ["w: frozen"]]
    first = StateraAgent(CONFIG)
    first.step(0.0, HeartbeatReceived(HEARTBEAT))
    first.step(0.0, topology_received(bypass=True))
    effects = first.step(0.0, EpochGranted(5))
    assert (audits(effects), tuples(effects)[0].frozen) == ([], True)  # there was nothing before it


# --- pools


def test_the_fence_of_a_pool_outlives_its_workers_for_a_while() -> None:
    agent = running(replace(CONFIG, pool_forgotten_after_s=100.0))
    agent.step(0.1, telemetry(finished=(request_finished(),) * 50))
    for away_s, kept in ((99.9, True), (100.0, False)):
        agent.step(1.0, ShortViewReceived(VIEW))
        agent.step(1.0 + away_s, TimerTicked())
        agent.step(1.0 + away_s, HeartbeatReceived(HEARTBEAT))
        (control,) = tuples(agent.step(1.0 + away_s, ShortViewReceived(VIEW)))
        assert bool(control.fence.tables) is kept
        agent = running(replace(CONFIG, pool_forgotten_after_s=100.0))
        agent.step(0.1, telemetry(finished=(request_finished(),) * 50))


def test_a_pool_without_views_is_as_old_as_its_first_report() -> None:
    agent = StateraAgent(CONFIG)
    agent.step(0.0, EpochGranted(5))
    agent.step(10.0, telemetry())
    agent.step(12.0, HeartbeatReceived(HEARTBEAT))
    assert len(sent(agent, 15.0)) == 1
    agent.step(15.0, HeartbeatReceived(HEARTBEAT))
    assert sent(agent, 15.1 + 5 / 3) == []


def test_a_worker_that_changes_its_pool_gets_the_fence_of_the_new_one() -> None:
    agent = running()
    agent.step(0.1, telemetry(finished=(request_finished(),) * 50))
    assert sent(agent, 1.0)[0].fence.tables
    (control,) = sent(agent, 2.0, HeartbeatReceived(replace(HEARTBEAT, pool="n")))
    assert not control.fence.tables


def test_what_a_lost_worker_ran_no_longer_counts() -> None:
    agent = running()
    row = request_finished(predicted_output_tokens_p90=50.0)
    agent.step(0.1, telemetry(finished=(row,) * 50))
    pool = agent._pools["m"]
    pool.calibration._all.known["v1", ""]._running["w"] = []
    assert sent(agent, CONFIG.worker_lost_after_s + 1.0) == []
    assert pool.calibration._all.known["v1", ""]._running == {}


def test_an_engine_that_no_heartbeat_named_does_not_hide_those_after_it() -> None:
    agent = running(BAND)
    for tenth in range(21):
        now_s = 0.5 + tenth / 10
        agent.step(now_s, HeartbeatReceived(HEARTBEAT))
        agent.step(now_s, telemetry(queued_count=9, engines=(replace(HOT, engine="a stranger"), HOT)))
        agent.step(now_s, ShortViewReceived(VIEW))
    (control,) = sent(agent, 4.0, HeartbeatReceived(HEARTBEAT))
    assert [(each.engine, each.n_run < 64) for each in control.engines] == [("e", True)]
