"""Measures the cost of ordering the queue: push+pop and a switch of topology with 100,000 queued requests, as ratios to
a plain heap and sort of the same run; a cycle of the pump; and all steps of one request in the worker's agent."""

import gc
from dataclasses import replace
from heapq import heapify, heappop, heappush
from random import Random
from statistics import median
from time import perf_counter, process_time

from hmas.contracts.control import (
    ControlTuple,
    EngineControl,
    Fence,
    Hints,
    TopologyDecision,
    TopologyName,
    TopologyReceived,
    TupleReceived,
)
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.execution import Annotate, Ended, FirstToken, GatewayMessage, Grant, Started, Submit, Synced
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import EngineInfo
from hmas.contracts.request import Annotation, Cost, KindCost, Request, Slo, Tags, TagSource, TaskType
from hmas.contracts.worker import (
    CycleTicked,
    EngineSampled,
    EngineWentUp,
    FromGateway,
    GatewayConnected,
    ToGateway,
    WorkerEffect,
)
from hmas.runtime.lifecycle import calm_collector
from hmas.worker.agent.agent import WorkerAgent, WorkerConfig
from hmas.worker.agent.entry.assumption import Assumption
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.topologies import TOPOLOGIES, Topology

QUEUED = 100_000
OPERATIONS = 10_000
ROUNDS = 3
CYCLES = 9  # cycles per topology; all cycles together must not empty the queue
TENANTS = 64
GATEWAY = "g#1"
CONFIG = WorkerConfig(worker="w", incarnation="i", address="", pool="m")
PUMPED = CONFIG.max_grants_per_pump
GOAL_PUSH_POP, GOAL_SWITCH = 12.0, 4.0
GOAL_PUMP_MS = {10_000: 1.0, 100_000: 10.0}
GOAL_REQUEST_US = 40.0
GOAL_SHORT_FIRST = 2.0
LAX = 4.0  # seconds of the longest TTFT SLO per queued request, with which all can be on time
FOREVER_S = 1e9


def row(name: str, value: float, unit: str, goal: float | None) -> dict[str, object]:
    met = None if goal is None else value <= goal
    return {"name": name, "value": round(value, 3), "unit": unit, "goal": goal, "met": met}


def request(rng: Random, number: int, longest_s: float = 10.0) -> Request:
    return Request(
        id=f"r{number}",
        model="m",
        tenant=f"t{rng.randrange(TENANTS)}",
        flow="",
        prompt_tokens=rng.randint(1, 4000),
        max_tokens=None,
        stream=True,
        slo=Slo(rng.uniform(1, longest_s), 0.1),
        slo_stated=True,
        priority=rng.randrange(5),
        weight=1.0,
        importance=0.75,
        arrival_s=number * 0.001,
    )


def entries(count: int) -> list[QueueEntry]:
    rng = Random(1)
    return [
        QueueEntry(
            request(rng, n),
            attempt=1,
            gateway="g",
            seq=n,
            now_s=n * 0.001,
            estimate=Assumption(rng.uniform(1, 500), 900.0, rng.random(), 0.02),
        )
        for n in range(count)
    ]


def time_heap(heap: list[tuple[float, int, QueueEntry]], coming: list[QueueEntry]) -> float:
    begun = perf_counter()
    for e in coming:
        heappush(heap, (e.total_s, e.seq, e))
        heappop(heap)
    return perf_counter() - begun


def time_topology(topology: Topology, coming: list[QueueEntry]) -> float:
    begun = perf_counter()
    for e in coming:
        topology.push(e)
        topology.pop()
    return perf_counter() - begun


def push_pop_rows() -> list[dict[str, object]]:
    """Returns the time of a push and a pop per topology, over that of a heap of (key, number, entry) tuples. The length
    of the queue stays the same."""
    made = entries(QUEUED + ROUNDS * OPERATIONS)
    result = []
    for name in TopologyName:
        topology = TOPOLOGIES[name](Hints())
        topology.rebuild(made[:QUEUED])
        heap = [(e.total_s, e.seq, e) for e in made[:QUEUED]]
        heapify(heap)
        ratios = []  # baseline and topology in turn, so that other load on the machine slows both
        for begin in range(QUEUED, len(made), OPERATIONS):
            coming = made[begin : begin + OPERATIONS]
            ratios.append(time_topology(topology, coming) / time_heap(heap, coming))
        result.append(row(f"{name} push+pop, {QUEUED} queued / heapq", median(ratios), "x", GOAL_PUSH_POP))
    return result


def decision(name: TopologyName, seq: int, hints: Hints = Hints()) -> TopologyReceived:  # noqa: B008 - it is frozen
    return TopologyReceived(
        TopologyDecision(
            pool="m",
            topology=name,
            hints=hints,
            bypass=False,
            epoch=1,
            seq=seq,
            valid_for_s=FOREVER_S,
            reason="",
            selector="",
        ),
        0.0,
    )


def hear(agent: WorkerAgent, now_s: float, message: GatewayMessage) -> list[WorkerEffect]:
    return agent.step(now_s, FromGateway(GATEWAY, message))


def connected_agent(config: WorkerConfig) -> WorkerAgent:
    """Returns a worker's agent that knows one gateway and no engine."""
    agent = WorkerAgent(config)
    agent.step(0.0, GatewayConnected(GATEWAY))
    hear(agent, 0.0, Synced())
    return agent


def add_engine(agent: WorkerAgent, now_s: float, kv_capacity_tokens: int) -> None:
    info = EngineInfo(
        engine="e",
        up=True,
        dialect="emulated",
        hardware="",
        max_model_len=0,
        kv_capacity_tokens=kv_capacity_tokens,
        block_size=16,
        max_num_seqs=256,
    )
    agent.step(now_s, EngineWentUp(info))
    sample = EngineSampled(
        engine="e",
        running=0,
        waiting=0,
        kv_usage=0.0,
        preemptions_total=0,
        step_s=0.0,
        prefill_tokens_per_s=0.0,
        decode_tokens_per_s=0.0,
    )
    start(agent, now_s, grants(agent.step(now_s, sample)))


def grants(effects: list[WorkerEffect]) -> list[Grant]:
    return [e.message for e in effects if isinstance(e, ToGateway) and isinstance(e.message, Grant)]


def start(agent: WorkerAgent, now_s: float, granted: list[Grant]) -> None:
    for grant in granted:
        hear(agent, now_s, Started(grant.request_id, grant.grant))


def end(agent: WorkerAgent, now_s: float, grant: Grant) -> list[WorkerEffect]:
    ended = Ended(
        request_id=grant.request_id, grant=grant.grant, outcome=Outcome.FINISHED, status=200, output_tokens=50
    )
    return hear(agent, now_s, ended)


def loaded_agent(queued: int, longest_s: float = 10.0) -> WorkerAgent:
    """Returns a worker's agent with `queued` waiting requests, whose TTFT SLOs are up to `longest_s`, and no engine."""
    agent = connected_agent(replace(CONFIG, max_queued=queued, max_queued_tokens=1 << 60))
    rng = Random(2)
    for number in range(queued):
        hear(agent, 0.0, Submit(request=request(rng, number, longest_s), attempt=1))
    return agent


def switch_rows(agent: WorkerAgent) -> list[dict[str, object]]:
    tuples = [(e.total_s, e.seq, e) for e in entries(QUEUED)]
    result = []
    seq = 0
    for name in TopologyName:
        ratios = []
        for _ in range(ROUNDS):
            seq += 2
            away = TopologyName.EDF if name is TopologyName.FCFS else TopologyName.FCFS
            agent.step(0.0, decision(away, seq))
            begun = perf_counter()
            sorted(tuples)
            middle = perf_counter()
            agent.step(0.0, decision(name, seq + 1))
            ratios.append((perf_counter() - middle) / (middle - begun))
        result.append(row(f"switch to {name}, {QUEUED} queued / sorted()", median(ratios), "x", GOAL_SWITCH))
    return result


def caps(n_run: int, seq: int) -> TupleReceived:
    control = EngineControl(
        engine="e", n_run=n_run, b_token=n_run, b_min=n_run, b_max=n_run, gain_b=0.0, u_low=0.0, u_high=1.0
    )
    return TupleReceived(
        ControlTuple(worker="w", engines=(control,), fence=Fence(), epoch=1, seq=seq, valid_for_s=FOREVER_S), 0.0
    )


def pump_ms(agent: WorkerAgent) -> float:
    """Returns the CPU time in ms of a cycle in which the pump dispatches as many requests as it may at once: the median
    per topology, of the slowest topology."""
    pump = Pump(agent)
    return max(pump.cycle_ms(name) for name in TopologyName)


def short_first(agent: WorkerAgent) -> float:
    """Returns the time of a pump cycle of MaxOnTime that looks for a short request that may go first, over that of one
    that goes by deadline alone. The two take turns, so that other load on the machine slows both."""
    pump = Pump(agent)
    ratios = []
    for _ in range(ROUNDS):
        by_deadline = pump.cycle_ms(TopologyName.MAX_ON_TIME, Hints(slack_share=0.0))
        ratios.append(pump.cycle_ms(TopologyName.MAX_ON_TIME) / by_deadline)
    return median(ratios)


class Pump:
    """Drives the pump of an agent over one engine whose sequences all end between two cycles."""

    def __init__(self, agent: WorkerAgent) -> None:
        self._agent, self._seq, self._now_s = agent, 1000, 0.0
        self._running: list[Grant] = []
        agent.step(0.0, caps(1, 1))
        add_engine(agent, 0.0, 0)

    def cycle_ms(self, name: TopologyName, hints: Hints | None = None) -> float:
        """Returns the median CPU time in ms of cycles under one topology."""
        agent = self._agent
        self._seq += 2
        agent.step(self._now_s, decision(name, self._seq, hints or Hints()))
        cycles = []
        for _ in range(CYCLES):
            self._seq, self._now_s = self._seq + 2, self._now_s + 0.2
            now_s = self._now_s
            between = agent.step(now_s, caps(1, self._seq))
            for grant in self._running:
                between += end(agent, now_s, grant)
            between += agent.step(now_s, CycleTicked())
            start(agent, now_s, grants(between))
            begun = process_time()
            effects = agent.step(now_s + 0.1, caps(PUMPED + 1, self._seq + 1))
            effects += agent.step(now_s + 0.1, CycleTicked())
            cycles.append((process_time() - begun) * 1e3)
            pumped = grants(effects)
            start(agent, now_s + 0.1, pumped)
            self._running = grants(between) + pumped
            assert len(pumped) >= PUMPED - 1
        return median(cycles)


def request_us(name: TopologyName) -> float:
    """Returns the CPU time in µs of all steps of one request with a short queue: submitted and granted, annotated,
    started, first token, ended, and its share of telemetry."""
    agent, rng = connected_agent(CONFIG), Random(3)
    add_engine(agent, 0.0, 10_000_000)
    agent.step(0.0, decision(name, 1))
    tags = Tags(
        task=TaskType.QA,
        slo=Slo(4.0, 0.1),
        output_tokens=50.0,
        output_tokens_p90=100.0,
        confidence=0.9,
        source=TagSource.MODEL,
        version="v1",
    )
    annotation = Annotation(tags, (KindCost(EngineKind(), Cost(0.1, 0.02)),))
    made = [request(rng, number) for number in range(OPERATIONS)]
    begun = process_time()
    for number, r in enumerate(made):
        now_s = number * 0.01
        (grant,) = grants(hear(agent, now_s, Submit(request=r, attempt=1)))
        hear(agent, now_s, Annotate(r.id, 1, annotation))
        hear(agent, now_s, Started(r.id, grant.grant))
        hear(agent, now_s, FirstToken(r.id, grant.grant))
        end(agent, now_s, grant)
        if number % 10 == 0:
            agent.step(now_s, CycleTicked())
    return (process_time() - begun) / OPERATIONS * 1e6


def rows() -> list[dict[str, object]]:
    calm_collector()  # as in a worker's process
    result = push_pop_rows()
    for queued, goal in GOAL_PUMP_MS.items():
        gc.collect()
        agent = loaded_agent(queued)
        if queued == QUEUED:
            result += switch_rows(agent)
        result.append(row(f"pump cycle of {PUMPED} dispatches, {queued} queued", pump_ms(agent), "ms", goal))
        name = f"pump cycle, {queued} planned to be on time, max_on_time / the same by deadline alone"
        gc.collect()
        result.append(row(name, short_first(loaded_agent(queued, queued * LAX)), "x", GOAL_SHORT_FIRST))
    for name in (TopologyName.SJF, TopologyName.WFQ, TopologyName.MAX_ON_TIME):
        cost = min(request_us(name) for _ in range(ROUNDS))
        result.append(row(f"worker steps of one request, {name}", cost, "µs", GOAL_REQUEST_US))
    return result


if __name__ == "__main__":
    for each in rows():
        print(each)
