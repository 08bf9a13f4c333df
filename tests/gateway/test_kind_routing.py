"""Workers whose engines are of different kinds: each is judged by what a request costs on its own engines."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.engine_kind import UNKNOWN_KIND, EngineKind
from hmas.contracts.gateway import RequestAnnotated, RouteChosen
from hmas.contracts.job import PrefixChain
from hmas.contracts.questions import Question
from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat
from hmas.contracts.request import Annotation, Cost, KindCost
from hmas.gateway.agent.config import (
    GatewayConfig,
    GatewayPriorConfig,
)
from hmas.gateway.agent.questions.worker_facts import WorkerFacts
from hmas.gateway.agent.routing.routing import Router
from hmas.gateway.agent.routing.speeds import PoolSpeeds
from hmas.laws.kind_costs import cost_among
from tests.builders.registry import engine_info
from tests.builders.requests import model_tags
from tests.gateway.gateway_script import Mesh, annotation, heartbeat, request

CONFIG = GatewayConfig(gateway="g")
SLOW, FAST = EngineKind("", "A100"), EngineKind("", "H100")
COSTS = (KindCost(SLOW, Cost(0.9, 0.03)), KindCost(FAST, Cost(0.3, 0.01)))


def beat(worker: str, *hardware: str) -> WorkerHeartbeat:
    (like,) = heartbeat(worker).engines
    engines = tuple(replace(like, engine=f"e{i}", hardware=each) for i, each in enumerate(hardware))
    return heartbeat(worker, engines=engines)


def tagged(tokens: float = 100.0) -> Annotation:
    return replace(annotation(tokens), costs=COSTS)


def test_what_was_sent_counts_as_long_as_the_workers_own_engines_take() -> None:
    router = Router(CONFIG)
    for name, cards in (("slow", ("A100",)), ("fast", ("H100",)), ("both", ("A100", "H100"))):
        router.connect(name)
        router.hear(0.0, beat(name, *cards))
    found = {worker.name: worker for worker in router.usable("m")}
    for worker in found.values():
        router.send(0.0, worker, request(), tagged())
    joint_s = cost_among(COSTS, (SLOW, FAST)).total_s(100.0)
    assert found["slow"].predicted_backlog_s == pytest.approx(0.9 + 3.0)
    assert found["fast"].predicted_backlog_s == pytest.approx(0.3 + 1.0)
    assert found["both"].predicted_backlog_s == pytest.approx(joint_s / 2)


def test_tags_that_come_later_count_by_the_workers_own_engines() -> None:
    router = Router(CONFIG)
    router.connect("slow")
    router.hear(0.0, beat("slow", "A100"))
    (worker,) = router.usable("m")
    router.send(0.0, worker, request(), None)
    router.recost("slow", request(), tagged())
    assert worker.predicted_backlog_s == pytest.approx(0.9 + 3.0)


def test_speeds_are_learnt_for_each_kind() -> None:
    speeds, asked = PoolSpeeds(CONFIG.prior), request(prompt_tokens=100)
    assert not speeds.differ(None)
    for _ in range(400):
        speeds.learn(asked, tagged())
    assert speeds.differ(None)
    assert speeds.times_s(asked, None, (SLOW,)) == pytest.approx((0.9, 3.0), rel=1e-3)
    assert speeds.times_s(asked, None, (FAST,)) == pytest.approx((0.3, 1.0), rel=1e-3)
    assert speeds.times_s(asked, tagged(10.0), (FAST,)) == pytest.approx((0.3, 0.1))
    assert speeds.prefill_s(200, (SLOW,)) == pytest.approx(1.8, rel=1e-3)


def test_the_receipt_of_a_choice_tells_each_workers_own_seconds() -> None:
    mesh = Mesh("w1", "w2")
    mesh.play(HeartbeatReceived(beat("w1", "A100")), HeartbeatReceived(beat("w2", "H100")))

    def prefill(number: int) -> dict[str, float]:
        _, route, *_ = mesh.receive(f"r{number}", prefix=PrefixChain((number,), (800,), True))
        assert isinstance(route, RouteChosen)
        mesh.play(RequestAnnotated(f"r{number}", tagged()))
        return dict(zip(route.workers, route.prefill_s, strict=True))

    first, *_, last = [prefill(i + 1) for i in range(90)]
    assert first["w1"] == first["w2"]
    assert last["w1"] == pytest.approx(3.0 * last["w2"], rel=0.05)


def test_a_question_asks_for_each_kind_by_the_least_loaded_worker() -> None:
    facts = WorkerFacts()
    kinds = [EngineKind(hardware=name) for name in ("A100", "H100", "L4")]

    def engines(*names: str, up: bool = True) -> tuple[Any, ...]:
        return tuple(engine_info(f"e{i}", dialect="vllm", hardware=name, up=up) for i, name in enumerate(names))

    facts.hear(heartbeat("w1", engines=engines("A100", "A100"), running=5, queued=3))
    facts.hear(heartbeat("w2", engines=engines("H100"), running=4, queued=1))
    facts.hear(heartbeat("w3", engines=engines("H100", "L4"), running=4, queued=1))
    facts.hear(heartbeat("w4", engines=engines("L4"), pool="other"))
    assert facts.queueing
    asked = facts.query(Question(request=request(), text="", worker="w1"), model_tags())
    assert [(each.kind, each.worker, each.running, each.waiting, each.kv_usage) for each in asked.kinds] == [
        (kinds[0], "w1", 2, 1, 0.0), (kinds[1], "w3", 2, 0, 0.0), (kinds[2], "w3", 2, 0, 0.0),
    ]  # fmt: skip
    assert (asked.pool, asked.question.worker) == ("m", "w1")
    unknown = facts._kind_query(UNKNOWN_KIND, "nobody")
    assert (unknown.running, unknown.waiting) == (0, 0)
    facts._load["nobody"] = (5, 3)
    unknown = facts._kind_query(UNKNOWN_KIND, "nobody")
    assert (unknown.running, unknown.waiting) == (5, 3), "of one whose engines are unknown nothing is divided"


def test_speeds_are_learnt_by_kind() -> None:
    prior = GatewayPriorConfig(output_tokens=100.0, prefill_tokens_per_s=1000.0, tpot_s=0.02)
    speeds = PoolSpeeds(prior)
    kind = EngineKind("vllm", "A100")
    assert speeds.prefill_s(500, (kind,)) == 0.5
    assert speeds.times_s(request(prompt_tokens=500), None, (kind,)) == (0.5, 2.0)
    note = Annotation(model_tags(output_tokens=50.0), (KindCost(kind, Cost(0.8, 0.1)),))
    assert speeds.times_s(request(), note, (kind,)) == (0.8, 5.0)
    speeds.learn(request(prompt_tokens=400), note)
    prefill_s, decode_s = speeds.times_s(request(prompt_tokens=1000), None, (kind,))
    assert prefill_s == pytest.approx(1000 * (0.001 + 0.05 * (0.002 - 0.001)))
    assert decode_s == pytest.approx(2.0 + 0.05 * (5.0 - 2.0))
    assert not speeds.differ(None)
    assert not speeds.differ(note)
    other = KindCost(EngineKind("vllm", "H100"), Cost(0.4, 0.05))
    both = replace(note, costs=(*note.costs, other))
    assert speeds.differ(both)
    speeds.learn(request(prompt_tokens=400), both)
    assert speeds.differ(None)
    speeds.learn(request(prompt_tokens=0), note)


def test_a_prompt_of_one_token_teaches_the_speed_of_one_token() -> None:
    speeds, kind = PoolSpeeds(GatewayPriorConfig(prefill_tokens_per_s=1000.0)), EngineKind("vllm", "A100")
    for _ in range(400):
        speeds.learn(request(prompt_tokens=1), Annotation(model_tags(), (KindCost(kind, Cost(0.5, 0.1)),)))
    assert speeds.prefill_s(4, (kind,)) == pytest.approx(2.0)
