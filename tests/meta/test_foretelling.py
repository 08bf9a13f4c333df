"""Where the mesh only observes, the meta agent tells each minute what scheduling would bring, or why it cannot say."""

from dataclasses import replace
from typing import Any

from hmas.contracts.control import Pin, TopologyName
from hmas.contracts.control_agents import (
    LongViewReceived,
    PinChanged,
    PublishGain,
    RehearsalAnswered,
    Rehearse,
    ShortViewReceived,
    TimerTicked,
)
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.rehearsal import PastFigures, Rehearsal, Rehearsed, TenantGain, TenantOnTime
from hmas.contracts.scheduling_gain import SchedulingGain
from hmas.contracts.views import VLong
from hmas.meta.agent.config import ForetellingConfig, RehearsalConfig
from hmas.meta.agent.foretelling import SCHEDULED, window_s
from tests.meta.test_meta_agent import CALM, MISSES, SHORT, SJF, Drive, started
from tests.meta.test_rehearsals import BEAT

OBSERVING = replace(BEAT, observes=True)
WAS = PastFigures(
    requests=500, on_time=0.76, ttft_p50_s=1.0, ttft_p95_s=2.0,
    tenants=(TenantOnTime(tenant="a", requests=300, on_time=0.7), TenantOnTime(tenant="b", requests=200, on_time=0.85)),
)  # fmt: skip


def tick(drive: Drive, now_s: float, beat: Any = OBSERVING, view: VLong = CALM) -> list[Any]:
    heard = (HeartbeatReceived(beat), ShortViewReceived(SHORT), LongViewReceived(view), TimerTicked())
    return [effect for effect in drive.at(now_s, *heard) if isinstance(effect, Rehearse | PublishGain)]


def answered(asked: Rehearse, *, abstains: str = "", cpu_s: float = 5.0) -> RehearsalAnswered:
    tenants = (TenantGain(tenant="a", requests=300, gain=0.25, low=0.2, high=0.3),)
    candidate = Rehearsed(
        policy=asked.candidates[0], figures=WAS, gain=0.21, low=0.18, high=0.3, tenants=tenants
    )  # fmt: skip
    found = Rehearsal(
        window_s=300.0, observed=WAS, in_force=replace(WAS, on_time=0.74), candidates=(candidate,), abstains=abstains
    )
    return RehearsalAnswered(number=asked.number, rehearsal=found, cpu_s=cpu_s)


def told(effects: list[Any]) -> SchedulingGain:
    (gain,) = [effect.gain for effect in effects if isinstance(effect, PublishGain)]
    return gain


def test_what_scheduling_would_bring_is_told_each_minute() -> None:
    drive = started()
    (asked,) = tick(drive, 30.0)
    assert (asked.in_force.observes, asked.candidates[0].observes) == (True, False)
    assert (asked.candidates[0].topology, len(asked.facts.engines)) == (SJF, 2)
    gain = told(drive.at(40.0, answered(asked)))
    assert (gain.pool, gain.requests, gain.was, gain.played, gain.engines) == ("m", 500, 0.76, 0.74, 2)
    assert [round(share, 3) for share in (gain.scheduled, gain.low, gain.high)] == [0.97, 0.94, 1.0]
    assert [(each.tenant, round(each.scheduled, 3)) for each in gain.tenants] == [("a", 0.95)]
    assert tick(drive, 89.0) == []
    assert len(tick(drive, 91.0)) == 1


def test_where_requests_are_scheduled_nothing_is_foretold() -> None:
    assert tick(started(), 30.0, BEAT) == []
    assert tick(started(foretelling=ForetellingConfig(enabled=False)), 30.0) == []


def test_an_abstention_a_failure_and_silence_are_told_with_their_reason() -> None:
    drive = started()
    (asked,) = tick(drive, 30.0)
    assert told(drive.at(40.0, answered(asked, abstains="it misses by 9 points"))).abstains == "it misses by 9 points"
    (asked,) = tick(drive, 100.0)
    lost = told(drive.at(101.0, RehearsalAnswered(number=asked.number, rehearsal=None, error="no engines")))
    assert (lost.abstains, lost.requests) == ("no engines", 0)
    (asked,) = tick(drive, 200.0)
    assert "took longer than 180 s" in told(tick(drive, 381.0)).abstains
    assert drive.at(382.0, answered(asked)) == []


def test_an_answer_that_comes_once_requests_are_scheduled_is_not_told() -> None:
    drive = started()
    (asked,) = tick(drive, 30.0)
    tick(drive, 31.0, BEAT)
    assert drive.at(40.0, answered(asked)) == []


def test_it_is_told_once_that_requests_are_scheduled_now() -> None:
    drive = started()
    drive.at(40.0, answered(tick(drive, 30.0)[0]))
    assert told(tick(drive, 50.0, BEAT)).abstains == SCHEDULED
    assert tick(drive, 51.0, BEAT) == []


def test_a_pin_is_what_would_be_in_force() -> None:
    drive = started()
    drive.at(1.0, PinChanged(Pin("m", TopologyName.WFQ)))
    assert tick(drive, 30.0)[0].candidates[0].topology is TopologyName.WFQ


def test_the_share_of_a_core_bounds_how_often_it_is_simulated() -> None:
    """Fifty seconds of CPU time each: one in 200 s, although one is due each minute."""
    drive, count = started(), 0
    for second in range(1200):
        for asked in tick(drive, 30.0 + second):
            count += 1
            drive.at(30.5 + second, answered(asked, cpu_s=50.0))
    assert 4 <= count <= 7


def test_the_window_is_longer_where_few_requests_come_and_shorter_where_many_do() -> None:
    config = ForetellingConfig()
    assert window_s(config, replace(CALM, arrival_rps=10.0)) == 300.0
    assert window_s(config, replace(CALM, arrival_rps=0.5)) == 600.0
    assert window_s(config, replace(CALM, arrival_rps=0.001)) == config.most_window_s
    assert window_s(config, replace(CALM, arrival_rps=1000.0)) == 20.0


def test_no_switch_is_rehearsed_while_nothing_is_in_force() -> None:
    drive = started(rehearsal=RehearsalConfig(enabled=True))
    effects = tick(drive, 30.0, view=MISSES)
    assert [effect.in_force.observes for effect in effects if isinstance(effect, Rehearse)] == [True]
