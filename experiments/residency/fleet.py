"""A host under one system: jobs whose calls wait for their models, and the arbiter that moves these."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.residency.card import SharedCard
from experiments.residency.models import CardModel
from experiments.residency.outlook import Outlook
from hmas.contracts.control_agents import TimerTicked
from hmas.contracts.residency import (
    CardLeased,
    DemandHeard,
    DemandReport,
    EngineDemand,
    EngineSeen,
    HostEvent,
    MoveEnded,
    PublishHost,
    Readiness,
    RecordSwitch,
    SleepEngine,
    WakeEngine,
)
from hmas.engine.core.sequence import AddResult
from hmas.engine.core.step import StepResult
from hmas.host.agent.arbiter import HostArbiter
from hmas.host.agent.config import HostConfig
from hmas.laws.model_places import ResidencyLaw, ResidencyRules
from hmas.sim.processes.engine import SimEngine
from hmas.sim.processes.heap import EventHeap
from hmas.sim.workload import OfferedRequest
from hmas_lab.sim.jobs import JobClients, SimJob

SPARE = 0.05  # of the KV blocks, which a new prompt leaves free
GOOD = 0.25  # of earlier answers, and of what followed them, were shorter than where all goes well
REPORT_S, BUS_S, AFTER_S = 0.5, 0.001, 900.0  # AFTER_S: how long a run goes on after the last arrival


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSystem:
    """A system: its law with its rules, and whether models restart instead of sleeping."""

    law: ResidencyLaw
    rules: ResidencyRules = ResidencyRules()  # noqa: RUF009 (it is frozen)
    restarts: bool = False


@dataclass(slots=True)
class HostCall:
    """A call that has arrived: what it takes by itself, and from its end to that of its job, as far as one knows, and
    both together where all goes well."""

    job: SimJob
    number: int
    arrival_s: float
    own_s: float
    after_s: float
    least_s: float

    @property
    def id(self) -> str:
        return self.offered.id

    @property
    def offered(self) -> OfferedRequest:
        return self.job.calls[self.number].offered


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRun:
    """`ends_s`: when each job ended that did. `prompts` and `cached` are tokens of all engines."""

    ends_s: Mapping[str, float]
    wakes: int
    interrupts: int
    prompts: int
    cached: int


class HostFleet:
    """One run."""

    def __init__(
        self, system: HostSystem, card_gb: float, models: Sequence[CardModel], jobs: Sequence[SimJob],
        before: Sequence[SimJob],
    ) -> None:  # fmt: skip
        self._heap = EventHeap()
        self._models = {each.name: each for each in models}
        self._engines = {m.name: m.engine(restarts=system.restarts) for m in models}
        config = HostConfig(
            host="h", cards={"card": card_gb}, engines=tuple(self._engines.values()), rules=system.rules
        )  # fmt: skip
        self._arbiter = HostArbiter(config, system.law)
        self._card = SharedCard(self._heap, models, self._stepped)
        self._clients, self._outlook = JobClients(jobs), Outlook(before)
        self._waiting: dict[str, list[HostCall]] = {name: [] for name in self._models}
        self._runs: dict[str, dict[str, HostCall]] = {name: {} for name in self._models}
        self._told: dict[str, Readiness] = dict.fromkeys(self._models, Readiness.ASLEEP)
        self._left = {job.id: len(job.calls) for job in jobs}
        self._until_s = max(job.arrival_s for job in jobs) + AFTER_S
        self._ends_s: dict[str, float] = {}
        self._wakes = self._interrupts = 0

    def run(self) -> HostRun:
        self._step(CardLeased("card", 1))
        for name in self._models:
            self._step(EngineSeen(name, Readiness.ASLEEP))
        for offered in self._clients.first():
            self._heap.at(offered.request.arrival_s, self._arrive, offered)
        self._heap.after(REPORT_S, self._tick)
        self._heap.run(self._until_s, lambda: len(self._ends_s) == len(self._left))
        stats = [engine.core.stats() for engine in self._card.engines.values()]
        return HostRun(
            ends_s=self._ends_s, wakes=self._wakes, interrupts=self._interrupts,
            prompts=sum(each.prefix_cache_queries for each in stats),
            cached=sum(each.prefix_cache_hits for each in stats),
        )  # fmt: skip

    # --- calls

    def _arrive(self, offered: OfferedRequest) -> None:
        job, number = self._clients.job_of[offered.id]
        name = offered.request.model
        own_s = self._outlook.rest_s(job, number, self._models[name], None)
        after_s = self._outlook.after_s(job, number)
        least_s = self._outlook.rest_s(job, number, self._models[name], None, GOOD)
        least_s += self._outlook.after_s(job, number, GOOD)
        self._waiting[name].append(HostCall(job, number, self._heap.now_s, own_s, after_s, least_s))
        self._dispatch(name)
        self._report()

    def _dispatch(self, name: str) -> None:
        """Sends calls to an engine that is awake while it has room: those that can be on time by their latest start,
        then the others as they came."""
        engine, waiting = self._card.engines[name], self._waiting[name]
        while waiting and self._told[name] is Readiness.AWAKE and self._has_room(engine):
            latest_s = {call.id: self._latest_s(call) for call in waiting}
            call = min(waiting, key=lambda c: (latest_s[c.id] < 0.0, max(0.0, latest_s[c.id]), c.arrival_s))
            waiting.remove(call)
            self._runs[name][call.id] = call
            if engine.add(call.offered.engine_request()) is not AddResult.ACCEPTED:
                raise RuntimeError(f"{name} refused call {call.id}: the workload does not fit the model")
            self._card.share()

    def _has_room(self, engine: SimEngine) -> bool:
        engine.catch_up()
        core = engine.core
        return not len(core.waiting) and core.kv.free > SPARE * core.kv.num_blocks

    def _stepped(self, engine: SimEngine, result: StepResult) -> None:
        name = engine.name
        for request_id in result.finished:
            call = self._runs[name].pop(request_id)
            for offered in self._clients.ended(self._heap.now_s, request_id):
                self._heap.at(offered.request.arrival_s, self._arrive, offered)
            self._left[call.job.id] -= 1
            if not self._left[call.job.id]:
                self._ends_s[call.job.id] = self._heap.now_s
        if result.first or result.finished:
            self._heap.after(0.0, self._dispatch, name)
        if result.finished and not self._runs[name] and not self._waiting[name]:
            self._heap.after(BUS_S, self._report)

    # --- what is reported

    def _latest_s(self, call: HostCall) -> float:
        """Returns the seconds until a call must begin, below 0 if it cannot be on time even if all goes well."""
        return _until(call.job.due_s - self._heap.now_s, call.own_s + call.after_s, call.least_s)

    def _spare_s(self, call: HostCall, generated: int) -> float:
        """Returns the seconds for which a run may stand still, below 0 as above."""
        model = self._models[call.offered.request.model]
        rest, least = (
            self._outlook.rest_s(call.job, call.number, model, generated, share)
            + self._outlook.after_s(call.job, call.number, share)
            for share in (0.5, GOOD)
        )
        return _until(call.job.due_s - self._heap.now_s, rest, least)

    def _demand(self, name: str) -> EngineDemand:
        now_s, model, engine = self._heap.now_s, self._models[name], self._card.engines[name]
        engine.catch_up()
        generated = dict(engine.core.progress())
        runs = [(call, generated.get(call.id, 0)) for call in self._runs[name].values()]
        spare = sorted(self._spare_s(call, tokens) for call, tokens in runs)
        drains = (self._outlook.rest_s(c.job, c.number, model, tokens) for c, tokens in runs)
        waiting = self._waiting[name]
        latest = sorted(map(self._latest_s, waiting))
        return EngineDemand(
            engine=name, latest_s=tuple(each for each in latest if each >= 0.0),
            late=sum(each < 0.0 for each in latest),
            oldest_s=max((now_s - c.arrival_s for c in waiting), default=0.0),
            serve_s=max((c.own_s for c in waiting), default=0.0),
            spare_s=tuple(each for each in spare if each >= 0.0), late_runs=sum(each < 0.0 for each in spare),
            drain_s=max(drains, default=0.0),
        )  # fmt: skip

    def _report(self) -> None:
        asked = [name for name in self._models if self._waiting[name] or self._runs[name]]
        self._step(DemandHeard(DemandReport("w", tuple(map(self._demand, asked)))))

    def _tick(self) -> None:
        self._report()
        self._step(TimerTicked())
        self._heap.after(REPORT_S, self._tick)

    # --- moves

    def _step(self, event: HostEvent) -> None:
        for effect in self._arbiter.step(self._heap.now_s, event):
            match effect:
                case SleepEngine(name):
                    self._interrupts += bool(self._runs[name])
                    self._card.sleep(name, self._engines[name].sleep_s, self._moved)
                case WakeEngine(name):
                    self._wakes += 1
                    self._card.wake(name, self._engines[name].wake_s, self._moved)
                case PublishHost(report):
                    self._told = {each.engine: each.readiness for each in report.engines}
                case RecordSwitch():
                    pass
                case _:
                    raise RuntimeError(f"nothing on this host does {effect}")

    def _moved(self, name: str) -> None:
        engine = self._engines[name]
        woken = self._card.state[name] is Readiness.AWAKE
        self._step(MoveEnded(name, True, engine.wake_s if woken else engine.sleep_s))
        if woken:
            self._dispatch(name)
            self._report()


def _until(left_s: float, usual_s: float, least_s: float) -> float:
    """Returns how long something may wait that usually takes `usual_s` of the `left_s`: not at all if that is too long
    and `least_s` is not, a number below 0 if both are."""
    return max(0.0, left_s - usual_s) if left_s >= least_s else -1.0
