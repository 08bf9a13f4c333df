"""The meta agent rehearses what its selectors propose, and switches for a clear gain only."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.control import Pin, TopologyName
from hmas.contracts.control_agents import (
    LongViewReceived,
    PinChanged,
    RehearsalAnswered,
    Rehearse,
    SelectorAnswered,
    ShortViewReceived,
    TimerTicked,
)
from hmas.contracts.registry import EngineInfo, HeartbeatReceived
from hmas.contracts.rehearsal import PastFigures, Rehearsal, Rehearsed
from hmas.contracts.views import VLong
from hmas.meta.agent.config import RehearsalConfig
from tests.builders.registry import worker_heartbeat
from tests.meta.test_meta_agent import (
    BLOCKED,
    CALM,
    EDF,
    GOOD_ANSWER,
    LANES,
    MISSES,
    SHORT,
    SJF,
    Drive,
    records,
    started,
)

FIGURES = PastFigures(requests=500, on_time=0.8, ttft_p50_s=1.0, ttft_p95_s=2.0, tenants=())
ENGINE = EngineInfo(
    engine="e", up=True, dialect="vllm", hardware="H100", max_model_len=4096, kv_capacity_tokens=8192, block_size=16,
    max_num_seqs=16,
)  # fmt: skip
BEAT = worker_heartbeat(
    "w", incarnation="1", address="", engines=(ENGINE, replace(ENGINE, engine="f")), max_queued=9, max_queued_tokens=9
)


def rehearsing(**config: Any) -> Drive:
    return started(rehearsal=RehearsalConfig(enabled=True), **config)


def look(drive: Drive, now_s: float, view: VLong = MISSES) -> list[Any]:
    return drive.at(now_s, HeartbeatReceived(BEAT), ShortViewReceived(SHORT), LongViewReceived(view))


def question(effects: list[Any]) -> Rehearse:
    (asked,) = [effect for effect in effects if isinstance(effect, Rehearse)]
    return asked


def outcome(asked: Rehearse, *gains: float, abstains: str = "", spread: float = 0.01) -> RehearsalAnswered:
    found = tuple(
        Rehearsed(policy=policy, figures=FIGURES, gain=gain, low=gain - spread, high=gain + spread)
        for policy, gain in zip(asked.candidates, gains, strict=True)
    )
    told = Rehearsal(
        window_s=300.0, observed=FIGURES, in_force=FIGURES, candidates=found, abstains=abstains, cpu_s=5.0
    )  # fmt: skip
    return RehearsalAnswered(number=asked.number, rehearsal=told, cpu_s=5.0)


def in_force(drive: Drive) -> TopologyName:
    (decision,) = drive.agent.decisions()
    return decision.topology


def test_a_proposal_is_rehearsed_and_applied_for_a_clear_gain() -> None:
    drive = rehearsing()
    asked = question(look(drive, 30.0))
    assert in_force(drive) is SJF
    assert [(p.topology, p.proposer) for p in asked.candidates] == [(EDF, "rules")]
    assert (asked.in_force.topology, len(asked.facts.engines), asked.facts.workers) == (SJF, 2, 1)
    (record,) = records(drive.at(36.0, outcome(asked, 0.06)))
    assert (record.kind, record.decision, record.selector, record.predicted_gain) == ("decided", "edf", "rules", 0.06)
    assert "+6.0 points predicted (+5.0 to +7.0)" in record.reason
    assert in_force(drive) is EDF


@pytest.mark.parametrize(("gain", "spread"), [(-0.2, 0.01), (0.0, 0.0), (0.015, 0.01), (0.2, 0.2)])
def test_no_clear_gain_is_no_switch(gain: float, spread: float) -> None:
    drive = rehearsing()
    (record,) = records(drive.at(36.0, outcome(question(look(drive, 30.0)), gain, spread=spread)))
    assert (record.kind, record.decision) == ("rejected", "edf by rules")
    assert "no clear gain" in record.reason
    assert in_force(drive) is SJF


@pytest.mark.parametrize(("gain", "made"), [(0.06, True), (0.04, False)])
def test_a_gain_must_be_clear_of_what_the_simulation_misses_by(gain: float, made: bool) -> None:
    drive = rehearsing()
    answer = outcome(question(look(drive, 30.0)), gain)
    assert answer.rehearsal is not None
    off = replace(FIGURES, on_time=FIGURES.on_time - 0.04)
    (record,) = records(drive.at(36.0, replace(answer, rehearsal=replace(answer.rehearsal, in_force=off))))
    assert (in_force(drive) is EDF) is made
    assert made or "the simulation misses by 4.0 points" in record.reason


def test_an_abstention_a_failure_and_silence_change_nothing() -> None:
    drive = rehearsing()
    (record,) = records(drive.at(36.0, outcome(question(look(drive, 30.0)), 0.5, abstains="it misses by 9 points")))
    assert record.reason == "the rehearsal abstains: it misses by 9 points"
    asked = question(look(drive, 60.0))
    (record,) = records(drive.at(61.0, RehearsalAnswered(number=asked.number, rehearsal=None, error="no engines")))
    assert record.reason == "not rehearsed: no engines"
    asked = question(look(drive, 90.0))
    late = drive.at(300.0, TimerTicked())
    assert [r.reason for r in records(late)] == ["not rehearsed: no outcome in 180 s"]
    assert records(drive.at(301.0, outcome(asked, 0.5))) == []
    assert in_force(drive) is SJF


def test_a_language_model_s_proposal_is_rehearsed_and_named() -> None:
    drive = rehearsing(selector="llm")
    ask = look(drive, 30.0, BLOCKED)[-1]
    asked = question(drive.at(33.0, SelectorAnswered(ask.ask, "m", GOOD_ANSWER, "")))
    assert [(p.topology, p.proposer) for p in asked.candidates] == [(LANES, "llm")]
    (record,) = records(drive.at(40.0, outcome(asked, 0.09)))
    assert (record.decision, record.selector) == ("two_lane", "llm")


def test_after_nonsense_of_a_language_model_the_rules_proposal_is_rehearsed() -> None:
    drive = rehearsing(selector="llm")
    ask = look(drive, 30.0)[-1]
    effects = drive.at(33.0, SelectorAnswered(ask.ask, "m", "edf, I would say", ""))
    assert records(effects)[0].selector == "llm"
    assert [(p.topology, p.proposer) for p in question(effects).candidates] == [(EDF, "rules")]


def test_rehearsals_take_their_share_of_a_core_and_no_more() -> None:
    """Ten seconds of CPU time each: one in forty seconds, whatever is proposed."""
    drive, count = rehearsing(), 0
    for i in range(1200):
        now_s = 30.0 + i
        for asked in [e for e in look(drive, now_s) if isinstance(e, Rehearse)]:
            count += 1
            told = outcome(asked, 0.0)
            drive.at(now_s + 0.5, replace(told, cpu_s=10.0))
    assert 1200 / 60 <= count <= 1200 / 40 + 1


def test_what_came_is_recorded_beside_what_was_predicted() -> None:
    drive = rehearsing()
    drive.at(36.0, outcome(question(look(drive, 30.0, replace(MISSES, goodput_rate=0.8))), 0.06))
    assert records(look(drive, 100.0, CALM)) != []
    told = [r for r in records(look(drive, 170.0, replace(CALM, goodput_rate=0.85))) if r.kind == "outcome"]
    assert [(r.decision, r.predicted_gain, round(r.observed_gain or 0.0, 3)) for r in told] == [("edf", 0.06, 0.05)]
    assert told[0].reason == "+6.0 points predicted, +5.0 observed"
    assert not [r for r in records(look(drive, 200.0, CALM)) if r.kind == "outcome"]


def test_the_rehearsal_of_a_pool_that_is_gone_holds_up_no_other() -> None:
    drive = rehearsing(max_pools=1)
    asked = question(look(drive, 30.0))
    other = replace(BEAT, pool="other")
    drive.at(100.0, HeartbeatReceived(other))
    drive.at(101.0, outcome(asked, 0.1))
    views = (ShortViewReceived(replace(SHORT, pool="other")), LongViewReceived(replace(MISSES, pool="other")))
    again = question(drive.at(400.0, HeartbeatReceived(other), *views))
    assert again.number != asked.number


def test_an_operators_pin_outranks_the_outcome() -> None:
    drive = rehearsing()
    asked = question(look(drive, 30.0))
    drive.at(31.0, PinChanged(Pin("m", TopologyName.WFQ)))
    assert records(drive.at(36.0, outcome(asked, 0.5))) == []
    assert in_force(drive) is TopologyName.WFQ
