"""The service over a real gRPC connection."""

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from time import thread_time

import grpc
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from hmas.contracts.request import TagSource, TaskType
from hmas.perception.agent import PerceptionAgent
from hmas.perception.agent.backend import Backend, Estimate, PromptView
from hmas.perception.agent.rules import RulesBackend
from hmas.perception.metrics import PerceptionMetrics
from hmas.perception.server import SERVICE, PerceptionServer
from hmas.perception.settings import PerceptionSettings
from hmas.perception.shell import WARM_UP, PerceptionShell
from hmas.runtime.rpc import RpcServer, open_channel
from hmas.wire.v1 import cognition_pb2 as pb
from hmas.wire.v1 import cognition_pb2_grpc, types_pb2

REQUEST = pb.PerceiveRequest(
    request_id="r", text="Translate to German: hello", prompt_tokens=6, model="m", tenant="a", max_tokens=9,
    slo=types_pb2.Slo(ttft_s=6.0, tpot_s=0.1),
    slo_stated=False, importance=0.75,
)  # fmt: skip


class StuckBackend:
    """Answers when it is let go."""

    version = "stuck-1"

    def __init__(self) -> None:
        self.release = threading.Event()

    def estimate(self, prompts: Sequence[PromptView]) -> list[Estimate | None]:
        self.release.wait()
        return [None] * len(prompts)


class BrokenBackend:
    version = "broken-1"

    def estimate(self, prompts: Sequence[PromptView]) -> list[Estimate | None]:
        raise RuntimeError("no weights")


Perceive = Callable[..., grpc.aio.UnaryUnaryCall]


@asynccontextmanager
async def serving(backend: Backend, budget_s: float = 10.0, share: float = 1.0) -> AsyncIterator[Perceive]:
    config = PerceptionSettings(perception_cpu_share=share).perception_config(backend.version, TagSource.RULES)
    metrics, rpc = PerceptionMetrics(CollectorRegistry()), RpcServer()
    shell = PerceptionShell(PerceptionAgent(config), backend, budget_s, metrics)
    server = PerceptionServer(shell, metrics)
    cognition_pb2_grpc.add_PerceptionServicer_to_server(server, rpc.server)  # type: ignore[no-untyped-call]
    port = await rpc.start("127.0.0.1", 0, [SERVICE])
    async with open_channel(f"127.0.0.1:{port}") as channel:
        yield cognition_pb2_grpc.PerceptionStub(channel).Perceive  # type: ignore[no-untyped-call]
    await rpc.stop(0.0)
    await shell.close()


async def test_tags_in_the_batch_s_order() -> None:
    async with serving(RulesBackend()) as perceive:
        other = pb.PerceiveRequest()
        other.CopyFrom(REQUEST)
        other.text = "Who wrote Middlemarch?"
        other.ClearField("max_tokens")
        reply = await perceive(pb.PerceiveBatch(requests=[REQUEST, other]))
    assert [t.task for t in reply.tags] == ["Translation", "QA"]
    assert [t.source for t in reply.tags] == ["rules", "rules"]
    assert reply.tags[0].output_tokens == 9.0
    assert reply.tags[0].slo.ttft_s == 4.5


async def test_a_stuck_backend_is_answered_by_the_prior_in_time() -> None:
    backend = StuckBackend()
    try:
        async with serving(backend, budget_s=0.02) as perceive:
            reply = await perceive(pb.PerceiveBatch(requests=[REQUEST]), timeout=30.0)
            again = await perceive(pb.PerceiveBatch(requests=[REQUEST]), timeout=30.0)
    finally:
        backend.release.set()
    assert [t.source for t in (*reply.tags, *again.tags)] == ["prior", "prior"]


async def test_the_shipped_model_is_the_default() -> None:
    source, backend = PerceptionSettings().backend()
    async with serving(backend) as perceive:
        reply = await perceive(pb.PerceiveBatch(requests=[REQUEST]))
    assert (source, reply.tags[0].task) == (TagSource.MODEL, "Translation")


class BusyBackend:
    """Takes 50 ms of CPU a prompt."""

    version = "busy-1"

    def estimate(self, prompts: Sequence[PromptView]) -> list[Estimate | None]:
        until_s = thread_time() + 0.05 * len(prompts)
        while thread_time() < until_s:
            pass
        return [Estimate(TaskType.QA, 0.9, 50.0, 120.0)] * len(prompts)


async def test_a_backend_that_takes_its_share_of_the_cpu_gives_way_to_the_prior() -> None:
    async with serving(BusyBackend(), share=0.001) as perceive:  # the first prompt takes that of 50 s
        first = await perceive(pb.PerceiveBatch(requests=[REQUEST] * 3))
        then = await perceive(pb.PerceiveBatch(requests=[REQUEST]))
    assert [t.source for t in (*first.tags, *then.tags)] == ["rules", "prior", "prior", "prior"]


async def test_a_broken_backend_warms_up_with_a_warning() -> None:
    config = PerceptionSettings().perception_config("b", TagSource.MODEL)
    shell = PerceptionShell(PerceptionAgent(config), BrokenBackend(), 1.0, PerceptionMetrics(CollectorRegistry()))
    with capture_logs() as logs:
        await shell.warm_up(WARM_UP)
    await shell.close()
    assert logs == [{"event": "warm_up_failed", "error": "RuntimeError('no weights')", "log_level": "warning"}]


async def test_a_broken_backend_is_the_prior_s_turn() -> None:
    async with serving(BrokenBackend()) as perceive:
        reply = await perceive(pb.PerceiveBatch(requests=[REQUEST]))
    assert [(t.source, t.task) for t in reply.tags] == [("prior", "unknown")]


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown backend 'oracle': choose one of "):
        PerceptionSettings(perception_backend="oracle")
