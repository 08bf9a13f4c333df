"""The whole worker agent under random events, watched from outside by a shell that believes its effects."""

from collections import Counter
from collections.abc import Collection
from math import ceil
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hmas.contracts.control import (
    ControlTuple,
    EngineControl,
    Fence,
    FenceBucket,
    Hints,
    TopologyDecision,
    TopologyName,
    TopologyReceived,
    TupleReceived,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import (
    Abort,
    Annotated,
    CancelRequested,
    Conclude,
    CycleTicked,
    Dispatch,
    DrainStarted,
    EngineFailed,
    EngineFinished,
    EngineSampled,
    EngineWentDown,
    EngineWentUp,
    FirstTokenReceived,
    GatewayLost,
    Handback,
    HeartbeatDue,
    ProgressSampled,
    PublishTelemetry,
    RecallRequested,
    Reject,
    SteerEngine,
    Submitted,
    TopologySwitched,
    WorkerEffect,
    WorkerEvent,
)
from hmas.worker.agent.agent import WorkerAgent, WorkerConfig
from tests.conftest import examples
from tests.worker.builders import annotation, engine, request

CONFIG = WorkerConfig(
    worker="w1", incarnation="i1", address="host:1", pool="m", max_queued=25, max_queued_tokens=60_000,
    no_engine_patience_s=3.0, max_dispatches_per_pump=4, telemetry_events=16,
)  # fmt: skip
ENGINES = {
    "e1": engine("e1", max_num_seqs=3, kv_capacity_tokens=4000, max_model_len=4096),
    "e2": engine("e2", max_num_seqs=5, kv_capacity_tokens=9000, max_model_len=8192, block_size=32),
    "e3": engine("e3", max_num_seqs=2, kv_capacity_tokens=0, max_model_len=2048),
}
picks = st.integers(0, 1000)
names = st.sampled_from(sorted(ENGINES))


class WorkerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.log: list[tuple[float, WorkerEvent, list[WorkerEffect]]] = []
        self.held: dict[str, tuple[int, str]] = {}  # id: attempt, gateway
        self.running: dict[str, str] = {}  # id: engine
        self.started: set[str] = set()  # running, with a token
        self.ends: Counter[tuple[str, int]] = Counter()
        self.up: set[str] = set()
        self.caps: dict[str, int] = {}
        self.draining = False
        self.count = 0
        self.number = 0

    @initialize(seed=st.integers(0, 9), up=st.sets(names))
    def build(self, seed: int, up: set[str]) -> None:
        self.seed = seed
        self.agent = WorkerAgent(CONFIG, Random(seed))
        for name in sorted(up):
            self.engine_up(name)

    # --- the shell

    def feed(self, event: WorkerEvent) -> list[WorkerEffect]:
        effects = self.agent.step(self.now, event)
        self.log.append((self.now, event, effects))
        for effect in effects:
            self.believe(effect)
        return effects

    def believe(self, effect: WorkerEffect) -> None:
        match effect:
            case Dispatch(request_id=rid, engine=name):
                assert rid in self.held
                assert rid not in self.running, "dispatched twice"
                assert name in self.up
                in_flight = [r for r, e in self.running.items() if e == name]
                assert len(in_flight) < self.caps[name]
                self.running[rid] = name
                self.check_fence(name)
            case Abort(request_id=rid, engine=name):
                assert self.running.pop(rid) == name
                self.started.discard(rid)
            case Conclude(request_id=rid, attempt=attempt, gateway=gateway):
                self.end(rid, attempt, gateway)
                self.running.pop(rid, None)
                self.started.discard(rid)
            case Handback(request_id=rid, attempt=attempt, gateway=gateway):
                assert rid not in self.running
                self.end(rid, attempt, gateway)
            case Reject(request_id=rid, attempt=attempt, gateway=gateway, message=message):
                assert rid not in self.running
                assert message
                self.end(rid, attempt, gateway)
            case SteerEngine(engine=name, n_run=n_run, b_token=b_token):
                self.caps[name] = max(1, min(n_run, b_token))
            case PublishTelemetry(telemetry=telemetry):
                events = telemetry.queued, telemetry.dispatched, telemetry.first_tokens, telemetry.finished
                assert sum(map(len, events)) <= CONFIG.telemetry_events + 60  # one step may add a burst
                assert all(r.age_s >= 0 for part in events for r in part)
            case _:
                pass

    def end(self, rid: str, attempt: int, gateway: str) -> None:
        assert self.held.pop(rid) == (attempt, gateway), "ended, but not held"
        self.ends[(rid, attempt)] += 1
        assert self.ends[(rid, attempt)] == 1, "ended twice"

    def check_fence(self, name: str) -> None:
        worker = self.agent._state
        state = worker.fleet[name]
        if worker.controls.bypass or not state.budget_blocks:
            return
        size = state.info.block_size
        rows = []  # (tokens held, tokens in the end)
        for e in state.running.values():
            end = min(e.request.prompt_tokens + e.bound_tokens, state.info.max_model_len, state.budget_blocks * size)
            rows.append((e.request.prompt_tokens + e.output_tokens, end))
        for later in [0.0, *(end - held for held, end in rows)]:  # all grow at one pace
            alive = [held + later for held, end in rows if held + later <= end]
            assert sum(ceil(tokens / size) for tokens in alive) <= state.budget_blocks
        assert state.budget_blocks * size <= state.info.kv_capacity_tokens * (1 - CONFIG.delta_frag)

    def pick(self, of: Collection[str], pick: int) -> str:
        return sorted(of)[pick % len(of)]

    # --- gateways

    @rule(
        prompt=st.integers(0, 3000) | st.integers(8000, 9000), limit=st.none() | st.integers(1, 600),
        tenant=st.sampled_from("ab"), gateway=st.sampled_from(["g1", "g2"]), priority=st.integers(-1, 1),
    )  # fmt: skip
    def submit(self, prompt: int, limit: int | None, tenant: str, gateway: str, priority: int) -> None:
        self.count += 1
        rid = f"r{self.count}"
        made = request(
            rid, tenant=tenant, prompt_tokens=prompt, max_tokens=limit, priority=priority, arrival_s=self.now
        )
        self.held[rid] = (1, gateway)
        effects = self.feed(Submitted(made, 1, gateway))
        if prompt >= 8192 and not self.draining and len(self.agent._state.fleet) == 3:
            refusals = [e.outcome for e in effects if isinstance(e, Reject) and e.request_id == rid]
            assert refusals in ([Outcome.NEVER_FITS], [Outcome.NO_ENGINE])

    @precondition(lambda self: self.held)
    @rule(pick=picks, up=st.integers(-1, 2))
    def submit_again(self, pick: int, up: int) -> None:
        rid = self.pick(self.held, pick)
        attempt, gateway = self.held[rid]
        event = Submitted(request(rid, arrival_s=self.now), attempt + up, gateway)
        if up <= 0:
            assert not any(isinstance(e, Reject | Conclude | Abort) for e in self.feed(event))
            return
        # the older attempt ends, and only then does the newer one begin
        effects = self.agent.step(self.now, event)
        self.log.append((self.now, event, effects))
        ended = False
        for effect in effects:
            self.believe(effect)
            if isinstance(effect, Conclude) and effect.attempt == attempt and effect.request_id == rid:
                assert effect.outcome is Outcome.CANCELLED
                ended = True
                self.held[rid] = (attempt + up, gateway)
        assert ended

    @precondition(lambda self: self.ends)
    @rule(pick=picks)
    def submit_ended(self, pick: int) -> None:
        rid, attempt = sorted(self.ends)[pick % len(self.ends)]
        if rid not in self.held and attempt == max(a for r, a in self.ends if r == rid):
            effects = self.feed(Submitted(request(rid), attempt, "g1"))
            assert not any(isinstance(e, Dispatch) and e.request_id == rid for e in effects)
            assert self.agent._state.queue.get(rid) is None

    @precondition(lambda self: self.held)
    @rule(pick=picks, tokens=st.floats(0, 800), old=st.booleans())
    def annotate(self, pick: int, tokens: float, old: bool) -> None:
        rid = self.pick(self.held, pick)
        version = "v1" if tokens < 400 else "v2"
        self.feed(Annotated(rid, self.held[rid][0] - old, annotation(tokens, version=version)))

    @precondition(lambda self: self.held)
    @rule(pick=picks, old=st.booleans())
    def cancel(self, pick: int, old: bool) -> None:
        rid = self.pick(self.held, pick)
        self.feed(CancelRequested(rid, self.held[rid][0] - old))
        assert (rid in self.held) == old

    @precondition(lambda self: self.held)
    @rule(pick=picks)
    def recall(self, pick: int) -> None:
        rid = self.pick(self.held, pick)
        in_flight = rid in self.running
        self.feed(RecallRequested(rid, self.held[rid][0]))
        assert (rid in self.held) == in_flight

    @rule(gateway=st.sampled_from(["g1", "g2"]))
    def gateway_lost(self, gateway: str) -> None:
        self.feed(GatewayLost(gateway))
        assert all(g != gateway for _, g in self.held.values())

    # --- engines

    @rule(name=names)
    def engine_up(self, name: str) -> None:
        self.up.add(name)
        self.feed(EngineWentUp(ENGINES[name]))

    @rule(name=names)
    def engine_down(self, name: str) -> None:
        self.up.discard(name)
        self.feed(EngineWentDown(name, "probe failed"))
        assert all(e != name or r in self.started for r, e in self.running.items())

    @precondition(lambda self: self.running)
    @rule(pick=picks)
    def first_token(self, pick: int) -> None:
        rid = self.pick(self.running, pick)
        self.started.add(rid)
        self.feed(FirstTokenReceived(rid))

    @precondition(lambda self: self.started)
    @rule(tokens=st.lists(st.tuples(picks, st.integers(1, 900)), max_size=4))
    def progress(self, tokens: list[tuple[int, int]]) -> None:
        rows = tuple((self.pick(self.started, p), n) for p, n in tokens)
        self.feed(ProgressSampled((*rows, ("unknown", 5))))

    @precondition(lambda self: self.running)
    @rule(pick=picks, tokens=st.integers(0, 900))
    def finish(self, pick: int, tokens: int) -> None:
        rid = self.pick(self.running, pick)
        self.feed(EngineFinished(rid, tokens, None))
        assert rid not in self.held

    @precondition(lambda self: self.running)
    @rule(pick=picks, retryable=st.booleans(), busy=st.booleans())
    def fail(self, pick: int, retryable: bool, busy: bool) -> None:
        rid = self.pick(self.running, pick)
        name = self.running.pop(rid)
        touched = rid in self.started
        self.started.discard(rid)
        self.feed(
            EngineFailed(
                request_id=rid,
                outcome=Outcome.ENGINE_ERROR,
                message="broke",
                output_tokens=0,
                retryable=retryable,
                busy=retryable and busy,
            )
        )
        if touched or not retryable:
            assert rid not in self.held
        if rid in self.running:
            assert self.running[rid] != name, "retried on the engine that lost it"

    @rule(rid=st.sampled_from(["r1", "r2", "nobody"]))
    def late_event(self, rid: str) -> None:
        if rid not in self.running:
            held = dict(self.held)
            self.feed(FirstTokenReceived(rid))
            self.feed(EngineFinished(rid, 5, None))
            self.feed(
                EngineFailed(
                    request_id=rid, outcome=Outcome.ENGINE_ERROR, message="late", output_tokens=0, retryable=True
                )
            )
            assert set(self.held) == set(held)

    @rule(name=names, kv=st.floats(0, 1), step=st.floats(0.001, 0.3))
    def sample(self, name: str, kv: float, step: float) -> None:
        self.feed(
            EngineSampled(
                engine=name,
                running=1,
                waiting=0,
                kv_usage=kv,
                preemptions_total=0,
                step_s=step,
                prefill_tokens_per_s=1000.0,
                decode_tokens_per_s=1000.0,
            )
        )

    # --- control and time

    @rule(
        topology=st.sampled_from(list(TopologyName)), bypass=st.booleans(), epoch=st.integers(0, 2),
        valid=st.floats(0.0, 5.0), aged=st.floats(0.0, 2.0), quantum=st.integers(1, 4000),
    )  # fmt: skip
    def decide(self, topology: TopologyName, bypass: bool, epoch: int, valid: float, aged: float, quantum: int) -> None:
        self.number += 1
        hints = Hints(quantum_tokens=quantum)
        decision = TopologyDecision(
            pool="m",
            topology=topology,
            hints=hints,
            bypass=bypass,
            epoch=epoch,
            seq=self.number,
            valid_for_s=valid,
            reason="drawn",
            selector="test",
        )
        before = self.agent._state.queue.topology
        effects = self.feed(TopologyReceived(decision, aged))
        switched = [e for e in effects if isinstance(e, TopologySwitched)]
        assert len(switched) == (self.agent._state.queue.topology is not before)

    @rule(
        n_run=st.integers(0, 6), b=st.integers(0, 8), quantile=st.floats(-300, 600),
        epoch=st.integers(0, 2), valid=st.floats(0.0, 5.0),
        frozen=st.booleans(),
    )  # fmt: skip
    def tune(self, n_run: int, b: int, quantile: float, epoch: int, valid: float, frozen: bool) -> None:
        self.number += 1
        fence = Fence("v1", (FenceBucket(500, quantile), FenceBucket(1 << 31, quantile / 2)), 300.0)
        engines = tuple(
            EngineControl(engine=name, n_run=n_run, b_token=b, b_min=1, b_max=8, gain_b=4.0, u_low=0.5, u_high=0.9)
            for name in ("e1", "e2")
        )
        self.feed(
            TupleReceived(
                ControlTuple(
                    worker="w1",
                    engines=engines,
                    fence=fence,
                    epoch=epoch,
                    seq=self.number,
                    valid_for_s=valid,
                    frozen=frozen,
                ),
                0.0,
            )
        )

    @rule(dt=st.floats(0.0, 2.0))
    def cycle(self, dt: float) -> None:
        self.now += dt
        self.feed(CycleTicked())

    @rule()
    def heartbeat(self) -> None:
        effects = self.feed(HeartbeatDue())
        beat = next(e.heartbeat for e in effects if hasattr(e, "heartbeat"))
        assert beat.running <= len(self.running) <= beat.running + CONFIG.max_dispatches_per_pump
        assert beat.queued + beat.running == len(self.held)
        assert beat.backlog_s >= 0.0

    @precondition(lambda self: self.count > 15)
    @rule(sure=st.integers(0, 5))
    def drain(self, sure: int) -> None:
        if sure == 0:
            self.draining = True
            self.feed(DrainStarted())
            assert set(self.held) == set(self.running)

    @invariant()
    def agrees_with_the_shell(self) -> None:
        if not hasattr(self, "agent"):
            return
        worker = self.agent._state
        assert {e.request.id for e in worker.queue.entries()} == set(self.held)
        assert {r for e in worker.fleet.values() for r in e.running} == set(self.running)
        assert len(worker.queue) <= CONFIG.max_queued + len(self.running) + 12  # retries may exceed the bound
        for state in worker.fleet.values():
            assert state.blocks == sum(e.blocks for e in state.running.values())
            assert state.decoding == sum(e.first_token_s is not None for e in state.running.values())

    def teardown(self) -> None:
        if not hasattr(self, "agent"):
            return
        for name in ENGINES:
            self.engine_up(name)
        for _ in range(400):
            if not self.held:
                break
            for rid in sorted(self.running):
                if rid in self.running:
                    self.feed(EngineFinished(rid, 3, None))
            self.now += 5.0  # measurements go stale, controls run out
            self.feed(CycleTicked())
        assert not self.held, "a request never ended"
        twin = WorkerAgent(CONFIG, Random(self.seed))
        for now, event, effects in self.log:
            assert twin.step(now, event) == effects


WorkerMachine.TestCase.settings = settings(max_examples=examples(120), stateful_step_count=60)
TestWorkerMachine = WorkerMachine.TestCase
