"""The meta agent's periods, dwells, bounds and records: each at its boundary, by exact effects."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.control import Hints, Pin, Split, TopologyDecision, TopologyName
from hmas.contracts.control_agents import (
    AskSelector,
    EpochGranted,
    EpochLost,
    LongViewReceived,
    PinChanged,
    PublishTopology,
    RehearsalAnswered,
    Rehearse,
    SelectorAnswered,
    ShortViewReceived,
    TimerTicked,
    TopologyRestored,
)
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.rehearsal import WARM_S
from hmas.laws.epochs import MAX_SEQ
from hmas.meta.agent.config import LayoutConfig, RehearsalConfig
from hmas.meta.agent.rehearsing import CpuBudget, gain_told, winner
from tests.builders.control import topology_decision
from tests.meta.test_meta_agent import (
    CALM,
    COLLAPSED,
    EDF,
    FCFS,
    GOOD_ANSWER,
    HEARTBEAT,
    LANES,
    MISSES,
    SHORT,
    SJF,
    Drive,
    asked,
    kinds,
    records,
    started,
    topologies,
)
from tests.meta.test_meta_layouts import ADAPTIVE, FAST, TIGHT, beat, begun, demand, layouts, pace, stepping
from tests.meta.test_rehearsals import BEAT, FIGURES, look, outcome, question, rehearsing


def sent(effects: list[Any]) -> list[TopologyDecision]:
    return [effect.decision for effect in effects if isinstance(effect, PublishTopology)]


# --- when a decision is due and when it is published


def test_a_decision_is_due_its_period_after_the_last() -> None:
    drive = started()
    assert drive.at(14.9, LongViewReceived(CALM)) == []
    assert kinds(drive.at(15.0, LongViewReceived(CALM))) == [("decided", "sjf")]
    assert kinds(drive.at(29.9, LongViewReceived(CALM))) == []
    assert kinds(drive.at(30.0, LongViewReceived(CALM))) == [("decided", "sjf")]


def test_numbers_rise_by_one_with_each_decision_that_is_sent() -> None:
    drive = started()
    effects = drive.run(0.25, 16.0) + drive.at(45.0, LongViewReceived(MISSES))
    assert [decision.seq for decision in sent(drive.effects)] == list(range(1, 2 + len(sent(effects))))
    assert records(effects)[-1].seq == sent(effects)[-1].seq - 1


@pytest.mark.parametrize(("age_s", "repeated"), [(10.0, True), (10.1, False)])
def test_a_decision_is_repeated_while_views_are_fresh(age_s: float, repeated: bool) -> None:
    drive = started()
    drive.at(20.0, ShortViewReceived(SHORT))
    assert bool(sent(drive.at(20.0 + age_s, TimerTicked()))) is repeated


@pytest.mark.parametrize(("seq", "following"), [(77, 78), (0, 1), (MAX_SEQ, MAX_SEQ + 1), (MAX_SEQ + 5, MAX_SEQ + 1)])
def test_numbers_go_on_from_the_last_writers_within_bounds(seq: int, following: int) -> None:
    drive = Drive()
    drive.at(0.0, TopologyRestored(topology_decision(EDF, epoch=2, seq=seq)), EpochGranted(3))
    (decision,) = sent(drive.at(0.0, TimerTicked()))
    assert (decision.seq, decision.epoch) == (following, 3)


@pytest.mark.parametrize(("dwell_s", "switched"), [(29.9, False), (30.0, True)])
def test_a_topology_dwells_for_its_least_time(dwell_s: float, switched: bool) -> None:
    drive = started(decide_every_s=1.0)
    drive.at(30.0, LongViewReceived(MISSES))
    blocked = replace(MISSES, predicted_total_cv=2.0)
    assert (topologies(drive.at(30.0 + dwell_s, LongViewReceived(blocked))) == [(LANES, False)]) is switched


def test_keeping_the_topology_needs_no_dwell_and_changes_its_reason() -> None:
    drive = started(decide_every_s=1.0)
    drive.at(30.0, ShortViewReceived(SHORT), LongViewReceived(MISSES))
    effects = drive.at(31.0, LongViewReceived(replace(MISSES, ttft_violation_rate=0.3)))
    assert (kinds(effects), topologies(effects)) == ([("decided", "edf")], [(EDF, False)])
    assert sent(effects)[0].reason.startswith("30% of first tokens late")
    assert kinds(drive.run(40.0, 55.0, replace(SHORT, violation_rate=0.9))) == [("rolled_back", "sjf")]


# --- guards


def test_a_switch_is_taken_back_within_its_window_alone() -> None:
    worse = replace(SHORT, violation_rate=0.9)
    for quiet_s, back in ((29.0, True), (30.5, False)):
        drive = started(decide_every_s=5.0)
        drive.at(10.0, ShortViewReceived(SHORT), LongViewReceived(MISSES))
        drive.run(10.25, 10.0 + quiet_s)
        assert bool(kinds(drive.run(10.0 + quiet_s, 60.0, worse))) is back


def test_a_topology_that_was_taken_back_is_banned_for_its_time() -> None:
    drive = started(decide_every_s=1.0, min_dwell_s=0.0)
    drive.at(10.0, ShortViewReceived(SHORT), LongViewReceived(MISSES))
    effects = drive.run(10.25, 17.25, replace(SHORT, violation_rate=0.9))
    assert kinds(effects) == [("rolled_back", "sjf")]
    (decision,) = [d for d in sent(effects) if d.topology is SJF]
    assert decision.reason.startswith("rolled back from edf: ")
    assert decision.selector == "rollback"
    at_s = 16.75  # of the fourth view that was worse
    assert kinds(drive.at(at_s + 119.9, LongViewReceived(MISSES))) == [("rejected", "edf")]
    assert kinds(drive.at(at_s + 120.95, LongViewReceived(MISSES))) == [("decided", "edf")]
    assert kinds(drive.at(at_s + 122.0, LongViewReceived(CALM))) == [("decided", "edf")]


def test_a_restored_choice_is_not_taken_back_once_more() -> None:
    drive = started(decide_every_s=1.0)
    drive.at(10.0, ShortViewReceived(SHORT), LongViewReceived(MISSES))
    assert kinds(drive.run(10.25, 45.0, replace(SHORT, violation_rate=0.9))) == [("rolled_back", "sjf")]


def test_the_bypass_ends_to_the_selectors_choice_and_dwells() -> None:
    drive = started(decide_every_s=1.0)
    drive.run(1.0, 11.25, COLLAPSED)
    effects = drive.run(11.25, 30.0)
    assert (kinds(effects), topologies(effects)[-1]) == ([("bypass_off", "sjf")], (SJF, False))
    off_s = 21.25
    assert kinds(drive.at(off_s + 29.9, LongViewReceived(MISSES))) == [("rejected", "edf")]
    assert kinds(drive.at(off_s + 31.0, LongViewReceived(MISSES))) == [("decided", "edf")]


def test_guards_rest_while_a_pin_lasts_and_begin_anew_after_it() -> None:
    drive = started()
    drive.run(1.0, 9.0, COLLAPSED)
    drive.at(9.0, PinChanged(Pin("m", EDF)), PinChanged(Pin("m", None)))
    assert kinds(drive.run(9.25, 19.0, COLLAPSED)) == []
    assert kinds(drive.run(19.0, 20.0, COLLAPSED)) == [("bypass_on", "fcfs")]


# --- pins


def test_a_pin_is_told_with_who_set_it() -> None:
    for by, who in (("me", "me"), ("", "an operator")):
        drive = started()
        effects = drive.at(1.0, PinChanged(Pin("m", EDF, Hints(slack_share=0.1), by)))
        (record,), (decision,) = records(effects), sent(effects)
        assert (record.kind, record.decision, record.reason, record.selector) == ("pinned", "edf", f"by {who}", "pin")
        assert (decision.reason, decision.selector, decision.hints) == (
            f"pinned by {who}",
            "pin",
            Hints(slack_share=0.1),
        )
        assert not decision.bypass


def test_lifting_no_pin_says_nothing_and_a_standby_takes_pins_in_silence() -> None:
    drive = started()
    assert drive.at(1.0, PinChanged(Pin("m", None))) == []
    standby = Drive()
    assert standby.at(1.0, PinChanged(Pin("m", EDF))) == []
    standby.at(2.0, EpochGranted(3))
    assert topologies(standby.at(2.0, TimerTicked())) == [(EDF, False)]
    (changed,) = records(drive.at(2.0, PinChanged(Pin("m", EDF))) + drive.at(3.0, PinChanged(Pin("m", LANES))))[1:]
    assert (changed.kind, changed.decision) == ("pinned", "two_lane")


def test_after_a_pin_the_selectors_choice_dwells() -> None:
    drive = started(decide_every_s=1.0)
    drive.at(50.0, PinChanged(Pin("m", LANES)))
    assert drive.at(60.0, LongViewReceived(MISSES)) == []
    drive.at(61.0, PinChanged(Pin("m", None)))
    assert kinds(drive.at(90.9, LongViewReceived(MISSES))) == [("rejected", "edf")]
    assert kinds(drive.at(92.0, LongViewReceived(MISSES))) == [("decided", "edf")]


# --- a language model


def test_a_question_is_numbered_and_answered_before_its_deadline() -> None:
    for after_s, applied in ((9.9, True), (10.0, False)):
        drive = started(selector="llm")
        first = asked(drive, 30.0)
        effects = drive.at(30.0 + after_s, SelectorAnswered(first.ask, "m", GOOD_ANSWER, ""))
        assert (kinds(effects)[0] == ("decided", "two_lane")) is applied
        second = asked(drive, 61.0)
        assert (first.ask, second.ask) == (1, 2)
        assert drive.at(62.0, SelectorAnswered(1, "m", GOOD_ANSWER, "")) == []


def test_a_question_is_given_up_at_its_deadline() -> None:
    drive = started(selector="llm")
    ask = asked(drive, 30.0)
    assert (ask.hints, ask.current) == (Hints(), SJF)
    assert records(drive.at(39.99, TimerTicked())) == []
    assert [r.kind for r in records(drive.at(40.0, TimerTicked()))] == ["rejected", "decided"]
    assert records(drive.at(40.1, TimerTicked())) == []


def test_the_bypass_drops_a_question() -> None:
    drive = started(selector="llm", ask_timeout_s=60.0)
    ask = asked(drive, 30.0)
    assert kinds(drive.run(30.25, 42.0, COLLAPSED)) == [("bypass_on", "fcfs")]
    assert drive.at(42.0, SelectorAnswered(ask.ask, "m", GOOD_ANSWER, "")) == []
    assert [e for e in drive.at(60.0, LongViewReceived(MISSES)) if isinstance(e, AskSelector)] == []


# --- epochs and pools


def test_a_restored_decision_counts_for_a_standby_and_for_a_leader_that_decided_nothing() -> None:
    last = topology_decision(LANES, epoch=3, seq=9, reason="long work", selector="llm")
    drive = started()  # of epoch 3
    assert topologies(drive.at(0.5, TopologyRestored(last), TimerTicked())) == []
    assert topologies(drive.at(0.6, TopologyRestored(replace(last, epoch=2)), TimerTicked())) == [(LANES, False)]
    (decision,) = drive.agent.decisions()
    assert (decision.reason, decision.selector) == ("long work", "llm")
    assert topologies(drive.at(0.7, TopologyRestored(replace(last, epoch=2, topology=EDF)), TimerTicked())) == []


@pytest.mark.parametrize("event", ["pin", "bypass", "decision"])
def test_whatever_was_decided_outranks_a_decision_that_is_read_late(event: str) -> None:
    drive = begun()
    match event:
        case "pin":
            drive.at(1.0, PinChanged(Pin("m", EDF)), PinChanged(Pin("m", None)))
        case "bypass":
            drive.run(1.0, 30.0, COLLAPSED)
            drive.run(30.0, 50.0)
        case "decision":
            drive.at(20.0, LongViewReceived(CALM))
    drive.at(60.0, TopologyRestored(topology_decision(LANES, epoch=2)))
    (decision,) = drive.agent.decisions()
    assert decision.topology is SJF


def test_a_standby_follows_a_bypass_and_its_end() -> None:
    drive = Drive()
    on = topology_decision(FCFS, bypass=True, epoch=3, reason="collapse", selector="bypass")
    drive.at(0.0, TopologyRestored(on))
    (decision,) = drive.agent.decisions()
    assert (decision.bypass, decision.reason, decision.selector) == (True, "collapse", "bypass")
    drive.at(1.0, TopologyRestored(on), TopologyRestored(topology_decision(EDF, epoch=3)))
    (decision,) = drive.agent.decisions()
    assert (decision.bypass, decision.topology) == (False, EDF)
    drive.at(2.0, PinChanged(Pin("m", LANES)), TopologyRestored(on))
    (decision,) = drive.agent.decisions()
    assert (decision.bypass, decision.topology) == (False, LANES)


@pytest.mark.parametrize(("silent_s", "known"), [(3599.0, True), (3600.0, False)])
def test_a_pool_is_forgotten_after_its_silence_unless_it_is_pinned(silent_s: float, known: bool) -> None:
    drive = started()
    drive.at(silent_s, TimerTicked())
    assert bool(drive.agent.decisions()) is known
    pinned = started()
    pinned.at(0.0, PinChanged(Pin("m", EDF)))
    pinned.at(silent_s, TimerTicked())
    assert pinned.agent.decisions()


def test_the_pool_that_was_heard_of_longest_ago_makes_room() -> None:
    drive = Drive(max_pools=2)
    for now_s, name in enumerate(("a", "b", "a", "c")):
        drive.at(float(now_s), ShortViewReceived(replace(SHORT, pool=name)))
    assert [decision.pool for decision in drive.agent.decisions()] == ["a", "c"]


# --- layouts


def chosen(view: Any, config: LayoutConfig = ADAPTIVE, step_s: float = 0.09) -> bool:
    drive = begun(config)
    drive.at(0.95, ShortViewReceived(stepping(step_s)))
    return bool(layouts(drive.at(1.0, LongViewReceived(view))))


def test_a_layout_needs_enough_requests_observations_and_stated_slos() -> None:
    for requests, split in ((50, True), (49, False)):
        demands = tuple(replace(d, requests=requests, prompt_tokens=d.prompt_tokens * requests // 400,
                                output_tokens=d.output_tokens * requests // 400,
                                context_tokens=d.context_tokens * requests / 400) for d in TIGHT.demands)  # fmt: skip
        more = replace(TIGHT, demands=(demands[0], replace(demands[1], requests=50)))
        assert chosen(more) is split
    for observations, split in ((3, True), (2, False)):
        assert (
            chosen(replace(TIGHT, paces=(pace("e1", observations=observations), pace("e2", observations=0)))) is split
        )
    for stated, split in ((0.5, True), (0.499, False)):
        assert chosen(replace(TIGHT, stated_share=stated)) is split


def test_half_of_the_engines_must_be_known() -> None:
    for names, split in ((("e1", "e2", "e3", "e4"), True), (("e1", "e2", "e3", "e4", "e5"), False)):
        drive = Drive(layout=ADAPTIVE)
        drive.at(0.0, beat(*names), EpochGranted(3), TimerTicked())
        drive.at(0.9, ShortViewReceived(stepping(0.09)))
        busy = tuple(replace(d, rps=2.0 * d.rps) for d in TIGHT.demands)
        assert bool(layouts(drive.at(1.0, LongViewReceived(replace(TIGHT, demands=busy))))) is split


def test_a_layout_is_kept_for_its_least_time() -> None:
    lax = replace(TIGHT, seq=2, demands=(demand(0.2, 4.0, 600),))
    for after_s, changed in ((59.9, False), (60.0, True)):
        drive = begun()
        drive.at(1.0, LongViewReceived(TIGHT))
        assert ("mixed" in layouts(drive.at(1.0 + after_s, LongViewReceived(lax)))) is changed


def test_a_standby_and_a_pool_in_bypass_choose_no_layout() -> None:
    drive = Drive(layout=ADAPTIVE)
    drive.at(0.0, beat("e1", "e2"))
    drive.at(0.9, ShortViewReceived(stepping(0.09)))
    assert drive.at(1.0, LongViewReceived(TIGHT)) == []
    assert not chosen(TIGHT, replace(ADAPTIVE, adaptive=False))
    assert not chosen(FAST)


def test_the_reason_of_a_layout_is_the_share_on_time_before_and_after() -> None:
    drive = begun()
    (record,) = records(drive.at(1.0, LongViewReceived(TIGHT)))
    assert record.decision == "<= 65 ms: 1, > 65 ms: 1"
    assert record.reason.startswith("on time, as expected: ")
    before, after = (float(part.rstrip("%")) for part in record.reason.split(": ")[1].split(" with ")[0].split(" to "))
    assert 0.0 < before < after <= 100.0
    gain = (after - before) / 100.0
    assert chosen(TIGHT, replace(ADAPTIVE, margin=gain - 0.002))
    assert not chosen(TIGHT, replace(ADAPTIVE, margin=gain + 0.002))


def test_layouts_before_are_remembered_for_the_window_and_the_start_of_a_rehearsal() -> None:
    drive = Drive(layout=replace(ADAPTIVE, hold_s=0.0))
    drive.at(0.0, beat("e1", "e2"), EpochGranted(3))
    (pool,) = drive.agent._state.pools.values()
    keep_s = RehearsalConfig().window_s + WARM_S
    for now_s, cut in ((10.0, 0.1), (20.0, 0.2), (10.0 + keep_s, 0.3), (10.1 + keep_s, 0.4)):
        pool.lay_out(now_s, Split((cut,), (1, 1)), ("w/e2",), keep_s, "why", "pace")
    assert pool.layouts == (
        (20.0, Split((0.1,), (1, 1))), (10.0 + keep_s, Split((0.2,), (1, 1))), (10.1 + keep_s, Split((0.3,), (1, 1))),
    )  # fmt: skip
    assert pool.places() == ["w/e2", "w/e1"]


@pytest.mark.parametrize(("silent_s", "kept"), [(3.5, True), (3.6, False)])
def test_a_silent_worker_has_no_engines(silent_s: float, kept: bool) -> None:
    drive = Drive()
    drive.at(0.0, beat("e1"))
    drive.at(silent_s, beat("x", worker="v"))
    (pool,) = drive.agent._state.pools.values()
    assert pool.places() == (["v/x", "w/e1"] if kept else ["v/x"])
    assert set(pool.beats) == ({"v", "w"} if kept else {"v"})


# --- rehearsals


def test_the_cpu_budget_pauses_in_proportion_to_what_was_spent() -> None:
    budget = CpuBudget(0.25)
    assert budget.free(-1e9)
    budget.spend(100.0, 5.0)
    assert not budget.free(119.9)
    assert budget.free(120.0)
    budget.spend(90.0, 5.0)  # one that began before does not shorten the pause
    assert not budget.free(119.9)


@pytest.mark.parametrize(
    ("low", "miss", "found"),
    [(0.0101, 0.0, True), (0.01, 0.0, False), (0.0401, 0.04, True), (0.04, 0.0401, False), (0.04, -0.0401, False)],
)
def test_a_winner_is_clear_of_the_margin_and_of_what_the_simulation_misses(
    low: float, miss: float, found: bool
) -> None:
    answer = outcome(question(look(rehearsing(), 30.0)), 0.5)
    assert answer.rehearsal is not None
    (candidate,) = answer.rehearsal.candidates
    worse = replace(candidate, gain=0.1, low=0.09)
    rehearsal = replace(
        answer.rehearsal, candidates=(worse, replace(candidate, low=low)), observed=replace(FIGURES, on_time=0.5),
        in_force=replace(FIGURES, on_time=0.5 + miss),
    )  # fmt: skip
    best = winner(RehearsalConfig(), rehearsal)
    assert (best is not None) is found
    assert winner(RehearsalConfig(), replace(rehearsal, candidates=())) is None
    assert gain_told(worse) == "+10.0 points predicted (+9.0 to +51.0)"


def test_one_rehearsal_is_under_way_at_a_time_and_none_before_the_dwell_is_over() -> None:
    drive = rehearsing()
    asked_of = question(look(drive, 30.0))
    assert (asked_of.number, asked_of.window_s, asked_of.timeout_s, asked_of.pool) == (1, 300.0, 180.0, "m")
    assert [e for e in look(drive, 60.0) if isinstance(e, Rehearse)] == []
    drive.at(61.0, outcome(asked_of, 0.06))  # a switch
    blocked = replace(MISSES, predicted_total_cv=2.0)
    assert [e for e in look(drive, 90.9, blocked) if isinstance(e, Rehearse)] == []
    assert question(look(drive, 106.0, blocked)).number == 2


def test_no_rehearsal_begins_without_engines() -> None:
    drive = rehearsing()
    assert [e for e in drive.at(30.0, LongViewReceived(MISSES)) if isinstance(e, Rehearse)] == []
    drive.at(31.0, HeartbeatReceived(replace(BEAT, draining=True)))
    assert [e for e in drive.at(50.0, LongViewReceived(MISSES)) if isinstance(e, Rehearse)] == []


def test_a_proposal_of_what_is_in_force_is_told_and_not_rehearsed() -> None:
    effects = look(rehearsing(), 30.0, CALM)
    assert kinds(effects) == [("decided", "sjf")]
    assert [e for e in effects if isinstance(e, Rehearse)] == []


def test_an_outcome_is_overdue_at_its_deadline() -> None:
    drive = rehearsing()
    look(drive, 30.0)
    assert records(drive.at(209.9, TimerTicked())) == []
    assert [r.kind for r in records(drive.at(210.0, TimerTicked()))] == ["rejected"]


def test_an_answer_to_another_rehearsal_costs_its_time_alone() -> None:
    drive = rehearsing()
    asked_of = question(look(drive, 30.0))
    answer = outcome(asked_of, 0.06)
    assert drive.at(31.0, replace(answer, number=7)) == []
    assert kinds(drive.at(32.0, answer)) == [("decided", "edf")]


def test_what_came_of_a_switch_is_compared_when_it_is_due() -> None:
    drive = rehearsing()
    drive.at(36.0, outcome(question(look(drive, 30.0, replace(MISSES, goodput_rate=0.8))), 0.06))
    told = [[r.kind for r in records(look(drive, at_s, CALM))].count("outcome") for at_s in (165.9, 166.0, 200.0)]
    assert told == [0, 1, 0]
    (record,) = [r for r in records(drive.effects) if r.kind == "outcome"]
    assert record.observed_gain == pytest.approx(CALM.goodput_rate - 0.8)


def test_a_switch_that_was_replaced_is_compared_with_nothing() -> None:
    drive = rehearsing()
    drive.at(36.0, outcome(question(look(drive, 30.0)), 0.06))
    drive.at(40.0, PinChanged(Pin("m", LANES)))
    assert [r for r in records(look(drive, 170.0, CALM)) if r.kind == "outcome"] == []
    drive.at(171.0, PinChanged(Pin("m", None)))
    assert [r for r in records(look(drive, 190.0, CALM)) if r.kind == "outcome"] == []


def test_a_lost_epoch_drops_the_rehearsal() -> None:
    drive = rehearsing()
    asked_of = question(look(drive, 30.0))
    drive.at(31.0, EpochLost(), EpochGranted(9))
    assert records(drive.at(32.0, outcome(asked_of, 0.5))) == []
    assert isinstance(question(look(drive, 60.0)), Rehearse)
    assert drive.at(61.0, RehearsalAnswered(number=1, rehearsal=None, error="")) == []


def test_a_heartbeat_alone_makes_a_pool_known() -> None:
    drive = Drive()
    drive.at(0.0, HeartbeatReceived(replace(HEARTBEAT, pool="n")))
    assert [(d.pool, d.topology) for d in drive.agent.decisions()] == [("n", TopologyName.SJF)]
