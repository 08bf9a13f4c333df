"""Values for scripts of gateway events."""

from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.execution import EngineShare, Grant, Load, Started, Submit, Timeline
from hmas.contracts.gateway import (
    FromWorker,
    GatewayEffect,
    GatewayEvent,
    GatewayTicked,
    PublishGatewayTelemetry,
    RequestReceived,
    RunEnded,
    StartRun,
    StreamChanged,
    ToWorker,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat
from hmas.contracts.request import Annotation, Cost, KindCost, Request, Slo, TaskType
from hmas.contracts.telemetry import RequestSettled
from hmas.contracts.views import Tail, VShort
from hmas.gateway.agent import GatewayAgent, GatewayConfig
from hmas.gateway.agent.requests.ledger import LedgerEntry
from tests.builders import requests
from tests.builders.registry import engine_info, worker_heartbeat
from tests.builders.requests import model_tags
from tests.builders.views import v_short

SLO = Slo(2.0, 0.1)


def request(request_id: str = "r1", **changes: object) -> Request:
    values: dict[str, object] = {
        "id": request_id, "model": "m", "tenant": "acme", "flow": "", "prompt_tokens": 800, "max_tokens": None,
        "stream": True, "slo": SLO, "slo_stated": True, "priority": 0, "weight": 1.0, "importance": 0.75,
        "arrival_s": 0.0,
    }  # fmt: skip
    return Request(**(values | changes))  # type: ignore[arg-type]


def ledger_entry(name: str = "r1", **changes: object) -> LedgerEntry:
    return LedgerEntry(request=request(name, **changes), pool="m", offered=True)


def heartbeat(worker: str = "w1", *, up: bool = True, **changes: object) -> WorkerHeartbeat:
    engines = (engine_info(up=up, dialect="vllm", max_num_seqs=64),)
    plain: dict[str, object] = {"address": "127.0.0.1:1", "aliases": ("alias",), "engines": engines}
    return worker_heartbeat(worker, **(plain | changes))


def annotation(output_tokens: float = 100.0, *, task: TaskType = TaskType.QA, slo: Slo = SLO) -> Annotation:
    tags = model_tags(task=task, slo=slo, output_tokens=output_tokens, output_tokens_p90=2 * output_tokens)
    return Annotation(tags, (KindCost(EngineKind(), Cost(0.1, 0.01)),))


def timeline(*, relegated: bool = False) -> Timeline:
    return requests.timeline(relegated=relegated)


def grant(request_id: str = "r1", number: int = 1, attempt: int = 1, *, relegated: bool = False) -> Grant:
    return requests.grant(request_id, number, attempt=attempt, urgency=1.0, timeline=timeline(relegated=relegated))


def load(*shares: EngineShare, **changes: object) -> Load:
    values: dict[str, object] = {
        "queued": 0, "queued_tokens": 0, "running": 0, "backlog_s": 0.0, "draining": False, "shares": shares,
    }  # fmt: skip
    return Load(**(values | changes))  # type: ignore[arg-type]


def run_ended(request_id: str = "r1", run: int = 1, outcome: Outcome = Outcome.FINISHED, **changes: object) -> RunEnded:
    """The end of a run that finished after ten tokens, or that failed as `outcome` tells."""
    done: dict[str, object] = {"output_tokens": 10, "prompt_tokens": 790, "tpot_s": 0.05, "status": 200}
    values = {"message": outcome.value, **(done if outcome is Outcome.FINISHED else {}), **changes}
    return RunEnded(request_id=request_id, run=run, outcome=outcome, **values)  # type: ignore[arg-type]


def view(*, settled_rps: float, epoch: int = 1, seq: int = 1) -> VShort:
    return v_short(
        window_s=2.0, running=0, kv_usage=0.0, utilisation=0.0, ttft=Tail(), violation_rate=0.0,
        ttft_violation_rate=0.0, arrival_rps=0.0, settled_rps=settled_rps, kept_rps=settled_rps,
        kept_violation_rate=0.0, arriving_tokens_per_s=0.0, served_tokens_per_s=0.0, engines=(), epoch=epoch, seq=seq,
        valid_for_s=1.0,
    )  # fmt: skip


class Mesh:
    """An agent and a clock. `workers` have sent a heartbeat and have their streams open."""

    def __init__(self, *workers: str, config: GatewayConfig | None = None) -> None:
        self.agent = GatewayAgent(config or GatewayConfig(gateway="g"))
        self.now_s = 0.0
        self.grants = 0
        for worker in workers:
            self.play(HeartbeatReceived(heartbeat(worker)), StreamChanged(worker, True))

    def play(self, *events: GatewayEvent) -> list[GatewayEffect]:
        return [effect for event in events for effect in self.agent.step(self.now_s, event)]

    def receive(self, request_id: str = "r1", **changes: object) -> list[GatewayEffect]:
        return self.play(RequestReceived(request(request_id, arrival_s=self.now_s, **changes)))

    def tick(self, wait_s: float = 0.0) -> list[GatewayEffect]:
        """What happens at a tick `wait_s` seconds later, without telemetry."""
        self.now_s += wait_s
        return [e for e in self.play(GatewayTicked()) if not isinstance(e, PublishGatewayTelemetry)]

    def grant(self, request_id: str = "r1", attempt: int = 1, worker: str = "w1", *, relegated: bool = False) -> int:
        """The worker grants a waiting request; returns the number of the run."""
        self.grants += 1
        granted = grant(request_id, self.grants, attempt, relegated=relegated)
        start, started = self.play(FromWorker(worker, granted))
        assert isinstance(start, StartRun)
        assert start.grant is granted
        assert started == ToWorker(worker, Started(request_id, self.grants))
        return start.run

    def settled(self, wait_s: float = 0.2) -> list[RequestSettled]:
        self.now_s += wait_s
        effects = self.play(GatewayTicked())
        return [s for e in effects if isinstance(e, PublishGatewayTelemetry) for s in e.telemetry.settled]


def fails(request_id: str = "r1", run: int = 1, **changes: object) -> RunEnded:
    """The end of a run whose engine failed before the first token."""
    return run_ended(request_id, run, Outcome.ENGINE_ERROR, **({"retryable": True} | changes))


def submits(effects: list[GatewayEffect]) -> list[tuple[str, str, int]]:
    """The request, worker and attempt of each submission; there must be no other effect."""
    sent: list[tuple[str, str, int]] = []
    for effect in effects:
        assert isinstance(effect, ToWorker), effect
        assert isinstance(effect.message, Submit), effect
        sent.append((effect.message.request.id, effect.worker, effect.message.attempt))
    return sent
