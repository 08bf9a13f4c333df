"""The whole worker agent under random events, watched from outside: gateways that carry out what they are granted, and
engines that show what really runs."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from math import ceil
from statistics import fmean
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hmas.contracts.control import (
    EngineControl,
    Fence,
    FenceBucket,
    FenceTable,
    Hints,
    TopologyName,
    TopologyReceived,
    TupleReceived,
)
from hmas.contracts.execution import (
    Adopt,
    Annotate,
    Declined,
    Ended,
    FirstToken,
    GatewayMessage,
    Grant,
    Load,
    Progress,
    Refusal,
    Started,
    Stop,
    Submit,
    Synced,
    Withdraw,
    WorkerMessage,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Request
from hmas.contracts.worker import (
    CycleTicked,
    DrainStarted,
    EngineWentDown,
    EngineWentUp,
    FromGateway,
    GatewayConnected,
    GatewayLost,
    HeartbeatDue,
    PublishHeartbeat,
    PublishTelemetry,
    SteerEngine,
    ToGateway,
    TopologySwitched,
    WorkerEffect,
    WorkerEvent,
)
from hmas.worker.agent.agent import WorkerAgent, WorkerConfig
from hmas.worker.agent.entry.entry import EntryState
from tests.builders.control import control_tuple, topology_decision
from tests.conftest import examples
from tests.worker.builders import annotation, engine, request, sampled

CONFIG = WorkerConfig(
    worker="w1", incarnation="i1", address="host:1", pool="m", max_queued=25, max_queued_tokens=60_000,
    no_engine_patience_s=3.0, max_grants_per_pump=4, max_parks_per_pump=3, telemetry_events=16,
)  # fmt: skip
ENGINES = {
    "e1": engine("e1", max_num_seqs=3, kv_capacity_tokens=4000, max_model_len=4096),
    "e2": engine("e2", max_num_seqs=5, kv_capacity_tokens=9000, max_model_len=8192, block_size=32),
    "e3": engine("e3", max_num_seqs=2, kv_capacity_tokens=0, max_model_len=2048),
}
picks = st.integers(0, 1000)
names = st.sampled_from(sorted(ENGINES))
gateways = st.sampled_from(["g1", "g2"])


@dataclass
class Held:
    """A request as its gateway holds it: it waits here if `engine` is empty, and runs there otherwise."""

    request: Request
    gateway: str
    attempt: int = 1
    engine: str = ""
    grant: int = 0
    granted_s: float = 0.0
    first_token_s: float | None = None
    tokens: int = 0


@dataclass
class Stream:
    """What is under way to a gateway. `open` is false while its stream is closed."""

    open: bool = False
    inbox: list[WorkerMessage] = field(default_factory=list)


class WorkerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.log: list[tuple[float, WorkerEvent, list[WorkerEffect]]] = []
        self.held: dict[str, Held] = {}
        self.streams = {"g1": Stream(), "g2": Stream()}
        self.up: set[str] = set()
        self.caps: dict[str, int] = {}
        self.draining = False
        self.count = 0
        self.number = 0
        self.last_grant = 0

    @initialize(up=st.sets(names), connected=st.sets(gateways))
    def build(self, up: set[str], connected: set[str]) -> None:
        self.agent = WorkerAgent(CONFIG)
        for name in sorted(connected):
            self.connect(name)
        for name in sorted(up):
            self.engine_up(name)
            self.sample(name, 0.0, 0.01)

    # --- the shell

    def feed(self, event: WorkerEvent) -> list[WorkerEffect]:
        effects = self.agent.step(self.now, event)
        self.log.append((self.now, event, effects))
        for effect in effects:
            self.believe(effect)
        return effects

    def say(self, gateway: str, message: GatewayMessage) -> list[WorkerEffect]:
        return self.feed(FromGateway(gateway, message)) if self.streams[gateway].open else []

    def believe(self, effect: WorkerEffect) -> None:
        match effect:
            case ToGateway(gateway=gateway, message=message):
                stream = self.streams[gateway]
                assert stream.open
                if isinstance(message, Grant):
                    self.check_grant(gateway, message)
                if isinstance(message, Refusal):
                    assert message.message
                if not isinstance(message, Load):
                    stream.inbox.append(message)
                else:
                    assert message.draining == self.draining
                    assert {share.engine for share in message.shares} == self.up
            case SteerEngine(engine=name, n_run=n_run, b_token=b_token):
                self.caps[name] = max(1, min(n_run, b_token))
            case PublishTelemetry(telemetry=telemetry):
                events = telemetry.queued, telemetry.dispatched, telemetry.first_tokens, telemetry.finished
                assert sum(map(len, events)) <= CONFIG.telemetry_events + 60  # one step may add a burst
                assert all(r.age_s >= 0 for part in events for r in part)
            case _:
                pass

    def check_grant(self, gateway: str, grant: Grant) -> None:
        assert not self.draining
        assert gateway in self.synced, "granted before the snapshot"
        assert grant.engine in self.up
        assert grant.grant > self.last_grant
        self.last_grant = grant.grant
        known = self.taken(grant.engine)
        assert known < self.caps[grant.engine], "more than N_run"
        assert not any(g.request_id == grant.request_id for g in self.grants_to(gateway)), "granted twice"
        self.check_fence(grant.engine)

    def grants_to(self, gateway: str) -> Iterator[Grant]:
        return (message for message in self.streams[gateway].inbox if isinstance(message, Grant))

    @property
    def synced(self) -> set[str]:
        return {name for name, gateway in self.agent._state.gateways.items() if gateway.synced}

    def taken(self, name: str) -> int:
        """Returns how many sequences of the engine are taken, as far as the worker must know."""
        runs = sum(1 for held in self.held.values() if held.engine == name and held.gateway in self.synced)
        return runs + sum(1 for gateway in self.synced for grant in self.grants_to(gateway) if grant.engine == name)

    def check_fence(self, name: str) -> None:
        worker = self.agent._state
        state = worker.fleet[name]
        if worker.controls.bypass or not state.budget_blocks:
            return
        size = state.info.block_size
        least, *others = sorted(e.blocks for e in state.running.values())
        small = bool(others) and least <= 0.7 * fmean(others)  # then one of them may fill the margin
        limit = state.info.kv_capacity_tokens // size if small else state.budget_blocks
        rows = []  # (tokens held, tokens in the end)
        for e in state.running.values():
            end = min(e.request.prompt_tokens + e.bound_tokens, state.info.max_model_len, state.budget_blocks * size)
            rows.append((e.request.prompt_tokens + e.output_tokens, end))
        for later in [0.0, *(end - held for held, end in rows)]:  # all grow at one pace
            alive = [held + later for held, end in rows if held + later <= end]
            assert sum(ceil(tokens / size) for tokens in alive) <= limit
        assert state.budget_blocks * size <= state.info.kv_capacity_tokens * (1 - CONFIG.delta_frag)

    def pick(self, of: Collection[str], pick: int) -> str:
        return sorted(of)[pick % len(of)]

    # --- gateways

    def running(self, *, tokens: bool | None = None) -> list[str]:
        """Returns the requests that run (with or without tokens)."""
        runs = [rid for rid, held in self.held.items() if held.engine]
        return runs if tokens is None else [r for r in runs if (self.held[r].first_token_s is not None) is tokens]

    def waiting(self) -> list[str]:
        return [rid for rid, held in self.held.items() if not held.engine]

    @precondition(lambda self: any(stream.open for stream in self.streams.values()))
    @rule(
        prompt=st.integers(0, 3000) | st.integers(8000, 9000), limit=st.none() | st.integers(1, 600),
        tenant=st.sampled_from("ab"), gateway=gateways, priority=st.integers(-1, 1), again=st.booleans(),
    )  # fmt: skip
    def submit(self, prompt: int, limit: int | None, tenant: str, gateway: str, priority: int, again: bool) -> None:
        self.count += 1
        rid = f"r{self.count}"
        made = request(
            rid, tenant=tenant, prompt_tokens=prompt, max_tokens=limit, priority=priority, arrival_s=self.now
        )
        self.held[rid] = Held(made, gateway)
        self.say(gateway, Submit(request=made, attempt=1, again=again))
        # An engine that is known by an adopted run alone has told no length yet, and might hold any prompt.
        lengths = [engine.info.max_model_len for engine in self.agent._state.fleet.values()]
        if prompt >= 8192 and self.streams[gateway].open and not self.draining and len(lengths) == 3 and all(lengths):
            (refusal,) = [m for m in self.streams[gateway].inbox if isinstance(m, Refusal) and m.request_id == rid]
            assert refusal.outcome in (Outcome.NEVER_FITS, Outcome.NO_ENGINE)

    @precondition(lambda self: self.held)
    @rule(pick=picks, old=st.booleans())
    def submit_again(self, pick: int, old: bool) -> None:
        held = self.held[self.pick(self.held, pick)]
        # Streams keep their order: no Submit follows a refusal of its attempt that the gateway has not read.
        known = any(e.request.id == held.request.id for e in self.agent._state.queue.entries())
        if known and held.gateway in self.synced:
            self.say(held.gateway, Submit(request=held.request, attempt=held.attempt - old, again=True))

    @precondition(lambda self: self.waiting())
    @rule(pick=picks, back=st.booleans())
    def withdraw(self, pick: int, back: bool) -> None:
        """The client leaves, or the request is moved away, and comes back at once."""
        held = self.held[self.pick(self.waiting(), pick)]
        self.say(held.gateway, Withdraw(held.request.id, held.attempt))
        if back:
            held.attempt += 2
            self.say(held.gateway, Submit(request=held.request, attempt=held.attempt, again=True))
        else:
            del self.held[held.request.id]

    @precondition(lambda self: self.held)
    @rule(pick=picks, tokens=st.floats(0, 800), old=st.booleans())
    def annotate(self, pick: int, tokens: float, old: bool) -> None:
        held = self.held[self.pick(self.held, pick)]
        tags = annotation(tokens, version="v1" if tokens < 400 else "v2")
        self.say(held.gateway, Annotate(held.request.id, held.attempt - old, tags))

    @precondition(lambda self: any(stream.inbox for stream in self.streams.values()))
    @rule(gateway=gateways, most=st.integers(1, 20))
    def answer(self, gateway: str, most: int) -> None:
        for _ in range(min(most, len(self.streams[gateway].inbox))):
            self.hear(gateway, self.streams[gateway].inbox.pop(0))

    def hear(self, gateway: str, message: WorkerMessage) -> None:
        assert not isinstance(message, Load)
        held = self.held.get(message.request_id)
        match message:
            case Grant(grant=grant, attempt=attempt):
                if held is not None and not held.engine and held.attempt == attempt:
                    held.engine, held.grant, held.granted_s = message.engine, grant, self.now
                    self.say(gateway, Started(message.request_id, grant))
                else:
                    self.say(gateway, Declined(message.request_id, grant))
            case Stop(grant=grant):
                if held is None or held.grant != grant or not held.engine:
                    self.say(gateway, Declined(message.request_id, grant))
                elif held.first_token_s is None:
                    self.end(held, retryable=True)
            case Refusal(attempt=attempt):
                if held is not None and not held.engine and held.attempt == attempt:
                    del self.held[message.request_id]

    def end(self, held: Held, outcome: Outcome = Outcome.ENGINE_ERROR, retryable: bool = False, **fields: Any) -> None:
        rid, grant = held.request.id, held.grant
        held.engine, held.grant = "", 0
        if not retryable:
            del self.held[rid]
        self.say(
            held.gateway,
            Ended(
                request_id=rid,
                grant=grant,
                outcome=outcome,
                message="x",
                retryable=retryable,
                output_tokens=held.tokens,
                **fields,
            ),
        )

    @rule(gateway=gateways)
    def connect(self, gateway: str) -> None:
        stream = self.streams[gateway]
        if stream.open:
            return
        stream.open = True
        self.feed(GatewayConnected(gateway))
        for held in [held for held in self.held.values() if held.gateway == gateway]:
            if held.engine:
                self.last_grant = max(self.last_grant, held.grant)
                self.say(gateway, Adopt(
                    request=held.request, attempt=held.attempt, annotation=None, engine=held.engine, grant=held.grant,
                    output_tokens=held.tokens, granted_s=held.granted_s, first_token_s=held.first_token_s,
                ))  # fmt: skip
            else:
                self.say(gateway, Submit(request=held.request, attempt=held.attempt, again=True))
        self.say(gateway, Synced())

    @rule(gateway=gateways)
    def lose(self, gateway: str) -> None:
        self.streams[gateway] = Stream()
        self.feed(GatewayLost(gateway))

    @precondition(lambda self: self.waiting())
    @rule(pick=picks, name=names)
    def bypass(self, pick: int, name: str) -> None:
        """A gateway that does not hear the worker places a request by itself."""
        held = self.held[self.pick(self.waiting(), pick)]
        if not self.streams[held.gateway].open:
            held.engine, held.grant, held.granted_s = name, 0, self.now

    # --- engines

    @rule(name=names)
    def engine_up(self, name: str) -> None:
        self.up.add(name)
        self.feed(EngineWentUp(ENGINES[name]))

    @rule(name=names)
    def engine_down(self, name: str) -> None:
        self.up.discard(name)
        self.feed(EngineWentDown(name, "probe failed"))

    @precondition(lambda self: self.running(tokens=False))
    @rule(pick=picks)
    def first_token(self, pick: int) -> None:
        held = self.held[self.pick(self.running(tokens=False), pick)]
        held.first_token_s, held.tokens = self.now, max(1, held.tokens)
        self.say(held.gateway, FirstToken(held.request.id, held.grant))

    @precondition(lambda self: self.running(tokens=True))
    @rule(pick=picks, tokens=st.integers(1, 300))
    def progress(self, pick: int, tokens: int) -> None:
        held = self.held[self.pick(self.running(tokens=True), pick)]
        held.tokens += tokens
        self.say(held.gateway, Progress((held.request.id, "unknown"), (held.tokens, 5)))

    @precondition(lambda self: self.running())
    @rule(pick=picks, outcome=st.sampled_from([Outcome.FINISHED, Outcome.CANCELLED, Outcome.ENGINE_ERROR]))
    def finish(self, pick: int, outcome: Outcome) -> None:
        self.end(self.held[self.pick(self.running(), pick)], outcome)

    @precondition(lambda self: self.running(tokens=False))
    @rule(pick=picks, kind=st.sampled_from([{}, {"busy": True}, {"unreached": True}]))
    def fail(self, pick: int, kind: dict[str, Any]) -> None:
        self.end(self.held[self.pick(self.running(tokens=False), pick)], retryable=True, **kind)

    @rule(rid=st.sampled_from(["r1", "r2", "nobody"]), gateway=gateways)
    def late_message(self, rid: str, gateway: str) -> None:
        late = 10**6
        for message in (
            Started(rid, late), FirstToken(rid, late), Declined(rid, late),
            Ended(request_id=rid, grant=late, outcome=Outcome.FINISHED),
        ):  # fmt: skip
            self.say(gateway, message)

    @rule(name=names, kv=st.floats(0, 1), step=st.floats(0.001, 0.3))
    def sample(self, name: str, kv: float, step: float) -> None:
        runs = sum(1 for held in self.held.values() if held.engine == name)
        self.feed(sampled(name, runs, kv_usage=kv, step_s=step, counted=name != "e3"))

    # --- control and time

    @rule(
        topology=st.sampled_from(list(TopologyName)), bypass=st.booleans(), epoch=st.integers(0, 2),
        valid=st.floats(0.0, 5.0), aged=st.floats(0.0, 2.0), quantum=st.integers(1, 4000),
    )  # fmt: skip
    def decide(self, topology: TopologyName, bypass: bool, epoch: int, valid: float, aged: float, quantum: int) -> None:
        self.number += 1
        hints = Hints(quantum_tokens=quantum)
        decision = topology_decision(
            topology, hints=hints, bypass=bypass, epoch=epoch, seq=self.number, valid_for_s=valid, reason="drawn",
            selector="test",
        )  # fmt: skip
        before = self.agent._state.queue.topology
        effects = self.feed(TopologyReceived(decision, aged))
        switched = [e for e in effects if isinstance(e, TopologySwitched)]
        assert len(switched) == (self.agent._state.queue.topology is not before)

    @rule(
        n_run=st.integers(0, 6), b=st.integers(0, 8), factor=st.floats(0, 8),
        epoch=st.integers(0, 2), valid=st.floats(0.0, 5.0),
        frozen=st.booleans(),
    )  # fmt: skip
    def tune(self, n_run: int, b: int, factor: float, epoch: int, valid: float, frozen: bool) -> None:
        self.number += 1
        buckets = FenceBucket(500, factor), FenceBucket(1 << 31, factor / 2)
        fence = Fence((FenceTable("v1", buckets),), 300.0)
        engines = tuple(
            EngineControl(engine=name, n_run=n_run, b_token=b, b_min=1, b_max=8, gain_b=4.0, u_low=0.5, u_high=0.9)
            for name in ("e1", "e2")
        )
        self.feed(
            TupleReceived(
                control_tuple(
                    engines=engines, fence=fence, epoch=epoch, seq=self.number, valid_for_s=valid, frozen=frozen
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
        (beat,) = [e.heartbeat for e in effects if isinstance(e, PublishHeartbeat)]
        if any(engine.up for engine in beat.engines):
            assert (beat.backlog_s > 0.0) is (beat.queued + beat.running > 0)
        assert len(effects) >= 1 + len(self.synced)

    @precondition(lambda self: self.count > 15)
    @rule(sure=st.integers(0, 5))
    def drain(self, sure: int) -> None:
        if sure == 0:
            self.draining = True
            self.feed(DrainStarted())

    @invariant()
    def the_books_add_up(self) -> None:
        if not hasattr(self, "agent"):
            return
        worker = self.agent._state
        books = {e.request.id: e for e in worker.queue.entries()}
        running = {rid for rid, e in books.items() if e.state is EntryState.RUNNING}
        assert {r for e in worker.fleet.values() for r in e.running} == running
        assert len(worker.queue) == len(books) - len(running)
        parked = [rid for gateway in worker.gateways.values() for rid in gateway.parked]
        assert sorted(parked) == sorted(r for r, e in books.items() if e.state is EntryState.PARKED)
        assert worker.queue.parked == len(parked)
        for engine_state in worker.fleet.values():
            assert engine_state.books.blocks == sum(e.blocks for e in engine_state.running.values())
            assert engine_state.books.decoding == sum(
                e.first_token_s is not None for e in engine_state.running.values()
            )

    @invariant()
    def the_books_agree_with_a_gateway_that_has_heard_everything(self) -> None:
        if not hasattr(self, "agent"):
            return
        for name in self.synced:
            if self.streams[name].inbox:
                continue
            books = {e.request.id: e for e in self.agent._state.queue.entries() if e.gateway == name}
            truth = {rid: held for rid, held in self.held.items() if held.gateway == name}
            assert set(books) == set(truth)
            for rid, held in truth.items():
                entry = books[rid]
                assert entry.attempt == held.attempt
                assert (entry.state is EntryState.RUNNING) == bool(held.engine)
                if held.engine:
                    assert (entry.engine, entry.grant) == (held.engine, held.grant)

    def teardown(self) -> None:
        if not hasattr(self, "agent"):
            return
        if self.draining:
            self.held = {rid: held for rid, held in self.held.items() if held.engine}
        for name in ENGINES:
            self.engine_up(name)
        for name in self.streams:
            self.lose(name)
            self.connect(name)
        for _ in range(400):
            if not self.held:
                break
            for name, stream in self.streams.items():
                while stream.inbox:
                    self.answer(name, 1)
            for rid in self.running():
                self.end(self.held[rid], Outcome.FINISHED)
            self.now += 5.0  # measurements go stale, controls run out
            for name in ENGINES:
                self.sample(name, 0.1, 0.01)
            self.feed(CycleTicked())
        assert not self.held, "a request never ended"
        twin = WorkerAgent(CONFIG)
        for now, event, effects in self.log:
            assert twin.step(now, event) == effects


WorkerMachine.TestCase.settings = settings(max_examples=examples(120), stateful_step_count=60)
TestWorkerMachine = WorkerMachine.TestCase
