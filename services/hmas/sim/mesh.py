"""The whole mesh in virtual time, on one event heap."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice, product
from typing import Any

from hmas.contracts.agent import Agent
from hmas.contracts.control import AuditRecord, ControlTuple, Pin
from hmas.contracts.control_agents import (
    AskSelector,
    EpochGranted,
    KeepPast,
    PinChanged,
    PublishAudit,
    PublishLong,
    PublishShort,
    PublishTopology,
    PublishTuple,
    RehearsalAnswered,
    Rehearse,
    SelectorAnswered,
    TimerTicked,
    WorkerReported,
)
from hmas.contracts.gateway import FallbackReason
from hmas.contracts.outcome import Outcome
from hmas.contracts.past import PastBlock
from hmas.contracts.rehearsal import LEARN_S, WARM_S
from hmas.contracts.routes import ROUTES, Role, Route
from hmas.contracts.telemetry import RequestFinished, WorkerTelemetry
from hmas.contracts.views import VLong
from hmas.engine.core import EngineCore
from hmas.engine.core.profile import EngineProfile
from hmas.laws.recording import AgentOrigin
from hmas.meta.agent import MetaAgent
from hmas.perception.agent import PerceptionAgent, PerceptionConfig
from hmas.perception.agent.backend import Estimate, PromptView
from hmas.prediction.agent import PredictionAgent, PredictionConfig
from hmas.qos.agent import QosAgent
from hmas.sim import scripted_llm
from hmas.sim.cognition import SimCognition
from hmas.sim.coverage import Coverage, coverage
from hmas.sim.effect_log import EffectLog
from hmas.sim.endpoint import SimEndpoint
from hmas.sim.estimators import cost_model, estimator, linear_costs
from hmas.sim.gateway_shell import SimGateway
from hmas.sim.heap import EventHeap
from hmas.sim.injection import inject
from hmas.sim.model_server import ModelServer
from hmas.sim.process import SimProcess
from hmas.sim.regulated import RegulationTrace
from hmas.sim.replay import RecordingFolder
from hmas.sim.result import SimResult, SystemRun
from hmas.sim.setup import PLUGIN_CHUNK_TOKENS, POOL, MeshSetup, PoolSetup
from hmas.sim.stream import SimStream
from hmas.sim.worker_shell import SimWorker
from hmas.sim.workload import Journey, OfferedRequest, Workload
from hmas.statera.agent import StateraAgent

# Carries out a rehearsal on the blocks of past requests; it runs meshes itself.
Rehearsing = Callable[[Rehearse, Sequence[PastBlock]], RehearsalAnswered]
Handlers = Mapping[type, Callable[[Any], None]]


class MeshSim:
    """One simulated run of the mesh.

    `engines` is their number, all of one `profile`, unless the setup states its pools. Requests that have not ended
    `cutoff_s` after the workload's last second count as not finished. `log` hashes every effect of every agent, and
    `recording` writes every step; None turns either off. `routes` says which agents hear which message. `on_advice` is
    called with the id and `retry_after_s` of a request that was refused late, and `on_settled` with the id of each that
    has ended; it may offer others. `rehearsal` carries out what the meta controller wants rehearsed. The fence is
    calibrated from the start by the requests `learnt`, which ended before it.
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
        rehearsal: Rehearsing | None = None,
        learnt: Sequence[RequestFinished] = (),
    ) -> None:
        self.setup = setup
        self._rehearsal = rehearsal
        self._learnt = tuple(learnt)
        self.heap = EventHeap()
        self.journeys = {r.id: Journey(offered=r) for r in workload.requests}
        self.log = log
        self.on_advice: Callable[[str, float], None] = _ignore
        self.on_settled: Callable[[str], None] = _ignore
        self.views: list[VLong] = []
        self.audits: list[tuple[float, AuditRecord]] = []  # of the meta controller
        self._regulation = RegulationTrace()
        self.homes: dict[str, str] = {}
        self.doubled = 0
        self.fallbacks: Counter[FallbackReason] = Counter()
        self._recording = recording
        self._workload = workload
        self._until_s = workload.duration_s + cutoff_s
        self._open = len(self.journeys)
        self._pools = setup.pools or (PoolSetup(POOL, profile, engines, setup.workers),)
        self.endpoints: dict[str, SimEndpoint] = {}
        self.workers: dict[str, SimWorker] = {}
        self.gateways: dict[str, SimGateway] = {}
        for pool in self._pools:
            self._add_pool(pool, seed)
        for i in range(setup.gateways):
            self._keep(self._gateway(f"g{i}", 1))
        self.streams = {
            (g, w): SimStream(self, self.gateways[g], self.workers[w]) for g, w in product(self.gateways, self.workers)
        }
        weights = setup.gateway_weights or (1,) * setup.gateways
        self._turns = cycle([name for name, n in zip(self.gateways, weights, strict=True) for _ in range(n)])
        self.cognition = self._cognition(seed, recording)
        self.qos = QosAgent(setup.qos_config)
        self._meta = MetaAgent(setup.meta_config)
        self._statera = StateraAgent(setup.statera_config)
        self._handlers: dict[str, Handlers] = {
            "qos": {
                PublishShort: lambda e: self.publish(e.view),
                PublishLong: self._long,
                KeepPast: _ignore,  # the agent never restarts in a run
            },
            "meta": {
                PublishTopology: lambda e: self.publish(e.decision),
                PublishAudit: lambda e: self.audits.append((self.heap.now_s, e.record)),
                AskSelector: self._ask,
                Rehearse: self._rehearse,
            },
            "statera": {PublishTuple: lambda e: self._regulate(e.control), PublishAudit: _ignore},
        }
        self._routes = {route.message: route for route in routes}
        self._parties: dict[Role, list[tuple[Callable[[Any], None], dict[str, str]]]] = {
            Role.GATEWAY: [(self._hearer(self.gateways, name), {}) for name in self.gateways],
            Role.WORKER: [
                (self._hearer(self.workers, w.name), {"worker": w.name, "pool": w.config.pool})
                for w in self.workers.values()
            ],
            Role.PERCEPTION: [(self.cognition.perception.hear, {})],
            Role.PREDICTION: [(self.cognition.prediction.hear, {})],
            Role.QOS: [(self._to_qos, {})],
            Role.META: [(self._to_meta, {})],
            Role.STATERA: [(self._to_statera, {})] if setup.statera else [],
        }
        if recording is not None:
            recording.begin(AgentOrigin(Role.QOS, "qos", setup.qos_config))
            recording.begin(AgentOrigin(Role.META, "meta", setup.meta_config))
            recording.begin(AgentOrigin(Role.STATERA, "statera", setup.statera_config))

    # --- the processes

    def _add_pool(self, pool: PoolSetup, seed: int) -> None:
        """Makes a pool's engines, and its workers with the engines dealt out evenly among them."""
        setup, profiles, first = self.setup, pool.profiles, len(self.endpoints)
        if setup.plugin:
            profiles = tuple(
                each.with_limits(
                    scheduling_policy="urgency", dynamic_chunking=True, max_num_batched_tokens=PLUGIN_CHUNK_TOKENS
                )
                for each in profiles
            )
        budget = 1.0 - setup.worker_config.delta_frag
        names = [f"e{first + i}" for i in range(len(profiles))]
        cores = zip(names, map(EngineCore, profiles), strict=True)
        made = {name: SimEndpoint(self, name, core, budget) for name, core in cores}
        self.endpoints |= made
        for i in range(pool.workers):
            number = len(self.workers)
            own = {name: made[name] for name in names[i :: pool.workers]}
            config = replace(setup.worker_config, worker=f"w{number}", incarnation="1", pool=pool.name)
            self._keep(SimWorker(self, config, 1, seed=f"{seed} worker {number}", endpoints=own, spans=[]))

    def _cognition(self, seed: int, recording: RecordingFolder | None) -> SimCognition:
        setup = self.setup
        reader = estimator(setup.estimator, setup.sigma, setup.accuracy, seed)

        def estimates(prompts: Sequence[PromptView]) -> list[Estimate | None]:
            return [reader.estimate(self.journeys[prompt.text].offered) for prompt in prompts]

        perceiving = PerceptionConfig(
            version=reader.version, source=reader.source, cpu_share=setup.perception_cpu_share
        )
        predicting, fallback = PredictionConfig(), linear_costs()
        if recording is not None:
            recording.begin(AgentOrigin(Role.PERCEPTION, "perception", perceiving))
            recording.begin(AgentOrigin(Role.PREDICTION, "prediction", (predicting, fallback.profiles)))
        profiles = {f"{pool.name}#{i}": each for pool in self._pools for i, (each, _) in enumerate(pool.others)}
        costs = cost_model(setup.costs, profiles | {pool.name: pool.profile for pool in self._pools})
        return SimCognition(
            ModelServer(self, "perception", PerceptionAgent(perceiving), estimates, setup.perception),
            ModelServer(self, "prediction", PredictionAgent(predicting, fallback), costs.predict, setup.prediction),
        )

    def _gateway(self, name: str, incarnation: int) -> SimGateway:
        return SimGateway(self, replace(self.setup.gateway_config, gateway=name), incarnation)

    def _keep(self, process: SimGateway | SimWorker) -> None:
        """Puts a new process in its place, and begins its recording."""
        if isinstance(process, SimGateway):
            self.gateways[process.name] = process
            origin = AgentOrigin(Role.GATEWAY, process.label, process.config)
        else:
            self.workers[process.name] = process
            origin = AgentOrigin(Role.WORKER, process.label, process.config, process.seed)
        if self._recording is not None:
            self._recording.begin(origin)

    def streams_of(self, name: str) -> list[SimStream]:
        """Returns the streams of the process that has the name."""
        return [stream for pair, stream in self.streams.items() if name in pair]

    def restart(self, name: str) -> None:
        """Starts the process again, with empty books, if it is dead."""
        old = self.gateways.get(name) or self.workers[name]
        if old.alive:
            return
        number = old.incarnation + 1
        process: SimGateway | SimWorker
        if isinstance(old, SimGateway):
            process = self._gateway(old.name, number)
        else:
            config = replace(old.config, incarnation=str(number))
            process = SimWorker(self, config, number, seed=old.seed, endpoints=old.endpoints, spans=old.spans)
        self._keep(process)
        for stream in self.streams_of(name):
            stream.replace(process)
        process.start()

    # --- the run

    def run(self) -> SimResult:
        self._start()
        for offered in self._workload.requests:
            self.heap.at(offered.request.arrival_s, self._arrive, offered)
        self.heap.run(self._until_s, lambda: self._open == 0)
        return SimResult(
            self.setup.name,
            [j.settlement() for j in self.journeys.values()],
            self._workload.duration_s,
            self._summary(),
        )

    def _summary(self) -> SystemRun:
        engines = [endpoint.engine for endpoint in self.endpoints.values()]
        late_s = self._workload.duration_s * 2.0 / 3.0
        late = [j for j in self.journeys.values() if j.granted_s is not None and j.offered.request.arrival_s >= late_s]
        return SystemRun(
            preemptions=sum(engine.core.stats().num_preemptions for engine in engines),
            engine_steps=sum(engine.steps for engine in engines),
            busy_s=sum(engine.busy_s for engine in engines),
            ended_s=self.heap.now_s,
            coverage=self._coverage(),
            effects=self.log.count if self.log else 0,
            effect_hash=self.log.digest() if self.log else "",
            topologies=tuple(next(iter(self.workers.values())).spans),
            layouts=tuple(next(iter(self.workers.values())).layouts),
            engines=tuple(endpoint.summary() for endpoint in self.endpoints.values()),
            regulated=tuple(self._regulation.rows),
            lost=sum(journey.lost for journey in self.journeys.values()),
            doubled=self.doubled,
            granted=sum(j.granted_s is not None for j in self.journeys.values()),
            masked=sum(j.granted_s is not None and j.masked for j in self.journeys.values()),
            waited=sum(j.waited for j in self.journeys.values()),
            waited_masked=sum(j.waited and j.masked for j in self.journeys.values()),
            late_granted=len(late),
            late_masked=sum(j.masked for j in late),
        )

    def _coverage(self) -> Coverage:
        limits = self._pools[0].profile.limits
        edges = self.setup.statera_config.fence.prompt_edges
        journeys, duration_s = self.journeys.values(), self._workload.duration_s
        return coverage(journeys, edges, duration_s, limits.block_size, limits.max_model_len)

    # --- what the shells share

    def every(self, period_s: float, call: Callable[[], None]) -> None:
        """Makes `call` every `period_s`, first one period from now."""

        def tick() -> None:
            call()
            self.heap.after(period_s, tick)

        self.heap.after(period_s, tick)

    def step(self, label: str, agent: Agent[Any, Any], event: object, handlers: Handlers) -> None:
        """Steps an agent and carries out its effects in order. Raises KeyError for an effect that has no handler."""
        effects = agent.step(self.heap.now_s, event)
        if self._recording is not None:
            self._recording.add(label, self.heap.now_s, event, effects)
        for effect in effects:
            if self.log is not None:
                self.log.add(self.heap.now_s, label, effect)
            handlers[type(effect)](effect)

    def offer(self, offered: OfferedRequest) -> None:
        """Adds a request during the run; it arrives at its `arrival_s`, which must not be past."""
        self.journeys[offered.id] = Journey(offered=offered)
        self._open += 1
        self.heap.at(offered.request.arrival_s, self._arrive, offered)

    def _arrive(self, offered: OfferedRequest) -> None:
        """Brings a request to the next gateway that lives; without any it is lost."""
        journey = self.journeys[offered.id]
        for name in islice(self._turns, sum(self.setup.gateway_weights) or len(self.gateways)):
            if self.gateways[name].alive:
                journey.gateway = name
                self.gateways[name].arrive(offered)
                return
        journey.lost = True
        self.settle(offered.id, Outcome.INTERNAL)

    def settle(self, request_id: str, outcome: Outcome) -> None:
        journey = self.journeys[request_id]
        if journey.outcome is not None:
            raise RuntimeError(
                f"request {request_id} is settled twice, as {journey.outcome} and as {outcome}: a fault of an agent"
            )
        journey.outcome = outcome
        self.on_settled(request_id)
        self._open -= 1

    @staticmethod
    def _hearer(processes: Mapping[str, SimProcess], name: str) -> Callable[[Any], None]:
        """Returns a call that brings an event to the process that has the name at that time."""
        return lambda event: processes[name].hear(event)

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
        for finished in telemetry.finished:
            if finished.upper_output_tokens:
                self.journeys[finished.request_id].bound_tokens = finished.upper_output_tokens
        self._regulation.reported(self.heap.now_s, telemetry)
        self.publish(telemetry)

    def _regulate(self, control: ControlTuple) -> None:
        self._regulation.controlled(control)
        self.publish(control)

    def _long(self, effect: PublishLong) -> None:
        self.views.append(effect.view)
        self.publish(effect.view)

    def _ask(self, effect: AskSelector) -> None:
        event = SelectorAnswered(effect.ask, effect.view.pool, scripted_llm.answer(effect), "")
        self.heap.after(scripted_llm.ANSWER_S, self._to_meta, event)

    def _rehearse(self, effect: Rehearse) -> None:
        """Rehearses at once, and answers after the time that it would take beside what serves."""
        if self._rehearsal is None:
            raise RuntimeError("this run has no way to rehearse: run it by hmas.sim.systems, or give MeshSim one")
        blocks = self.qos.past(self.heap.now_s, effect.pool, effect.window_s + WARM_S + LEARN_S)
        answered = self._rehearsal(effect, blocks)
        self.heap.after(answered.cpu_s, self._to_meta, answered)

    # --- the control agents

    def _start(self) -> None:
        for step in (self._to_qos, self._to_meta, self._to_statera):
            step(EpochGranted(1))
        if self._learnt:
            self._to_statera(WorkerReported(_report(self._pools[0].name, self._learnt)))
        setup = self.setup
        if setup.pin is not None:
            for pool in self._pools:
                pin = Pin(pool.name, setup.pin, setup.hints, "experiment", setup.split)
                self._to_meta(PinChanged(pin))
                for at_s, split in setup.splits:
                    self.heap.at(at_s, self._to_meta, PinChanged(replace(pin, split=split)))
        for worker in self.workers.values():
            worker.start()
        for stream in self.streams.values():
            stream.open()
        for gateway in self.gateways.values():
            gateway.start()
        inject(self, self.setup.faults)
        self.every(self.setup.cadences.control_tick_s, self._tick)

    def _tick(self) -> None:
        self._to_qos(TimerTicked())
        self._to_meta(TimerTicked())
        if self.setup.statera:
            self._to_statera(TimerTicked())

    def _to_qos(self, event: Any) -> None:
        self.step("qos", self.qos, event, self._handlers["qos"])

    def _to_meta(self, event: Any) -> None:
        self.step("meta", self._meta, event, self._handlers["meta"])

    def _to_statera(self, event: Any) -> None:
        self.step("statera", self._statera, event, self._handlers["statera"])


def _report(pool: str, finished: tuple[RequestFinished, ...]) -> WorkerTelemetry:
    """Returns a report of nothing but ended requests."""
    return WorkerTelemetry(
        worker="", pool=pool, queued_count=0, queued_tokens=0, topology="", bypass=False, control_expired=False,
        engines=(), queued=(), dispatched=(), first_tokens=(), finished=finished,
    )  # fmt: skip


def _ignore(*_: object) -> None:
    pass
