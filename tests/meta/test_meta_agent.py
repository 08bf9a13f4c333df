import json
from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.control import MAX_EPOCH, MIXED, AuditRecord, Hints, LayoutDecision, Pin, TopologyName
from hmas.contracts.control_agents import (
    AskSelector,
    EpochGranted,
    EpochLost,
    LongViewReceived,
    MetaEffect,
    PinChanged,
    PublishAudit,
    PublishLayout,
    PublishTopology,
    SelectorAnswered,
    ShortViewReceived,
    TimerTicked,
    TopologyRestored,
)
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.views import VLong, VShort
from hmas.meta.agent import MetaAgent
from hmas.meta.agent.config import MetaConfig, RulesConfig
from hmas.meta.settings import MetaSettings
from tests.builders.control import topology_decision
from tests.builders.registry import worker_heartbeat
from tests.builders.views import v_long, v_short

HEARTBEAT = worker_heartbeat("w")
SHORT = v_short()
CALM = v_long()
MISSES = replace(CALM, violation_rate=0.2, ttft_violation_rate=0.2)  # the rules say EDF
BLOCKED = replace(MISSES, predicted_total_cv=2.0)  # the rules say two lanes
COLLAPSED = replace(SHORT, violation_rate=0.99, kept_violation_rate=0.99)
SJF, EDF, FCFS, LANES = TopologyName.SJF, TopologyName.EDF, TopologyName.FCFS, TopologyName.TWO_LANE
GOOD_ANSWER = json.dumps(
    {
        "topology": "two_lane",
        "reason": "long work blocks",
        "bypass": False,
        "hints": {"lane_gate_s": 3.0, "fast_weight": 0.8},
    }
)


class Drive:
    """An agent and what it said so far, with the rules of H-MAS Algorithm 1, which switch more than the default's."""

    def __init__(self, **config: Any) -> None:
        self.agent = MetaAgent(MetaConfig(**{"rules": RulesConfig(usual=SJF)} | config))
        self.effects: list[MetaEffect] = []

    def at(self, now_s: float, *events: Any) -> list[MetaEffect]:
        new = [effect for event in events for effect in self.agent.step(now_s, event)]
        self.effects += new
        return new

    def run(self, start_s: float, end_s: float, short: VShort = SHORT) -> list[MetaEffect]:
        new: list[MetaEffect] = []
        for i in range(int((end_s - start_s) * 4)):
            new += self.at(start_s + i * 0.25, ShortViewReceived(short), TimerTicked())
        return new


def started(**config: Any) -> Drive:
    drive = Drive(**config)
    drive.at(0.0, HeartbeatReceived(HEARTBEAT), EpochGranted(3), TimerTicked())
    return drive


def topologies(effects: list[MetaEffect]) -> list[tuple[TopologyName, bool]]:
    return [(e.decision.topology, e.decision.bypass) for e in effects if isinstance(e, PublishTopology)]


def records(effects: list[MetaEffect]) -> list[AuditRecord]:
    return [e.record for e in effects if isinstance(e, PublishAudit)]


def kinds(effects: list[MetaEffect]) -> list[tuple[str, str]]:
    return [(r.kind, r.decision) for r in records(effects)]


@pytest.mark.parametrize(("rules", "first"), [(RulesConfig(), TopologyName.MAX_ON_TIME), (RulesConfig(usual=SJF), SJF)])
def test_it_starts_with_the_usual_topology(rules: RulesConfig, first: TopologyName) -> None:
    drive = Drive(rules=rules)
    drive.at(0.0, HeartbeatReceived(HEARTBEAT), EpochGranted(3))
    effects = drive.at(0.1, TimerTicked())
    layout = LayoutDecision(
        pool="m", layout=MIXED, epoch=3, seq=1, valid_for_s=15.0, reason="initial layout", selector="initial"
    )
    assert effects[0] == PublishLayout(layout)
    initial = topology_decision(first, epoch=3, reason="initial topology", selector="initial")
    assert effects[1] == PublishTopology(initial)


def test_the_decision_is_repeated_every_third_of_its_validity() -> None:
    drive = started()
    times = [t * 0.25 for t in range(1, 121) if topologies(drive.run(t * 0.25, t * 0.25 + 0.25))]
    assert times == [5.0, 10.0, 15.0, 20.0, 25.0, 30.0]


def test_without_views_nothing_is_repeated_until_they_return() -> None:
    drive = started()
    drive.run(0.25, 1.0)
    late = [t for t in range(5, 60) if topologies(drive.at(float(t), TimerTicked()))]
    assert late == [5, 10]
    assert topologies(drive.at(60.0, ShortViewReceived(SHORT))) == [(SJF, False)]


def test_rules_decide_every_period_and_each_decision_is_audited_with_its_view() -> None:
    drive = started()
    drive.run(0.25, 30.0)
    assert drive.at(14.9, LongViewReceived(MISSES)) == []
    effects = drive.at(30.0, LongViewReceived(MISSES))
    assert topologies(effects) == [(EDF, False)]
    (record,) = records(effects)
    assert (record.source, record.kind, record.decision, record.selector) == ("meta", "decided", "edf", "rules")
    assert json.loads(record.view_json)["ttft_violation_rate"] == 0.2
    assert record.epoch == 3
    assert drive.at(35.0, LongViewReceived(BLOCKED)) == []  # not due
    assert kinds(drive.at(45.0, LongViewReceived(CALM))) == [("decided", "edf")]  # kept, and said so


def test_minimum_dwell() -> None:
    drive = started(decide_every_s=5.0)
    drive.at(30.0, ShortViewReceived(SHORT), LongViewReceived(MISSES))
    effects = drive.at(40.0, LongViewReceived(BLOCKED))
    assert (kinds(effects), topologies(effects)) == ([("rejected", "two_lane")], [])
    assert records(effects)[0].reason.startswith("minimum dwell")
    assert topologies(drive.at(60.0, LongViewReceived(BLOCKED))) == [(LANES, False)]


def test_rollback_restores_the_last_stable_topology_and_bans_the_other() -> None:
    drive = started(decide_every_s=5.0, min_dwell_s=10.0)
    drive.at(10.0, ShortViewReceived(SHORT), LongViewReceived(MISSES))
    worse = replace(SHORT, violation_rate=0.5)
    effects = drive.run(10.25, 30.0, worse)
    assert kinds(effects) == [("rolled_back", "sjf")]
    assert (SJF, False) in topologies(effects)
    again = drive.at(40.0, LongViewReceived(MISSES))
    assert (kinds(again), topologies(again)) == ([("rejected", "edf")], [])
    assert "rolled back lately" in records(again)[0].reason
    assert topologies(drive.at(140.0, LongViewReceived(MISSES))) == [(EDF, False)]


def test_bypass_overrides_the_selector_and_the_last_good_choice_returns() -> None:
    drive = started(decide_every_s=5.0)
    drive.at(30.0, ShortViewReceived(SHORT), LongViewReceived(MISSES))
    effects = drive.run(61.0, 75.0, COLLAPSED)
    assert kinds(effects) == [("bypass_on", "fcfs")]
    assert (FCFS, True) in topologies(effects)
    assert drive.at(75.0, LongViewReceived(BLOCKED)) == []
    effects = drive.run(75.25, 90.0)
    assert kinds(effects) == [("bypass_off", "edf")]
    assert topologies(effects)[-1] == (EDF, False)
    assert kinds(drive.at(90.0, LongViewReceived(BLOCKED))) == [("rejected", "two_lane")]  # it dwells first


def test_a_pin_outranks_selector_bypass_and_rollback() -> None:
    drive = started(decide_every_s=5.0)
    drive.run(61.0, 75.0, COLLAPSED)
    pin = Pin("m", LANES, Hints(fast_weight=0.9), "ops")
    effects = drive.at(80.0, PinChanged(pin))
    assert (kinds(effects), topologies(effects)) == ([("pinned", "two_lane")], [(LANES, False)])
    assert drive.at(80.1, PinChanged(pin)) == []
    effects = drive.run(81.0, 140.0, COLLAPSED) + drive.at(140.0, LongViewReceived(MISSES))
    assert set(topologies(effects)) == {(LANES, False)}
    assert kinds(effects) == []
    effects = drive.at(141.0, PinChanged(Pin("m", None, by="ops")))
    assert (kinds(effects), topologies(effects)) == ([("unpinned", "sjf")], [(SJF, False)])


def test_a_pin_is_repeated_without_views() -> None:
    drive = started()
    drive.at(1.0, PinChanged(Pin("m", EDF)))
    sent = [t for t in range(2, 40) if topologies(drive.at(float(t), TimerTicked()))]
    assert sent == list(range(6, 40, 5))


def test_pools_are_decided_apart() -> None:
    drive = started()
    other = replace(HEARTBEAT, worker="x", pool="n")
    drive.at(0.5, HeartbeatReceived(other), TimerTicked())
    drive.at(20.0, *(ShortViewReceived(replace(SHORT, pool=p)) for p in ("m", "n")))
    effects = drive.at(20.0, LongViewReceived(replace(MISSES, pool="n")), LongViewReceived(CALM))
    assert [(r.pool, r.decision) for r in records(effects)] == [("n", "edf"), ("m", "sjf")]


# --- epochs ------------------------------------------------------------------------------------------------------


def test_a_standby_is_silent_and_goes_on_from_the_last_decision() -> None:
    drive = Drive()
    drive.at(0.0, HeartbeatReceived(HEARTBEAT))
    last = topology_decision(LANES, hints=Hints(lane_gate_s=2.0), epoch=3, seq=77, reason="long work", selector="llm")
    drive.at(0.1, TopologyRestored(last))
    assert drive.run(0.25, 20.0) + drive.at(20.0, LongViewReceived(MISSES)) == []
    drive.at(21.0, EpochGranted(4))
    layout, effect = drive.at(21.25, TimerTicked())
    assert isinstance(layout, PublishLayout)
    assert isinstance(effect, PublishTopology)
    assert effect.decision == replace(last, epoch=4, seq=78)


def test_a_last_decision_read_late_counts_until_something_was_decided() -> None:
    last = topology_decision(LANES, epoch=2, seq=77, reason="long work")
    drive = started()
    assert topologies(drive.at(0.5, TopologyRestored(last), TimerTicked())) == [(LANES, False)]
    drive = started()
    drive.at(20.0, ShortViewReceived(SHORT), LongViewReceived(MISSES))
    assert topologies(drive.at(20.5, TopologyRestored(last), TimerTicked())) == []


def test_a_bypass_in_force_is_taken_over() -> None:
    drive = Drive()
    last = topology_decision(FCFS, bypass=True, epoch=3, seq=77, reason="collapse", selector="bypass")
    drive.at(0.0, HeartbeatReceived(HEARTBEAT), TopologyRestored(last), EpochGranted(4))
    assert topologies(drive.at(0.25, TimerTicked())) == [(FCFS, True)]


def test_a_lost_epoch_silences_and_a_new_one_speaks_at_once() -> None:
    drive = started()
    drive.at(1.0, EpochLost())
    assert drive.run(1.0, 30.0) == []
    drive.at(30.0, EpochGranted(9))
    layout, effect = drive.at(30.1, TimerTicked())
    assert isinstance(layout, PublishLayout)
    assert isinstance(effect, PublishTopology)
    assert effect.decision.epoch == 9


def test_a_new_epoch_does_not_wait_until_the_repetition_is_due() -> None:
    drive = started()
    assert drive.at(1.0, EpochLost(), EpochGranted(9)) == []
    layout, effect = drive.at(1.1, TimerTicked())
    assert isinstance(layout, PublishLayout)
    assert isinstance(effect, PublishTopology)
    assert effect.decision.epoch == 9


def test_views_of_a_qos_copy_without_lease_are_ignored() -> None:
    drive = started()
    drive.at(1.0, ShortViewReceived(replace(SHORT, epoch=5)))
    assert kinds(drive.run(2.0, 15.0, replace(COLLAPSED, epoch=4))) == []


def test_views_are_heard_again_after_their_epochs_began_anew() -> None:
    """The leases were lost together with the QoS copy that held one; or the epoch was a stranger's."""
    drive = started()
    drive.at(1.0, ShortViewReceived(replace(SHORT, epoch=MAX_EPOCH - 1)))
    assert kinds(drive.run(2.0, 30.0, replace(COLLAPSED, epoch=1))) == [("bypass_on", "fcfs")]


def test_the_number_of_pools_is_bounded_and_the_live_one_stays() -> None:
    """A pin keeps its pool for ever, so that strangers' pins would fill the memory."""
    drive = started()
    for i in range(1000):
        drive.at(1.0 + i / 1000, PinChanged(Pin(f"pool-{i}", EDF)), ShortViewReceived(SHORT))
    pools = {decision.pool for decision in drive.agent.decisions()}
    assert len(pools) == 256
    assert SHORT.pool in pools


def test_a_long_view_of_a_qos_copy_without_lease_decides_nothing() -> None:
    drive = started()
    drive.at(6.0, LongViewReceived(replace(CALM, epoch=5)))
    assert drive.at(20.0, LongViewReceived(replace(MISSES, epoch=4))) == []
    assert kinds(drive.at(20.0, LongViewReceived(replace(MISSES, epoch=5)))) == [("decided", "edf")]


# --- the slow selector -------------------------------------------------------------------------------------------


def asked(drive: Drive, now_s: float, view: VLong = MISSES) -> AskSelector:
    (ask,) = drive.at(now_s, ShortViewReceived(SHORT), LongViewReceived(view))[-1:]
    assert isinstance(ask, AskSelector)
    return ask


def test_a_good_answer_is_applied() -> None:
    drive = started(selector="llm")
    ask = asked(drive, 30.0)
    assert (ask.view, ask.current, ask.timeout_s) == (MISSES, SJF, 10.0)
    effects = drive.at(33.0, SelectorAnswered(ask.ask, "m", GOOD_ANSWER, ""))
    (record,) = records(effects)
    assert (record.kind, record.decision, record.selector) == ("decided", "two_lane", "llm")
    (decision,) = [e.decision for e in effects if isinstance(e, PublishTopology)]
    assert (decision.topology, decision.hints) == (LANES, Hints(lane_gate_s=3.0, fast_weight=0.8))


BAD_ANSWERS = {
    "garbage": ("I choose EDF!", ""),
    "not in Omega": (GOOD_ANSWER.replace("two_lane", "round_and_round"), ""),
    "wrong shape": ('{"topology": {"name": "edf"}, "confidence": 1}', ""),
    "HTTP 500": ("", "HTTP 500 from the endpoint"),
    "empty": ("", ""),
}


@pytest.mark.parametrize(("answer", "error"), BAD_ANSWERS.values(), ids=BAD_ANSWERS.keys())
def test_a_bad_answer_is_rejected_audited_and_the_rules_decide(answer: str, error: str) -> None:
    drive = started(selector="llm")
    ask = asked(drive, 30.0)
    effects = drive.at(31.0, SelectorAnswered(ask.ask, "m", answer, error))
    assert kinds(effects) == [("rejected", "none"), ("decided", "edf")]
    assert [r.selector for r in records(effects)] == ["llm", "rules"]
    assert all(json.loads(r.view_json)["ttft_violation_rate"] == 0.2 for r in records(effects))
    assert topologies(effects) == [(EDF, False)]


def test_at_the_time_out_the_rules_decide_and_the_late_answer_is_ignored() -> None:
    drive = started(selector="llm")
    ask = asked(drive, 30.0)
    assert kinds(drive.run(30.25, 40.0)) == []
    effects = drive.run(40.0, 40.25)
    assert kinds(effects) == [("rejected", "none"), ("decided", "edf")]
    assert "no answer in 10 s" in records(effects)[0].reason
    assert drive.at(90.0, SelectorAnswered(ask.ask, "m", GOOD_ANSWER, "")) == []


def test_an_answer_after_the_deadline_is_late_even_if_no_timer_said_so() -> None:
    drive = started(selector="llm")
    ask = asked(drive, 30.0)
    effects = drive.at(41.0, SelectorAnswered(ask.ask, "m", GOOD_ANSWER, ""))
    assert kinds(effects) == [("rejected", "none"), ("decided", "edf")]


def test_one_question_at_a_time() -> None:
    drive = started(selector="llm", ask_timeout_s=60.0)
    asked(drive, 30.0)
    assert drive.at(45.0, LongViewReceived(MISSES)) == []


@pytest.mark.parametrize("meanwhile", [PinChanged(Pin("m", FCFS)), EpochLost()])
def test_an_answer_overtaken_by_events_is_ignored(meanwhile: Any) -> None:
    drive = started(selector="llm")
    ask = asked(drive, 30.0)
    drive.at(31.0, meanwhile)
    assert drive.at(32.0, SelectorAnswered(ask.ask, "m", GOOD_ANSWER, "")) == []


def test_answers_to_unknown_questions_are_ignored() -> None:
    drive = started(selector="llm")
    ask = asked(drive, 30.0)
    assert drive.at(31.0, SelectorAnswered(ask.ask + 1, "m", GOOD_ANSWER, "")) == []
    assert drive.at(31.0, SelectorAnswered(ask.ask, "nobody", GOOD_ANSWER, "")) == []


def test_the_selector_may_ask_for_bypass_and_the_guard_clears_it() -> None:
    drive = started(selector="llm")
    ask = asked(drive, 30.0)
    answer = GOOD_ANSWER.replace("false", "true")
    effects = drive.at(31.0, SelectorAnswered(ask.ask, "m", answer, ""))
    assert (kinds(effects), topologies(effects)) == ([("bypass_on", "fcfs")], [(FCFS, True)])
    assert kinds(drive.run(31.25, 50.0)) == [("bypass_off", "sjf")]


def test_an_unknown_selector_is_refused_with_the_known_ones() -> None:
    known = "rules, llm"
    with pytest.raises(ValueError, match=f"unknown selector 'oracle': choose one of {known}"):
        MetaAgent(MetaConfig(selector="oracle"))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("classifier", "it always chose one topology"), ("changepoint", "it always chose one topology"),
        ("bandit", "one fixed topology was ahead of it on every workload"),
    ],
)  # fmt: skip
def test_an_operator_who_had_a_removed_selector_is_told(name: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = f"the selector '{name}' was removed, because {why}: choose one of rules, llm"
    with pytest.raises(ValueError, match=told):
        MetaAgent(MetaConfig(selector=name))
    monkeypatch.setenv("HMAS_SELECTOR", name)
    with pytest.raises(ValueError, match=f"HMAS_SELECTOR: {told}, or auto"):
        MetaSettings()


def test_a_language_model_elsewhere_needs_a_name() -> None:
    assert MetaSettings(llm_url="http://elsewhere:8000/v1", llm_model="m").asks_llm
    with pytest.raises(ValueError, match="HMAS_LLM_MODEL is empty"):
        MetaSettings(llm_url="http://elsewhere:8000/v1")


def test_a_predecessor_s_pin_is_not_taken_for_its_choice() -> None:
    drive = Drive()
    choice = topology_decision(LANES, epoch=3, seq=76, reason="long work")
    pinned = replace(choice, topology=EDF, seq=77, selector="pin")
    drive.at(0.0, HeartbeatReceived(HEARTBEAT), TopologyRestored(choice), TopologyRestored(pinned), EpochGranted(4))
    assert topologies(drive.at(0.25, TimerTicked())) == [(LANES, False)]
