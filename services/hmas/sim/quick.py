"""The quick simulation: which requests of a pool are on time under the order that ships, without the mesh around it.

One event loop over engine cores, a lane for each pace class, and the parts of the worker that decide: its order, its
records of engines and its admission gate, under the rules of its pump. Gateways, perception, prediction and the control
agents are left out: predictions are there at once, with errors of the lengths; the costs of steps are known; a layout
holds from the start; and news takes `NEWS_S`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf
from random import Random

from hmas.contracts.control import Hints, Split, StepTime
from hmas.contracts.pool_plan import InstanceType
from hmas.contracts.registry import EngineInfo
from hmas.contracts.request import Request, Slo
from hmas.contracts.worker import EngineSampled
from hmas.engine.core import EngineCore
from hmas.engine.core.catalogued import profile_of
from hmas.engine.core.sequence import AddResult, EngineRequest
from hmas.engine.core.step import StepResult
from hmas.laws.layout import pace_class
from hmas.laws.placement.demand import PoolDemand, SampledRequest
from hmas.sim.processes.engine import SimEngine
from hmas.sim.processes.heap import EventHeap
from hmas.worker.agent.config import WorkerConfig
from hmas.worker.agent.engines.admission import AdmissionGate
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.engines.service_view import ServiceView
from hmas.worker.agent.entry.assumption import Assumption
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.topologies.base import Topology
from hmas.worker.agent.order.topologies.max_on_time import MaxOnTime, MaxOnTimeConfig

NEWS_S = 0.002  # from an engine's step to the worker, and from a grant to the engine: two hops of the simulated mesh
SAMPLE_S = 0.5  # between two samples of an engine, and two reports of how far its answers are
STEP_WINDOW = 10  # samples over which an engine's mean step is taken
CUTOFF_S = 60.0  # after the last arrival; what has not ended by then is late
SIGMA = 0.35  # standard deviation of the logarithm of the error of predicted lengths
Z90 = 1.2816  # the standard normal distribution's 90 % quantile
CONFIG = WorkerConfig(worker="quick", incarnation="1", address="", pool="")


class QuickEngine:
    """One engine: its core in virtual time, and the worker's record of it. `lane` is that of its class."""

    def __init__(self, sim: "QuickSim", name: str, kind: InstanceType, lane: int, prompts: float) -> None:
        """`prompts`: prompt tokens that the demand has for each output token."""
        profile = profile_of(kind)
        self.lane = lane
        self.step = kind.step
        self.sim = SimEngine(sim.heap, EngineCore(profile), name, sim.stepped)
        limits = profile.limits
        self.state = EngineState(
            EngineInfo(
                engine=name, up=True, dialect="emulated", hardware=profile.hardware, model=profile.model,
                max_model_len=limits.max_model_len, block_size=limits.block_size, max_num_seqs=limits.max_num_seqs,
                kv_capacity_tokens=limits.num_gpu_blocks * limits.block_size,
            ),
            CONFIG.engine,
        )  # fmt: skip
        self.state.come_up(0.0)
        self.state.limit(limits.max_num_seqs, limits.max_num_seqs)
        self.state.budget_blocks = sim.gate.budget_blocks(self.state)
        self.state.step_room.step = StepTime(
            kind.step.c0_s, kind.step.c_d_s + kind.step.c_p_s * prompts, kind.step.c_k_s
        )
        self._marks = [(0, 0.0)]

    def prefill_s(self, prompt_tokens: int) -> float:
        """Returns the seconds that a prompt adds to the engine's steps."""
        return self.step.prefill_s(prompt_tokens, prompt_tokens * prompt_tokens / 2.0)

    def see(self, now_s: float) -> None:
        """Takes a sample, and how far the answers are."""
        self.sim.catch_up()
        core, state = self.sim.core, self.state
        steps, busy_s = self._marks[0]
        self._marks = [*self._marks[-STEP_WINDOW + 1 :], (self.sim.steps, self.sim.busy_s)]
        new_steps = self.sim.steps - steps
        sample = EngineSampled(
            engine=self.sim.name, running=len(core.running), waiting=len(core.waiting), kv_usage=0.0,
            preemptions_total=0, step_s=(self.sim.busy_s - busy_s) / new_steps if new_steps else 0.0,
            prefill_tokens_per_s=0.0, decode_tokens_per_s=0.0,
        )  # fmt: skip
        state.see(now_s, sample, CONFIG.gateways.settled_s)
        running = state.running
        for request_id, tokens in core.progress():
            if (entry := running.get(request_id)) is not None:
                state.produced(entry, tokens)


class QuickSim:
    """One run of a pool's demand on `instances`, in the order in which the classes of `split` get them. The seed is
    that of the errors of predicted lengths, whose logarithms have the standard deviation `sigma`."""

    def __init__(
        self,
        demand: PoolDemand,
        instances: Sequence[InstanceType],
        split: Split,
        *,
        seed: int = 1,
        sigma: float = SIGMA,
    ) -> None:
        self.heap = EventHeap()
        self.gate = AdmissionGate(delta_frag=CONFIG.delta_frag, growth=CONFIG.growth)
        self._requests = demand.requests
        self._draw, self._sigma = Random(f"{seed} lengths"), sigma
        self._cuts_s = split.cuts_s
        lanes = [lane for lane, count in enumerate(split.engines) for _ in range(count)] or [0] * len(instances)
        prompts = sum(each.prompt_tokens for each in demand.requests)
        ratio = prompts / sum(each.output_tokens for each in demand.requests)
        self._engines = {
            f"e{i}": QuickEngine(self, f"e{i}", kind, lane, ratio)
            for i, (kind, lane) in enumerate(zip(instances, lanes, strict=True))
        }
        self._lanes: dict[int, list[QuickEngine]] = {}
        for engine in self._engines.values():
            self._lanes.setdefault(engine.lane, []).append(engine)
        self._orders: dict[int, Topology] = {lane: MaxOnTime(Hints(), MaxOnTimeConfig()) for lane in self._lanes}
        self._aim()
        count = len(instances)
        self._base_s = count / sum(1.0 / kind.step.c0_s for kind in instances)
        self._prompt_s = count / sum(1.0 / max(kind.step.c_p_s, 1e-12) for kind in instances)
        context = prompts / len(demand.requests)
        self._tpot_s = count / sum(1.0 / _half_full_s(kind, context) for kind in instances)
        self._floor_s = inf
        self._waiting = 0
        self._first_s: dict[str, float] = {}
        self._on_time = [False] * len(demand.requests)
        self._open = len(demand.requests)

    def run(self) -> list[bool]:
        """Returns of each request whether it was on time."""
        for number, each in enumerate(self._requests):
            self.heap.at(each.arrival_s, self._arrive, number, each)
        self._sample()
        self.heap.run(self._requests[-1].arrival_s + CUTOFF_S, lambda: not self._open)
        return self._on_time

    def stepped(self, engine: SimEngine, result: StepResult) -> None:
        """Hears of a step in which some request got its first or last token."""
        now_s = self.heap.now_s
        for request_id in result.first:
            self._first_s.setdefault(request_id, now_s)
        for request_id in result.finished:
            number = int(request_id)
            each, first_s = self._requests[number], self._first_s[request_id]
            decoded = max(1, each.output_tokens - 1)
            in_time = first_s + NEWS_S - each.arrival_s <= each.ttft_slo_s
            self._on_time[number] = in_time and (now_s - first_s) / decoded <= each.tpot_slo_s
            self._open -= 1
        self.heap.after(NEWS_S, self._hear, self._engines[engine.name].state, result)

    def _aim(self) -> None:
        """Tells the engines the SLOs that their steps are held to: those of the requests of their class, or of all
        where it has none."""
        slos_s = [each.tpot_slo_s for each in self._requests]
        for lane, engines in self._lanes.items():
            own = [slo_s for slo_s in slos_s if pace_class(self._cuts_s, slo_s) == lane]
            for engine in engines:
                engine.state.aim(own or slos_s)

    def _arrive(self, number: int, each: SampledRequest) -> None:
        tokens = max(1.0, each.output_tokens * exp(self._draw.gauss(0.0, self._sigma)))
        ttft_s = self._base_s + self._prompt_s * each.prompt_tokens
        self._floor_s = min(self._floor_s, ttft_s)
        estimate = Assumption(tokens, tokens * exp(Z90 * self._sigma), ttft_s, self._tpot_s)
        entry = QueueEntry(
            _request(number, each), attempt=1, gateway="", seq=number, now_s=self.heap.now_s, estimate=estimate
        )
        entry.lane = pace_class(self._cuts_s, each.tpot_slo_s)
        self._orders[entry.lane].push(entry)
        self._waiting += 1
        self._pump()

    def _hear(self, state: EngineState, result: StepResult) -> None:
        for request_id in result.first:
            entry = state.running.get(request_id)
            if entry is not None and entry.first_token_s is None:
                state.began(self.heap.now_s, entry)
        for request_id in result.finished:
            entry = state.running[request_id]
            state.produced(entry, self._requests[int(request_id)].output_tokens)
            state.release(self.heap.now_s, entry)
        if self._waiting:
            self._pump()

    def _sample(self) -> None:
        for engine in self._engines.values():
            engine.see(self.heap.now_s)
        if self._waiting:
            self._pump()
        self.heap.after(SAMPLE_S, self._sample)

    # --- what the worker's pump does

    def _pump(self) -> None:
        """Grants the head of each lane again and again, while it fits an engine, the strictest lane first."""
        for lane, order in self._orders.items():
            roomy = [engine for engine in self._lanes[lane] if engine.state.open]
            if roomy and self._waiting > 1:
                self._observe(lane, order)
            while (entry := order.peek()) is not None:
                engine = self._choose(entry, self._in_pace(lane, entry, roomy)) if roomy else None
                if engine is None and lane:
                    engine = self._choose(entry, self._stricter(lane, entry))
                if engine is None:
                    break
                order.pop()
                self._grant(entry, engine)
                if not engine.state.open and engine in roomy:
                    roomy.remove(engine)

    def _observe(self, lane: int, order: Topology) -> None:
        now_s = self.heap.now_s
        occupied = tuple([engine.state.occupancy(now_s) for engine in self._lanes[lane]])
        order.observe(ServiceView(now_s, occupied, self._floor_s))
        laxest = max(self._lanes)
        if lane != laxest:
            for entry in order.late():
                order.remove(entry)
                entry.lane = laxest
                self._orders[laxest].push(entry)

    def _in_pace(self, lane: int, entry: QueueEntry, roomy: list[QuickEngine]) -> list[QuickEngine]:
        """Returns those of the lane's `roomy` engines whose steps keep the request's SLO now; all of them if no engine
        of the lane is quick, or if the request is late anyway."""
        now_s, most_s = self.heap.now_s, entry.needed_tpot_s
        if entry.relegated or now_s > entry.ttft_deadline_s:
            return roomy
        quick = [each for each in self._lanes[lane] if each.state.counts.step_now_s(now_s) <= most_s]
        return [each for each in roomy if each in quick] if quick else roomy

    def _stricter(self, lane: int, entry: QueueEntry) -> list[QuickEngine]:
        """Returns the engines of stricter lanes that have slack left beside their own requests."""
        if entry.relegated:
            return []
        idle = [other for other, order in self._orders.items() if other < lane and not len(order)]
        return [each for other in idle for each in self._lanes[other] if self._has_slack(other, each)]

    def _has_slack(self, lane: int, engine: QuickEngine) -> bool:
        state = engine.state
        sample = state.counts.sample
        if not state.open or state.prefill or sample is None:
            return False
        return sample.step_s <= CONFIG.spill_share * self._cuts_s[lane]

    def _choose(self, entry: QueueEntry, roomy: list[QuickEngine]) -> QuickEngine | None:
        """Returns the least loaded engine that has time, memory and room for the prompt, and writes its reservation
        into `entry`."""
        now_s, gate = self.heap.now_s, self.gate
        reserved = gate.reserved(entry)
        best, best_load, best_blocks = None, inf, 0
        for engine in roomy:
            state = engine.state
            load = state.counts.in_flight / state.cap
            if load >= best_load or not state.step_room.has_time_for(entry):
                continue
            if not gate.could_ever(state, entry.request.prompt_tokens):
                continue
            if state.prefill:
                prefill_s = engine.prefill_s(entry.request.prompt_tokens)
                if not state.prefill.admits(prefill_s, state.window.seconds(now_s, state.running.values())):
                    continue
            blocks = gate.need(state, entry, reserved)
            if gate.admits(now_s, state, entry, blocks):
                best, best_load, best_blocks = engine, load, blocks
        if best is not None:
            entry.admit(gate.upper(entry), reserved, best_blocks)
        return best

    def _grant(self, entry: QueueEntry, engine: QuickEngine) -> None:
        self._waiting -= 1
        entry.granted_s = self.heap.now_s
        engine.state.occupy(self.heap.now_s, entry, engine.prefill_s(entry.request.prompt_tokens))
        self.heap.after(NEWS_S, self._send, entry, engine)

    def _send(self, entry: QueueEntry, engine: QuickEngine) -> None:
        each = self._requests[int(entry.request.id)]
        if (
            engine.sim.add(EngineRequest(entry.request.id, each.prompt_tokens, each.output_tokens))
            is not AddResult.ACCEPTED
        ):
            engine.state.release(self.heap.now_s, entry)
            self._open -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickValue:
    """The share of a pool's demand that is on time in a quick simulation: what the search for plans values by.

    Requests of the first `warm_s` seconds are not judged, because they find empty engines; of a demand that lasts less
    than twice as long, those of its first half. `seed` and `sigma` as in `QuickSim`.
    """

    warm_s: float = 10.0
    seed: int = 1
    sigma: float = SIGMA

    def __call__(self, demand: PoolDemand, instances: Sequence[InstanceType], split: Split) -> float:
        on_time = QuickSim(demand, instances, split, seed=self.seed, sigma=self.sigma).run()
        from_s = min(self.warm_s, demand.seconds / 2.0)
        judged = [ok for ok, each in zip(on_time, demand.requests, strict=True) if each.arrival_s >= from_s]
        return sum(judged) / len(judged) if judged else 0.0


def _half_full_s(kind: InstanceType, context: float) -> float:
    """Returns the time per token that is predicted: beside half as many others as the engine takes, each with so many
    tokens of context."""
    sequences = kind.max_num_seqs // 2
    return kind.step.step_s(0, sequences, int(sequences * context), 0.0)


def _request(number: int, each: SampledRequest) -> Request:
    return Request(
        id=str(number), model="", tenant="", flow="", prompt_tokens=each.prompt_tokens, max_tokens=None, stream=True,
        slo=Slo(each.ttft_slo_s, each.tpot_slo_s), slo_stated=True, priority=0, weight=1.0, importance=0.75,
        arrival_s=each.arrival_s,
    )  # fmt: skip
