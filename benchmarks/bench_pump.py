"""What the fence and a layout cost in the pump: a cycle over 16 engines and 10,000 queued requests with both, over the
same cycle with neither, where the head goes to the engine with the fewest outstanding requests. A third worker has the
adaptive prefill window as well, as it ships; that of the others is as wide as can be.

The workers take turns. Their engines run the same numbers of requests, and each cycle grants as many as it may.
With the fence, the reservations on each engine exceed its memory, so that the forecast of the peak decides.
"""

import gc
from collections import Counter
from dataclasses import replace
from math import inf
from random import Random
from statistics import median
from time import process_time

from benchmarks.bench_topologies import CONFIG, FOREVER_S, connected_agent, end, grants, hear, request, row
from hmas.contracts.control import (
    MIXED,
    ControlTuple,
    EngineClass,
    EngineControl,
    Fence,
    FenceBucket,
    FenceTable,
    Hints,
    Layout,
    LayoutDecision,
    LayoutReceived,
    TopologyDecision,
    TopologyName,
    TopologyReceived,
    TupleReceived,
)
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.execution import Annotate, FirstToken, GatewayMessage, Grant, Progress, Started, Submit
from hmas.contracts.registry import EngineInfo
from hmas.contracts.request import Annotation, Cost, KindCost, Slo, Tags, TagSource, TaskType
from hmas.contracts.worker import CycleTicked, EngineSampled, EngineWentUp, WorkerEffect
from hmas.laws.layout import engine_path
from hmas.runtime.lifecycle import calm_collector
from hmas.worker.agent.agent import WorkerAgent

QUEUED, ENGINES, SEQUENCES = 10_000, 16, 64
BATCH = CONFIG.max_grants_per_pump
OUTPUT, P90, FACTOR = 300.0, 600.0, 1.2
KV_TOKENS = 185_000  # less than the reservations of `SEQUENCES` requests, more than their forecast peak
CUT_S, STRICT = 0.06, 8
CYCLES, WARM = 60, 10
WORKER_CYCLE_S, PACE = 0.1, 150.0  # tokens per second of a request: as many end in each cycle as it grants
GOAL = 1.2
FENCE = Fence(tables=(FenceTable("v1", (FenceBucket(1_000_000, FACTOR),)),), rolling_upper=P90)
COSTS = (KindCost(EngineKind(), Cost(0.05, 0.02)),)
TAGS = Tags(
    task=TaskType.QA,
    slo=Slo(30.0, 0.1),
    output_tokens=OUTPUT,
    output_tokens_p90=P90,
    confidence=0.9,
    source=TagSource.MODEL,
    version="v1",
)
LAID_OUT = Layout(
    (CUT_S,), tuple(EngineClass(engine_path("w", f"e{i}"), int(i >= STRICT)) for i in range(ENGINES))
)  # as many engines for the strict half of the requests as for the lax one


class LoadedWorker:
    """A worker whose engines are full, but for what ends before each cycle. `window_s` is its prefill window; None has
    it worked out from what runs, as it ships."""

    def __init__(self, *, fence: bool, window_s: float | None = inf) -> None:
        config = replace(CONFIG, max_queued=QUEUED + ENGINES * SEQUENCES, max_queued_tokens=1 << 60)
        self._fence, self._rng, self._number, self._seq, self._now_s = fence, Random(4), 0, 0, 0.0
        self.agent: WorkerAgent = connected_agent(replace(config, prefill_window_s=window_s))
        self._running: list[Grant] = []
        self._began: dict[str, float] = {}
        layout = LAID_OUT if fence else MIXED
        decision = TopologyDecision(
            pool="m", topology=TopologyName.MAX_ON_TIME, hints=Hints(), bypass=False, epoch=1, seq=1,
            valid_for_s=FOREVER_S, reason="", selector="",
        )  # fmt: skip
        laid_out = LayoutDecision(
            pool="m", layout=layout, epoch=1, seq=1, valid_for_s=FOREVER_S, reason="", selector=""
        )  # fmt: skip
        self.agent.step(0.0, TopologyReceived(decision, 0.0))
        self.agent.step(0.0, LayoutReceived(laid_out, 0.0))
        for i in range(ENGINES):
            info = EngineInfo(
                engine=f"e{i}", up=True, dialect="emulated", hardware="", max_model_len=0,
                kv_capacity_tokens=KV_TOKENS if fence else 0, block_size=16, max_num_seqs=SEQUENCES,
            )  # fmt: skip
            self.agent.step(0.0, EngineWentUp(info))
        self._limit(SEQUENCES)
        self._sample()
        for _ in range(QUEUED + ENGINES * SEQUENCES):
            self._submit()
        while len(self._running) < ENGINES * SEQUENCES * 9 // 10:
            self._now_s += 0.05
            self._sample()
            self._go_on(grants(self.agent.step(self._now_s, CycleTicked())))
        for name in self._began:  # as if they had come one after the other
            self._began[name] -= self._rng.uniform(0.0, P90 / PACE)

    def cycle_ms(self) -> float:
        """Returns the CPU time in ms of a cycle that grants `BATCH` requests, after as many have ended."""
        self._now_s += WORKER_CYCLE_S
        self._progress()
        self._go_on(grants(self._limit(1)))  # so that the ends leave the granting to the cycle
        for _ in range(BATCH + 2):
            over = self._running.pop(self._rng.randrange(len(self._running)))
            self._go_on(grants(end(self.agent, self._now_s, over)))
            self._submit()
        self._sample()
        begun = process_time()
        made = grants(self._limit(SEQUENCES))
        made += grants(self.agent.step(self._now_s, CycleTicked()))
        spent_ms = (process_time() - begun) * 1e3
        assert len(made) >= BATCH, f"{len(made)} grants, fence {self._fence}: the two cycles are not the same"
        self._go_on(made)
        return spent_ms / len(made)

    def _go_on(self, granted: list[Grant]) -> None:
        for grant in granted:
            self._began[grant.request_id] = self._now_s
            self._running.append(grant)
            self._hear(Started(grant.request_id, grant.grant))
            self._hear(FirstToken(grant.request_id, grant.grant))

    def _hear(self, message: GatewayMessage) -> None:
        self._go_on(grants(hear(self.agent, self._now_s, message)))

    def _progress(self) -> None:
        """Tells how far all running requests are, at `PACE` tokens per second."""
        names = tuple(grant.request_id for grant in self._running)
        tokens = tuple(min(int(P90), 1 + int(PACE * (self._now_s - self._began[name]))) for name in names)
        self._hear(Progress(names, tokens))

    def _submit(self) -> None:
        """Offers a request, strict and lax in turn, with its tags."""
        self._number += 1
        slo = Slo(30.0 + self._rng.random(), 0.05 if self._number % 2 else 0.1)
        made = replace(request(self._rng, self._number), slo=slo, arrival_s=self._now_s)
        self._hear(Submit(request=made, attempt=1))
        self._hear(Annotate(made.id, 1, Annotation(replace(TAGS, slo=slo), COSTS)))

    def _sample(self) -> None:
        """Shows every engine as the books have it."""
        counts = Counter(grant.engine for grant in self._running)
        for i in range(ENGINES):
            sample = EngineSampled(
                engine=f"e{i}", running=counts[f"e{i}"], waiting=0, kv_usage=0.9, preemptions_total=0, step_s=0.05,
                prefill_tokens_per_s=1000.0, decode_tokens_per_s=1000.0,
            )  # fmt: skip
            self._go_on(grants(self.agent.step(self._now_s, sample)))

    def _limit(self, sequences: int) -> list[WorkerEffect]:
        """Sends the control tuple with that many sequences for each engine, and the fence or none."""
        self._seq += 1
        engines = tuple(
            EngineControl(
                engine=f"e{i}", n_run=sequences, b_token=sequences, b_min=sequences, b_max=sequences, gain_b=0.0,
                u_low=0.0, u_high=1.0,
            )
            for i in range(ENGINES)
        )  # fmt: skip
        control = ControlTuple(
            worker="w", engines=engines, fence=FENCE if self._fence else Fence(), epoch=1, seq=self._seq,
            valid_for_s=FOREVER_S,
        )  # fmt: skip
        return self.agent.step(self._now_s, TupleReceived(control, self._now_s))


def rows() -> list[dict[str, object]]:
    calm_collector()  # as in a worker's process
    workers = LoadedWorker(fence=True), LoadedWorker(fence=False), LoadedWorker(fence=True, window_s=None)
    gc.collect()
    turns = [[worker.cycle_ms() for worker in workers] for _ in range(CYCLES)][WARM:]
    both_ms, neither_ms, ships_ms = (median(spent) for spent in zip(*turns, strict=True))
    shape = f"{QUEUED} queued, {ENGINES} engines"
    return [
        row(f"pump cycle with fence and layout / with neither, {shape}", both_ms / neither_ms, "x", GOAL),
        row(f"the same with the adaptive prefill window too, as it ships, {shape}", ships_ms / neither_ms, "x", GOAL),
        row(f"one dispatch with fence and layout, {shape}", both_ms, "ms", None),
    ]


if __name__ == "__main__":
    for each in rows():
        print(each)
