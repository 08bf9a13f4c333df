"""The simulator's shell around a worker agent: streams to the gateways, and samples of its engines."""

from collections import deque
from dataclasses import replace
from typing import Any

from hmas.contracts.execution import Annotate, Grant, Submit
from hmas.contracts.worker import (
    ControlExpired,
    CycleTicked,
    EngineLeft,
    EngineSampled,
    EngineSlept,
    EnginesUnpaired,
    EngineSuspected,
    EngineWentDown,
    EngineWentUp,
    FromGateway,
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
)
from hmas.engine.core.step import EngineStats
from hmas.laws.layout import described
from hmas.sim.processes.endpoint import SimEndpoint
from hmas.sim.processes.ports import MeshPort
from hmas.sim.processes.process import SimProcess
from hmas.sim.result import TopologySpan
from hmas.worker.agent.agent import WorkerAgent, WorkerConfig


class OrderFailed(ValueError):
    """An order of a package failed, so that the run would tell of the default order."""


class EngineWatch:
    """What a worker knows of one engine from its samples. `window` samples make the mean step time. `epoch` is that of
    the lease by which it has the engine, 0 for one that it was configured with."""

    def __init__(self, endpoint: SimEndpoint, window: int, epoch: int = 0) -> None:
        self.endpoint = endpoint
        self.epoch = epoch
        self.up = False
        self.sampled_s = 0.0
        self.last: EngineStats | None = None
        self.marks = deque([(endpoint.engine.steps, endpoint.engine.busy_s)], maxlen=window + 1)


class SimWorker(SimProcess):
    """A simulated worker. `spans` collects the topologies it used; `endpoints` are its engines, which come and go."""

    def __init__(
        self,
        mesh: MeshPort,
        config: WorkerConfig,
        incarnation: int,
        *,
        endpoints: dict[str, SimEndpoint],
        spans: list[TopologySpan],
    ) -> None:
        super().__init__(mesh, config.worker, incarnation, WorkerAgent(config, mesh.setup.topologies))
        self.config = config
        self.endpoints = endpoints
        self.spans = spans
        self.layouts: list[TopologySpan] = []  # since this start
        cadences = mesh.setup.cadences
        self._window = max(1, round(cadences.step_window_s / cadences.scrape_s))
        self._watches = {name: EngineWatch(endpoint, self._window) for name, endpoint in endpoints.items()}
        self._handlers = {
            ToGateway: self._to_gateway,
            PublishTelemetry: lambda e: mesh.publish_worker(e.telemetry),
            PublishHeartbeat: lambda e: mesh.publish(replace(e.heartbeat, observes=mesh.setup.observes)),
            TopologySwitched: lambda e: spans.append(TopologySpan(mesh.heap.now_s, e.after.value, e.reason)),
            TopologyUnknown: _ignore,
            TopologyFailed: _no_run,
            LayoutSwitched: lambda e: self.layouts.append(TopologySpan(mesh.heap.now_s, described(e.after))),
            SteerEngine: self._steer,
            EngineSuspected: _ignore,  # lines of the live shell's log
            EngineSlept: _ignore,
            EnginesUnpaired: _ignore,
            ReleaseEngine: self._release,
            ControlExpired: _ignore,
        }

    def start(self) -> None:
        """Finds the engines, samples them, says that the worker is there, and starts the timers."""
        cadences = self._mesh.setup.cadences
        self._scrape()
        self.step(HeartbeatDue())
        self.every(cadences.worker_cycle_s, self._cycle)
        self.every(cadences.heartbeat_s, self._heartbeat)
        self.every(cadences.scrape_s, self._scrape)

    def step(self, event: Any) -> None:
        """Steps the agent, and notes which annotations it has before it dispatches their request."""
        if isinstance(event, FromGateway):
            match event.message:
                case Submit(request=request):
                    journey = self._mesh.journeys[request.id]
                    journey.submitted_s = self._heap.now_s if journey.submitted_s is None else journey.submitted_s
                case Annotate(request_id=name):
                    journey = self._mesh.journeys[name]
                    journey.masked = journey.masked or journey.granted_s is None
        super().step(event)

    def _cycle(self) -> None:
        self.step(CycleTicked())

    def _heartbeat(self) -> None:
        self.step(HeartbeatDue())

    def _to_gateway(self, effect: ToGateway) -> None:
        if isinstance(effect.message, Grant):
            self._watches[effect.message.engine].endpoint.granted(effect.message.request_id)
            journey = self._mesh.journeys[effect.message.request_id]
            journey.granted_s = self._heap.now_s if journey.granted_s is None else journey.granted_s
        stream = self._mesh.streams[effect.gateway.partition("#")[0], self.name]
        stream.to_gateway(effect.gateway, effect.message)

    # --- engines

    def take(self, endpoint: SimEndpoint) -> None:
        """Takes an engine by a lease; the next sample finds it."""
        self.endpoints[endpoint.name] = endpoint
        self.post(self._watch, endpoint)

    def leave(self, engine: str) -> None:
        """Leaves an engine, which is watched until the agent releases it."""
        del self.endpoints[engine]
        self.hear(EngineLeft(engine, "it is found no longer"))

    def _watch(self, endpoint: SimEndpoint) -> None:
        self._watches[endpoint.name] = EngineWatch(endpoint, self._window, epoch=1)

    def _release(self, effect: ReleaseEngine) -> None:
        self._watches.pop(effect.engine, None)

    def _steer(self, effect: SteerEngine) -> None:
        """Notes the limit; the core keeps those of its profile."""
        self._watches[effect.engine].endpoint.limit(effect.n_run)

    def _scrape(self) -> None:
        """Samples every engine as the live shell does over HTTP. One that does not answer is given up after
        `engine_lost_s`, and found again when it answers."""
        for watch in list(self._watches.values()):
            if not watch.endpoint.answers:
                if watch.up and self._heap.now_s - watch.sampled_s > self._mesh.setup.engine_lost_s:
                    watch.up = False
                    self.step(EngineWentDown(watch.endpoint.name, "it does not answer"))
                continue
            if not watch.up:
                watch.up = True
                self.step(EngineWentUp(replace(watch.endpoint.info, epoch=watch.epoch)))
            self.step(self._sample(watch))

    def _sample(self, watch: EngineWatch) -> EngineSampled:
        """Returns gauges of the moment, tokens per second since the last sample, and the mean step time over
        `step_window_s`."""
        engine = watch.endpoint.engine
        now = watch.endpoint.sample()
        before, watch.last = watch.last or now, now
        period_s = self._heap.now_s - watch.sampled_s or self._mesh.setup.cadences.scrape_s
        watch.sampled_s = self._heap.now_s
        steps, busy_s = watch.marks[0]
        watch.marks.append((engine.steps, engine.busy_s))
        new_steps = engine.steps - steps
        return EngineSampled(
            engine=engine.name,
            running=now.num_requests_running,
            waiting=now.num_requests_waiting,
            kv_usage=now.kv_cache_usage,
            preemptions_total=now.num_preemptions,
            step_s=(engine.busy_s - busy_s) / new_steps if new_steps else 0.0,
            prefill_tokens_per_s=(now.prompt_tokens - before.prompt_tokens) / period_s,
            decode_tokens_per_s=(now.generation_tokens - before.generation_tokens) / period_s,
            paced=self._mesh.setup.plugin,
            sleep_level=0 if watch.endpoint.asleep else None,
        )


def _ignore(_: Any) -> None:
    pass


def _no_run(effect: TopologyFailed) -> None:
    raise OrderFailed(f"the topology {effect.topology} failed: {effect.reason}")
