"""The whole mesh in virtual time, on one event heap."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice, product
from math import inf
from typing import Any

from hmas.contracts.agent import Agent
from hmas.contracts.outcome import Outcome
from hmas.contracts.questions import FallbackReason
from hmas.contracts.routes import ROUTES, Role, Route
from hmas.contracts.telemetry import RequestFinished, WorkerTelemetry
from hmas.engine.core import EngineCore
from hmas.engine.core.profile import EngineProfile
from hmas.laws.recording import AgentOrigin
from hmas.sim.coverage import Coverage, coverage
from hmas.sim.effect_log import EffectLog
from hmas.sim.engine_changes import late
from hmas.sim.injection import inject
from hmas.sim.processes.cognition import make_cognition
from hmas.sim.processes.control import Rehearsing, SimControl
from hmas.sim.processes.endpoint import SimEndpoint
from hmas.sim.processes.gateway_shell import SimGateway
from hmas.sim.processes.heap import EventHeap
from hmas.sim.processes.kv_links import links_of
from hmas.sim.processes.process import SimProcess
from hmas.sim.processes.simulated_bus import SimBus
from hmas.sim.processes.stream import SimStream
from hmas.sim.processes.worker_shell import SimWorker
from hmas.sim.recordings import RecordingFolder
from hmas.sim.result import SimResult, SystemRun
from hmas.sim.setup import PLUGIN_CHUNK_TOKENS, POOL, MeshSetup, PoolSetup
from hmas.sim.turnover import turn_over
from hmas.sim.workload import Journey, OfferedRequest, Workload

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
        self._learnt = tuple(learnt)
        self.heap = EventHeap()
        self.journeys = {r.id: Journey(offered=r) for r in workload.requests}
        self.log = log
        self.on_advice: Callable[[str, float], None] = _ignore
        self.on_settled: Callable[[str], None] = _ignore
        self.homes: dict[str, str] = {}
        self.doubled = 0
        self.fallbacks: Counter[FallbackReason] = Counter()
        self._recording = recording
        self._workload = workload
        self._until_s = workload.duration_s + cutoff_s
        self._open = len(self.journeys)
        self._pools = setup.pools or (PoolSetup(POOL, profile, engines, setup.workers),)
        self.endpoints: dict[str, SimEndpoint] = {}
        self.pool_of: dict[str, str] = {}
        self.workers: dict[str, SimWorker] = {}
        self.gateways: dict[str, SimGateway] = {}
        for pool in self._pools:
            self._add_pool(pool)
        for i in range(setup.gateways):
            self._keep(self._gateway(f"g{i}", 1))
        self.streams = {
            (g, w): SimStream(self, self.gateways[g], self.workers[w]) for g, w in product(self.gateways, self.workers)
        }
        weights = setup.gateway_weights or (1,) * setup.gateways
        self._turns = cycle([name for name, n in zip(self.gateways, weights, strict=True) for _ in range(n)])
        self.cognition = make_cognition(self, {pool.name: pool.profiles for pool in self._pools}, seed, recording)
        self.control = SimControl(self, rehearsal)
        self._bus = SimBus(self.heap, setup.delays.bus_s, routes)
        self._bus.parties = {
            Role.GATEWAY: [(self._hearer(self.gateways, name), {}) for name in self.gateways],
            Role.WORKER: [
                (self._hearer(self.workers, w.name), {"worker": w.name, "pool": w.config.pool})
                for w in self.workers.values()
            ],
            Role.PERCEPTION: [(self.cognition.perception.hear, {})],
            Role.PREDICTION: [(self.cognition.prediction.hear, {})],
            **self.control.parties(),
        }
        if recording is not None:
            self.control.record(recording)

    # --- the processes

    def _add_pool(self, pool: PoolSetup) -> None:
        """Makes a pool's engines, and its workers with those that are there from the start dealt out among them."""
        setup, first = self.setup, len(self.endpoints)
        profiles = tuple(map(_with_plugin, pool.profiles)) if setup.plugin else pool.profiles
        budget = 1.0 - setup.worker_config.delta_frag if setup.worker_config.fenced else inf
        names = [f"e{first + i}" for i in range(len(profiles))]
        cores = zip(names, map(EngineCore, profiles), strict=True)
        links = links_of(self.heap, names, pool)
        roles = dict(zip(names, pool.roles, strict=False))
        made = {name: SimEndpoint(self, name, core, budget, links, roles.get(name, "")) for name, core in cores}
        self.endpoints |= made
        self.pool_of |= dict.fromkeys(names, pool.name)
        first_ones = [name for name in names if name not in late(setup.changes)]
        for i in range(pool.workers):
            number = len(self.workers)
            own = {name: made[name] for name in first_ones[i :: pool.workers]}
            config = setup.worker_of(number, pool.name)
            self._keep(SimWorker(self, config, 1, endpoints=own, spans=[]))

    def _gateway(self, name: str, incarnation: int) -> SimGateway:
        return SimGateway(self, replace(self.setup.gateway_config, gateway=name), incarnation)

    def _keep(self, process: SimGateway | SimWorker) -> None:
        """Puts a new process in its place, and begins its recording."""
        if isinstance(process, SimGateway):
            self.gateways[process.name] = process
            origin = AgentOrigin(Role.GATEWAY, process.label, process.config)
        else:
            self.workers[process.name] = process
            origin = AgentOrigin(Role.WORKER, process.label, process.config)
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
            process = SimWorker(self, config, number, endpoints=old.endpoints, spans=old.spans)
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

    def _start(self) -> None:
        pools = [pool.name for pool in self._pools]
        self.control.start(pools, (pools[0], self._learnt))
        for worker in self.workers.values():
            worker.start()
        for stream in self.streams.values():
            stream.open()
        for gateway in self.gateways.values():
            gateway.start()
        inject(self, self.setup.faults)
        turn_over(self, self.setup.changes)
        self.every(self.setup.cadences.control_tick_s, self.control.tick)

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
            regulated=tuple(self.control.regulation.rows),
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
        """Sends a message over the simulated bus."""
        self._bus.publish(message)

    def publish_worker(self, telemetry: WorkerTelemetry) -> None:
        for finished in telemetry.finished:
            if finished.upper_output_tokens:
                self.journeys[finished.request_id].bound_tokens = finished.upper_output_tokens
        self.control.regulation.reported(self.heap.now_s, telemetry)
        self.publish(telemetry)


def _with_plugin(profile: EngineProfile) -> EngineProfile:
    return profile.with_limits(
        scheduling_policy="urgency", dynamic_chunking=True, max_num_batched_tokens=PLUGIN_CHUNK_TOKENS
    )


def _ignore(*_: object) -> None:
    pass
