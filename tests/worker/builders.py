"""Requests, annotations and entries for the worker's tests, and an agent with those it talks to."""

from dataclasses import replace
from typing import Any

from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.execution import (
    Annotate,
    Ended,
    FirstToken,
    GatewayMessage,
    Grant,
    Load,
    Progress,
    Refusal,
    Started,
    Stop,
    Submit,
    Synced,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import EngineInfo
from hmas.contracts.request import Annotation, Cost, KindCost, Request, Slo
from hmas.contracts.worker import (
    EngineSampled,
    EngineWentUp,
    FromGateway,
    GatewayConnected,
    ToGateway,
    WorkerEffect,
    WorkerEvent,
)
from hmas.worker.agent.agent import WorkerAgent, WorkerConfig
from hmas.worker.agent.entry.assumption import Assumption
from hmas.worker.agent.entry.entry import QueueEntry
from tests.builders.registry import engine_info
from tests.builders.requests import client_request, model_tags

ENGINE = engine_info()


def request(
    request_id: str = "r1",
    *,
    tenant: str = "t1",
    flow: str = "",
    prompt_tokens: int = 100,
    max_tokens: int | None = None,
    weight: float = 1.0,
    priority: int = 0,
    arrival_s: float = 0.0,
    slo: Slo | None = None,
) -> Request:
    return client_request(
        request_id, tenant=tenant, flow=flow, prompt_tokens=prompt_tokens, max_tokens=max_tokens,
        slo=slo or Slo(4.0, 0.1), priority=priority, weight=weight, arrival_s=arrival_s,
    )  # fmt: skip


def annotation(
    tokens: float = 50.0,
    *,
    p90: float | None = None,
    ttft_s: float = 0.1,
    tpot_s: float = 0.02,
    slo: Slo | None = None,
    version: str = "v1",
    costs: tuple[KindCost, ...] = (),
) -> Annotation:
    upper = tokens * 2 if p90 is None else p90
    tags = model_tags(slo=slo or Slo(4.0, 0.1), output_tokens=tokens, output_tokens_p90=upper, version=version)
    return Annotation(tags, costs or (KindCost(EngineKind(), Cost(ttft_s, tpot_s)),))


def entry(seq: int, req: Request | None = None, *, tokens: float = 50.0, attempt: int = 1) -> QueueEntry:
    made = request(f"r{seq}", arrival_s=float(seq)) if req is None else req
    return QueueEntry(
        made,
        attempt=attempt,
        gateway="g1",
        seq=seq,
        now_s=float(seq),
        estimate=Assumption(tokens, 2 * tokens, made.prompt_tokens / 1000, 0.02),
    )


def engine(name: str = "e1", **changes: object) -> EngineInfo:
    return replace(ENGINE, engine=name, **changes)  # type: ignore[arg-type]


def sampled(name: str = "e1", running: int = 0, **changes: Any) -> EngineSampled:
    plain = EngineSampled(
        engine=name, running=running, waiting=0, kv_usage=0.0, preemptions_total=0, step_s=0.01,
        prefill_tokens_per_s=0.0, decode_tokens_per_s=0.0,
    )  # fmt: skip
    return replace(plain, **changes)


class Scripted:
    """A worker agent and those it talks to. Its gateways confirm each grant at once, unless `mute`; what else they say
    a test tells, under the number of the request's last grant. Every method returns the agent's effects."""

    def __init__(self, config: WorkerConfig, *engines: EngineInfo, gateways: tuple[str, ...] = ("g1",)) -> None:
        self.mute = False
        self.agent = WorkerAgent(config)
        self.state = self.agent._state
        self.grants: dict[str, Grant] = {}  # the last of each request
        self.at: dict[str, str] = {}  # the gateway of each request
        for name in gateways:
            self.connect(0.0, name)
        for info in engines:
            self.up(0.0, info)

    def step(self, now_s: float, event: WorkerEvent) -> list[WorkerEffect]:
        effects = self.agent.step(now_s, event)
        for grant in granted(effects):
            self.grants[grant.request_id] = grant
            if not self.mute:
                effects += self.say(now_s, Started(grant.request_id, grant.grant), self.at[grant.request_id])
        return effects

    def say(self, now_s: float, message: GatewayMessage, gateway: str = "g1") -> list[WorkerEffect]:
        return self.step(now_s, FromGateway(gateway, message))

    def connect(self, now_s: float, gateway: str = "g1", *snapshot: GatewayMessage) -> list[WorkerEffect]:
        """The gateway's stream opens, and it sends its snapshot."""
        effects = self.step(now_s, GatewayConnected(gateway))
        for message in (*snapshot, Synced()):
            effects += self.say(now_s, message, gateway)
        return effects

    def up(self, now_s: float, info: EngineInfo) -> list[WorkerEffect]:
        """The engine comes up, and shows that it runs nothing."""
        return self.step(now_s, EngineWentUp(info)) + self.step(now_s, sampled(info.engine))

    def submit(self, now_s: float, *requests: Request, gateway: str = "g1", **fields: Any) -> list[WorkerEffect]:
        effects: list[WorkerEffect] = []
        for made in requests:
            self.at[made.id] = gateway
            effects += self.say(now_s, replace(Submit(request=made, attempt=1), **fields), gateway)
        return effects

    def annotate(self, now_s: float, name: str, tags: Annotation) -> list[WorkerEffect]:
        return self.say(now_s, Annotate(name, 1, tags), self.at[name])

    def first_token(self, now_s: float, name: str) -> list[WorkerEffect]:
        return self.say(now_s, FirstToken(name, self.grants[name].grant), self.at[name])

    def progress(self, now_s: float, name: str, tokens: int) -> list[WorkerEffect]:
        return self.say(now_s, Progress((name,), (tokens,)), self.at[name])

    def finish(self, now_s: float, name: str, tokens: int = 1) -> list[WorkerEffect]:
        grant = self.grants[name].grant
        ended = Ended(request_id=name, grant=grant, outcome=Outcome.FINISHED, output_tokens=tokens)
        return self.say(now_s, ended, self.at[name])

    def fail(self, now_s: float, name: str, message: str = "it broke", **fields: Any) -> list[WorkerEffect]:
        made: dict[str, Any] = {"outcome": Outcome.ENGINE_ERROR, "message": message, "retryable": True}
        ended = Ended(request_id=name, grant=self.grants[name].grant, **(made | fields))
        return self.say(now_s, ended, self.at[name])


def _messages(effects: list[WorkerEffect], kind: type) -> list[Any]:
    return [e.message for e in effects if isinstance(e, ToGateway) and isinstance(e.message, kind)]


def granted(effects: list[WorkerEffect]) -> list[Grant]:
    return _messages(effects, Grant)


def dispatched(effects: list[WorkerEffect]) -> list[tuple[str, str]]:
    """Returns (request, engine) of each grant."""
    return [(grant.request_id, grant.engine) for grant in granted(effects)]


def refused(effects: list[WorkerEffect]) -> list[Refusal]:
    return _messages(effects, Refusal)


def stopped(effects: list[WorkerEffect]) -> list[Stop]:
    return _messages(effects, Stop)


def loads(effects: list[WorkerEffect]) -> list[tuple[str, Load]]:
    """Returns (gateway, load) of each report."""
    return [(e.gateway, e.message) for e in effects if isinstance(e, ToGateway) and isinstance(e.message, Load)]
