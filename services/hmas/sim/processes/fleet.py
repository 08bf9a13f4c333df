"""Engines without a mesh: the client itself routes to the engine with the fewest outstanding requests, unless the
baseline has a router of its own.

This is the common way to run several engines (vLLM's data-parallel front end and SGLang's router count requests in
the same manner), and it is what the H-MAS paper compares its mesh with.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Protocol

from hmas.contracts.outcome import Outcome
from hmas.engine.core import EngineCore
from hmas.engine.core.profile import EngineProfile
from hmas.engine.core.sequence import AddResult, EngineRequest
from hmas.engine.core.step import StepResult
from hmas.prediction.agent.backend import CostModel
from hmas.sim.processes.engine import SimEngine
from hmas.sim.processes.heap import EventHeap
from hmas.sim.result import SimResult, SystemRun
from hmas.sim.workload import Journey, OfferedRequest, Workload


@dataclass(slots=True)
class EngineLoad:
    """What a router has sent to one engine and not seen end: the prompts of those without a token have `waiting_tokens`
    by request, and those of the others `context_tokens`. `queued` requests wait in the engine or are on their way to
    it, and `kv_usage` (0 to 1) of its KV cache is in use, as of the last look at its gauges."""

    profile: EngineProfile
    outstanding: int = 0
    waiting: dict[str, int] = field(default_factory=dict)
    context_tokens: int = 0
    queued: int = 0
    kv_usage: float = 0.0

    @property
    def waiting_tokens(self) -> int:
        return sum(self.waiting.values())

    def sent(self, offered: OfferedRequest) -> None:
        self.outstanding += 1
        self.queued += 1
        self.waiting[offered.id] = offered.request.prompt_tokens

    def started(self, offered: OfferedRequest) -> None:
        self.context_tokens += self.waiting.pop(offered.id)

    def ended(self, offered: OfferedRequest) -> None:
        self.outstanding -= 1
        if self.waiting.pop(offered.id, None) is None:
            self.context_tokens -= offered.request.prompt_tokens


class HoldingRouter(Protocol):
    """The queue before the engines: in which order requests leave it, while which engines take one, and which of these
    takes it."""

    def key(self, offered: OfferedRequest) -> tuple[float, ...]:
        """Returns the place of a waiting request, lower first."""
        ...

    def ready(self, loads: Sequence[EngineLoad]) -> Sequence[EngineLoad]:
        """Returns the engines of which one may be sent a request now; none while requests are held back."""
        ...

    def choose(self, offered: OfferedRequest, ready: Sequence[EngineLoad]) -> EngineLoad | None:
        """Returns the engine that the request is sent to, or None if it is refused."""
        ...

    def started(self, offered: OfferedRequest, ttft_s: float) -> None:
        """Hears that the first token of a request came `ttft_s` seconds after the request was sent to its engine."""
        ...

    def ended(self, offered: OfferedRequest, tpot_s: float) -> None:
        """Hears that a request ended, with the mean time in s of its tokens after the first."""
        ...


@dataclass(frozen=True, slots=True)
class FleetSetting:
    """What a baseline's core is told beside its profile: the seed of LightLLM's draws."""

    seed: int


def _arrival(_: OfferedRequest) -> float:
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A serving system to compare with.

    - `source` says what it is and where it was published, `checked` against what its settings and rules were checked,
      and `compared`
      with which published figures or runs of the real system its behaviour was compared.
    - `core` makes one engine.
    - `router` makes, with a cost model, what holds requests back before the engines; without one they go at once to the
      engine with the fewest outstanding requests. `predicts`: it needs the cost model, and requests that the perception
      that ships has read.
    - `priority` gives the priority that the client states with a request, lower first; only engines that reorder read
      it. `request` makes the engine's request from the offered one and that priority.
    """

    name: str
    source: str
    core: Callable[[EngineProfile, FleetSetting], EngineCore]
    priority: Callable[[OfferedRequest], float] = _arrival
    request: Callable[[OfferedRequest, float], EngineRequest] = OfferedRequest.engine_request
    router: Callable[[CostModel | None], HoldingRouter] | None = None
    checked: str = ""
    compared: str = "none"
    predicts: bool = False


class EngineFleet:
    """One run of a baseline on the engines `cores`.

    `network_s` is the one-way delay between client and engine. Requests that have not ended `cutoff_s` after the
    workload's last second count as not finished. The run stops early once more than `late_share` (0 to 1) of the
    requests have missed their TTFT SLO: a search for the highest sustainable rate then knows enough. `skip` false
    takes every engine step instead of skipping quiet ones. `costs` predicts for a baseline that needs it.
    """

    def __init__(
        self,
        baseline: Baseline,
        cores: Sequence[EngineCore],
        workload: Workload,
        *,
        network_s: float = 0.0005,
        cutoff_s: float = 600.0,
        late_share: float = 1.0,
        skip: bool = True,
        costs: CostModel | None = None,
    ) -> None:
        self._heap = EventHeap()
        self._baseline = baseline
        self._workload = workload
        self._network_s = network_s
        self._until_s = workload.duration_s + cutoff_s
        self._engines = [SimEngine(self._heap, core, f"e{i}", self._stepped, skip) for i, core in enumerate(cores)]
        self._loads = {engine.name: EngineLoad(engine.core.profile) for engine in self._engines}
        self._router = None if baseline.router is None else baseline.router(costs)
        self._sent_s: dict[str, float] = {}
        self._held: list[tuple[tuple[float, ...], int, OfferedRequest]] = []  # by the router, a heap
        self._arrived = 0
        self._journeys = {r.id: Journey(offered=r) for r in workload.requests}
        self._open = len(workload.requests)
        self._patience = late_share * self._open
        self._late = 0

    def run(self) -> SimResult:
        for offered in self._workload.requests:
            self._heap.at(offered.request.arrival_s, self._arrive, offered)
        self._heap.run(self._until_s, lambda: self._open == 0 or self._late > self._patience)
        run = SystemRun(
            preemptions=sum(engine.core.stats().num_preemptions for engine in self._engines),
            engine_steps=sum(engine.steps for engine in self._engines),
            busy_s=sum(engine.busy_s for engine in self._engines),
            ended_s=self._heap.now_s,
        )
        return SimResult(
            self._baseline.name, [j.settlement() for j in self._journeys.values()], self._workload.duration_s, run
        )

    def _arrive(self, offered: OfferedRequest) -> None:
        if self._router is None:
            self._send(min(self._engines, key=lambda e: self._loads[e.name].outstanding), offered)
            return
        self._arrived += 1
        heappush(self._held, (self._router.key(offered), self._arrived, offered))
        self._release()

    def _release(self) -> None:
        """Sends on what the router holds, as long as an engine takes it."""
        if self._router is None or not self._held:
            return
        self._look()
        while self._held and (ready := self._router.ready(tuple(self._loads.values()))):
            offered = heappop(self._held)[2]
            if (chosen := self._router.choose(offered, ready)) is None:
                self._journeys[offered.id].outcome = Outcome.ENGINE_REFUSED
                self._open -= 1
                continue
            self._send(next(e for e in self._engines if self._loads[e.name] is chosen), offered)

    def _look(self) -> None:
        """Reads the engines' gauges for the router."""
        for engine in self._engines:
            engine.catch_up()
            load, stats = self._loads[engine.name], engine.core.stats()
            inside = stats.num_requests_waiting + stats.num_requests_running
            load.queued = load.outstanding - inside + stats.num_requests_waiting
            load.kv_usage = stats.kv_cache_usage

    def _send(self, engine: SimEngine, offered: OfferedRequest) -> None:
        self._loads[engine.name].sent(offered)
        self._sent_s[offered.id] = self._heap.now_s
        outside_s = self._network_s + engine.core.profile.request_overhead_s
        self._heap.after(outside_s, self._deliver, engine, offered)

    def _deliver(self, engine: SimEngine, offered: OfferedRequest) -> None:
        request = self._baseline.request(offered, self._baseline.priority(offered))
        if engine.add(request) is not AddResult.ACCEPTED:
            self._journeys[offered.id].outcome = Outcome.ENGINE_REFUSED
            self._ended(engine, offered)
            self._release()

    def _stepped(self, engine: SimEngine, result: StepResult) -> None:
        seen_s = self._heap.now_s + self._network_s
        for request_id in result.first:
            journey = self._journeys[request_id]
            if journey.first_token_s is None:
                journey.first_token_s = seen_s
                self._late += seen_s - journey.offered.request.arrival_s > journey.offered.slo.ttft_s
                self._loads[engine.name].started(journey.offered)
                if self._router is not None:
                    self._router.started(journey.offered, seen_s - self._sent_s[request_id])
        for request_id in result.finished:
            journey = self._journeys[request_id]
            journey.last_token_s = seen_s
            journey.output_tokens = journey.offered.output_tokens
            journey.outcome = Outcome.FINISHED
            if self._router is not None:
                self._router.ended(journey.offered, journey.settlement().tpot_s or 0.0)
            self._ended(engine, journey.offered)
        self._release()

    def _ended(self, engine: SimEngine, offered: OfferedRequest) -> None:
        self._loads[engine.name].ended(offered)
        self._open -= 1


def run_fleet(
    baseline: Baseline,
    workload: Workload,
    profile: EngineProfile,
    engines: int,
    seed: int,
    costs: CostModel | None = None,
) -> SimResult:
    """Runs a baseline on `engines` engines of one profile; `costs` are the predictions of one that needs them. Raises
    ValueError if it needs `costs` and gets none."""
    cores = [baseline.core(profile, FleetSetting(seed * 1000 + i)) for i in range(engines)]
    return EngineFleet(baseline, cores, workload, costs=costs).run()
