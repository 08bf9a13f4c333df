"""A request whose SLO no engine of its worker ever keeps is offered to the other workers, and then refused for good."""

from math import inf

from hmas.contracts.execution import Refusal, Submit
from hmas.contracts.gateway import FromWorker, GatewayEffect, Settle, ToWorker
from hmas.contracts.outcome import Outcome
from hmas.gateway.agent.config import GatewayConfig
from tests.gateway.gateway_script import Mesh


def refused_for_good(mesh: Mesh, worker: str, attempt: int) -> list[GatewayEffect]:
    refusal = Refusal(request_id="r1", attempt=attempt, outcome=Outcome.SLO_UNREACHABLE, message=f"late at {worker}")
    return mesh.play(FromWorker(worker, refusal))


def offered(effects: list[GatewayEffect]) -> list[tuple[str, int]]:
    sent = [(e.worker, e.message) for e in effects if isinstance(e, ToWorker)]
    return [(worker, message.attempt) for worker, message in sent if isinstance(message, Submit)]


def settled(effects: list[GatewayEffect]) -> list[tuple[Outcome, str, float | None]]:
    return [(e.outcome, e.message, e.retry_after_s) for e in effects if isinstance(e, Settle)]


def test_each_worker_is_asked_once_and_then_the_client_is_told_not_to_retry() -> None:
    mesh = Mesh("w1", "w2")
    ((first, attempt),) = offered(mesh.receive())
    ((second, again),) = offered(refused_for_good(mesh, first, attempt))
    assert (second != first, again) == (True, attempt + 1)
    assert {w.name: w.requests for w in mesh.agent._state.router.usable("m")} == {first: 0, second: 1}
    effects = refused_for_good(mesh, second, again)
    assert (offered(effects), settled(effects)) == ([], [(Outcome.SLO_UNREACHABLE, f"late at {second}", inf)])


def test_no_more_workers_are_asked_than_a_request_has_attempts() -> None:
    mesh = Mesh("w1", "w2", config=GatewayConfig(gateway="g", max_attempts=1))
    ((first, attempt),) = offered(mesh.receive())
    assert settled(refused_for_good(mesh, first, attempt)) == [(Outcome.SLO_UNREACHABLE, f"late at {first}", inf)]
