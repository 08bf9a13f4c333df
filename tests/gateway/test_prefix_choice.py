"""The choice of a worker where the prompt is known: by what it costs, with what each worker holds."""

from dataclasses import replace
from typing import Any

from hmas.contracts.gateway import (
    FirstTokenRelayed,
    FromWorker,
    GatewayEffect,
    PublishUse,
    RouteChosen,
    StreamChanged,
    ToWorker,
    UseReported,
)
from hmas.contracts.job import PrefixChain
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.use import UseReport
from hmas.gateway.agent.config import GatewayConfig, RouteChoiceConfig, RouterConfig
from hmas.gateway.agent.pools.workers import KnownWorker
from hmas.gateway.agent.routing.route_chooser import RouteChooser
from hmas.wire.codec import decode, encode
from tests.builders.registry import engine_info
from tests.gateway.gateway_script import Mesh, heartbeat, load, run_ended, submits

TOKENS = 4_000


def prompt(*nodes: int, thread: int = 0, turn: int = 1) -> PrefixChain:
    return PrefixChain(nodes, tuple(TOKENS * (i + 1) for i in range(len(nodes))), True, thread, turn)


def workers(count: int) -> tuple[str, ...]:
    return tuple(f"w{i}" for i in range(1, count + 1))


def send(mesh: Mesh, name: str, chain: PrefixChain) -> tuple[str, RouteChosen]:
    """Sends a request with this prompt; returns its worker and the receipt."""
    _, route, *sent = mesh.receive(name, prompt_tokens=chain.ends[-1], prefix=chain)
    assert isinstance(route, RouteChosen)
    ((_, worker, _),) = submits(sent)
    assert worker == route.worker
    return worker, route


def serve(mesh: Mesh, name: str, worker: str, **end: int) -> None:
    run = mesh.grant(name, worker=worker)
    mesh.play(FirstTokenRelayed(name, run), run_ended(name, run, Outcome.FINISHED, **end))


def told(effects: list[GatewayEffect]) -> UseReport:
    (report,) = (effect.report for effect in effects if isinstance(effect, PublishUse))
    return report


def cached(route: RouteChosen) -> dict[str, int]:
    return dict(zip(route.workers, route.cached_tokens, strict=True))


def waits(route: RouteChosen) -> dict[str, bool]:
    return {worker: wait_s > 0.0 for worker, wait_s in zip(route.workers, route.wait_s, strict=True)}


def test_a_prompt_goes_where_its_beginning_is() -> None:
    mesh = Mesh(*workers(4))
    first, route = send(mesh, "a0", prompt(1, 2))
    assert cached(route) == dict.fromkeys(workers(4), 0)
    serve(mesh, "a0", first)
    for i in range(8):  # least recently used, others would be next
        serve(mesh, f"x{i}", send(mesh, f"x{i}", prompt(100 + i))[0])
    worker, route = send(mesh, "a1", prompt(1, 2, 3))
    assert worker == first
    assert cached(route)[first] == 2 * TOKENS
    totals = [sum(cost) for cost in zip(route.wait_s, route.prefill_s, route.load_s, strict=True)]
    assert totals == sorted(totals)


def test_a_long_queue_is_left_for_a_cold_worker_and_a_short_one_is_not() -> None:
    mesh = Mesh(*workers(2))
    first, _ = send(mesh, "a0", prompt(1, 2))
    serve(mesh, "a0", first)
    mesh.now_s = 1.0
    mesh.play(FromWorker(first, load(queued=1, running=9, backlog_s=2.0)))  # 0.2 s, less than the prefill saved
    assert send(mesh, "a1", prompt(1, 2, 3))[0] == first
    mesh.play(FromWorker(first, load(queued=50, running=50, backlog_s=60.0)))
    assert send(mesh, "a2", prompt(1, 2, 4))[0] != first


def test_a_prefill_that_many_would_wait_for_is_worth_a_longer_queue() -> None:
    """Four seconds more of waiting are left for a prefill of one second, but not where eight others wait as well."""
    for waiting, stays in ((1, False), (8, True)):
        mesh = Mesh(*workers(2))
        first, _ = send(mesh, "a0", prompt(1, 2))
        serve(mesh, "a0", first)
        mesh.now_s = 1.0
        for worker, backlog_s in ((w, 12.0 if w == first else 4.0) for w in workers(2)):
            mesh.play(FromWorker(worker, load(queued=waiting, running=waiting, backlog_s=backlog_s)))
        assert (send(mesh, "a1", prompt(1, 2, 3))[0] == first) is stays


def test_a_first_request_waits_for_the_prompts_before_it_as_well() -> None:
    mesh = Mesh(*workers(2))
    first, _ = send(mesh, "a0", prompt(1, 2, 3, thread=1, turn=0))  # a second and a half of prefill
    mesh.now_s = 1.0
    for worker in workers(2):
        mesh.play(FromWorker(worker, load(running=1, backlog_s=1.0 if worker == first else 2.0)))
    assert send(mesh, "b0", prompt(7, thread=2, turn=0))[0] != first


def test_without_a_known_prompt_nothing_is_compared_and_the_least_backlog_wins() -> None:
    mesh = Mesh(*workers(2))
    mesh.play(FromWorker("w1", load(backlog_s=1.0)))
    assert submits(mesh.receive("r1")) == [("r1", "w2", 1)]


def test_what_another_gateway_sent_is_known_once_it_told() -> None:
    one, other = Mesh(*workers(4)), Mesh(*workers(4), config=GatewayConfig(gateway="other"))
    first, _ = send(one, "a0", prompt(1, 2))
    report = told(one.tick(1.0))
    assert report.held[0].worker == first
    assert not [e for e in one.tick(1.0) if isinstance(e, PublishUse)]  # told once
    other.play(UseReported(decode(UseReport, encode(report))))
    for i in range(3):
        send(other, f"x{i}", prompt(100 + i))
    worker, route = send(other, "a1", prompt(1, 2, 3))
    assert worker == first
    assert cached(route)[first] == 2 * TOKENS
    other.play(UseReported(replace(report, held=(replace(report.held[0], worker="nobody"),))))  # is no worker here


def test_a_report_is_bounded() -> None:
    mesh = Mesh(*workers(2), config=GatewayConfig(gateway="g", chooser=RouteChoiceConfig(max_told_nodes=10)))
    for i in range(20):
        send(mesh, f"x{i}", prompt(1000 + i, 2000 + i))
    report = told(mesh.tick(1.0))
    assert sorted(node for held in report.held for node in held.nodes) == sorted(
        node for i in range(15, 20) for node in (1000 + i, 2000 + i)
    )


def test_what_an_engine_does_not_have_was_lost_with_all_that_is_older() -> None:
    mesh = Mesh("w1")
    mesh.play(HeartbeatReceived(heartbeat("w2", up=False)), StreamChanged("w2", True))  # so that there is a choice
    for name, nodes in (("old", (50, 51)), ("a0", (1, 2)), ("new", (60, 61))):
        send(mesh, name, prompt(*nodes))
        serve(mesh, name, "w1")
    send(mesh, "a1", prompt(1, 2, 3))
    serve(mesh, "a1", "w1", prompt_tokens=3 * TOKENS, cached_tokens=0)  # its cache was reset
    assert cached(send(mesh, "b0", prompt(50, 51, 52))[1]) == {"w1": 0}
    assert cached(send(mesh, "b1", prompt(60, 61, 62))[1]) == {"w1": 2 * TOKENS}  # proves nothing of what is younger
    assert cached(send(mesh, "b2", prompt(1, 2, 9))[1]) == {"w1": 2 * TOKENS}  # which has been computed again


def test_what_an_engine_has_stays_promised() -> None:
    mesh = Mesh(*workers(2))
    first, _ = send(mesh, "a0", prompt(1, 2))
    serve(mesh, "a0", first)
    send(mesh, "a1", prompt(1, 2, 3))
    serve(mesh, "a1", first, prompt_tokens=3 * TOKENS, cached_tokens=2 * TOKENS)
    _, route = send(mesh, "b0", prompt(1, 2, 9))
    assert cached(route)[first] == 2 * TOKENS


def test_an_engine_that_came_up_again_holds_nothing() -> None:
    mesh = Mesh(*workers(2))
    first, _ = send(mesh, "a0", prompt(1, 2))
    serve(mesh, "a0", first)
    mesh.play(HeartbeatReceived(heartbeat(first, up=False)), HeartbeatReceived(heartbeat(first)))
    _, route = send(mesh, "a1", prompt(1, 2, 3))
    assert cached(route) == {"w1": 0, "w2": 0}


def test_a_full_worker_and_one_that_drains_get_none() -> None:
    mesh = Mesh(*workers(3))
    first, _ = send(mesh, "a0", prompt(1, 2))
    serve(mesh, "a0", first)
    mesh.play(HeartbeatReceived(heartbeat(first, queued=100)))
    assert send(mesh, "a1", prompt(1, 2, 3))[0] != first
    mesh.play(HeartbeatReceived(heartbeat(first, draining=True)))
    worker, route = send(mesh, "a2", prompt(1, 2, 4))
    assert worker != first
    assert first not in cached(route)


def test_of_many_workers_few_are_compared_and_the_holder_is_among_them() -> None:
    mesh = Mesh(*workers(200))
    first, _ = send(mesh, "a0", prompt(1 << 60, 2 << 60))
    serve(mesh, "a0", first)
    worker, route = send(mesh, "a1", prompt(1 << 60, 2 << 60, 0xFEDCBA9876543210))
    assert worker == first
    assert 4 < len(route.workers) <= RouteChoiceConfig().max_candidates


def test_of_several_gateways_not_all_choose_the_least_loaded_worker() -> None:
    mesh = Mesh(*workers(8))
    for name in workers(8)[1:]:
        mesh.play(FromWorker(name, load(backlog_s=5.0, running=5)))
    digests = [(i * 0x9E3779B97F4A7C15) % 2**64 for i in range(1, 9)]
    assert send(mesh, "a", prompt(digests[0] ^ 1))[0] == "w1"
    report = UseReport(gateway="other", incarnation="i", uses=(), promised=(), redeemed=())
    for i in range(7):
        mesh.play(UseReported(replace(report, gateway=f"other{i}")))
    routes = [send(mesh, f"b{i}", prompt(node))[1] for i, node in enumerate(digests)]
    assert all(len(route.workers) <= 2 for route in routes)
    assert len({route.worker for route in routes}) > 2
    mesh.now_s = 20.0
    mesh.play(*(HeartbeatReceived(heartbeat(name)) for name in workers(8)))
    assert len(send(mesh, "c", prompt(3))[1].workers) == 8  # the others are gone


def test_gateways_that_never_spoke_send_the_stages_of_a_job_to_one_worker() -> None:
    chosen = set()
    for i, name in enumerate(("g0", "g1", "g2", "g3")):
        mesh = Mesh(*workers(8), config=GatewayConfig(gateway=name))
        for other in range(i):
            serve(mesh, f"x{other}", send(mesh, f"x{other}", prompt(500 + other))[0])
        chosen.add(send(mesh, "job", prompt(7, 8, thread=0x1234567890ABCDEF))[0])
    assert len(chosen) == 1


def test_prompts_that_are_to_be_computed_count_until_their_first_token() -> None:
    mesh = Mesh(*workers(2))
    first, _ = send(mesh, "a0", prompt(1, 2))
    other, route = send(mesh, "b0", prompt(5, 6))
    assert other != first
    assert waits(route) == {first: True, other: False}
    mesh.play(FirstTokenRelayed("a0", mesh.grant("a0", worker=first)))
    _, route = send(mesh, "c0", prompt(7, 8))
    assert waits(route) == {first: False, other: True}


def test_a_worker_that_is_gone_is_forgotten_with_what_it_held() -> None:
    mesh = Mesh(*workers(2))
    first, _ = send(mesh, "a0", prompt(1, 2))
    serve(mesh, "a0", first)
    mesh.play(StreamChanged(first, False))
    mesh.tick(2 * RouterConfig().forget_bypass_s)
    mesh.play(HeartbeatReceived(heartbeat(first)), StreamChanged(first, True))
    other = next(name for name in workers(2) if name != first)
    mesh.play(HeartbeatReceived(heartbeat(other)), StreamChanged(other, True))
    _, route = send(mesh, "a1", prompt(1, 2, 3))
    assert cached(route)[first] == 0


def test_a_request_that_moves_takes_its_prompt_along() -> None:
    mesh = Mesh(*workers(2))
    first, _ = send(mesh, "a0", prompt(1, 2))
    effects = mesh.play(StreamChanged(first, False))
    moved = [e for e in effects if isinstance(e, ToWorker)]
    assert [e.worker for e in moved] == [name for name in workers(2) if name != first]


def test_what_all_prompts_begin_with_does_not_bring_first_requests_to_one_worker() -> None:
    def at_the_holder(turn: int) -> int:
        mesh = Mesh(*workers(4))
        holder, _ = send(mesh, "root", prompt(1, 2, 3))
        serve(mesh, "root", holder)
        return [send(mesh, f"q{i}", prompt(1, 2, 3, 100 + i, turn=turn))[0] for i in range(8)].count(holder)

    assert at_the_holder(turn=0) == 2
    assert at_the_holder(turn=7) > 2


def worker(name: str = "w1", *, heard_s: float = 0.0, **changes: Any) -> KnownWorker:
    found = KnownWorker(heartbeat=heartbeat(name), heard_s=heard_s)
    found.engines_up = 1
    found.bound()
    for field, value in changes.items():
        setattr(found, field, value)
    return found


def test_fewer_workers_are_drawn_the_more_gateways_choose() -> None:
    chooser = RouteChooser(GatewayConfig(gateway="g", chooser=RouteChoiceConfig(max_candidates=4, max_drawn=5)))
    assert [chooser.drawn(0.0, workers) for workers in (1, 4, 5, 100)] == [1, 4, 5, 5]
    chooser.hear(10.0, "g2", ())
    assert [chooser.drawn(10.0, workers) for workers in (2, 4, 7, 100)] == [2, 2, 4, 5]
    assert chooser.drawn(20.0, 4) == 2
    assert chooser.drawn(20.25, 4) == 4, "the others are gone"
    engine = engine_info(kv_capacity_tokens=0)
    made = worker("w1")
    made.heartbeat = heartbeat("w1", engines=(engine, replace(engine, engine="e2", kv_capacity_tokens=1000)))
    chooser.enter(made)
    assert chooser.index.holders[made.holder].capacity == 262_144 + 1000
    made.heartbeat = heartbeat("w1", engines=())
    chooser.enter(made)
    assert chooser.index.holders[made.holder].capacity == 262_144
    chooser.index.hold(made.holder, (7,), (10,))
    assert chooser.index.epoch_of(made.holder, 7) > 0
    assert chooser.index.epoch_of(made.holder, 8) == chooser.index.epoch_of(made.holder + 1, 7) == 0
