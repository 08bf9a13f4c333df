"""The worker's shell: turns what gateways, engines and timers do into events of the worker's agent, and carries out its
effects. No request's body and no byte of an answer comes here."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, assert_never

import structlog

from hmas.contracts.agent import Agent
from hmas.contracts.cadences import LIVE
from hmas.contracts.execution import Ended, GatewayMessage, Grant, Refusal, Stop, Submit, WorkerMessage
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.worker import (
    ControlExpired,
    CycleTicked,
    DrainStarted,
    EngineSlept,
    EnginesUnpaired,
    EngineSuspected,
    FromGateway,
    GatewayConnected,
    GatewayLost,
    HeartbeatDue,
    LayoutSwitched,
    PublishHeartbeat,
    PublishTelemetry,
    ReleaseEngine,
    SteerEngine,
    ToGateway,
    TopologyFailed,
    TopologySwitched,
    TopologyUnknown,
    WorkerEffect,
    WorkerEvent,
)
from hmas.laws.layout import described
from hmas.runtime.harmless_text import harmless
from hmas.runtime.host import AgentHost
from hmas.runtime.step_failures import StepFailures
from hmas.wire.subjects import subject_of
from hmas.worker.adapters.base import EngineAdapter
from hmas.worker.granted import GrantedRuns
from hmas.worker.metrics import WorkerMetrics

log = structlog.get_logger()
LEAST_DRAIN_S = 0.1  # lets gateways hear of the drain before their streams close
MOST_DRAIN_S = 2.0


class Publisher(Protocol):
    """The part of the message bus that a worker's shell uses."""

    def publish(self, subject: str, value: Any) -> None: ...


class GatewayPort(Protocol):
    """The part of the gateways' streams that a worker's shell uses. `send` drops the message if the gateway's stream is
    closed, and never waits."""

    def open(self, sink: "WorkerShell") -> None: ...

    def send(self, gateway: str, message: WorkerMessage) -> None: ...


class WorkerShell:
    """Feeds the worker's agent with events and carries out its effects.

    `released` gets the name of an engine that had left and is not watched any more; `told` adds to a heartbeat what is
    known beside the agent. All methods must be called on the
    event loop; none waits except `run` and `drain`.
    """

    def __init__(
        self,
        agent: Agent[WorkerEvent, WorkerEffect],
        streams: GatewayPort,
        bus: Publisher,
        metrics: WorkerMetrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        observe: Callable[[float, WorkerEvent, list[WorkerEffect]], None] | None = None,
        released: Callable[[str], None] = lambda engine: None,
        told: Callable[[WorkerHeartbeat], WorkerHeartbeat] = lambda heartbeat: heartbeat,
    ) -> None:
        self._streams = streams
        self._bus = bus
        self._metrics = metrics
        self._released, self._told = released, told
        self._clock = clock
        self._engines: dict[str, EngineAdapter] = {}
        self._runs = GrantedRuns(self._engines)
        self._changed = asyncio.Event()  # fewer requests may wait than before
        self._failures = StepFailures()
        self._host: AgentHost[WorkerEvent, WorkerEffect] = AgentHost(
            agent, self._execute, clock, failed=self._failed, observe=observe
        )
        self.post = self._host.post

    async def run(self, engines: Mapping[str, EngineAdapter]) -> None:
        """Schedules requests on `engines`, by name, until it is cancelled."""
        self._engines.update(engines)
        self._streams.open(self)
        async with asyncio.TaskGroup() as tasks:
            for engine in engines.values():
                tasks.create_task(engine.run())
            tasks.create_task(self._keep_cycling())

    def attach(self, engine: EngineAdapter) -> None:
        """Makes an engine known that is watched elsewhere."""
        self._engines[engine.name] = engine

    async def drain(self, grace_s: float) -> None:
        """Tells gateways that this worker grants nothing any more, and waits until they have withdrawn what waits here:
        at most `grace_s` seconds, and never more than 2. What was granted goes on without the worker."""
        self.post(DrainStarted())
        self.post(HeartbeatDue())
        try:
            async with asyncio.timeout(min(grace_s, MOST_DRAIN_S)):  # wait_for may swallow a cancellation
                await asyncio.sleep(LEAST_DRAIN_S)
                while self._runs.waiting:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            log.info("drained_while_requests_wait", waiting=self._runs.waiting)

    async def _keep_cycling(self) -> None:
        heartbeat_s = self._clock()
        while True:
            if self._clock() >= heartbeat_s:
                heartbeat_s = self._clock() + LIVE.heartbeat_s
                self.post(HeartbeatDue())
            self.post(CycleTicked())
            await asyncio.sleep(LIVE.worker_cycle_s)

    # --- what gateways send --------------------------------------------------------------------------------------

    def on_connected(self, gateway: str) -> None:
        self._runs.connect(gateway)
        self.post(GatewayConnected(gateway))

    def on_message(self, gateway: str, message: GatewayMessage) -> None:
        """Passes a message to the agent. An error in one message is logged and must not end the others."""
        try:
            engine = self._runs.hear(gateway, message)
            self.post(FromGateway(gateway, message))
            if engine is not None and isinstance(message, Ended):
                engine.judge(message)  # after the agent, which must not ask for a run back that has ended
        except Exception:
            log.exception("gateway_message_failed", gateway=gateway, message=type(message).__name__)
            self._refuse(gateway, message)
        self._metrics.heard(message)
        self._changed.set()

    def on_lost(self, gateway: str) -> None:
        self._runs.lose(gateway)
        self.post(GatewayLost(gateway))
        self._changed.set()

    def _failed(self, cause: WorkerEvent | WorkerEffect, error: Exception) -> None:
        self._failures.report(cause, error)
        if isinstance(cause, FromGateway):
            self._refuse(cause.gateway, cause.message)

    def _refuse(self, gateway: str, message: GatewayMessage) -> None:
        """Answers a request at which this worker failed: its gateway would otherwise wait for an answer in vain."""
        if isinstance(message, Submit):
            self._to_gateway(gateway, _refusal(message))

    # --- effects -------------------------------------------------------------------------------------------------

    def _execute(self, effect: WorkerEffect) -> None:
        match effect:
            case ToGateway(gateway, message):
                self._to_gateway(gateway, message)
            case PublishTelemetry(telemetry):
                self._metrics.observe(telemetry)
                self._bus.publish(subject_of(telemetry), telemetry)
            case PublishHeartbeat(heartbeat):
                self._bus.publish(subject_of(heartbeat), self._told(heartbeat))
            case SteerEngine():
                self._engines[effect.engine].steer(effect.n_run, effect.b_token)
            case ReleaseEngine(engine):
                self._engines.pop(engine, None)
                self._released(engine)
            case TopologySwitched():
                self._metrics.switched(effect)
                log.info("topology_switched", before=effect.before, after=effect.after, queued=effect.queued,
                         reason=effect.reason)  # fmt: skip
            case TopologyUnknown(topology, instead):
                self._metrics.unknown()
                log.warning("topology_unknown", topology=topology, instead=instead,
                            hint="install the package that adds it where this worker runs, and name the topology in "
                                 "HMAS_TOPOLOGIES")  # fmt: skip
            case TopologyFailed(topology, instead, reason):
                self._metrics.failed()
                log.error("topology_failed", topology=topology, instead=instead, reason=harmless(reason),
                          hint="correct its package, and start this worker again")  # fmt: skip
            case LayoutSwitched(before, after, lanes, queued):
                self._metrics.laid_out(effect)
                log.info("layout_switched", before=described(before), after=described(after), lanes=lanes,
                         queued=queued)  # fmt: skip
            case EngineSuspected(engine, True, reason):
                log.warning("engine_suspected", engine=engine, reason=reason)
            case EngineSuspected(engine):
                log.info("engine_trusted", engine=engine)
            case EngineSlept(engine, None):
                log.info("engine_awake", engine=engine)
            case EngineSlept(engine, level):
                log.warning("engine_asleep", engine=engine, level=level, effect="it gets no request until it wakes",
                            hint="POST /wake_up to the engine")  # fmt: skip
            case EnginesUnpaired(engine, way, others):
                named = ", ".join(f"{name} ({theirs})" for name, theirs in others)
                log.warning("engines_unpaired", engine=engine, hands_over=way, others=named,
                            hint="they need the same `kv_transfer` and the same version")  # fmt: skip
            case ControlExpired():
                self._metrics.expired(effect)
                log.warning("control_expired", control=effect.control)
            case _:
                assert_never(effect)

    def _to_gateway(self, gateway: str, message: WorkerMessage) -> None:
        match message:
            case Grant():
                message = self._runs.grant(gateway, message)
            case Stop():
                self._runs.stop(gateway, message)
            case Refusal():
                self._runs.refuse(gateway, message)
                self._changed.set()
            case _:
                pass  # Load needs nothing
        self._metrics.sent(message)
        self._streams.send(gateway, message)


def _refusal(submit: Submit) -> Refusal:
    return Refusal(
        request_id=submit.request.id,
        attempt=submit.attempt,
        outcome=Outcome.INTERNAL,
        message="the worker failed to accept the request through an internal error; see `step_failed` in its log",
    )
