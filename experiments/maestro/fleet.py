"""Engines behind one queue of calls, for orders of jobs: a call leaves the queue when an engine has a free sequence and
memory for its prompt. With prefix caches a call goes to the engine of its job's last call, if that has room."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from experiments.maestro.orders import JobKnowledge, JobOrder, JobState, WaitingCall
from experiments.maestro.workload import service_s
from hmas.contracts.outcome import Outcome
from hmas.engine.core import EngineCore
from hmas.engine.core.profile import EngineProfile
from hmas.engine.core.sequence import AddResult
from hmas.engine.core.step import StepResult
from hmas.sim.processes.engine import SimEngine
from hmas.sim.processes.heap import EventHeap
from hmas.sim.workload import Journey, OfferedRequest
from hmas_lab.sim.jobs import JobClients, SimJob

SPARE = 0.05  # of the KV blocks, which a new prompt leaves free


@dataclass(frozen=True, slots=True)
class FleetRun:
    """The journeys of all calls that were sent, and of each engine the seconds that it ran; of all engines the prompt
    tokens and those of them that they found in their caches. `bounds`: the requests that our workers admitted, and how
    many of these outgrew their length bounds."""

    journeys: dict[str, Journey]
    busy_s: tuple[float, ...]
    prompt_tokens: int
    cached_tokens: int
    bounds: Mapping[str, int] = field(default_factory=dict)


class JobFleet:
    """One run of an order."""

    def __init__(
        self, order: JobOrder, knowledge: JobKnowledge, profile: EngineProfile, engines: int, jobs: Sequence[SimJob],
        until_s: float,
    ) -> None:  # fmt: skip
        self._heap = EventHeap()
        self._order, self._profile, self._until_s = order, profile, until_s
        order.begin(knowledge)
        self._clients = JobClients(jobs)
        self._engines = [SimEngine(self._heap, EngineCore(profile), f"e{i}", self._stepped) for i in range(engines)]
        self._load = dict.fromkeys((e.name for e in self._engines), 0)
        self._states: dict[str, JobState] = {}
        self._waiting: dict[int, WaitingCall] = {}
        self._count = 0
        self._last: dict[str, str] = {}  # engine of a job's last call
        self._on: dict[str, str] = {}  # engine by request
        self._sequence = 0
        self.journeys: dict[str, Journey] = {}

    def run(self) -> FleetRun:
        for offered in self._clients.first():
            self._offer(offered)
        self._heap.run(self._until_s, lambda: self._count == 0)
        stats = [engine.core.stats() for engine in self._engines]
        return FleetRun(
            self.journeys,
            tuple(engine.busy_s for engine in self._engines),
            sum(s.prefix_cache_queries for s in stats),
            sum(s.prefix_cache_hits for s in stats),
        )

    def _offer(self, offered: OfferedRequest) -> None:
        self._count += 1
        self.journeys[offered.id] = Journey(offered=offered)
        self._heap.at(offered.request.arrival_s, self._arrive, offered)

    def _arrive(self, offered: OfferedRequest) -> None:
        job, number = self._clients.job_of[offered.id]
        state = self._states.setdefault(job.id, JobState(job))
        engine = self._last.get(job.id, "")
        call = WaitingCall(state, number, state.came, state.answered, self._heap.now_s, engine)
        state.came += 1
        self._order.arrived(call)
        if self._order.least_outstanding:
            self._send(call, min(self._engines, key=lambda e: self._load[e.name]))
            return
        self._sequence += 1
        self._waiting[self._sequence] = call
        self._dispatch()

    def _dispatch(self) -> None:
        while self._waiting:
            roomy = [engine for engine in self._engines if self._has_room(engine)]
            if not roomy:
                return
            self._order.plan(self._heap.now_s, self._waiting, self._states)
            for key in sorted(self._waiting, key=lambda k: (self._waiting[k].rank, k)):
                if self._order.allows(self._waiting[key]):
                    break
            else:
                return
            call = self._waiting.pop(key)
            home = [engine for engine in roomy if engine.name == call.engine and self._caches]
            self._send(call, home[0] if home else min(roomy, key=lambda e: self._load[e.name]))

    @property
    def _caches(self) -> bool:
        return self._profile.limits.enable_prefix_caching

    def _has_room(self, engine: SimEngine) -> bool:
        engine.catch_up()
        core = engine.core
        if self._load[engine.name] >= self._profile.limits.max_num_seqs or len(core.waiting):
            return False
        return core.kv.free > SPARE * core.kv.num_blocks

    def _send(self, call: WaitingCall, engine: SimEngine) -> None:
        offered = call.state.job.calls[call.number].offered
        call.state.started.add(call.number)
        self._load[engine.name] += 1
        self._last[call.state.job.id] = self._on[offered.id] = engine.name
        self.journeys[offered.id].granted_s = self._heap.now_s
        if engine.add(offered.engine_request()) is not AddResult.ACCEPTED:
            raise RuntimeError(f"engine {engine.name} refused call {offered.id}: the workload does not fit the profile")

    def _stepped(self, engine: SimEngine, result: StepResult) -> None:
        now_s = self._heap.now_s
        for name in result.first:
            journey = self.journeys[name]
            journey.first_token_s = now_s if journey.first_token_s is None else journey.first_token_s
        for name in result.finished:
            journey = self.journeys[name]
            journey.last_token_s, journey.outcome = now_s, Outcome.FINISHED
            journey.output_tokens = journey.offered.output_tokens
            self._load[self._on[name]] -= 1
            job, number = self._clients.job_of[name]
            state = self._states[job.id]
            state.ended.add(number)
            state.answered += journey.output_tokens
            request = journey.offered.request
            state.attained_s += service_s(self._profile, request.prompt_tokens, journey.output_tokens)
            for offered in self._clients.ended(now_s, name):
                self._offer(offered)
            self._count -= 1
            if len(state.ended) == len(job.calls):
                self._order.ended(state)
                del self._states[job.id]
        if result.finished or result.first:
            self._dispatch()
