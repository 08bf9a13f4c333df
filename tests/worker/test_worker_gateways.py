"""Gateways as the worker agent hears them: snapshots, orphans, answers that stay away, engines out of reach, shares."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.control import EngineControl, TupleReceived
from hmas.contracts.execution import Adopt, Declined, EngineShare, Load, Started, Submit, Withdraw
from hmas.contracts.outcome import Outcome
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.contracts.worker import (
    CycleTicked,
    DrainStarted,
    EngineWentDown,
    EngineWentUp,
    GatewayConnected,
    GatewayLost,
    HeartbeatDue,
    PublishTelemetry,
    WorkerEffect,
)
from hmas.worker.agent.agent import WorkerConfig
from hmas.worker.agent.engines.life import LifeState
from hmas.worker.agent.gateways import Gateway, shares
from tests.builders.control import control_tuple
from tests.worker.builders import (
    Scripted,
    annotation,
    dispatched,
    engine,
    granted,
    loads,
    refused,
    request,
    sampled,
    stopped,
)

CONFIG = WorkerConfig(worker="w1", incarnation="i1", address="host:1", pool="m", static_n_run=2)


def worker(*engines: str, slots: int = 2, gateways: tuple[str, ...] = ("g1", "g2"), **changes: Any) -> Scripted:
    made = replace(CONFIG, static_n_run=slots, **changes)
    return Scripted(made, *map(engine, engines), gateways=gateways)


def ask(agent: Scripted, now_s: float, *names: str, gateway: str = "g1", **fields: Any) -> list[tuple[str, str]]:
    """Submits requests; returns the grants."""
    return dispatched(
        agent.submit(now_s, *(request(name, arrival_s=now_s) for name in names), gateway=gateway, **fields)
    )


def again(name: str, attempt: int = 1, **fields: Any) -> Submit:
    return Submit(request=request(name, **fields), attempt=attempt, again=True)


def adopted(name: str, *, where: str = "e1", grant: int = 0, **fields: Any) -> Adopt:
    made: dict[str, Any] = {
        "attempt": 1,
        "annotation": None,
        "output_tokens": 0,
        "granted_s": 0.0,
        "first_token_s": None,
    }
    return Adopt(request=request(name), engine=where, grant=grant, **(made | fields))


def cycles(agent: Scripted, first_s: float, last_s: float) -> list[tuple[float, WorkerEffect]]:
    """Ticks every 0.1 s from `first_s` to `last_s`; returns the effects with their instants."""
    ticks = range(round(10 * first_s), round(10 * last_s) + 1)
    return [(tick / 10, effect) for tick in ticks for effect in agent.step(tick / 10, CycleTicked())]


def telemetry(agent: Scripted, now_s: float) -> WorkerTelemetry:
    (found,) = [e.telemetry for e in agent.step(now_s, CycleTicked()) if isinstance(e, PublishTelemetry)]
    return found


# --- snapshots


def test_nothing_is_granted_to_a_gateway_before_its_snapshot_is_complete() -> None:
    agent = worker("e1", gateways=("g2",))
    agent.step(0.0, GatewayConnected("g1"))
    assert ask(agent, 0.0, "r1") == []
    assert ask(agent, 0.1, "r2", gateway="g2") == [("r2", "e1")]
    assert dispatched(agent.step(5.0, CycleTicked())) == []
    effects = agent.connect(5.1, "g1", again("r1"))
    assert dispatched(effects) == [("r1", "e1")]
    assert [gateway for gateway, _ in loads(effects)] == ["g1"]


def test_what_the_snapshot_says_waits_was_never_granted_and_keeps_its_place() -> None:
    agent = worker("e1", slots=1)
    ask(agent, 0.0, "r1", "r2")
    lost = agent.grants["r1"]
    agent.step(1.0, GatewayLost("g1"))
    effects = agent.connect(1.5, "g1", again("r2", arrival_s=1.0), again("r1"))
    assert dispatched(effects) == [("r1", "e1")]
    assert agent.grants["r1"].grant > lost.grant
    assert agent.say(1.6, Declined("r1", lost.grant)) == []
    assert dispatched(agent.finish(2.0, "r1")) == [("r2", "e1")]


def test_one_that_was_withdrawn_and_is_submitted_by_the_snapshot_waits_like_any_other() -> None:
    agent = worker("e1", slots=1)
    ask(agent, 0.0, "r1")
    agent.say(0.1, Withdraw("r1", 1))
    agent.step(0.2, GatewayLost("g1"))
    assert dispatched(agent.connect(0.5, "g1", again("r1", attempt=3))) == [("r1", "e1")]
    assert dispatched(agent.fail(1.0, "r1", busy=True)) == []
    assert dispatched(agent.step(1.2, CycleTicked())) == [("r1", "e1")]


def test_an_adopted_request_is_confirmed_with_what_was_not_heard_of_it() -> None:
    agent = worker("e1", slots=1)
    ask(agent, 0.0, "r1", "r2")
    telemetry(agent, 0.1)
    agent.step(1.0, GatewayLost("g1"))
    adopt = adopted("r1", grant=agent.grants["r1"].grant, output_tokens=7, first_token_s=1.5)
    assert dispatched(agent.connect(2.0, "g1", adopt, again("r2"))) == []
    (seen,) = telemetry(agent, 2.5).first_tokens
    assert (seen.prefill_s, seen.age_s) == (1.5, 1.0)
    assert agent.state.fleet["e1"].books.decoding == 1
    assert dispatched(agent.finish(3.0, "r1", 9)) == [("r2", "e1")]
    report = telemetry(agent, 3.1)
    assert [(f.request_id, f.prefill_s, f.tpot_s) for f in report.finished] == [("r1", 1.5, 1.5 / 8)]


def test_adopting_occupies_whatever_the_limits_and_raises_the_numbers_of_grants() -> None:
    agent = worker("e1", slots=1, gateways=())
    names = ["b1", "b2", "b3"]
    agent.connect(1.0, "g1", *(adopted(n, grant=40 + i, first_token_s=0.5) for i, n in enumerate(names)), again("r1"))
    agent.at |= dict.fromkeys([*names, "r1"], "g1")
    assert len(agent.state.fleet["e1"].running) == 3
    for number, name in enumerate(names):
        assert "r1" not in agent.grants
        agent.say(2.0, Declined(name, 40 + number))
    assert agent.grants["r1"].grant == 43


def test_what_the_snapshot_does_not_name_is_over() -> None:
    agent = worker("e1", slots=1)
    ask(agent, 0.0, "r1")
    ask(agent, 0.0, "r2", gateway="g2")
    agent.step(1.0, GatewayLost("g1"))
    telemetry(agent, 1.1)
    assert dispatched(agent.connect(1.5)) == [("r2", "e1")]
    assert telemetry(agent, 2.0).finished == ()


def test_an_engine_known_from_adoption_only_is_reckoned_with_once_it_comes_up() -> None:
    agent = worker(slots=8, gateways=())
    agent.connect(0.0, "g1", adopted("b1", where="e7", output_tokens=4, first_token_s=0.0))
    beats = [e for e in agent.step(0.1, HeartbeatDue()) if hasattr(e, "heartbeat")]
    assert (beats[0].heartbeat.engines, beats[0].heartbeat.running) == ((), 1)
    agent.step(1.0, EngineWentUp(engine("e7", block_size=1, kv_capacity_tokens=1000)))
    assert agent.state.fleet["e7"].books.blocks == 700  # 100 + the prior's 600, in blocks of one token


def test_what_was_adopted_without_a_token_on_an_engine_that_is_down_is_stopped() -> None:
    agent = worker("e1")
    ask(agent, 0.0, "r1", "r2")
    agent.first_token(0.1, "r2")
    agent.step(0.5, GatewayLost("g1"))
    assert stopped(agent.step(0.6, EngineWentDown("e1", "gone"))) == []
    first, second = (agent.grants[name].grant for name in ("r1", "r2"))
    effects = agent.connect(1.0, "g1", adopted("r1", grant=first), adopted("r2", grant=second, first_token_s=0.1))
    assert [stop.request_id for stop in stopped(effects)] == ["r1"]


# --- gateways that are gone


def test_a_lost_gateways_waiting_requests_are_forgotten_and_its_running_ones_keep_their_slots() -> None:
    agent = worker("e1", slots=1)
    ask(agent, 0.0, "r1", "r2")
    ask(agent, 0.1, "other", gateway="g2")
    telemetry(agent, 0.2)
    assert agent.step(1.0, GatewayLost("g1")) == []
    assert dispatched(agent.step(9.0, CycleTicked())) == []
    assert (len(agent.state.queue), telemetry(agent, 10.0).finished) == (1, ())


def test_orphans_go_when_two_samples_show_that_they_are_gone() -> None:
    agent = worker("e1", slots=2)
    ask(agent, 0.0, "r1")
    ask(agent, 0.1, "r2", gateway="g2")
    agent.step(0.2, GatewayLost("g1"))
    ask(agent, 0.3, "r3", gateway="g2")
    for now_s, running in ((0.5, 0), (0.9, 0), (2.0, 2), (3.0, 1), (4.0, 2), (5.0, 1)):
        assert dispatched(agent.step(now_s, sampled("e1", running))) == [], now_s
    assert dispatched(agent.step(6.0, sampled("e1", 1))) == [("r3", "e1")]
    assert set(agent.state.fleet["e1"].running) == {"r2", "r3"}


def test_one_that_was_adopted_again_is_no_orphan() -> None:
    agent = worker("e1", slots=1)
    ask(agent, 0.0, "r1", "r2")
    agent.step(0.5, GatewayLost("g1"))
    agent.connect(1.0, "g1", adopted("r1", grant=agent.grants["r1"].grant), again("r2"))
    for now_s in (3.0, 4.0, 5.0):
        assert dispatched(agent.step(now_s, sampled("e1", 0))) == []


def test_the_oldest_orphans_are_taken_for_gone() -> None:
    agent = worker("e1", slots=4)
    ask(agent, 0.0, "r1", "r2")
    ask(agent, 0.0, "s1", gateway="g2")
    agent.step(1.0, GatewayLost("g2"))
    agent.step(2.0, GatewayLost("g1"))
    for now_s in (3.0, 4.0):
        agent.step(now_s, sampled("e1", 1))
    assert set(agent.state.fleet["e1"].running) == {"r2"}


def test_without_a_count_orphans_get_two_seconds() -> None:
    agent = worker("e1", slots=1)
    ask(agent, 0.0, "r1")
    ask(agent, 0.1, "r2", gateway="g2")
    agent.step(1.0, GatewayLost("g1"))
    assert dispatched(agent.step(2.9, sampled(counted=False))) == []
    assert dispatched(agent.step(3.0, sampled(counted=False))) == [("r2", "e1")]


# --- what an engine runs beyond the books


def test_an_engine_that_came_up_gets_nothing_before_a_sample_taken_since() -> None:
    agent = worker(slots=2)
    ask(agent, 0.0, "r1", "r2")
    for now_s, effects in (
        (1.0, agent.step(1.0, EngineWentUp(engine("e1")))),
        (1.1, agent.step(1.1, sampled(age_s=0.2))),
    ):
        assert dispatched(effects) == [], now_s
    assert dispatched(agent.step(1.2, sampled(running=1, age_s=0.1))) == [("r1", "e1")]  # the one slot that is left
    agent.step(2.0, EngineWentDown("e1", "restarts"))
    agent.step(3.0, EngineWentUp(engine("e1")))
    assert agent.state.fleet["e1"].life.state is LifeState.UNSEEN


def test_an_engine_without_a_count_gets_nothing_for_two_seconds() -> None:
    agent = worker(slots=1)
    ask(agent, 0.0, "r1")
    agent.step(1.0, EngineWentUp(engine("e1")))
    assert dispatched(agent.step(2.9, sampled(counted=False))) == []
    assert dispatched(agent.step(3.0, sampled(counted=False))) == [("r1", "e1")]


def test_strangers_count_from_the_second_sample_on_and_go_with_the_first() -> None:
    agent = worker("e1", slots=3)
    agent.step(1.0, sampled(running=2, waiting=1))
    assert ask(agent, 1.1, "r1") == [("r1", "e1")]
    agent.step(2.0, sampled(running=2, waiting=1))
    assert agent.state.fleet["e1"].counts.foreign == 2
    assert ask(agent, 2.1, "r2", "r3") == []
    assert dispatched(agent.step(3.0, sampled(running=1))) == [("r2", "e1"), ("r3", "e1")]


def test_an_adopted_request_is_no_stranger_any_more() -> None:
    agent = worker(slots=3)
    agent.step(0.0, EngineWentUp(engine("e1")))
    agent.step(0.0, sampled(running=3, kv_usage=0.9))
    assert agent.state.fleet["e1"].counts.foreign_blocks == 5625
    agent.connect(0.5, "g3", adopted("b1"))
    state = agent.state.fleet["e1"]
    assert (state.counts.foreign, state.in_flight, state.counts.foreign_blocks) == (2, 3, 3750)


def test_strangers_hold_their_part_of_the_memory() -> None:
    agent = worker(slots=8)
    agent.step(0.0, EngineWentUp(engine("e1", kv_capacity_tokens=1600)))
    agent.step(0.0, sampled(running=2, kv_usage=0.5))
    tight = request("r1", prompt_tokens=600, max_tokens=100)
    assert dispatched(agent.submit(0.1, tight)) == [("r1", "e1")]
    assert dispatched(agent.submit(0.2, request("r2", prompt_tokens=200, max_tokens=10))) == []
    assert dispatched(agent.step(1.0, sampled(running=1, kv_usage=0.4))) == [("r2", "e1")]


# --- answers that stay away


def test_a_grant_without_an_answer_is_stopped_once_and_keeps_its_slot() -> None:
    agent = worker("e1", slots=1)
    agent.mute = True
    ask(agent, 0.0, "r1")
    ask(agent, 0.0, "r2", gateway="g2")
    stops = [(now_s, stop) for now_s, effect in cycles(agent, 0.1, 5.0) for stop in stopped([effect])]
    assert [(now_s, s.request_id, s.grant) for now_s, s in stops] == [(1.1, "r1", agent.grants["r1"].grant)]
    assert "r2" not in agent.grants
    agent.say(5.1, Declined("r1", 99))
    assert "r2" not in agent.grants
    assert dispatched(agent.say(5.2, Declined("r1", agent.grants["r1"].grant))) == [("r2", "e1")]


def test_a_gateway_that_lags_is_granted_nothing_until_it_answers_and_the_others_are() -> None:
    agent = worker("e1", slots=8)
    agent.mute = True
    ask(agent, 0.0, "r1")
    assert ask(agent, 0.4, "r2") == [("r2", "e1")]
    assert ask(agent, 0.6, "r3", "r4") == []
    assert ask(agent, 0.6, "s1", gateway="g2") == [("s1", "e1")]
    assert agent.say(0.7, Started("r2", agent.grants["r2"].grant)) == []
    assert dispatched(agent.say(0.8, Started("r1", agent.grants["r1"].grant))) == [("r3", "e1"), ("r4", "e1")]


def test_what_waits_already_is_set_aside_when_its_gateway_begins_to_lag() -> None:
    agent = worker("e1", slots=1)
    agent.mute = True
    ask(agent, 0.0, "r1", "r2", "r3")
    ask(agent, 0.1, "s1", gateway="g2")
    cycles(agent, 0.2, 0.6)
    assert len(agent.state.queue) == 3  # what is set aside waits, too
    assert (agent.state.queue.ready, [e.request.id for e in agent.state.queue.queued()]) == (1, ["s1"])


def test_what_is_set_aside_counts_for_the_bound_of_the_queue() -> None:
    agent = worker("e1", gateways=("g2",), max_queued=2)
    agent.step(0.0, GatewayConnected("g1"))
    ask(agent, 0.0, "r1", "r2")
    (refusal,) = refused(agent.submit(0.0, request("r3")))
    assert refusal.outcome is Outcome.POOL_QUEUE_FULL


def test_setting_aside_is_bounded_per_step() -> None:
    agent = worker("e1", slots=1, max_parks_per_pump=3)
    agent.mute = True
    ask(agent, 0.0, *(f"r{n}" for n in range(10)))
    ask(agent, 0.1, "s1", gateway="g2")
    counts = []
    for tick in range(6, 10):
        agent.step(tick / 10, CycleTicked())
        counts.append(agent.state.queue.parked)
    assert counts == [3, 6, 9, 9]


# --- engines out of a gateway's reach


def test_a_gateway_gets_no_grants_on_an_engine_that_it_does_not_reach_and_others_do() -> None:
    agent = worker("e1", "e2", slots=4)
    ask(agent, 0.0, "r1")
    assert dispatched(agent.fail(0.1, "r1", unreached=True)) == [("r1", "e2")]
    assert ask(agent, 0.2, "r2", "r3") == [("r2", "e2"), ("r3", "e2")]
    assert ask(agent, 0.3, "s1", gateway="g2") == [("s1", "e1")]
    agent.step(1.2, CycleTicked())
    assert ask(agent, 1.2, "r4") == [("r4", "e1")]


def test_the_pauses_double_up_to_a_bound_and_grants_that_were_made_before_one_do_not_count() -> None:
    agent = worker("e1", slots=8, no_engine_patience_s=1e6)
    ask(agent, 0.0, *(f"r{n}" for n in range(6)))
    for n in range(6):
        assert dispatched(agent.fail(0.5, f"r{n}", unreached=True)) == []
    now_s, pauses = 0.5, []
    for _ in range(7):
        (back,) = {at_s for at_s, effect in cycles(agent, now_s + 0.1, now_s + 30.2) if granted([effect])}
        pauses.append(round(back - now_s))
        now_s = back
        for n in range(6):
            agent.fail(now_s, f"r{n}", unreached=True)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_a_gateway_that_reaches_no_engine_holds_up_nobody() -> None:
    agent = worker("e1", slots=2)
    ask(agent, 0.0, "r1", "r2", "r3")
    agent.fail(0.5, "r1", unreached=True)
    assert ask(agent, 0.6, "s1", gateway="g2") == [("s1", "e1")]
    assert dispatched(agent.finish(0.7, "s1")) == []
    assert dispatched(agent.first_token(0.8, "r2")) == []  # its connection is an older one
    assert [dispatched([e]) for _, e in cycles(agent, 0.9, 1.6) if granted([e])] == [[("r1", "e1")]]


def test_a_pause_lasts_a_second_from_the_last_failure_and_a_token_makes_the_next_one_short_again() -> None:
    agent = worker("e1", slots=8)
    ask(agent, 0.0, "r1", "r2")
    agent.fail(0.5, "r1", unreached=True)
    agent.fail(1.4, "r2", unreached=True)
    assert dispatched(agent.step(1.6, CycleTicked())) == []
    assert dispatched(agent.step(2.4, CycleTicked())) == [("r1", "e1"), ("r2", "e1")]
    agent.first_token(2.5, "r1")
    agent.fail(2.6, "r2", unreached=True)
    assert dispatched(agent.step(3.7, CycleTicked())) == [("r2", "e1")]


def test_a_token_just_after_a_pause_does_not_hide_its_end() -> None:
    agent = worker("e1", slots=2)
    ask(agent, 0.0, "r1", "r2")
    agent.fail(0.5, "r1", unreached=True)
    agent.first_token(1.55, "r2")
    assert dispatched(agent.step(1.6, CycleTicked())) == [("r1", "e1")]


def test_one_that_only_an_engine_out_of_reach_could_take_does_not_block_the_others() -> None:
    agent = worker(slots=4)
    for info in (engine("large", max_model_len=9000), engine("small", max_model_len=1000)):
        agent.up(0.0, info)
    long = request("long", prompt_tokens=5000)
    agent.submit(0.1, long)
    assert dispatched(agent.fail(0.2, "long", unreached=True)) == []
    assert ask(agent, 0.3, "r1", "r2") == [("r1", "small"), ("r2", "small")]
    back = [(now_s, dispatched([e])) for now_s, e in cycles(agent, 0.4, 2.0) if granted([e])]
    assert back == [(1.2, [("long", "large")])]


def test_a_new_engine_is_used_for_a_gateway_that_reached_none() -> None:
    agent = worker("e1", slots=1)
    ask(agent, 0.0, "r1")
    agent.fail(0.1, "r1", unreached=True)
    assert dispatched(agent.up(0.2, engine("e2"))) == [("r1", "e2")]


def test_one_that_cannot_be_brought_anywhere_is_refused_in_the_end() -> None:
    agent = worker("e1")
    ask(agent, 0.0, "r1")
    agent.fail(1.0, "r1", unreached=True)
    agent.step(2.1, CycleTicked())
    (refusal,) = refused(agent.fail(11.0, "r1", "no route to e1", unreached=True))
    assert (refusal.outcome, refusal.message) == (Outcome.ENGINE_ERROR, "no route to e1")


# --- withdrawals and later attempts


def test_a_withdrawn_request_is_forgotten_if_it_waits_and_keeps_its_slot_if_it_was_granted() -> None:
    agent = worker("e1", slots=1)
    agent.mute = True
    ask(agent, 0.0, "r1", "r2", "r3")
    for name in ("r1", "r2"):
        assert agent.say(0.1, Withdraw(name, 1)) == []
    assert [e.request.id for e in agent.state.queue.queued()] == ["r3"]
    assert dispatched(agent.say(0.2, Declined("r1", agent.grants["r1"].grant))) == [("r3", "e1")]
    assert telemetry(agent, 0.3).finished == ()  # their gateway settles them, or moved them


@pytest.mark.parametrize("started", [True, False])
def test_a_withdrawn_request_whose_run_fails_is_not_tried_again(started: bool) -> None:
    agent = worker("e1", "e2", slots=1)
    agent.mute = True
    ask(agent, 0.0, "r1")
    if started:
        agent.say(0.05, Started("r1", agent.grants["r1"].grant))
    agent.say(0.1, Withdraw("r1", 1))
    assert granted(agent.fail(0.2, "r1", "no route to e1")) == []
    assert agent.state.queue.get("r1") is None


def test_one_that_moved_away_and_back_waits_for_the_answer_to_its_old_grant() -> None:
    agent = worker("e1", slots=2)
    agent.mute = True
    ask(agent, 0.0, "r1")
    old = agent.grants["r1"].grant
    agent.say(0.1, Withdraw("r1", 1))
    assert ask(agent, 0.2, "r1", attempt=3, again=True) == []
    agent.annotate(0.3, "r1", annotation(7.0))
    (grant,) = granted(agent.say(0.4, Declined("r1", old)))
    assert (grant.attempt, grant.grant > old) == (3, True)
    entry = agent.state.queue.get("r1")
    assert entry is not None
    assert entry.predicted_tokens == 7.0


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_repeated_or_older_submission_is_ignored(attempt: int) -> None:
    agent = worker("e1", slots=1)
    ask(agent, 0.0, "r1", "r2")
    for name in ("r1", "r2"):
        assert ask(agent, 0.1, name, attempt=attempt) == []
    assert dispatched(agent.finish(0.2, "r1")) == [("r2", "e1")]
    assert dispatched(agent.finish(0.3, "r2")) == []


def test_a_later_attempt_takes_the_place_of_one_that_waits() -> None:
    agent = worker("e1", slots=1)
    ask(agent, 0.0, "r1", "r2")
    ask(agent, 0.1, "r2", attempt=2)
    (grant,) = granted(agent.finish(0.2, "r1"))
    assert (grant.request_id, grant.attempt) == ("r2", 2)


def test_only_the_first_submission_is_an_arrival() -> None:
    agent = worker("e1")
    ask(agent, 0.0, "r1")
    ask(agent, 0.0, "r2", again=True)
    assert [d.request_id for d in telemetry(agent, 0.1).dispatched] == ["r1", "r2"]
    assert [q.request_id for q in telemetry(agent, 0.4).queued] == ["r1"]  # its tags are overdue


def test_a_message_under_another_grant_or_of_another_gateway_changes_nothing() -> None:
    agent = worker("e1", slots=1)
    ask(agent, 0.0, "r1", "r2")
    grant = agent.grants["r1"].grant
    for message in (Declined("r1", grant + 1), Declined("r2", grant)):
        assert agent.say(0.1, message) == []
    assert agent.say(0.1, Declined("r1", grant), "g2") == []
    assert agent.say(0.1, Declined("r1", grant), "nobody") == []
    assert dispatched(agent.say(0.2, Declined("r1", grant))) == [("r2", "e1")]


def test_one_that_is_given_back_after_a_token_is_counted_afresh() -> None:
    """No gateway does this; the books must stay right nevertheless."""
    agent = worker("e1", slots=1)
    ask(agent, 0.0, "r1")
    agent.first_token(0.1, "r1")
    agent.fail(0.2, "r1", busy=True)
    agent.step(0.4, CycleTicked())
    agent.finish(0.5, "r1")
    state = agent.state.fleet["e1"]
    assert (state.books.decoding, state.books.blocks, len(agent.state.queue)) == (0, 0, 0)


# --- load


def test_n_run_is_shared_by_demand() -> None:
    agent = worker("e1", "e2", slots=2, gateways=("g1", "g2", "g3"))
    agent.up(0.0, engine("big"))
    ask(agent, 0.1, *(f"r{n}" for n in range(9)))
    ask(agent, 0.1, *(f"s{n}" for n in range(3)), gateway="g2")
    found: dict[str, Load] = {}
    for tick in range(20):
        found = dict(loads(agent.step(1.0 + tick, HeartbeatDue())))
    assert set(found) == {"g1", "g2", "g3"}
    for number, name in enumerate(("e1", "e2", "big")):
        parts = [found[gateway].shares[number] for gateway in ("g1", "g2", "g3")]
        assert {part.engine for part in parts} == {name}
        assert sum(part.slots for part in parts) == agent.state.fleet[name].n_run


def test_what_is_shared_is_the_limit_that_holds_when_nobody_regulates() -> None:
    agent = worker("e1", slots=6)
    lower = EngineControl(engine="e1", n_run=2, b_token=8, b_min=1, b_max=8, gain_b=4.0, u_low=0.5, u_high=0.8)
    control = control_tuple(engines=(lower,), valid_for_s=5.0)
    agent.step(0.1, TupleReceived(control, 0.0))
    assert agent.state.fleet["e1"].n_run == 2
    found = loads(agent.step(1.0, HeartbeatDue()))
    assert sum(share.slots for _, load in found for share in load.shares) == 6


@pytest.mark.parametrize(
    ("n_run", "demands", "expected"),
    [
        (8, [0.0, 0.0], [4, 4]),
        (10, [6.0, 2.0], [7, 3]),
        (7, [1.0, 1.0, 1.0], [3, 2, 2]),
        (4, [1000.0, 0.0, 0.0], [2, 1, 1]),
        (2, [3.0, 9.0, 1.0], [1, 1, 0]),
        (1, [3.0, 9.0], [0, 1]),
    ],
)
def test_each_gets_one_at_least_while_there_are_enough(n_run: int, demands: list[float], expected: list[int]) -> None:
    gateways = [Gateway(f"g{n}", CONFIG.gateways) for n in range(len(demands))]
    for gateway, demand in zip(gateways, demands, strict=True):
        gateway.demand = demand
    assert shares(gateways, [("e1", n_run)]) == [(EngineShare("e1", slots),) for slots in expected]
    assert shares(gateways, []) == [()] * len(gateways)


def test_a_drained_worker_says_so_and_grants_nothing_but_refuses_nothing_either() -> None:
    agent = worker("e1", slots=1)
    agent.step(0.0, GatewayConnected("g3"))  # has not given its snapshot
    ask(agent, 0.0, "r1", "r2")
    found = loads(agent.step(1.0, DrainStarted()))
    assert [(gateway, load.draining) for gateway, load in found] == [("g1", True), ("g2", True)]
    assert agent.submit(1.1, request("r3")) == []
    assert dispatched(agent.finish(1.2, "r1")) == []
    agent.step(1.3, EngineWentDown("e1", "shut down"))
    effects = [effect for _, effect in cycles(agent, 1.4, 20.0)]
    assert (dispatched(effects), refused(effects)) == ([], [])
    assert len(agent.state.queue) == 2
    agent.step(21.0, GatewayLost("g1"))
    assert len(agent.state.queue) == 0


def test_what_a_drained_worker_gets_back_waits_for_its_gateway() -> None:
    agent = worker("e1")
    ask(agent, 0.0, "r1")
    agent.step(1.0, DrainStarted())
    assert agent.fail(1.5, "r1") == []
    assert len(agent.state.queue) == 1


@pytest.mark.parametrize(("tokens", "learnt"), [(0, False), (7, True)])
def test_an_answer_whose_tokens_nobody_counted_teaches_no_lengths(tokens: int, learnt: bool) -> None:
    agent = worker("e1", slots=8)
    known = agent.state.prior.estimate("t1", 100).output_tokens
    for n in range(50):
        ask(agent, float(n), f"r{n}")
        agent.finish(n + 0.5, f"r{n}", tokens=tokens)
    assert (agent.state.prior.estimate("t1", 100).output_tokens != known) is learnt


def test_a_request_that_ended_because_its_engine_is_out_of_reach_keeps_others_from_it() -> None:
    agent = worker("e1", "e2", slots=4)
    ask(agent, 0.0, "r1")
    agent.fail(0.1, "r1", unreached=True, retryable=False)
    assert ask(agent, 0.2, "r2", "r3") == [("r2", "e2"), ("r3", "e2")]


def test_a_grant_that_is_stopped_and_made_again_may_be_stopped_again() -> None:
    agent = Scripted(CONFIG, engine("e1"), engine("e2"))
    agent.mute = True
    (first,) = granted(agent.submit(10.0, request("r1")))
    for now_s in (11.25, 13.25):
        (asked,) = stopped(agent.step(now_s, CycleTicked()))
        assert (asked.request_id, asked.grant) == ("r1", agent.grants["r1"].grant)
        assert stopped(agent.step(now_s + 0.25, CycleTicked())) == [], "it is asked for once"
        agent.fail(now_s + 0.5, "r1")
    assert agent.grants["r1"].grant > first.grant
