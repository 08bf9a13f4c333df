"""A simulated mesh whose gateways have the shell, the relay and the journal of live ones: only the connections to
engines are the simulator's. What `hmas why` tells of a request is then what a live gateway would tell."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from hmas.contracts.execution import GatewayMessage
from hmas.contracts.gateway import (
    FromWorker,
    Refuse,
    RequestAnnotated,
    Settle,
    StreamChanged,
    TenantLimits,
    TenantsChanged,
    ViewReceived,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import CHAT_PATH, HeartbeatReceived, WorkerHeartbeat
from hmas.engine.core.chunking import TokenDeadline
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.pools.directory import ModelDirectory
from hmas.gateway.engines.allowed import LOOPBACK, AllowedEndpoints, parse_rules
from hmas.gateway.engines.engines import EngineDirectory
from hmas.gateway.engines.runs import GatewayRun, StreamedRun
from hmas.gateway.journal import RequestJournal
from hmas.gateway.openai.body import CallRules, parse_call
from hmas.gateway.shell import GatewayShell
from hmas.sim.processes.gateway_shell import SimGateway
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.processes.ports import EndpointPort, MeshPort, SimRun
from hmas.sim.workload import OfferedRequest

TOKEN = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
LAST = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


class _Connection:
    """What the relay keeps of a request that it sent."""

    unreached = False

    def __init__(self, gateway: "ShelledGateway", run: SimRun) -> None:
        self._gateway, self._run = gateway, run

    def abort(self) -> None:
        self._gateway.closed(self._run)


class _Client:
    """The connections to one engine."""

    def __init__(self, gateway: "ShelledGateway", endpoint: EndpointPort) -> None:
        self._gateway, self._endpoint = gateway, endpoint

    def send(self, path: str, body: object, request_id: str, traceparent: str, reply: GatewayRun) -> _Connection:
        return self._gateway.send(self._endpoint, request_id, reply)


class _Engines(EngineDirectory):
    """Knows engines by heartbeats, as live, and reaches them in virtual time."""

    def __init__(self, gateway: "ShelledGateway", mesh: MeshPort) -> None:
        super().__init__(AllowedEndpoints(parse_rules(LOOPBACK)))
        self._gateway, self._mesh = gateway, mesh

    def find(self, worker: str, engine: str) -> Any:
        return _Client(self._gateway, self._mesh.endpoints[engine])

    def _open(self, endpoint: str) -> str:
        return "it is simulated"


class _Streams:
    def __init__(self, gateway: str, mesh: MeshPort) -> None:
        self._gateway, self._mesh = gateway, mesh

    def ensure(self, heartbeat: WorkerHeartbeat) -> None:
        pass

    def send(self, worker: str, message: GatewayMessage) -> None:
        self._mesh.streams[self._gateway, worker].to_worker(message)

    def is_local(self, worker: str) -> bool:
        return True


class ShelledGateway(SimGateway):
    """One gateway of the simulated mesh, with the live shell around its agent."""

    def __init__(self, mesh: MeshPort, config: GatewayConfig, incarnation: int) -> None:
        super().__init__(mesh, config, incarnation)
        heap, directory = mesh.heap, ModelDirectory(max_pools=256)
        self.journal = RequestJournal(self.name, 4096, lambda: heap.now_s, lambda: heap.now_s)
        self.shell = GatewayShell(directory, _Engines(self, mesh), self.journal, mesh.publish, clock=lambda: heap.now_s)
        self.shell.connect(self._post, _Streams(self.name, mesh), self._questions.step)
        self._replies: dict[str, tuple[SimRun, GatewayRun]] = {}
        execute = self.shell.execute
        self._handlers = {**dict.fromkeys(self._handlers, execute), Settle: self._ended_by, Refuse: self._ended_by}

    def _post(self, event: Any) -> None:
        self._mesh.step(self.label, self.agent, event, self._handlers)

    def step(self, event: Any) -> None:
        match event:
            case HeartbeatReceived(heartbeat):
                self.shell.on_heartbeat(heartbeat)
            case ViewReceived(view):
                self.shell.on_view(view)
            case StreamChanged(worker, connected, silent_s):
                self.shell.on_connected(worker, connected, silent_s)
            case FromWorker(worker, message):
                self.shell.on_message(worker, message)
            case _:
                self._post(event)

    def _ended_by(self, effect: Any) -> None:
        self.shell.execute(effect)
        self._mesh.settle(effect.request_id, effect.outcome)

    def annotated(self, answer: RequestAnnotated) -> None:
        self.shell.on_annotated(answer)

    def _receive(self, offered: OfferedRequest) -> None:
        body = {"model": offered.request.model, "messages": [{"role": "user", "content": "a"}]}
        call = parse_call(CHAT_PATH, orjson.dumps({**body, "stream": offered.request.stream}), CallRules())
        # The id stands for the prompt: what perception reads of it is looked up there.
        call = replace(call, text=offered.id, prompt_tokens=offered.request.prompt_tokens)
        self.shell.open(call, offered.request, offered.id, "", job=offered.job, job_budget_s=offered.job_budget_s)

    # --- engines

    def send(self, endpoint: EndpointPort, request_id: str, reply: GatewayRun) -> _Connection:
        exchange = self.journal.find(request_id)
        assert exchange is not None
        grant = exchange.runs[-1].grant
        run = SimRun(request_id=request_id, run=reply.number, gateway=self, endpoint=endpoint, fenced=grant is not None)
        self._replies[request_id] = run, reply
        urgency, pace_s = (0.0, None) if grant is None else (grant.urgency, grant.pace_s)
        offered = self._mesh.journeys[request_id].offered
        endpoint.send(run, offered.engine_request(urgency, None if pace_s is None else TokenDeadline(pace_s)))
        return _Connection(self, run)

    def closed(self, run: SimRun) -> None:
        if self._reply(run) is not None:
            del self._replies[run.request_id]
            run.endpoint.close(run)

    def _reply(self, run: SimRun) -> GatewayRun | None:
        live = self._replies.get(run.request_id)
        return live[1] if live is not None and live[0] is run else None

    def _progress(self) -> None:
        for endpoint in dict.fromkeys(run.endpoint for run, _ in self._replies.values()):
            for request_id, tokens in endpoint.progress():
                run, reply = self._replies.get(request_id, (None, None))
                if run is not None and run.relayed and run.endpoint is endpoint and isinstance(reply, StreamedRun):
                    reply.on_body(TOKEN * (tokens - reply.tokens))
        self.shell.relay.report_progress()

    def first_token(self, run: SimRun) -> None:
        reply = self._reply(run)
        if reply is None:
            return
        run.relayed = True
        journey = self._mesh.journeys[run.request_id]
        journey.engine_first_s, journey.first_token_s = run.first_s, self._heap.now_s
        reply.on_head(200)
        if isinstance(reply, StreamedRun):
            reply.on_body(TOKEN)

    def finished(self, run: SimRun) -> None:
        reply = self._reply(run)
        if reply is None:
            return
        journey = self._mesh.journeys[run.request_id]
        journey.engine_last_s, journey.last_token_s = run.last_s, self._heap.now_s
        journey.output_tokens = tokens = journey.offered.output_tokens
        del self._replies[run.request_id]
        prompt = journey.offered.request.prompt_tokens
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
        if isinstance(reply, StreamedRun):
            counts = b"data: %b\n\n" % orjson.dumps({"choices": [], "usage": usage})
            reply.on_body(TOKEN * (tokens - reply.tokens - 1) + LAST)
            reply.on_body(counts + DONE)
        else:
            reply.on_body(orjson.dumps({"choices": [{"finish_reason": "stop"}], "usage": usage}))
        reply.on_complete()

    def failed(self, run: SimRun, outcome: Outcome, message: str, busy: bool, unreached: bool) -> None:
        reply = self._reply(run)
        if reply is None:
            return
        del self._replies[run.request_id]
        if outcome is Outcome.ENGINE_REFUSED or busy:
            reply.on_head(503 if busy else 400)
            reply.on_body(orjson.dumps({"error": {"message": message}}))
            reply.on_complete()
        else:
            reply.fail(message, unreached=unreached)


class ShelledMesh(MeshSim):
    """The simulated mesh, with such gateways, of which tenants have these limits."""

    def limit(self, limits: Sequence[TenantLimits]) -> None:
        for gateway in self.gateways.values():
            gateway.step(TenantsChanged(tuple(limits)))

    def _gateway(self, name: str, incarnation: int) -> SimGateway:
        return ShelledGateway(self, replace(self.setup.gateway_config, gateway=name), incarnation)

    def why(self, request_id: str) -> dict[str, Any]:
        """Returns the timeline of a request, as its gateway tells it."""
        gateway = self.gateways[self.journeys[request_id].gateway]
        assert isinstance(gateway, ShelledGateway)
        told = gateway.journal.timeline(request_id)
        assert told is not None
        timeline: dict[str, Any] = orjson.loads(told)
        return timeline
