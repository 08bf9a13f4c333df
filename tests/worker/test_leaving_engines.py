"""Engines that come by leases and leave: nothing more is granted there, and what runs goes on for its grace."""

from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import (
    CycleTicked,
    EngineLeft,
    EngineReturned,
    HeartbeatDue,
    PublishHeartbeat,
    ReleaseEngine,
    WorkerEffect,
)
from hmas.worker.agent import WorkerConfig
from tests.worker.builders import Scripted, dispatched, engine, loads, refused, request, sampled, stopped


def discovering(*names: str) -> Scripted:
    config = WorkerConfig(worker="w1", incarnation="i", address="a:1", pool="m", discovers=True, leave_grace_s=60.0)
    return Scripted(config, *(engine(name, epoch=1) for name in names))


def heartbeats(effects: list[WorkerEffect]) -> list[tuple[bool, dict[str, bool]]]:
    """Returns, of each heartbeat, whether it takes no requests, and the engines with whether they are up."""
    told = [effect.heartbeat for effect in effects if isinstance(effect, PublishHeartbeat)]
    return [(each.draining, {e.engine: e.up for e in each.engines}) for each in told]


def released(effects: list[WorkerEffect]) -> list[str]:
    return [effect.engine for effect in effects if isinstance(effect, ReleaseEngine)]


def test_nothing_is_granted_on_an_engine_before_gateways_have_heard_whose_it_is() -> None:
    worker = discovering()
    assert heartbeats(worker.up(1.0, engine("e1", epoch=3))) == [(False, {"e1": True})]
    assert dispatched(worker.submit(1.1, request("r1"))) == []
    assert dispatched(worker.step(1.4, sampled("e1", running=8))) == []
    assert dispatched(worker.step(1.6, sampled("e1", running=8))) == []  # others fill it: what they run counts
    assert dispatched(worker.step(1.7, sampled("e1", running=2))) == [("r1", "e1")]


def test_an_engine_that_left_gets_nothing_and_is_released_when_it_is_empty() -> None:
    worker = discovering("e1", "e2")
    worker.submit(1.0, request("r1"), request("r2"))
    assert {worker.grants[name].engine for name in ("r1", "r2")} == {"e1", "e2"}
    left = worker.grants["r1"].engine
    worker.step(1.1, EngineLeft(left, "gone"))
    assert {each for _, each in dispatched(worker.submit(1.2, *(request(f"s{i}") for i in range(4))))} <= {
        worker.grants["r2"].engine
    }
    effects = worker.step(1.3, HeartbeatDue())
    assert heartbeats(effects) == [(False, {left: False, worker.grants["r2"].engine: True})]
    assert released(worker.step(1.4, CycleTicked())) == []
    worker.first_token(1.5, "r1")
    worker.finish(2.0, "r1", 5)
    assert released(worker.step(2.1, CycleTicked())) == [left]
    assert left not in heartbeats(worker.step(2.2, HeartbeatDue()))[0][1]


def test_after_the_grace_what_has_no_token_is_asked_back_and_the_rest_goes_on() -> None:
    worker = discovering("e1", "e2")
    worker.submit(1.0, request("r1"), request("r2"), request("r3"))
    mine = [name for name in ("r1", "r2", "r3") if worker.grants[name].engine == "e1"]
    assert len(mine) == 2
    with_token, without = mine
    worker.first_token(1.1, with_token)
    worker.step(1.2, EngineLeft("e1", "gone"))
    assert stopped(worker.step(61.1, CycleTicked())) == []
    effects = worker.step(61.3, CycleTicked())
    assert released(effects) == ["e1"]
    assert [stop.request_id for stop in stopped(effects)] == [without]
    assert dispatched(worker.fail(61.4, without, outcome=Outcome.ENGINE_ERROR)) == [(without, "e2")]
    worker.finish(62.0, with_token, 9)
    assert "e1" not in worker.state.fleet
    assert released(worker.step(62.1, CycleTicked())) == []


def test_an_engine_that_returns_is_used_at_once() -> None:
    worker = discovering("e1")
    worker.submit(1.0, request("r1"))
    worker.step(1.1, EngineLeft("e1", "gone"))
    assert dispatched(worker.submit(1.2, request("r2"))) == []
    assert dispatched(worker.step(1.3, EngineReturned("e1"))) == [("r2", "e1")]
    assert released(worker.step(70.0, CycleTicked())) == []


def test_a_worker_without_an_engine_stands_by_and_refuses_nobody() -> None:
    worker = discovering()
    assert heartbeats(worker.step(100.0, HeartbeatDue()))[0][0]
    assert refused(worker.submit(100.0, request("r1"))) == []  # a gateway takes it elsewhere when it hears of that
    worker.up(101.0, engine("e1", epoch=1))
    assert not heartbeats(worker.step(101.1, HeartbeatDue()))[0][0]
    worker.step(102.0, EngineLeft("e1", "gone"))
    effects = worker.step(102.1, HeartbeatDue())
    assert heartbeats(effects)[0][0]
    assert all(load.draining for _, load in loads(effects))


def test_an_engine_that_leaves_before_it_came_up_is_released() -> None:
    worker = discovering("e2")
    worker.step(1.0, EngineLeft("e1", "gone"))
    assert released(worker.step(1.1, CycleTicked())) == ["e1"]
    assert "e1" not in worker.state.fleet
