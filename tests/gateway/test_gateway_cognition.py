"""Batches, deadlines and fallbacks against real gRPC servers on loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.gateway import ViewReceived
from hmas.contracts.questions import AnnotateBatch, FallBack, FallbackReason, Question, QuestionAsked
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.request import Annotation, Cost, KindCost, Slo
from hmas.gateway.agent.questions.cognition_queue import CognitionQueueConfig
from hmas.gateway.cognition import CognitionConfig, CognitionShell
from hmas.runtime.rpc import RpcServer
from hmas.wire.codec import to_message
from hmas.wire.v1 import cognition_pb2 as pb
from hmas.wire.v1 import cognition_pb2_grpc
from tests.builders.requests import model_tags
from tests.conftest import PATIENCE_S
from tests.gateway.gateway_script import heartbeat, request, view

TAGS = model_tags(output_tokens_p90=90.0, confidence=0.8, version="v7")
COST = Cost(0.2, 0.01)


class Services(cognition_pb2_grpc.PerceptionServicer, cognition_pb2_grpc.PredictionServicer):
    """Both services. `delay_s`, `tags` and `costs` are what a test makes of them."""

    def __init__(self) -> None:
        self.perceived: list[pb.PerceiveBatch] = []
        self.predicted: list[pb.PredictBatch] = []
        self.delay_s = 0.0
        self.gate: asyncio.Event | None = None
        self.open = self.most = 0  # calls of Perceive, now and at most
        self.tags: Callable[[pb.PerceiveRequest], Any] = lambda _: to_message(TAGS)
        self.costs: Callable[[pb.PredictRequest], Any] = lambda _: to_message(COST)

    async def Perceive(self, batch: pb.PerceiveBatch, context: Any) -> pb.PerceiveReply:
        self.perceived.append(batch)
        self.open += 1
        self.most = max(self.most, self.open)
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(self.delay_s)
        self.open -= 1
        return pb.PerceiveReply(tags=[t for t in map(self.tags, batch.requests) if t is not None])

    async def Predict(self, batch: pb.PredictBatch, context: Any) -> pb.PredictReply:
        self.predicted.append(batch)
        return pb.PredictReply(costs=[self.costs(each) for each in batch.requests])


class Rig:
    def __init__(self, services: Services, config: CognitionConfig) -> None:
        self.services = services
        self.answers: dict[str, Annotation] = {}
        self.cognition = CognitionShell(config, lambda it: self.answers.__setitem__(it.request_id, it.annotation))

    def ask(self, request_id: str = "r1", **changes: object) -> None:
        self.cognition.post(QuestionAsked(Question(request(request_id, **changes), "some text", "w1")))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.002)


def config(address: str, **changes: Any) -> CognitionConfig:
    return CognitionConfig(address, address, CognitionQueueConfig(**{"timeout_s": PATIENCE_S, **changes}))


@asynccontextmanager
async def rig(**changes: Any) -> AsyncIterator[Rig]:
    services, server = Services(), RpcServer()
    cognition_pb2_grpc.add_PerceptionServicer_to_server(services, server.server)  # type: ignore[no-untyped-call]
    cognition_pb2_grpc.add_PredictionServicer_to_server(services, server.server)  # type: ignore[no-untyped-call]
    port = await server.start("127.0.0.1", 0, [])
    address = f"127.0.0.1:{port}"
    it = Rig(services, config(address, **changes))
    try:
        yield it
    finally:
        await it.cognition.close()
        await server.stop(0)


def fallbacks(reason: str) -> float:
    return REGISTRY.get_sample_value("hmas_cognition_fallback_total", {"reason": reason}) or 0.0


def _fallen_back(reason: str, times: float) -> bool:
    return fallbacks(reason) == times


async def test_a_request_is_annotated() -> None:
    async with rig() as r:
        r.cognition.post(HeartbeatReceived(heartbeat("w1", running=6, queued=4)))
        r.cognition.post(ViewReceived(view(settled_rps=1.0)))
        r.ask(slo_stated=False, slo=Slo(6.0, 0.1, None, True), max_tokens=7)
        await r.until(lambda: bool(r.answers))
        assert r.answers["r1"] == Annotation(
            replace(TAGS, slo=Slo(4.0, 0.07, None, True)), (KindCost(EngineKind("", "A100"), COST),)
        )
        (asked,) = r.services.perceived[0].requests
        assert (asked.text, asked.max_tokens, asked.slo.whole, asked.tenant) == ("some text", 7, True, "acme")
        (query,) = r.services.predicted[0].requests
        assert (query.hardware, query.running, query.waiting, query.task) == ("A100", 6, 4, "QA")
        assert query.output_tokens == 50.0


async def test_a_stated_slo_stays() -> None:
    async with rig() as r:
        r.ask(slo=Slo(1.0, 0.02), slo_stated=True)
        await r.until(lambda: bool(r.answers))
        assert r.answers["r1"].tags.slo == Slo(1.0, 0.02)


async def test_requests_share_batches_and_wait_for_a_place() -> None:
    async with rig(batch=8, batches_in_flight=1) as r:
        r.services.gate = asyncio.Event()
        r.ask("first")
        await r.until(lambda: len(r.services.perceived) == 1)
        for i in range(20):
            r.ask(f"r{i}")
        r.services.delay_s = 0.02  # in which another batch would come
        r.services.gate.set()
        await r.until(lambda: len(r.answers) == 21)
        assert r.services.most == 1
        assert [len(b.requests) for b in r.services.perceived] == [1, 8, 8, 4]


async def test_the_queue_is_bounded() -> None:
    async with rig(queue=2, batches_in_flight=1) as r:
        r.services.gate = asyncio.Event()
        before = fallbacks("full")
        r.ask("r0")
        await r.until(lambda: bool(r.services.perceived))
        for i in range(1, 6):
            r.ask(f"r{i}")
        assert fallbacks("full") - before == 3
        r.services.gate.set()
        await r.until(lambda: len(r.answers) == 3)


async def test_what_is_late_gets_no_annotation() -> None:
    async with rig(timeout_s=0.05) as r:
        r.services.delay_s, before = 1.0, fallbacks("late")
        r.ask()
        await r.until(lambda: fallbacks("late") > before)
        r.services.delay_s = 0.0
        r.ask("r2")
        await r.until(lambda: bool(r.answers))
        assert set(r.answers) == {"r2"}


NAN_TAGS = to_message(replace(TAGS, output_tokens=float("nan")))
ZERO_SLO = to_message(replace(TAGS, slo=Slo(0.0, 0.1)))
NO_TASK = to_message(TAGS)
NO_TASK.task = "Astrology"


@pytest.mark.parametrize(
    ("tags", "cost"),
    [(NAN_TAGS, COST), (ZERO_SLO, COST), (NO_TASK, COST), (None, COST), (to_message(TAGS), Cost(-1.0, 0.1))],
)
async def test_what_is_malformed_gets_no_annotation(tags: Any, cost: Cost) -> None:
    async with rig() as r:
        r.services.tags, r.services.costs = lambda _: tags, lambda _: to_message(cost)
        before = fallbacks("malformed")
        r.ask(slo_stated=False)
        await r.until(lambda: fallbacks("malformed") > before)
        assert not r.answers


class Garbage(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers every call with bytes that are no protobuf."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        async def answer(request: bytes, context: Any) -> bytes:
            return b"\xff\xfe not a message"

        return grpc.unary_unary_rpc_method_handler(answer)


async def test_bytes_that_are_no_message_get_no_annotation() -> None:
    server = RpcServer()
    server.server.add_generic_rpc_handlers((Garbage(),))
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0, [])}"
    r = Rig(Services(), config(address))
    before = fallbacks("malformed")
    try:
        for count in (1, 2):
            r.ask(f"r{count}")
            await r.until(partial(_fallen_back, "malformed", before + count))
        assert not r.answers
    finally:
        await r.cognition.close()
        await server.stop(0)


async def test_a_service_that_is_down_is_left_alone_for_a_while() -> None:
    r = Rig(Services(), config("127.0.0.1:1"))
    before = fallbacks("down")
    with capture_logs() as logs:
        r.ask()
        await r.until(lambda: fallbacks("down") - before == 1)
        r.ask("r2")
    (line,) = (each for each in logs if each["event"] == "cognition_failed")
    assert line["error"].startswith("UNAVAILABLE: ")
    assert "\n" not in line["error"]
    assert fallbacks("down") - before == 2
    assert not r.answers
    await r.cognition.close()


async def test_cognition_that_comes_and_goes_is_told_once_in_a_while() -> None:
    r = Rig(Services(), config(""))
    with capture_logs() as logs:
        for _ in range(5):
            r.cognition._execute(FallBack(("a",), FallbackReason.DOWN, "gone"))
            r.cognition._execute(AnnotateBatch((), 0.01))
    assert [(each["event"], each["error"]) for each in logs] == [("cognition_failed", "gone")]
    await r.cognition.close()


async def test_without_addresses_it_is_off() -> None:
    r = Rig(Services(), config(""))
    before = fallbacks("off")
    r.ask()
    assert fallbacks("off") - before == 1
    await r.cognition.close()
