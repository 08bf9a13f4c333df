"""The whole mesh in virtual time, on one event heap."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from hmas.contracts.agent import Agent
from hmas.contracts.control import Pin
from hmas.contracts.control_agents import (
    AskSelector,
    EpochGranted,
    PinChanged,
    PublishAudit,
    PublishLong,
    PublishShort,
    PublishTopology,
    PublishTuple,
    SelectorAnswered,
    TimerTicked,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.routes import ROUTES, Role, Route
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.contracts.views import VLong
from hmas.engine.core import EngineCore
from hmas.engine.core.profile import EngineProfile
from hmas.gateway.agent import GatewayAgent
from hmas.laws.recording import AgentOrigin
from hmas.meta.agent import MetaAgent
from hmas.qos.agent import QosAgent
from hmas.sim import scripted_llm
from hmas.sim.cognition import SimCognition
from hmas.sim.effect_log import EffectLog
from hmas.sim.estimators import Costs, LinearCosts, ProfileCosts, estimator
from hmas.sim.gateway_shell import SimGateway
from hmas.sim.heap import EventHeap
from hmas.sim.replay import RecordingFolder
from hmas.sim.result import SimResult, SystemRun
from hmas.sim.setup import PLUGIN_CHUNK_TOKENS, POOL, MeshSetup
from hmas.sim.worker_shell import SimWorker
from hmas.sim.workload import Journey, OfferedRequest, Workload
from hmas.statera.agent import StateraAgent
from hmas.worker.agent import WorkerAgent

Handlers = Mapping[type, Callable[[Any], None]]


class MeshSim:
    """One simulated run of the mesh.

    `engines` is their number, all of one `profile`. Requests that have not ended `cutoff_s` after the workload's last
    second count as not finished. `log` hashes every effect of every agent, and `recording` writes every step; None
    turns either off. `routes` says which agents hear which message.
    """

    def __init__(
        self,
        setup: MeshSetup,
        profile: EngineProfile,
        engines: int,
        workload: Workload,
        seed: int,
        *,
        cutoff_s: float = 600.0,
        log: EffectLog | None = None,
        routes: Iterable[Route] = ROUTES,
        recording: RecordingFolder | None = None,
    ) -> None:
        self.setup = setup
        self.heap = EventHeap()
        self.journeys = {r.id: Journey(offered=r) for r in workload.requests}
        self.log = log
        self._recording = recording
        self.views: list[VLong] = []
        self._workload = workload
        self._until_s = workload.duration_s + cutoff_s
        self._open = len(self.journeys)
        self._fence_checked = self._fence_misses = 0
        self.gateway = SimGateway(self, GatewayAgent(setup.gateway_config))
        self.workers = {w.name: w for w in _workers(self, profile, engines, seed)}
        batch = profile.limits.max_num_seqs // 2
        costs: Costs = ProfileCosts(profile, batch, 0.0, seed)
        if setup.estimator == "rules":
            costs = LinearCosts(POOL, profile.name, batch)
        tags = estimator(setup.estimator, setup.sigma, setup.accuracy, seed)
        self.cognition = SimCognition(self.heap, setup.cognition, tags, costs, self.gateway.annotated)
        self._qos = QosAgent(setup.qos_config)
        self._meta = MetaAgent(setup.meta_config)
        self._statera = StateraAgent(setup.statera_config)
        self._handlers: dict[str, Handlers] = {
            "qos": {
                PublishShort: lambda e: self.publish(e.view),
                PublishLong: self._long,
            },
            "meta": {
                PublishTopology: lambda e: self.publish(e.decision),
                PublishAudit: _ignore,  # nobody reads the audit in a run
                AskSelector: self._ask,
            },
            "statera": {PublishTuple: lambda e: self.publish(e.control), PublishAudit: _ignore},
        }
        self._routes = {route.message: route for route in routes}
        self._parties: dict[Role, list[tuple[Callable[[Any], None], dict[str, str]]]] = {
            Role.GATEWAY: [(self.gateway.step, {})],
            Role.WORKER: [(w.step, {"worker": w.name, "pool": POOL}) for w in self.workers.values()],
            Role.QOS: [(self._to_qos, {})],
            Role.META: [(self._to_meta, {})],
            Role.STATERA: [(self._to_statera, {})] if setup.statera else [],
        }

        if recording is not None:
            for origin in self._origins(seed):
                recording.begin(origin)

    def _origins(self, seed: int) -> Iterator[AgentOrigin]:
        setup = self.setup
        yield AgentOrigin(Role.GATEWAY, self.gateway.name, setup.gateway_config)
        for i, worker in enumerate(self.workers.values()):
            yield AgentOrigin(Role.WORKER, worker.name, worker.config, _worker_seed(seed, i))
        yield AgentOrigin(Role.QOS, "qos", setup.qos_config)
        yield AgentOrigin(Role.META, "meta", setup.meta_config)
        yield AgentOrigin(Role.STATERA, "statera", setup.statera_config)

    def run(self) -> SimResult:
        self._start()
        for offered in self._workload.requests:
            self.heap.at(offered.request.arrival_s, self.gateway.arrive, offered)
        self.heap.run(self._until_s, lambda: self._open == 0)
        return SimResult(
            self.setup.name,
            [j.settlement() for j in self.journeys.values()],
            self._workload.duration_s,
            self._summary(),
        )

    def _summary(self) -> SystemRun:
        engines = [engine for worker in self.workers.values() for engine in worker.engines.values()]
        return SystemRun(
            preemptions=sum(engine.core.stats().num_preemptions for engine in engines),
            engine_steps=sum(engine.steps for engine in engines),
            busy_s=sum(engine.busy_s for engine in engines),
            ended_s=self.heap.now_s,
            fence_checked=self._fence_checked,
            fence_misses=self._fence_misses,
            effects=self.log.count if self.log else 0,
            effect_hash=self.log.digest() if self.log else "",
            topologies=tuple(next(iter(self.workers.values())).spans),
        )

    # --- what the shells share

    def every(self, period_s: float, call: Callable[[], None]) -> None:
        """Makes `call` every `period_s`, first one period from now."""

        def tick() -> None:
            call()
            self.heap.after(period_s, tick)

        self.heap.after(period_s, tick)

    def step(self, name: str, agent: Agent[Any, Any], event: object, handlers: Handlers) -> None:
        """Steps an agent and carries out its effects in order. Raises KeyError for an effect that has no handler."""
        effects = agent.step(self.heap.now_s, event)
        if self._recording is not None:
            self._recording.add(name, self.heap.now_s, event, effects)
        for effect in effects:
            if self.log is not None:
                self.log.add(self.heap.now_s, name, effect)
            handlers[type(effect)](effect)

    def offer(self, offered: OfferedRequest) -> None:
        """Adds a request during the run; it arrives at its `arrival_s`, which must not be past."""
        self.journeys[offered.id] = Journey(offered=offered)
        self._open += 1
        self.heap.at(offered.request.arrival_s, self.gateway.arrive, offered)

    def settle(self, request_id: str, outcome: Outcome) -> None:
        journey = self.journeys[request_id]
        if journey.outcome is not None:
            raise RuntimeError(
                f"request {request_id} is settled twice, as {journey.outcome} and as {outcome}: a fault of an agent"
            )
        journey.outcome = outcome
        self._open -= 1

    # --- the bus

    def publish(self, message: Any) -> None:
        """Sends a message over the simulated bus: after `bus_s`, each agent that hears it according to the routes gets
        it as an event. Messages without a route are dropped."""
        route = self._routes.get(type(message))
        if route is None:
            return
        for hearer in route.hearers:
            for step, own in self._parties.get(hearer.role, ()):
                if hearer.event is not None and (not hearer.own or own[route.about] == getattr(message, route.about)):
                    self.heap.after(self.setup.delays.bus_s, step, hearer.event(message))

    def publish_worker(self, telemetry: WorkerTelemetry) -> None:
        ended = [f for f in telemetry.finished if not f.censored]
        self._fence_checked += len(ended)
        self._fence_misses += sum(f.output_tokens > f.upper_output_tokens for f in ended)
        self.publish(telemetry)

    def _long(self, effect: PublishLong) -> None:
        self.views.append(effect.view)
        self.publish(effect.view)

    def _ask(self, effect: AskSelector) -> None:
        event = SelectorAnswered(effect.ask, effect.view.pool, scripted_llm.answer(effect), "")
        self.heap.after(scripted_llm.ANSWER_S, self._to_meta, event)

    # --- the control agents

    def _start(self) -> None:
        for step in (self._to_qos, self._to_meta, self._to_statera):
            step(EpochGranted(1))
        if self.setup.pin is not None:
            self._to_meta(PinChanged(Pin(POOL, self.setup.pin, self.setup.hints, "experiment")))
        for worker in self.workers.values():
            worker.start()
        self.gateway.start()
        self.every(self.setup.cadences.control_tick_s, self._tick)

    def _tick(self) -> None:
        self._to_qos(TimerTicked())
        self._to_meta(TimerTicked())
        if self.setup.statera:
            self._to_statera(TimerTicked())

    def _to_qos(self, event: Any) -> None:
        self.step("qos", self._qos, event, self._handlers["qos"])

    def _to_meta(self, event: Any) -> None:
        self.step("meta", self._meta, event, self._handlers["meta"])

    def _to_statera(self, event: Any) -> None:
        self.step("statera", self._statera, event, self._handlers["statera"])


def _worker_seed(seed: int, index: int) -> str:
    return f"{seed} worker {index}"


def _ignore(_: object) -> None:
    pass


def _workers(mesh: MeshSim, profile: EngineProfile, engines: int, seed: int) -> list[SimWorker]:
    """Returns the workers of a mesh, with the engines dealt out evenly among them."""
    setup, found = mesh.setup, []
    if setup.plugin:
        profile = profile.with_limits(
            scheduling_policy="urgency", dynamic_chunking=True, max_num_batched_tokens=PLUGIN_CHUNK_TOKENS
        )
    for i in range(setup.workers):
        names = [f"e{j}" for j in range(i, engines, setup.workers)]
        config = replace(setup.worker_config, worker=f"w{i}", pool=POOL)
        agent = WorkerAgent(config, Random(_worker_seed(seed, i)))
        found.append(SimWorker(mesh, config, agent, {name: EngineCore(profile) for name in names}))
    return found
