"""A worker whose engine somebody has put to sleep: who else there is gets the requests, and what waits moves."""

from typing import Any

import pytest

from hmas.contracts.gateway import RouteChosen
from hmas.contracts.job import PrefixChain
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat
from hmas.gateway.agent.config import FailOpenConfig, GatewayConfig
from hmas.gateway.agent.requests.ledger import Ledger
from hmas.gateway.agent.routing.bypass import Bypass
from hmas.gateway.agent.routing.routing import Router
from hmas.gateway.exchange import RunTrace
from hmas.gateway.sleepers import SleepingEngines
from tests.builders.registry import engine_info
from tests.gateway.gateway_script import Mesh, heartbeat, run_ended, submits
from tests.gateway.test_gateway_parts import exchange
from tests.gateway.test_rebalancing import Pool


def beat(worker: str, *levels: int | None, **changes: Any) -> WorkerHeartbeat:
    """Of a worker with an engine for each sleep level; None: it is awake."""
    engines = tuple(engine_info(f"e{number}", sleep_level=level) for number, level in enumerate(levels, 1))
    return heartbeat(worker, engines=engines, **changes)


def hear(mesh: Mesh, *beats: WorkerHeartbeat) -> None:
    mesh.play(*map(HeartbeatReceived, beats))


def sent_to(mesh: Mesh, name: str) -> str:
    ((_, worker, _),) = submits(mesh.receive(name))
    return worker


def test_requests_go_to_the_worker_that_is_awake_however_long_its_queue_is() -> None:
    mesh = Mesh("w1", "w2")
    hear(mesh, beat("w1", 1), beat("w2", None, queued=50, backlog_s=500.0))
    assert {sent_to(mesh, f"r{number}") for number in range(8)} == {"w2"}
    hear(mesh, beat("w1", None))
    assert sent_to(mesh, "r9") == "w1"


def test_where_all_sleep_a_request_waits_at_a_worker() -> None:
    mesh = Mesh("w1", "w2")
    hear(mesh, beat("w1", 1), beat("w2", 0))
    assert sent_to(mesh, "r1") in ("w1", "w2")


def test_one_of_two_engines_asleep_halves_a_worker() -> None:
    config = GatewayConfig(gateway="g")
    router = Router(config)
    router.connect("w1")
    router.hear(0.0, beat("w1", None, 1))
    (worker,) = router.usable("m")
    assert (worker.engines_up, worker.slots, worker.asleep) == (1, 8, False)
    router.hear(1.0, beat("w1", 2, 1))
    assert (worker.engines_up, worker.slots, worker.asleep) == (0, 0, True)


def test_what_waits_moves_at_the_first_check() -> None:
    pool = Pool(0.0, 1.0, every_s=0.5, after=4, moves=2)
    for name in ("r1", "r2", "r3"):
        pool.wait(name, "w0", 100.0)
    pool.router.hear(0.5, beat("w0", 1, queued=3))
    assert pool.moves(1.0) == [("r3", "w1"), ("r2", "w1")]


def send(mesh: Mesh, name: str, chain: PrefixChain) -> RouteChosen:
    (route,) = [e for e in mesh.receive(name, prefix=chain) if isinstance(e, RouteChosen)]
    return route


@pytest.mark.parametrize(("level", "kept"), [(0, True), (1, False), (2, False)])
def test_what_its_engine_held_is_lost_from_level_1_on(level: int, kept: bool) -> None:
    mesh = Mesh("w1", "w2")
    hear(mesh, beat("w1", None), beat("w2", None))
    chain = PrefixChain((1, 2), (400, 800), True, 0, 1)
    first = send(mesh, "r1", chain).worker
    run = mesh.grant("r1", worker=first)
    mesh.play(run_ended("r1", run, prompt_tokens=800))
    hear(mesh, beat(first, level), beat(first, None))
    route = send(mesh, "r2", chain)
    assert dict(zip(route.workers, route.cached_tokens, strict=True))[first] == (800 if kept else 0)


def test_no_gateway_places_a_request_on_it_while_its_worker_is_silent() -> None:
    config = GatewayConfig(gateway="g", fail_open=FailOpenConfig(after_s=1.0))
    router, ledger = Router(config), Ledger()
    router.hear(0.0, beat("w1", 1, None))
    bypass = Bypass(config, router, ledger)
    assert bypass.choose(5.0, "m") == ("w1", "e2")
    assert bypass.least_outstanding(5.0, "m") == ("w1", "e2")
    router.hear(6.0, beat("w1", 1, 0))
    assert bypass.choose(50.0, "m") is None
    assert bypass.least_outstanding(50.0, "m") is None


# --- hmas why


def test_a_request_that_waits_for_a_sleeping_engine_says_so() -> None:
    known, waits = SleepingEngines(), exchange("r1", "c1")
    waits.worker = "w1"
    known.on_heartbeat(beat("w1", None, None))
    assert known.awaited_by(waits) == ""
    known.on_heartbeat(beat("w1", 1, None))
    assert known.awaited_by(waits) == "", "the other engine could take it"
    known.on_heartbeat(beat("w1", 1, 0))
    assert known.awaited_by(waits).startswith("w1/e1, w1/e2 to wake")
    short = engine_info("e2", max_model_len=waits.request.prompt_tokens)
    known.on_heartbeat(heartbeat("w1", engines=(engine_info("e1", sleep_level=1), short)))
    assert known.awaited_by(waits).startswith("w1/e1 to wake"), "the other one is too small"
    waits.outcome = Outcome.FINISHED
    assert known.awaited_by(waits) == ""


def test_a_request_that_runs_on_a_sleeping_engine_says_so() -> None:
    known, runs = SleepingEngines(), exchange("r1", "c1")
    runs.runs.append(RunTrace(worker="w1", engine="e1", grant=None, started_s=1.0))
    known.on_heartbeat(beat("w1", 1, None))
    assert known.awaited_by(runs).startswith("w1/e1 to wake")
    known.on_heartbeat(beat("w1", None, 1))
    assert known.awaited_by(runs) == ""


def test_the_workers_that_are_known_to_have_sleepers_are_bounded() -> None:
    known, waits = SleepingEngines(max_workers=2), exchange("r1", "c1")
    for number in range(3):
        known.on_heartbeat(beat(f"w{number}", 1))
    known.on_heartbeat(beat("w1", 2))
    told = []
    for number in range(3):
        waits.worker = f"w{number}"
        told.append(bool(known.awaited_by(waits)))
    assert told == [True, True, False]
