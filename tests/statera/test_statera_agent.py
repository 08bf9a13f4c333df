import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.control import (
    ControlTuple,
    EngineControl,
    TopologyName,
    TopologyReceived,
)
from hmas.contracts.control_agents import (
    EpochGranted,
    EpochLost,
    PublishAudit,
    PublishTuple,
    ShortViewReceived,
    StateraEffect,
    StateraEvent,
    TimerTicked,
    TupleRestored,
    WorkerReported,
)
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.telemetry import EngineSample
from hmas.contracts.views import Tail
from hmas.statera.agent import StateraAgent
from hmas.statera.agent.config import NRunConfig, NRunRule, StateraConfig
from tests.builders.control import control_tuple, engine_control, topology_received
from tests.builders.registry import engine_info, worker_heartbeat
from tests.builders.telemetry import engine_sample, request_finished, worker_telemetry
from tests.builders.views import v_short

HEARTBEAT = worker_heartbeat("w", incarnation="i", engines=(engine_info("e", max_model_len=4096, max_num_seqs=64),))
SAMPLE = engine_sample(
    kv_capacity_tokens=100_000, step_s=0.01, prefill_tokens_per_s=100.0, decode_tokens_per_s=100.0, utilisation=0.2,
    b_saturated=1,
)  # fmt: skip
HOT = replace(SAMPLE, running=64, utilisation=1.5, b_token=65, b_saturated=-1)
VIEW = v_short(
    ttft=Tail(),
    violation_rate=0.0,
    ttft_violation_rate=0.0,
    arrival_rps=1.0,
    settled_rps=1.0,
    kept_rps=1.0,
    kept_violation_rate=0.0,
    arriving_tokens_per_s=1.0,
    served_tokens_per_s=1.0,
)


def telemetry(sample: EngineSample = SAMPLE, **changes: Any) -> WorkerReported:
    base = worker_telemetry(engines=(sample,))
    return WorkerReported(replace(base, **changes))


def decision(topology: TopologyName, *, bypass: bool = False, epoch: int = 1) -> TopologyReceived:
    return topology_received(topology, bypass=bypass, epoch=epoch, reason="")


MOVING = StateraConfig(band=NRunConfig(rule=NRunRule.BAND))


def tuples(effects: list[StateraEffect]) -> list[ControlTuple]:
    return [e.control for e in effects if isinstance(e, PublishTuple)]


def audits(effects: list[StateraEffect]) -> list[str]:
    return [e.record.decision for e in effects if isinstance(e, PublishAudit)]


def started(config: StateraConfig | None = None) -> StateraAgent:
    agent = StateraAgent(config or StateraConfig())
    agent.step(0.0, HeartbeatReceived(HEARTBEAT))
    agent.step(0.0, telemetry())
    agent.step(0.0, EpochGranted(5))
    return agent


def overload(
    agent: StateraAgent, start_s: float, seconds: float, queued: int = 50, **view: float
) -> list[StateraEffect]:
    effects: list[StateraEffect] = []
    for i in range(int(seconds * 10)):
        now_s = start_s + i * 0.1
        if i % 10 == 0:
            effects += agent.step(now_s, HeartbeatReceived(HEARTBEAT))
        effects += agent.step(now_s, telemetry(HOT, queued_count=queued))
        if i % 3 == 0:
            seen = replace(VIEW, queued=queued, utilisation=1.5, **view)  # type: ignore[arg-type]
            effects += agent.step(now_s, ShortViewReceived(seen))
        effects += agent.step(now_s, TimerTicked())
    return effects


def test_the_first_tuple_throttles_nothing() -> None:
    agent = StateraAgent(StateraConfig())
    assert agent.step(0.0, HeartbeatReceived(HEARTBEAT)) == []
    agent.step(0.0, telemetry())
    (control,) = tuples(agent.step(0.1, EpochGranted(5)))
    assert control == control_tuple(
        "w",
        engines=(
            EngineControl(engine="e", n_run=64, b_token=65, b_min=5, b_max=65, gain_b=0.0, u_low=0.85, u_high=0.95),
        ),
        epoch=5,
        valid_for_s=5.0,
        frozen=False,
    )


def test_an_unchanged_tuple_is_repeated_every_third_of_its_validity() -> None:
    agent = started()
    times = []
    for i in range(1, 200):
        now_s = i * 0.05
        agent.step(now_s, HeartbeatReceived(HEARTBEAT))
        effects = agent.step(now_s, ShortViewReceived(VIEW)) if i % 5 == 0 else agent.step(now_s, TimerTicked())
        times += [now_s] * len(tuples(effects))
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert len(times) == 5
    assert all(gap == pytest.approx(5.0 / 3.0, abs=0.06) for gap in gaps)


def test_changes_are_coalesced_to_the_cadence_of_v_short() -> None:
    agent = started()
    sent = []
    for i in range(1, 101):  # the running count changes with every report
        agent.step(i * 0.02, telemetry(replace(SAMPLE, running=i % 60)))
        sent += tuples(agent.step(i * 0.02, TimerTicked()))
    assert len(sent) in range(7, 9)
    assert [c.seq for c in sent] == sorted({c.seq for c in sent})


def test_utilisation_moves_no_limit_unless_told_to() -> None:
    agent = started()
    controls = [c.engines[0] for c in tuples(overload(agent, 0.0, 20.0))]
    assert {control.n_run for control in controls} == {64}
    assert {control.gain_b for control in controls} == {0.0}
    moving = [c.engines[0] for c in tuples(overload(started(MOVING), 0.0, 20.0))]
    assert moving[-1].n_run < 64
    assert {round(control.gain_b, 6) for control in moving} == {0.02 * 65}


def test_persistent_overload_cuts_n_run_and_says_so_once_per_notable_move() -> None:
    agent = started(MOVING)
    effects = overload(agent, 0.0, 20.0)
    caps = [c.engines[0].n_run for c in tuples(effects)]
    assert caps[0] == 64
    assert caps[-1] < 60
    records = [e.record for e in effects if isinstance(e, PublishAudit)]
    assert 1 <= len(records) <= 5
    assert "N_run 64 ->" in records[0].decision
    assert json.loads(records[0].view_json)["utilisation"] == 1.5
    assert (records[0].source, records[0].kind, records[0].epoch) == ("statera", "tuple", 5)


def test_what_others_send_to_an_engine_moves_nothing_while_the_mesh_is_idle() -> None:
    agent = started(MOVING)
    assert audits(overload(agent, 0.2, 20.0, queued=0, arrival_rps=0.0, settled_rps=0.0)) == []
    assert audits(overload(agent, 20.2, 20.0)) != []


def test_bypass_freezes_the_integrators_and_tells_the_worker() -> None:
    agent = started(MOVING)
    agent.step(0.1, decision(TopologyName.FCFS, bypass=True))
    effects = overload(agent, 0.2, 20.0)
    assert {c.engines[0].n_run for c in tuples(effects)} == {64}
    assert all(c.frozen for c in tuples(effects))
    assert audits(effects) == ["w: frozen"]
    agent.step(20.3, decision(TopologyName.SJF))
    effects = overload(agent, 20.4, 10.0)
    assert audits(effects)[0] == "w: released"
    assert tuples(effects)[-1].engines[0].n_run < 64


def test_a_decision_of_an_older_epoch_is_ignored() -> None:
    agent = started()
    agent.step(0.1, decision(TopologyName.SJF, epoch=4))
    agent.step(0.2, decision(TopologyName.FCFS, bypass=True, epoch=3))
    assert not any(c.frozen for c in tuples(overload(agent, 0.3, 2.0)))


def test_without_views_the_tuple_runs_out() -> None:
    agent = started()
    agent.step(1.0, ShortViewReceived(VIEW))
    sent = []
    for i in range(10, 200):
        agent.step(i * 0.1, HeartbeatReceived(HEARTBEAT))
        sent += [i * 0.1] * len(tuples(agent.step(i * 0.1, TimerTicked())))
    assert max(sent) <= 6.0 + 1e-9


def test_a_lost_worker_gets_no_more_tuples() -> None:
    agent = started()
    sent = []
    for i in range(1, 100):
        effects = agent.step(i * 0.1, TimerTicked()) + agent.step(i * 0.1, ShortViewReceived(VIEW))
        sent += [i * 0.1] * len(tuples(effects))
    assert max(sent) <= 3.6


def test_a_standby_is_silent_follows_the_set_point_in_force_and_goes_on_from_it() -> None:
    agent = StateraAgent(StateraConfig())
    agent.step(0.0, HeartbeatReceived(HEARTBEAT))
    for i in range(20):
        assert agent.step(i * 0.1, telemetry(replace(HOT, n_run=23))) == []
        assert agent.step(i * 0.1, ShortViewReceived(VIEW)) == []
    (control,) = tuples(agent.step(2.0, EpochGranted(9)))
    assert (control.engines[0].n_run, control.epoch) == (23, 9)
    agent.step(2.1, EpochLost())
    assert agent.step(5.0, ShortViewReceived(VIEW)) == []


@pytest.mark.parametrize("known_first", [True, False])
def test_a_new_writer_goes_on_from_the_last_tuple(known_first: bool) -> None:
    agent = StateraAgent(StateraConfig())
    last = control_tuple(
        "w",
        engines=(engine_control("e", n_run=17, b_token=20, b_max=65, u_low=0.8),),
        epoch=4,
        seq=812,
        valid_for_s=5.0,
    )
    events: list[StateraEvent] = [HeartbeatReceived(HEARTBEAT), TupleRestored(last)]
    for event in events if known_first else reversed(events):
        agent.step(0.0, event)
    agent.step(0.1, EpochGranted(5))
    (control,) = tuples(agent.step(0.4, telemetry()) + agent.step(0.5, TimerTicked()))
    assert (control.engines[0].n_run, control.seq > 812) == (17, True)


def test_finished_requests_reach_the_fence() -> None:
    agent = started()
    row = request_finished(output_tokens=90)
    agent.step(1.0, telemetry(finished=(row,) * 50))
    (control,) = tuples(agent.step(1.1, ShortViewReceived(VIEW)))
    (table,) = control.fence.tables
    assert table.version == "v1"
    assert {b.factor for b in table.buckets} == {1.5}


def test_views_of_a_qos_copy_without_lease_are_ignored() -> None:
    agent = started()
    agent.step(0.3, ShortViewReceived(replace(VIEW, epoch=3)))
    assert agent.step(4.0, ShortViewReceived(replace(VIEW, epoch=2))) == []
    assert agent.step(5.4, TimerTicked()) == []  # the view of epoch 3 is stale by now
