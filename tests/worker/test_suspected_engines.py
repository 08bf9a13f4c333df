"""An engine that left a run without a token: it is suspected, comes last, and is on trial until it gives a token."""

from math import inf
from typing import Any

import pytest

from hmas.contracts.execution import EngineShare, Load
from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import CycleTicked, EngineSuspected, EngineWentDown, HeartbeatDue, PublishTelemetry
from hmas.worker.agent.config import (
    EngineStateConfig,
    WorkerConfig,
)
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.engines.life import EngineLife, LifeState
from tests.worker.builders import Scripted, dispatched, engine, loads, refused, request, sampled, stopped

CONFIG = WorkerConfig(worker="w", incarnation="w-1", address="h:1", pool="m", prefill_window_s=10.0)
PAUSE_S = EngineStateConfig().suspect_pause_s


def worker(*names: str) -> Scripted:
    return Scripted(CONFIG, *map(engine, names))


def stall(agent: Scripted, now_s: float, name: str, **fields: Any) -> list[Any]:
    return agent.fail(now_s, name, "no token for 30 s", stalled=True, **fields)


def suspicions(effects: list[Any]) -> list[tuple[str, bool]]:
    return [(e.engine, e.suspected) for e in effects if isinstance(e, EngineSuspected)]


def test_a_stalled_run_goes_to_another_engine_and_the_next_ones_too() -> None:
    agent = worker("e1", "e2")
    assert dispatched(agent.submit(0.0, request("r1"))) == [("r1", "e1")]
    effects = stall(agent, 30.0, "r1")
    assert suspicions(effects) == [("e1", True)]
    assert dispatched(effects) == [("r1", "e2")]
    more = agent.submit(60.0, *(request(f"x{i}") for i in range(7)))
    assert {where for _, where in dispatched(more)} == {"e2"}


def test_a_suspected_engine_is_tried_only_where_no_other_has_room_one_request_at_a_time() -> None:
    agent = worker("e1", "e2")
    agent.submit(0.0, request("r1"))
    stall(agent, 30.0, "r1")
    full = agent.submit(31.0, *(request(f"x{i}") for i in range(9)))
    assert [where for _, where in dispatched(full)] == ["e2"] * 7  # beside r1; e1 has its pause
    later = agent.step(30.0 + PAUSE_S, CycleTicked())
    assert [where for _, where in dispatched(later)] == ["e1"]
    assert not dispatched(agent.step(60.0, CycleTicked()))


def test_what_another_engine_failed_with_is_not_left_to_a_suspected_one() -> None:
    agent = worker("e1", "e2")
    agent.submit(0.0, request("r1"), request("r2"))
    stall(agent, 30.0, "r1")
    (refusal,) = refused(agent.fail(31.0, "r2"))
    assert (refusal.request_id, refusal.outcome) == ("r2", Outcome.ENGINE_ERROR)


@pytest.mark.parametrize("sign", ["first_token", "progress", "finish"])
def test_a_token_clears_the_suspicion(sign: str) -> None:
    agent = worker("e1", "e2")
    agent.submit(0.0, request("r1"), request("s"), request("t"))  # s on e2, t on e1
    stall(agent, 30.0, "r1")
    signs: dict[str, Any] = {
        "first_token": lambda: agent.first_token(31.0, "t"),
        "progress": lambda: agent.progress(31.0, "t", 3),
        "finish": lambda: agent.finish(31.0, "t", 3),
    }
    assert suspicions(signs[sign]()) == [("e1", False)]
    more = agent.submit(32.0, *(request(f"x{i}") for i in range(6)))
    assert {where for _, where in dispatched(more)} == {"e1", "e2"}


def test_a_stall_after_the_first_token_is_told_as_well() -> None:
    agent = worker("e1", "e2")
    agent.submit(0.0, request("r1"))
    agent.first_token(1.0, "r1")
    effects = stall(agent, 40.0, "r1", retryable=False, output_tokens=5)
    assert suspicions(effects) == [("e1", True)]
    assert not dispatched(effects)


def test_each_further_stall_doubles_the_pause_up_to_a_bound() -> None:
    agent = worker("e1")
    now_s, pauses = 0.0, []
    for i in range(6):
        name = f"r{i}"
        assert dispatched(agent.submit(now_s, request(name))) == [(name, "e1")]
        now_s += 30.0
        assert refused(stall(agent, now_s, name))[0].outcome is Outcome.ENGINE_ERROR
        pauses.append(agent.state.fleet["e1"].life.held_until_s - now_s)
        now_s += pauses[-1]
    assert pauses == [5.0, 10.0, 20.0, 30.0, 30.0, 30.0]


def test_runs_that_stall_at_once_are_one_stall() -> None:
    agent = worker("e1")
    agent.submit(0.0, *(request(f"r{i}") for i in range(5)))
    for i in range(5):
        stall(agent, 30.0, f"r{i}")
    assert agent.state.fleet["e1"].life.held_until_s == 30.0 + PAUSE_S


def test_an_engine_that_stands_still_gives_back_what_has_no_token() -> None:
    agent = worker("e1", "e2")
    agent.submit(0.0, *(request(f"r{i}") for i in range(6)))  # three each
    agent.first_token(1.0, "r2")
    agent.step(29.0, sampled("e1", running=3))
    asked = stopped(stall(agent, 30.0, "r0"))
    assert [stop.request_id for stop in asked] == ["r4"]
    agent = worker("e1", "e2")
    agent.submit(0.0, *(request(f"r{i}") for i in range(6)))
    agent.step(29.0, sampled("e1", running=3, decode_tokens_per_s=5.0))
    assert not stopped(stall(agent, 30.0, "r0"))  # the engine serves others


def test_with_no_engine_but_suspected_ones_what_waits_is_refused_after_the_patience() -> None:
    agent = worker("e1")
    agent.submit(0.0, *(request(f"r{i}") for i in range(3)))
    stall(agent, 30.0, "r0")
    agent.submit(31.0, request("waits"))
    assert not refused(agent.step(39.0, CycleTicked()))
    out = refused(agent.step(30.0 + CONFIG.no_engine_patience_s, CycleTicked()))
    assert [(r.request_id, r.outcome) for r in out] == [("waits", Outcome.NO_ENGINE)]
    (at_once,) = refused(agent.submit(50.0, request("late")))
    assert "without a token" in at_once.message


def test_such_an_engine_still_gets_its_trial() -> None:
    agent = worker("e1")
    agent.submit(0.0, request("r0"))
    stall(agent, 30.0, "r0")
    assert dispatched(agent.submit(100.0, request("trial"), request("next"))) == [("trial", "e1")]
    assert suspicions(agent.first_token(101.0, "trial")) == [("e1", False)]
    assert dispatched(agent.submit(102.0, request("more"))) == [("more", "e1")]


def test_a_suspicion_survives_that_the_engine_comes_up_anew() -> None:
    agent = worker("e1", "e2")
    agent.submit(0.0, request("r1"))
    stall(agent, 30.0, "r1")
    agent.step(31.0, EngineWentDown("e1", "gone"))
    agent.up(32.0, engine("e1"))
    more = agent.submit(50.0, *(request(f"x{i}") for i in range(5)))
    assert {where for _, where in dispatched(more)} == {"e2"}


def test_gateways_are_told_whether_an_engines_counters_change() -> None:
    agent = worker("e1")

    def told(now_s: float) -> bool | None:
        ((_, load),) = loads(agent.step(now_s, HeartbeatDue()))
        assert isinstance(load, Load)
        return load.shares[0].generating

    assert told(0.5) is False
    agent.step(1.0, sampled("e1", running=1, decode_tokens_per_s=1.0))
    agent.step(1.5, sampled("e1", running=1))
    assert told(1.6) is True  # since the last report
    assert told(2.6) is False
    agent.step(3.0, sampled("e1", running=1, kv_usage=0.1))  # a prefill in chunks
    assert told(3.1) is True
    agent.step(4.0, sampled("e1", running=1, kv_usage=0.1, counted=False))
    assert told(4.1) is None
    agent.step(5.0, sampled("e1", running=1, kv_usage=0.1))
    assert told(5.1) is False
    assert told(16.0) is None  # not scraped any more
    assert EngineShare("e1", 1).generating is None


def test_telemetry_says_which_engine_is_suspected() -> None:
    agent = worker("e1", "e2")
    agent.submit(0.0, request("r1"))
    stall(agent, 30.0, "r1")
    (report,) = [e.telemetry for e in agent.step(31.0, CycleTicked()) if isinstance(e, PublishTelemetry)]
    assert [(e.engine, e.suspected) for e in report.engines] == [("e1", True), ("e2", False)]


def test_a_suspected_engine_pauses_longer_each_time_until_it_gives_a_token() -> None:
    life = EngineLife(EngineStateConfig(suspect_pause_s=5.0, max_suspect_pause_s=15.0))
    life.come_up(1.0)
    life.see(0.5)
    assert not life.seen, "a sample of before it came up says nothing"
    life.see(1.0)
    assert life.state is LifeState.UP
    held = []
    for now_s in (10.0, 12.0, 15.0, 25.0, 39.0, 40.0):
        life.suspect(now_s)
        held.append(life.held_until_s)
    assert held == [15.0, 15.0, 25.0, 40.0, 40.0, 55.0]
    assert (life.state, life.suspected, life.serves) == (LifeState.SUSPECTED, True, True)
    life.go_down()
    life.come_up(50.0)
    life.see(50.0)
    assert (life.state, life.starts, life.suspected) == (LifeState.SUSPECTED, 2, True)
    life.trust()
    assert (life.state, life.suspected, life.held_until_s) == (LifeState.UP, False, -inf)
    life.suspect(60.0)
    assert life.held_until_s == 65.0, "the pause begins anew"
    life.leave(70.0)
    life.trust()
    assert (life.state, life.apart, life.leave_by_s) == (LifeState.LEAVING, LifeState.UP, 70.0)
    assert life.seen
    assert not life.serves
    life.come_back()
    assert (life.state, life.leave_by_s) == (LifeState.UP, inf)
    life.leave(80.0)
    life.be_released()
    assert (life.state, life.apart, life.starts, life.leave_by_s) == (LifeState.UNKNOWN, LifeState.UNKNOWN, 0, inf)


def test_an_engine_is_never_left_without_a_place() -> None:
    state = EngineState(engine(), EngineStateConfig())
    caps = []
    for limits in ((8, 5), (3, 9), (0, 0), (-1, 4)):
        state.limit(*limits)
        caps.append(state.cap)
    assert caps == [5, 3, 1, 1]
    state.limit(8, 8)
    state.suspect(0.0)
    assert state.cap == 1
    assert not state.on_trial(4.75)
    assert state.on_trial(5.0)
    state.trust()
    assert (state.cap, state.on_trial(5.0)) == (8, False)
