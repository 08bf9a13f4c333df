"""Whatever workers, engines, clients, streams and time do, each request received ends exactly once and runs at most
once at a time."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hmas.contracts.execution import (
    Adopt,
    Annotate,
    Declined,
    Ended,
    EngineShare,
    FirstToken,
    Progress,
    Refusal,
    Started,
    Stop,
    Submit,
    Synced,
    Withdraw,
)
from hmas.contracts.gateway import (
    ClientLeft,
    FirstTokenRelayed,
    FromWorker,
    GatewayDrainExpired,
    GatewayDraining,
    GatewayEvent,
    GatewayTicked,
    PublishGatewayTelemetry,
    Refuse,
    RequestAnnotated,
    RequestReceived,
    RunsProgressed,
    Settle,
    StartRun,
    StopRun,
    StreamChanged,
    TenantLimits,
    TenantsChanged,
    ToWorker,
    ViewReceived,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived
from hmas.gateway.agent import GatewayAgent
from hmas.gateway.agent.config import GatewayConfig, RebalanceConfig
from tests.conftest import examples
from tests.gateway.gateway_script import annotation, grant, heartbeat, load, request, run_ended, view

WORKERS = st.sampled_from(["w1", "w2", "w3"])
INDEX = st.one_of(st.just(0), st.integers(0, 10_000))
RARELY = st.sampled_from([False, False, False, False, True])
SLOTS = 2

CONFIG = GatewayConfig(
    gateway="g", max_attempts=4, max_held=3, max_requests=12, max_held_bytes=1000, rebalance=RebalanceConfig(after=1)
)


class WorkerBooks:
    """What a worker knows of this gateway's requests: those that wait, by attempt, and those granted, by number. They
    are lost when its stream closes."""

    def __init__(self) -> None:
        self.open = False
        self.waiting: dict[str, int] = {}
        self.granted: dict[str, tuple[int, int]] = {}  # grant and attempt
        self.grants = 0


class GatewayMachine(RuleBasedStateMachine):
    """Engines run what the agent starts. Each message of a worker may be one that its books no longer justify."""

    def __init__(self) -> None:
        super().__init__()
        self.agent = GatewayAgent(CONFIG)
        self.now_s = 0.0
        self.received: list[str] = []
        self.streamed: dict[str, bool] = {}
        self.ended: dict[str, Outcome] = {}
        self.ended_s: dict[str, float] = {}
        self.books = {name: WorkerBooks() for name in ("w1", "w2", "w3")}
        self.running: dict[str, StartRun] = {}  # at engines
        self.with_token: set[str] = set()
        self.runs = 0
        self.offered: dict[str, int] = {}
        self.settled: dict[str, int] = {}

    def play(self, event: GatewayEvent) -> None:
        for effect in self.agent.step(self.now_s, event):
            match effect:
                case ToWorker(worker, message):
                    assert self.books[worker].open, "told a worker whose stream is closed"
                    self.tell(worker, message)
                case StartRun(request_id=request_id, run=run, worker=worker):
                    assert request_id not in self.running, "runs twice"
                    assert request_id not in self.ended
                    assert run > self.runs, "a number used twice"
                    assert (effect.grant is None) is not self.books[worker].open
                    self.runs, self.running[request_id] = run, effect
                case StopRun(request_id, run):
                    assert self.running.pop(request_id).run == run
                case Refuse(request_id=request_id, outcome=outcome) | Settle(request_id=request_id, outcome=outcome):
                    assert request_id not in self.running, "ended while an engine has it"
                    assert request_id not in self.ended, "ended twice"
                    assert all(request_id not in books.waiting for books in self.books.values()), "still waits"
                    self.ended[request_id], self.ended_s[request_id] = outcome, self.now_s
                case PublishGatewayTelemetry(telemetry):
                    for each in telemetry.offered:
                        self.offered[each.request_id] = self.offered.get(each.request_id, 0) + 1
                    for settled in telemetry.settled:
                        assert settled.outcome is self.ended[settled.request_id]
                        assert settled.age_s == self.now_s - self.ended_s[settled.request_id]
                        self.settled[settled.request_id] = self.settled.get(settled.request_id, 0) + 1

    def tell(self, worker: str, message: Any) -> None:
        """The worker's books, and what the gateway may tell it."""
        books = self.books[worker]
        match message:
            case Submit(request=submitted, attempt=attempt):
                assert submitted.id not in self.ended
                assert all(submitted.id not in b.waiting for n, b in self.books.items() if n != worker), "waits twice"
                books.waiting[submitted.id] = attempt
            case Adopt(request=adopted, attempt=attempt, grant=number):
                assert self.running[adopted.id].worker == worker
                books.granted[adopted.id] = number, attempt
            case Annotate(request_id, attempt, _):
                known = books.waiting.get(request_id) or books.granted[request_id][1]
                assert known == attempt
            case Withdraw(request_id, attempt):
                assert books.waiting.pop(request_id, attempt) == attempt
            case Started(request_id, number) | FirstToken(request_id, number):
                assert books.granted[request_id][0] == number
            case Ended(request_id=request_id, grant=number, retryable=retryable):
                granted, attempt = books.granted.pop(request_id)
                assert granted == number
                if retryable:
                    assert request_id not in self.with_token
                    books.waiting[request_id] = attempt
            case Declined(request_id, number):
                if books.granted.get(request_id, (0, 0))[0] == number:
                    del books.granted[request_id]
            case Progress(request_ids, output_tokens):
                assert len(request_ids) == len(output_tokens)
                assert set(request_ids) <= books.granted.keys()
            case Synced():
                pass

    @initialize(workers=st.lists(WORKERS, unique=True))
    def start(self, workers: list[str]) -> None:
        for worker in workers:
            self.play(HeartbeatReceived(heartbeat(worker)))
            self.connect(worker, True, 0.0)

    # --- clients and cognition ---

    @rule(
        model=st.sampled_from(["m", "alias", "m", "n"]),
        tenant=st.sampled_from(["a", "b"]),
        stream=st.booleans(),
        body_bytes=st.sampled_from([0, 10, 300]),
    )
    def receive(self, model: str, tenant: str, stream: bool, body_bytes: int) -> None:
        request_id = f"r{len(self.received)}"
        self.received.append(request_id)
        self.streamed[request_id] = stream
        received = request(request_id, model=model, tenant=tenant, stream=stream, arrival_s=self.now_s)
        self.play(RequestReceived(received, body_bytes=body_bytes))

    def pick(self, index: int) -> str:
        """Any request, the last one first."""
        return self.received[-1 - index % len(self.received)] if self.received else "nobody"

    @rule(index=INDEX)
    def annotate(self, index: int) -> None:
        self.play(RequestAnnotated(self.pick(index), annotation()))

    @rule(index=INDEX)
    def leave(self, index: int) -> None:
        self.play(ClientLeft(self.pick(index)))

    # --- engines ---

    def run_of(self, index: int) -> tuple[str, int]:
        if not self.running:
            return "nobody", 1
        start = list(self.running.values())[index % len(self.running)]
        return start.request_id, start.run

    @rule(index=INDEX, stale=RARELY)
    def first_token(self, index: int, stale: bool) -> None:
        request_id, run = self.run_of(index)
        if not stale and self.streamed.get(request_id):
            self.with_token.add(request_id)
        self.play(FirstTokenRelayed(request_id, run - stale))

    @rule(index=INDEX)
    def progress(self, index: int) -> None:
        self.play(RunsProgressed((("nobody", 1), (self.run_of(index)[0], 5))))

    @rule(
        index=INDEX,
        outcome=st.sampled_from([Outcome.FINISHED, Outcome.ENGINE_ERROR, Outcome.ENGINE_REFUSED]),
        retryable=st.booleans(),
        stale=RARELY,
    )
    def end_run(self, index: int, outcome: Outcome, retryable: bool, stale: bool) -> None:
        request_id, run = self.run_of(index)
        if not stale:
            self.running.pop(request_id, None)
        retryable = retryable and outcome is Outcome.ENGINE_ERROR and request_id not in self.with_token
        self.play(run_ended(request_id, run - stale, outcome, retryable=retryable))

    # --- workers ---

    def say(self, worker: str, message: Any) -> None:
        self.play(FromWorker(worker, message))

    @rule(index=INDEX)
    def grant_one(self, index: int) -> None:
        for worker, books in self.books.items():
            if books.waiting:
                self.grant_waiting(worker, index)
                return

    def grant_waiting(self, worker: str, index: int, *, times: int = 1) -> None:
        books = self.books[worker]
        request_id = list(books.waiting)[index % len(books.waiting)]
        books.grants += 1
        attempt = books.waiting.pop(request_id)
        books.granted[request_id] = books.grants, attempt
        granted = grant(request_id, books.grants, attempt)
        for _ in range(times):
            self.say(worker, granted)
        assert request_id in self.running

    @rule(worker=WORKERS, index=INDEX)
    def grant_twice(self, worker: str, index: int) -> None:
        if self.books[worker].waiting:
            self.grant_waiting(worker, index, times=2)

    @rule(worker=WORKERS, index=INDEX, attempt=st.integers(0, 3))
    def grant_late(self, worker: str, index: int, attempt: int) -> None:
        books = self.books[worker]
        request_id = self.pick(index)
        if books.open and books.waiting.get(request_id) != attempt:
            books.grants += 1
            self.say(worker, grant(request_id, books.grants, attempt))

    @rule(worker=WORKERS, index=INDEX, stale=st.booleans())
    def stop(self, worker: str, index: int, stale: bool) -> None:
        books = self.books[worker]
        if books.open and books.granted:
            request_id = list(books.granted)[index % len(books.granted)]
            self.say(worker, Stop(request_id, books.granted[request_id][0] - stale, "down"))

    @rule(worker=WORKERS, index=INDEX, stale=RARELY, outcome=st.sampled_from(list(Outcome)))
    def refuse(self, worker: str, index: int, stale: bool, outcome: Outcome) -> None:
        books = self.books[worker]
        if not books.open or not books.waiting:
            return
        request_id = list(books.waiting)[index % len(books.waiting)]
        attempt = books.waiting[request_id] - stale
        if not stale:
            del books.waiting[request_id]
        refusal = Refusal(request_id=request_id, attempt=attempt, outcome=outcome, message="", retry_after_s=1.0)
        self.say(worker, refusal)
        self.say(worker, refusal)

    @rule(
        worker=WORKERS,
        up=st.sampled_from([True, True, False]),
        queued=st.sampled_from([0, 0, 100]),
        draining=RARELY,
        other=st.booleans(),
    )
    def hear(self, worker: str, up: bool, queued: int, draining: bool, other: bool) -> None:
        pool = "n" if other and worker == "w3" else "m"
        self.play(HeartbeatReceived(heartbeat(worker, up=up, queued=queued, draining=draining, pool=pool)))

    @rule(worker=WORKERS, backlog_s=st.floats(0, 100), queued=st.integers(0, 99), draining=RARELY)
    def load(self, worker: str, backlog_s: float, queued: int, draining: bool) -> None:
        if self.books[worker].open:
            shares = (EngineShare("e1", SLOTS),)
            self.say(worker, load(*shares, queued=queued, backlog_s=backlog_s, draining=draining))

    @rule(worker=WORKERS, connected=st.sampled_from([True, True, False]), silent_s=st.sampled_from([0.0, 2.0]))
    def connect(self, worker: str, connected: bool, silent_s: float) -> None:
        books = self.books[worker] = WorkerBooks()
        books.open = connected
        self.play(StreamChanged(worker, connected, silent_s))

    # --- time, tenants, the gateway's own end ---

    @rule(delta_s=st.sampled_from([0.0, 0.05, 0.05, 0.6, 0.6, 3.0, 3.0, 70.0, 4000.0]))
    def tick(self, delta_s: float) -> None:
        self.now_s += delta_s
        self.play(GatewayTicked())

    @rule(settled_rps=st.sampled_from([0.0, 5.0]))
    def see(self, settled_rps: float) -> None:
        self.play(ViewReceived(view(settled_rps=settled_rps)))

    @rule(bound=st.sampled_from([None, 1, 5]))
    def limit(self, bound: int | None) -> None:
        limits = TenantLimits(tenant="a", requests_per_min=bound, max_in_flight=bound, max_queued=bound)
        self.play(TenantsChanged((limits,)))

    @rule(index=INDEX)
    def drain(self, index: int) -> None:
        if index % 40 == 39:
            self.play(GatewayDraining())

    # --- what holds at any time ---

    @invariant()
    def live_are_those_not_ended(self) -> None:
        assert self.agent.live == len(self.received) - len(self.ended) <= 12

    @invariant()
    def ledger_engines_and_workers_agree(self) -> None:
        agent: Any = self.agent
        live = [agent._state.ledger.get(i) for i in self.received if i in agent._state.ledger]
        assert {entry.request.id for entry in live if entry.runs} == self.running.keys()
        for entry in live:
            if entry.runs:
                assert (entry.state == "committed") == (entry.request.id in self.with_token)
            if entry.state == "queued":
                assert self.books[entry.worker].waiting[entry.request.id] == entry.attempt
        for books in self.books.values():
            assert books.granted.keys() <= self.running.keys()
        for ref in agent._state.ledger._running:
            own = [e for e in live if e.runs and e.ref == ref]
            placed = [e for e in own if e.grant == 0]
            assert len(own) == agent._state.ledger.running_on(ref)
            assert not placed or len(own) <= 64 // 4 or self.books[ref[0]].open

    @invariant()
    def counts_agree(self) -> None:
        agent: Any = self.agent
        live = [agent._state.ledger.get(i) for i in self.received if i in agent._state.ledger]
        kept = sum(entry.body_bytes for entry in live if entry.state != "committed")
        assert agent._state.ledger.body_bytes == kept <= CONFIG.max_held_bytes
        assert agent._state.ledger.held_count == sum(entry.state == "held" for entry in live)
        for worker in agent._state.router._workers.values():
            assert worker.requests == sum(entry.worker == worker.name for entry in live)
            assert worker.sent_queued == sum(s.waiting for s in worker.sendings.values())
            assert abs(worker.sent_s - sum(s.cost_s for s in worker.sendings.values())) < 1e-6
        for tenant, state in agent._state.tenants._states.items():
            mine = [entry for entry in live if entry.request.tenant == tenant]
            assert state.in_flight == len(mine)
            assert state.waiting == sum(entry.state != "committed" for entry in mine)

    def teardown(self) -> None:
        self.play(GatewayDrainExpired())
        assert set(self.ended) == set(self.received)
        assert self.agent.live == 0
        assert not self.running
        assert self.offered == self.settled
        assert set(self.offered.values()) <= {1}


GatewayMachine.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40)
TestGateway = GatewayMachine.TestCase
