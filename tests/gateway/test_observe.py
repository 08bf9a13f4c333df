"""A gateway that only observes places every request itself, and takes grants as notes."""

from dataclasses import replace

from hmas.contracts.execution import Adopt, Ended, FirstToken
from hmas.contracts.gateway import (
    FirstTokenRelayed,
    FromWorker,
    GatewayEffect,
    NoteGrant,
    Settle,
    StartRun,
    StreamChanged,
    ToWorker,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived
from hmas.gateway.agent.config import GatewayConfig
from tests.gateway.gateway_script import Mesh, grant, heartbeat, run_ended

(ENGINE,) = heartbeat().engines


def observing() -> Mesh:
    """A mesh of w1 with e1 and w2 with e2, each with a single sequence."""
    mesh = Mesh(config=GatewayConfig(gateway="g", observe=True))
    for worker, name in (("w1", "e1"), ("w2", "e2")):
        engine = replace(ENGINE, engine=name, endpoint=f"http://{name}:1", max_num_seqs=1)
        mesh.play(HeartbeatReceived(heartbeat(worker, engines=(engine,), max_queued=1)), StreamChanged(worker, True))
    return mesh


def placed(effects: list[GatewayEffect]) -> list[tuple[str, str, bool]]:
    return [(e.engine, e.worker, e.observed) for e in effects if isinstance(e, StartRun) and e.grant is None]


def told(effects: list[GatewayEffect], kind: type) -> list[object]:
    return [e.message for e in effects if isinstance(e, ToWorker) and isinstance(e.message, kind)]


def test_every_request_is_placed_at_once_where_the_fewest_are_whatever_the_limits() -> None:
    mesh = observing()
    engines = [placed(mesh.receive(f"r{i}")) for i in range(40)]
    assert [len(each) for each in engines] == [1] * 40
    assert sorted(name for ((name, *_),) in engines) == ["e1"] * 20 + ["e2"] * 20
    assert all(observed for ((_, _, observed),) in engines)


def test_its_worker_hears_of_the_run_of_its_token_and_of_its_end() -> None:
    mesh = observing()
    effects = mesh.receive("r1")
    (adopt,) = told(effects, Adopt)
    assert isinstance(adopt, Adopt)
    assert (adopt.request.id, adopt.engine, adopt.grant, adopt.first_token_s) == ("r1", "e1", 0, None)
    assert told(mesh.play(FirstTokenRelayed("r1", 1)), FirstToken) == [FirstToken("r1", 0)]
    effects = mesh.play(run_ended("r1", 1))
    assert [e.outcome for e in effects if isinstance(e, Settle)] == [Outcome.FINISHED]
    assert len(told(effects, Ended)) == 1


def test_a_grant_is_noted_and_starts_nothing() -> None:
    mesh = observing()
    mesh.receive("r1")
    assert mesh.play(FromWorker("w1", grant("r1", 1))) == [NoteGrant("w1", grant("r1", 1))]
    mesh.play(run_ended("r1", 1))
    assert mesh.play(FromWorker("w1", grant("r1", 2))) == [NoteGrant("w1", grant("r1", 2))]


def test_a_run_that_fails_before_its_first_token_goes_to_the_other_engine() -> None:
    mesh = observing()
    assert placed(mesh.receive("r1"))[0][0] == "e1"
    effects = mesh.play(run_ended("r1", 1, Outcome.ENGINE_ERROR, retryable=True))
    assert placed(effects) == [("e2", "w2", True)]
    (ended,) = told(effects, Ended)
    assert isinstance(ended, Ended)
    assert not ended.retryable  # so that the worker does not wait for it
    assert placed(mesh.receive("r2"))[0][0] == "e2"  # the first one rests


def test_a_request_without_an_engine_waits_for_one() -> None:
    mesh = Mesh(config=GatewayConfig(gateway="g", observe=True))
    mesh.play(HeartbeatReceived(heartbeat("w1", up=False)), StreamChanged("w1", True))
    assert mesh.receive("r1") == []
    assert placed(mesh.play(HeartbeatReceived(heartbeat("w1")))) == [("e1", "w1", True)]


def test_a_silent_workers_engine_stays_in_use() -> None:
    mesh = observing()
    mesh.play(StreamChanged("w1", False))
    assert sorted(placed(mesh.receive(f"r{i}"))[0][0] for i in range(4)) == ["e1", "e1", "e2", "e2"]
