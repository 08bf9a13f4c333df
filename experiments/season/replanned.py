"""A day under the meta controller that ships: its agent searches, weighs, takes steps and judges them, second by
second, beside an orchestrator. Its search is the one that ships, too, but answers from values that are kept."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from experiments.plans.planning import SAMPLE
from experiments.season.days import DAY_S, PoolLoad
from experiments.season.orchestrated import Orchestrated
from experiments.season.valuing import EngineNames, SeasonValues
from hmas.contracts.control_agents import (
    EpochGranted,
    LongViewReceived,
    MetaEffect,
    MetaEvent,
    PlansSearched,
    PublishPlan,
    SearchPlans,
    TimerTicked,
)
from hmas.contracts.pool_plan import Budget, Catalogue, PlanCandidate
from hmas.contracts.registry import WIRE_VERSION, EngineInfo, HeartbeatReceived, WorkerHeartbeat
from hmas.contracts.views import Tail, VLong
from hmas.laws.placement.demand import moments_of
from hmas.laws.placement.plan_search import PlacementFound
from hmas.meta.agent import MetaAgent
from hmas.meta.agent.config import LayoutConfig, MetaConfig, PlanActs, PlanConfig
from hmas.sim.searched_plans import candidates_in
from hmas_loadgen.traces.servegen import WINDOW_S

VIEW_EVERY_S, VIEW_S = 5.0, 120.0
SEARCH_S = 60.0  # that a search takes on a busy machine
SEARCH_CPU_S = 30.0
Search = Callable[[tuple[PoolLoad, ...]], PlacementFound]


@dataclass(slots=True)
class ReplannedDay:
    """One day. `loads` are those of each window, and `search` finds the plan for such ones."""

    catalogue: Catalogue
    budget: Budget
    loads: tuple[tuple[PoolLoad, ...], ...]
    values: SeasonValues
    search: Search
    fleet: Orchestrated
    seconds: float = DAY_S
    now_s: float = 0.0
    searches: int = 0
    _agent: MetaAgent = field(init=False)
    _answer: tuple[float, PlansSearched] | None = None
    _beats: tuple[MetaEvent, ...] = ()
    _beaten: object = None

    def run(self) -> list[float]:
        """Plays the day, and returns when engines were ordered."""
        plan = PlanConfig(catalogue=self.catalogue, budgets=(self.budget,), acts=PlanActs.SCALE)
        self._agent = MetaAgent(MetaConfig(plan=plan, layout=LayoutConfig(adaptive=False)))
        self._agent.step(0.0, EpochGranted(1))
        ordered_s = []
        while self.now_s < self.seconds:
            effects = [effect for event in self._events() for effect in self._agent.step(self.now_s, event)]
            before = dict(self.fleet.ordered)
            for effect in effects:
                self._carry_out(effect)
            if self.fleet.ordered != before:
                ordered_s.append(self.now_s)
            self.fleet.work(self.now_s)
            self.now_s += 1.0
        return ordered_s

    def _events(self) -> Iterator[MetaEvent]:
        yield from self._heartbeats()
        if self.now_s % VIEW_EVERY_S == 0.0:
            for load in self._loads(self.now_s - VIEW_S / 2.0):
                yield LongViewReceived(self._view(load))
        if self._answer is not None and self._answer[0] <= self.now_s:
            answer, self._answer = self._answer[1], None
            yield answer
        yield TimerTicked()

    def _carry_out(self, effect: MetaEffect) -> None:
        match effect:
            case PublishPlan(decision):
                self.fleet.order({each.type: each.count for each in decision.ordered})
            case SearchPlans():
                self.searches += 1
                found = self._searched(effect)
                self._answer = self.now_s + SEARCH_S, PlansSearched(effect.number, found, cpu_s=SEARCH_CPU_S)

    def _searched(self, asked: SearchPlans) -> tuple[PlanCandidate, ...]:
        """Answers by the load in the middle of the past that is asked about."""
        by_pool = {load.pool: load for load in self._loads(self.now_s - asked.window_s / 2.0)}
        loads = tuple(by_pool[plan.pool] for plan in asked.standing)
        demands = [self.values.demand(load) for load in loads]
        found, value = self.search(loads), self.values.searched_by
        return candidates_in(found, asked.standing, demands, self.catalogue, asked.budgets, value)

    def _loads(self, at_s: float) -> tuple[PoolLoad, ...]:
        return self.loads[max(0, int(at_s // WINDOW_S))]

    def _heartbeats(self) -> tuple[MetaEvent, ...]:
        """Returns a heartbeat of each pool's worker. What is told stays the same object until it changes."""
        there = [(id(each), each.kind, self.now_s < each.left_s) for each in self.fleet.there(self.now_s)]
        if there != self._beaten:
            self._beaten = there
            pools = {kind.name: kind for kind in self.catalogue.types}
            self._beats = tuple(
                HeartbeatReceived(_heartbeat(load.pool, tuple(
                    _engine_info(f"e{number}", pools[kind].model, f"{pools[kind].hardware}x{pools[kind].gpus}", up=up)
                    for number, kind, up in there
                    if pools[kind].model == self._model(load.pool)
                )))
                for load in self.loads[0]
            )  # fmt: skip
        return self._beats

    def _model(self, pool: str) -> str:
        load = next(each for each in self.loads[0] if each.pool == pool)
        return self.values.demand(load).model

    def _view(self, load: PoolLoad) -> VLong:
        demand = self.values.demand(load)
        serving = [each for each in self.fleet.there(self.now_s) if self.now_s < each.left_s]
        kinds = {kind.name: kind for kind in self.catalogue.types}
        own: EngineNames = tuple(sorted(each.kind for each in serving if kinds[each.kind].model == demand.model))
        share = self.values.share(load, own, SAMPLE)
        return _long_view(load, share, self.values)


_views: dict[tuple[PoolLoad, float], VLong] = {}


def _long_view(load: PoolLoad, share: float, values: SeasonValues) -> VLong:
    """Returns what the QoS agent tells of two minutes under a load of which `share` is on time."""
    if (known := _views.get((load, share))) is not None:
        return known
    demand = values.demand(load)
    rps, number = load.rate_rps, len(demand.requests)
    prompts, outputs = (
        sum(each.prompt_tokens for each in demand.requests) / number,
        sum(each.output_tokens for each in demand.requests) / number,
    )
    found = _views[load, share] = VLong(
        pool=load.pool, window_s=VIEW_S, arrival_rps=rps, arrival_cv=1.0, burstiness=2.0, prompt_mean=prompts,
        prompt_cv=1.0, output_mean=outputs, output_cv=0.5, predicted_total_cv=0.5, prompt_histogram=(),
        output_histogram=(), tasks=(), tenants=(), jain_index=1.0, goodput=rps * share, goodput_rate=share,
        esg_rate=0.0, violation_rate=1.0 - share, ttft_violation_rate=0.0, tpot_violation_rate=1.0 - share,
        ttft=Tail(), tpot=Tail(), queued=0, mismatch_mean=0.0, mismatch_p95=0.0, utilisation=0.5, trend_arrival=0.0,
        trend_violation=0.0, trend_prompt=0.0, epoch=1, seq=1, demands=tuple(view for view, _ in moments_of(demand)),
        stated_share=1.0,
    )  # fmt: skip
    return found


def _heartbeat(pool: str, engines: tuple[EngineInfo, ...]) -> WorkerHeartbeat:
    return WorkerHeartbeat(
        worker=f"w-{pool}", incarnation="1", address="", wire_version=WIRE_VERSION, pool=pool, aliases=(),
        engines=engines, queued=0, queued_tokens=0, running=0, max_queued=1, max_queued_tokens=1, backlog_s=0.0,
        draining=False,
    )  # fmt: skip


def _engine_info(name: str, model: str, hardware: str, *, up: bool) -> EngineInfo:
    return EngineInfo(
        engine=name, up=up, dialect="emulated", hardware=hardware, max_model_len=8192, kv_capacity_tokens=100_000,
        block_size=16, max_num_seqs=256, model=model,
    )  # fmt: skip
