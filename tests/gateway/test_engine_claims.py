"""Engines that workers have by leases: a gateway goes by the highest epoch, and places nothing where another leads."""

from dataclasses import replace
from typing import Any

from hmas.contracts.execution import Ended
from hmas.contracts.gateway import (
    FromWorker,
    GatewayEffect,
    StartRun,
    StreamChanged,
    ToWorker,
)
from hmas.contracts.registry import EngineInfo, HeartbeatReceived
from hmas.gateway.agent.pools.claims import EngineClaims
from tests.builders.registry import engine_info
from tests.gateway.gateway_script import Mesh, grant, heartbeat

(PLAIN,) = heartbeat().engines


def engine(epoch: int, *, up: bool = True, endpoint: str = "http://10.0.0.1:8000") -> EngineInfo:
    return replace(PLAIN, epoch=epoch, up=up, endpoint=endpoint)


def tell(mesh: Mesh, worker: str, *engines: EngineInfo) -> None:
    mesh.play(HeartbeatReceived(heartbeat(worker, engines=engines)))


def two_workers() -> Mesh:
    """w1 has the engine with epoch 1 and a waiting request r1; w2 has none yet."""
    mesh = Mesh()
    for worker, engines in (("w1", (engine(1),)), ("w2", ())):
        tell(mesh, worker, *engines)
        mesh.play(StreamChanged(worker, True))
    mesh.receive()
    return mesh


def starts(effects: list[GatewayEffect]) -> list[str]:
    return [effect.request_id for effect in effects if isinstance(effect, StartRun)]


def given_back(effects: list[GatewayEffect]) -> list[tuple[str, bool, bool]]:
    ends = [e.message for e in effects if isinstance(e, ToWorker) and isinstance(e.message, Ended)]
    return [(end.request_id, end.retryable, end.unreached) for end in ends]


def test_a_grant_of_a_worker_that_lost_the_engine_is_given_back() -> None:
    mesh = two_workers()
    tell(mesh, "w2", engine(2))
    effects = mesh.play(FromWorker("w1", grant(number=1)))
    assert (starts(effects), given_back(effects)) == ([], [("r1", True, True)])


def test_the_worker_with_the_higher_epoch_counts_whoever_spoke_last() -> None:
    mesh = two_workers()
    tell(mesh, "w2", engine(2))
    tell(mesh, "w1", engine(1))  # it does not know yet
    assert starts(mesh.play(FromWorker("w1", grant(number=1)))) == []


def test_a_worker_that_says_that_its_engine_leaves_makes_room_for_any_epoch() -> None:
    """So it is after NATS has lost the leases, and the epochs have begun anew."""
    mesh = Mesh()
    for worker, engines in (("w1", (engine(1),)), ("w2", (engine(7),))):
        tell(mesh, worker, *engines)
        mesh.play(StreamChanged(worker, True))
    mesh.receive()
    tell(mesh, "w2", engine(7, up=False))
    tell(mesh, "w1", engine(1))
    assert starts(mesh.play(FromWorker("w1", grant(number=1)))) == ["r1"]


def test_engines_without_a_lease_are_as_they_were() -> None:
    mesh = two_workers()
    tell(mesh, "w1", engine(0))
    tell(mesh, "w2", engine(0))
    assert starts(mesh.play(FromWorker("w1", grant(number=1)))) == ["r1"]


def silent(mesh: Mesh, worker: str) -> None:
    mesh.play(StreamChanged(worker, False))
    mesh.tick(3.0)


def test_a_dead_workers_engine_is_bypassed_until_another_takes_it_over_and_never_after() -> None:
    mesh = Mesh()
    tell(mesh, "w1", engine(1))
    mesh.play(StreamChanged("w1", True))
    silent(mesh, "w1")
    assert starts(mesh.receive("r1")) == ["r1"]  # by the gateway itself
    tell(mesh, "w2", engine(2))
    mesh.play(StreamChanged("w2", True))
    tell(mesh, "w2")  # and then the engine leaves the mesh
    mesh.play(StreamChanged("w2", False))
    mesh.tick(3.0)
    assert starts(mesh.receive("r2")) == []


def test_the_highest_epoch_holds_an_engine() -> None:
    claims = EngineClaims()

    def told(worker: str, epoch: int, *, up: bool = True, before: tuple[Any, ...] = ()) -> bool:
        info = engine_info(endpoint="http://e:1", epoch=epoch, up=up)
        return claims.hear(before, heartbeat(worker, engines=(info,)))

    mine = engine_info(endpoint="http://e:1", epoch=2)
    assert told("w1", 2)
    assert not told("w1", 2)
    assert not claims.has_lost("w1", mine)
    assert claims.has_lost("w2", mine)
    assert not told("w2", 1)
    assert not claims.has_lost("w1", mine)
    assert told("w2", 2), "of equal epochs the last that spoke has it"
    assert claims.has_lost("w1", mine)
    assert not claims.has_lost("w1", replace(mine, epoch=0)), "it is not held by a lease"
    assert not told("w1", 1)
    assert not told("w2", 1), "a holder that starts again may count lower"
    assert told("w1", 1)
    assert not told("w2", 0, before=(mine,)), "what it does not hold it cannot give back"
    assert not claims.has_lost("w1", mine)
    assert told("w1", 1, up=False, before=(mine,))
    assert claims.has_lost("w1", mine)
    assert told("w2", 1)
    claims.forget("w1")
    assert not claims.has_lost("w2", mine)
    claims.forget("w2")
    assert claims.has_lost("w2", mine)
