"""An engine that somebody has put to sleep: nothing is granted there, and nothing is given up because of it."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.execution import EngineShare
from hmas.contracts.job import PrefixChain
from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import (
    CycleTicked,
    EngineSlept,
    EngineSuspected,
    EngineWentDown,
    EngineWentUp,
    HeartbeatDue,
    PublishHeartbeat,
    PublishTelemetry,
    WorkerEffect,
)
from hmas.worker.agent.config import SplitConfig, WorkerConfig
from tests.worker.builders import Scripted, dispatched, engine, granted, loads, refused, request, sampled, stopped

CONFIG = WorkerConfig(worker="w", incarnation="w-1", address="h:1", pool="m", prefill_window_s=10.0)
PATIENCE_S = CONFIG.no_engine_patience_s


def worker(*names: str) -> Scripted:
    return Scripted(CONFIG, *map(engine, names))


def put_to_sleep(agent: Scripted, now_s: float, name: str = "e1", level: int = 1) -> list[WorkerEffect]:
    return agent.step(now_s, sampled(name, sleep_level=level))


def wake(agent: Scripted, now_s: float, name: str = "e1", running: int = 0) -> list[WorkerEffect]:
    return agent.step(now_s, sampled(name, running))


def slept(effects: list[WorkerEffect]) -> list[tuple[str, int | None]]:
    return [(e.engine, e.sleep_level) for e in effects if isinstance(e, EngineSlept)]


def told(effects: list[WorkerEffect]) -> list[tuple[str, bool, int | None]]:
    (heartbeat,) = [e.heartbeat for e in effects if isinstance(e, PublishHeartbeat)]
    return [(info.engine, info.up, info.sleep_level) for info in heartbeat.engines]


def test_nothing_is_granted_on_it_and_all_goes_to_the_other_one() -> None:
    agent = worker("e1", "e2")
    assert slept(put_to_sleep(agent, 1.0)) == [("e1", 1)]
    more = agent.submit(1.1, *(request(f"r{i}") for i in range(4)))
    assert [where for _, where in dispatched(more)] == ["e2"] * 4
    woken = wake(agent, 5.0)
    assert slept(woken) == [("e1", None)]
    assert dispatched(agent.submit(5.1, request("r9"))) == [("r9", "e1")]


def test_everyone_is_told_at_once_that_it_sleeps_and_that_it_wakes() -> None:
    agent = worker("e1", "e2")
    effects = put_to_sleep(agent, 1.0, level=2)
    assert told(effects) == [("e1", True, 2), ("e2", True, None)]
    ((_, load),) = loads(effects)
    assert load.shares == (EngineShare("e1", 0, None, asleep=True), EngineShare("e2", 8, generating=False))
    assert slept(put_to_sleep(agent, 1.5, level=2)) == [], "it is no news"
    assert told(wake(agent, 2.0)) == [("e1", True, None), ("e2", True, None)]


def test_requests_wait_for_it_for_as_long_as_it_sleeps() -> None:
    """For one that is down they are refused after a while."""
    agent = worker("e1")
    put_to_sleep(agent, 1.0)
    effects = agent.submit(2.0, request("r1"))
    for now_s in (2.0 + PATIENCE_S, 500.0):
        effects += agent.step(now_s, CycleTicked())
    effects += agent.submit(501.0, request("r2"))
    assert (dispatched(effects), refused(effects)) == ([], [])
    effects = wake(agent, 600.0)
    assert dispatched(effects) == [("r1", "e1"), ("r2", "e1")]
    assert [grant.timeline.asleep_s for grant in granted(effects)] == [598.0, 99.0]


def test_requests_wait_for_a_sleeping_engine_that_was_suspected_before() -> None:
    agent = worker("e1")
    agent.submit(0.0, request("r0"))
    agent.first_token(0.5, "r0")
    agent.fail(40.0, "r0", "no token for 30 s", stalled=True, retryable=False)
    put_to_sleep(agent, 41.0)
    effects = agent.submit(42.0, request("r1")) + agent.step(42.0 + 2.0 * PATIENCE_S, CycleTicked())
    assert (dispatched(effects), refused(effects)) == ([], [])


def test_one_that_goes_down_in_its_sleep_is_down() -> None:
    agent = worker("e1")
    put_to_sleep(agent, 1.0)
    agent.submit(2.0, request("r1"))
    agent.step(100.0, EngineWentDown("e1", "gone"))
    effects = agent.step(101.0 + PATIENCE_S, CycleTicked())
    assert [r.outcome for r in refused(effects)] == [Outcome.NO_ENGINE]
    agent.step(200.0, EngineWentUp(engine("e1")))
    assert told(agent.step(200.1, HeartbeatDue())) == [("e1", True, None)], "it has started anew, awake"


def test_a_tenant_that_prefers_a_refusal_gets_one() -> None:
    agent = worker("e1")
    put_to_sleep(agent, 1.0)
    agent.submit(2.0, replace(request("r1"), relegate=False))
    assert refused(agent.step(3.0, CycleTicked())) == []
    assert refused(agent.step(60.0, CycleTicked()))[0].outcome is Outcome.SLO_UNREACHABLE


def test_what_only_it_could_take_does_not_hold_up_the_others() -> None:
    agent = Scripted(CONFIG, engine("e1", max_model_len=9000), engine("e2", max_model_len=1000))
    put_to_sleep(agent, 1.0)
    effects = agent.submit(2.0, request("long", prompt_tokens=5000), request("short"))
    assert dispatched(effects) == [("short", "e2")]
    assert refused(effects) == []
    effects = wake(agent, 7.0)
    assert dispatched(effects) == [("long", "e1")]
    assert granted(effects)[0].timeline.asleep_s == 5.0


def test_what_waits_behind_others_after_the_wake_does_not_wait_for_a_sleeper_any_more() -> None:
    agent = Scripted(CONFIG, engine("e1", max_num_seqs=1))
    put_to_sleep(agent, 1.0)
    agent.submit(2.0, request("r1"), request("r2"))
    assert dispatched(wake(agent, 7.0)) == [("r1", "e1")]
    (second,) = granted(agent.finish(20.0, "r1"))
    assert second.timeline.asleep_s == 5.0


def test_only_those_count_as_waiting_for_it_that_no_other_could_take() -> None:
    agent = Scripted(CONFIG, engine("e1", max_model_len=9000), engine("e2", max_model_len=1000, max_num_seqs=1))
    put_to_sleep(agent, 1.0)
    agent.submit(2.0, request("long", prompt_tokens=5000), request("runs"), request("waits"))
    (report,) = [e.telemetry for e in agent.step(2.2, CycleTicked()) if isinstance(e, PublishTelemetry)]
    assert (report.queued_count, report.queued_asleep) == (2, 1)
    assert [(s.engine, s.up, s.asleep) for s in report.engines] == [("e1", True, True), ("e2", True, False)]


def test_a_stream_without_a_token_is_asked_back_at_once_and_runs_elsewhere() -> None:
    agent = worker("e1", "e2")
    agent.submit(0.0, *(request(name) for name in ("r1", "r2", "r3")))  # r1 and r3 on e1
    agent.first_token(0.5, "r3")
    effects = put_to_sleep(agent, 1.0)
    assert [stop.request_id for stop in stopped(effects)] == ["r1"]
    assert "put to sleep" in stopped(effects)[0].reason
    assert dispatched(agent.fail(1.1, "r1")) == [("r1", "e2")]
    agent.progress(9.0, "r3", 30)  # its engine kept it
    assert agent.state.fleet["e1"].running.keys() == {"r3"}


def test_a_stream_that_was_granted_just_before_the_sleep_is_asked_back_later_too() -> None:
    agent = worker("e1")
    put_to_sleep(agent, 1.0)
    agent.mute = True
    agent.state.fleet["e1"].life.see(1.1)  # awake for an instant that no sample shows
    agent.state.see_engines()
    assert dispatched(agent.submit(1.1, request("r1"))) == [("r1", "e1")]
    assert [s.request_id for s in stopped(put_to_sleep(agent, 1.2))] == []  # the level is the same, which is no news
    assert [s.request_id for s in stopped(agent.step(1.3, CycleTicked()))] == ["r1"]


def test_an_answer_that_is_not_streamed_is_asked_back_after_as_long_as_it_ran() -> None:
    agent = worker("e1", "e2")
    agent.submit(0.0, replace(request("r1"), stream=False))
    assert stopped(put_to_sleep(agent, 4.0)) == []
    assert stopped(agent.step(7.9, CycleTicked())) == []
    assert [s.request_id for s in stopped(agent.step(8.0, CycleTicked()))] == ["r1"]
    assert stopped(agent.step(8.1, CycleTicked())) == [], "it is asked back once"


def test_a_request_that_the_engine_gave_up_waits_for_the_engine_if_there_is_no_other() -> None:
    """`/sleep` ends what runs with the reason `abort` before the engine's metrics tell of the sleep."""
    agent = worker("e1")
    agent.submit(0.0, request("r1"))
    effects = agent.fail(1.0, "r1", given_up=True)
    effects += agent.step(1.05, CycleTicked())
    assert (dispatched(effects), refused(effects)) == ([], [])
    put_to_sleep(agent, 1.09)
    assert refused(agent.step(50.0, CycleTicked())) == []
    assert dispatched(wake(agent, 60.0)) == [("r1", "e1")]


def test_a_request_that_the_engine_gave_up_goes_to_another_one() -> None:
    agent = worker("e1", "e2")
    agent.submit(0.0, request("r1"))
    assert dispatched(agent.fail(1.0, "r1", given_up=True)) == [("r1", "e2")]


def test_an_engine_that_gives_everything_up_is_not_tried_for_ever() -> None:
    agent = worker("e1")
    agent.submit(0.0, request("r1"))
    effects: list[WorkerEffect] = []
    for turn in range(200):
        now_s = 0.2 * turn
        if "r1" in agent.state.fleet["e1"].running:
            effects += agent.fail(now_s, "r1", "the engine gave the answer up", given_up=True)
        effects += agent.step(now_s + 0.1, CycleTicked())
    assert [r.outcome for r in refused(effects)] == [Outcome.ENGINE_ERROR]
    assert 10 < len(dispatched(effects)) < 100


def test_what_stalls_there_makes_no_suspicion() -> None:
    agent = worker("e1", "e2")
    agent.submit(0.0, request("r1"))
    agent.first_token(0.5, "r1")
    put_to_sleep(agent, 1.0)
    effects = agent.fail(400.0, "r1", "no token for 300 s", stalled=True, retryable=False)
    assert not [e for e in effects if isinstance(e, EngineSuspected)]


@pytest.mark.parametrize(("level", "kept"), [(0, True), (1, False), (2, False)])
def test_its_prefix_cache_is_lost_from_level_1_on(level: int, kept: bool) -> None:
    agent = worker("e1", "e2")
    chain = PrefixChain((1, 2, 3), (100, 200, 300), True)
    made = replace(request("r1", prompt_tokens=chain.ends[-1]), prefix=chain)
    agent.submit(0.0, made)
    agent.first_token(0.1, "r1")
    agent.finish(0.2, "r1")
    held = agent.state.fleet["e1"].prefix.held(chain)
    assert held > 0.0
    put_to_sleep(agent, 1.0, level=level)
    wake(agent, 2.0)
    assert agent.state.fleet["e1"].prefix.held(chain) == (held if kept else 0.0)


def test_its_capacity_and_backlog_are_those_of_the_others() -> None:
    agent = worker("e1", "e2")
    agent.submit(0.0, request("r1"), request("r2"))
    both_s = agent.state.backlog_s()
    put_to_sleep(agent, 1.0)
    assert agent.state.backlog_s() == pytest.approx(2.0 * both_s)
    assert agent.state.cold_speed() * 2.0 == pytest.approx(CONFIG.cold_speed_share * 16)


def test_samples_of_its_sleep_count_nothing() -> None:
    """vLLM's gauges stand still at what they were."""
    agent = worker("e1")
    agent.step(0.5, sampled("e1", 3))
    assert agent.state.fleet["e1"].counts.foreign == 0
    agent.step(1.0, sampled("e1", 3))
    assert agent.state.fleet["e1"].counts.foreign == 3
    for now_s in (2.0, 3.0):
        agent.step(now_s, sampled("e1", 7, sleep_level=0))
    assert agent.state.fleet["e1"].counts.foreign == 3
    wake(agent, 4.0, running=5)
    assert agent.state.fleet["e1"].counts.foreign == 5, "the first sample counts at once, as after a start"


def test_news_of_an_engine_that_sleeps_do_not_wake_it() -> None:
    agent = worker("e1")
    put_to_sleep(agent, 1.0)
    agent.step(2.0, EngineWentUp(engine("e1", max_num_seqs=4)))
    assert told(agent.step(2.1, HeartbeatDue())) == [("e1", True, 1)]
    assert dispatched(agent.submit(2.2, request("r1"))) == []


def test_a_pair_of_engines_is_none_while_one_sleeps() -> None:
    kv: dict[str, Any] = {"kv": "nixl-pull"}
    agent = Scripted(replace(CONFIG, split=SplitConfig(rule="always")), engine("e1", **kv), engine("e2", **kv))
    assert agent.state.splits
    put_to_sleep(agent, 1.0)
    assert not agent.state.splits
    wake(agent, 2.0)
    assert agent.state.splits
