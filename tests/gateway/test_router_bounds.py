"""A flood of heartbeats: the router keeps a bounded number of workers, and those that it needs."""

from hmas.contracts.registry import MAX_HEARD_WORKERS
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.routing.routing import Router
from tests.gateway.gateway_script import heartbeat


def test_those_heard_of_last_are_kept_and_connected_ones_stay() -> None:
    router = Router(GatewayConfig(gateway="g"))
    router.hear(0.0, heartbeat("connected"))
    router.connect("connected")
    router.hear(0.0, heartbeat("busy"))
    router.placed("busy")
    for number in range(3 * MAX_HEARD_WORKERS):
        router.hear(1.0 + number, heartbeat(f"forged-{number}", pool=f"pool-{number % 7}"))
    kept = set(router._workers)
    assert len(kept) == MAX_HEARD_WORKERS
    assert {"connected", "busy", f"forged-{3 * MAX_HEARD_WORKERS - 1}"} <= kept
    assert sum(len(workers) for workers in router._pools.values()) == MAX_HEARD_WORKERS
    router.hear(1e6, heartbeat("connected"))
    assert len(router._workers) == MAX_HEARD_WORKERS


def test_when_all_are_connected_a_further_one_is_not_taken() -> None:
    router = Router(GatewayConfig(gateway="g"))
    for number in range(MAX_HEARD_WORKERS):
        router.hear(0.0, heartbeat(f"w{number}"))
        router.connect(f"w{number}")
    router.hear(1.0, heartbeat("late"))
    assert "late" not in router._workers
    assert len(router._workers) == MAX_HEARD_WORKERS
