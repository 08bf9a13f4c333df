"""Whatever workers, clients and time do, each request received ends exactly once."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hmas.contracts.gateway import (
    AttemptHandedBack,
    ClientLeft,
    FirstTokenRelayed,
    GatewayDrainExpired,
    GatewayDraining,
    GatewayEvent,
    GatewayTicked,
    LoadReported,
    PublishGatewayTelemetry,
    Refuse,
    RequestAnnotated,
    RequestReceived,
    SendAnnotate,
    SendCancel,
    SendRecall,
    SendSubmit,
    Settle,
    StreamChanged,
    TenantLimits,
    TenantsChanged,
    ViewReceived,
    WorkerVanished,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived
from hmas.gateway.agent import GatewayAgent
from hmas.gateway.agent.config import GatewayConfig
from tests.conftest import examples
from tests.gateway.gateway_script import annotation, concluded, heartbeat, request, view

WORKERS = st.sampled_from(["w1", "w2", "w3"])
INDEX = st.integers(0, 10_000)


CONFIG = GatewayConfig(gateway="g", max_attempts=4, max_held=3, max_requests=12, max_held_bytes=1000, rebalance_after=1)


class GatewayMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.agent = GatewayAgent(CONFIG)
        self.now_s = 0.0
        self.received: list[str] = []
        self.ended: dict[str, Outcome] = {}
        self.at: dict[str, tuple[str, int]] = {}  # where the agent last sent it
        self.sent_to: dict[str, list[str]] = {}
        self.streaming: set[str] = set()
        self.offered: dict[str, int] = {}
        self.settled: dict[str, int] = {}
        self.draining = False

    def play(self, event: GatewayEvent) -> None:
        for effect in self.agent.step(self.now_s, event):
            match effect:
                case SendSubmit(request_id, worker, attempt):
                    assert request_id not in self.ended
                    assert request_id not in self.streaming, "moved after its first token"
                    assert attempt == len(self.sent_to.setdefault(request_id, [])) + 1
                    self.sent_to[request_id].append(worker)
                    self.at[request_id] = (worker, attempt)
                case SendAnnotate(request_id, worker, attempt) | SendRecall(request_id, worker, attempt):
                    assert self.at[request_id] == (worker, attempt)
                    assert request_id not in self.ended
                case SendCancel(request_id, worker, attempt):
                    assert self.at[request_id] == (worker, attempt)
                case Refuse(request_id=request_id, outcome=outcome):
                    assert request_id not in self.sent_to
                    self.end(request_id, outcome)
                case Settle(request_id=request_id, outcome=outcome):
                    self.end(request_id, outcome)
                case PublishGatewayTelemetry(telemetry):
                    for each in telemetry.offered:
                        self.offered[each.request_id] = self.offered.get(each.request_id, 0) + 1
                    for ended in telemetry.settled:
                        assert ended.outcome is self.ended[ended.request_id]
                        assert ended.age_s >= 0.0
                        self.settled[ended.request_id] = self.settled.get(ended.request_id, 0) + 1

    def end(self, request_id: str, outcome: Outcome) -> None:
        assert request_id not in self.ended, "ended twice"
        self.ended[request_id] = outcome

    def pick(self, index: int) -> tuple[str, int]:
        """A request that was sent once, live or not, and its last attempt."""
        if not self.at:
            return "nobody", 1
        request_id = list(self.at)[index % len(self.at)]
        return request_id, self.at[request_id][1]

    @initialize(workers=st.lists(WORKERS, unique=True))
    def start(self, workers: list[str]) -> None:
        for worker in workers:
            self.play(HeartbeatReceived(heartbeat(worker)))
            self.play(StreamChanged(worker, True))

    @rule(
        model=st.sampled_from(["m", "alias", "m", "n"]),
        tenant=st.sampled_from(["a", "b"]),
        stream=st.booleans(),
        body_bytes=st.sampled_from([0, 10, 300]),
    )
    def receive(self, model: str, tenant: str, stream: bool, body_bytes: int) -> None:
        request_id = f"r{len(self.received)}"
        self.received.append(request_id)
        received = request(request_id, model=model, tenant=tenant, stream=stream, arrival_s=self.now_s)
        self.play(RequestReceived(received, body_bytes=body_bytes))

    @rule(index=INDEX)
    def annotate(self, index: int) -> None:
        self.play(RequestAnnotated(self.pick(index)[0], annotation()))

    @rule(index=INDEX, stale=st.booleans())
    def first_token(self, index: int, stale: bool) -> None:
        request_id, attempt = self.pick(index)
        self.play(FirstTokenRelayed(request_id, attempt - stale))
        if not stale and self.is_there(request_id):
            self.streaming.add(request_id)

    def is_there(self, request_id: str) -> bool:
        entry = self.agent._ledger.get(request_id)
        return entry is not None and entry.worker != ""

    @rule(index=INDEX, stale=st.booleans(), outcome=st.sampled_from(list(Outcome)))
    def conclude(self, index: int, stale: bool, outcome: Outcome) -> None:
        request_id, attempt = self.pick(index)
        self.play(concluded(request_id, attempt - stale, outcome))

    @rule(index=INDEX, stale=st.booleans())
    def hand_back(self, index: int, stale: bool) -> None:
        request_id, attempt = self.pick(index)
        self.play(AttemptHandedBack(request_id, attempt - stale))

    @rule(index=INDEX)
    def leave(self, index: int) -> None:
        self.play(ClientLeft(self.received[index % len(self.received)] if self.received else "nobody"))

    @rule(
        worker=WORKERS, up=st.booleans(), queued=st.sampled_from([0, 100]), draining=st.booleans(), other=st.booleans()
    )
    def hear(self, worker: str, up: bool, queued: int, draining: bool, other: bool) -> None:
        pool = "n" if other and worker == "w3" else "m"
        self.play(HeartbeatReceived(heartbeat(worker, up=up, queued=queued, draining=draining, pool=pool)))

    @rule(worker=WORKERS, backlog_s=st.floats(0, 100), queued=st.integers(0, 99))
    def load(self, worker: str, backlog_s: float, queued: int) -> None:
        self.play(
            LoadReported(
                worker=worker, queued=queued, queued_tokens=10 * queued, running=1, backlog_s=backlog_s, draining=False
            )
        )

    @rule(worker=WORKERS, connected=st.booleans())
    def connect(self, worker: str, connected: bool) -> None:
        self.play(StreamChanged(worker, connected))

    @rule(worker=WORKERS)
    def vanish(self, worker: str) -> None:
        self.play(WorkerVanished(worker, "killed"))

    @rule(delta_s=st.sampled_from([0.0, 0.05, 0.6, 3.0, 70.0, 2000.0]))
    def tick(self, delta_s: float) -> None:
        self.now_s += delta_s
        self.play(GatewayTicked())

    @rule(settled_rps=st.sampled_from([0.0, 5.0]))
    def see(self, settled_rps: float) -> None:
        self.play(ViewReceived(view(settled_rps=settled_rps)))

    @rule(bound=st.sampled_from([None, 1, 5]))
    def limit(self, bound: int | None) -> None:
        self.play(
            TenantsChanged(
                (
                    TenantLimits(
                        tenant="a", requests_per_min=bound, tokens_per_min=None, max_in_flight=bound, max_queued=bound
                    ),
                )
            )
        )

    @rule(index=INDEX)
    def drain(self, index: int) -> None:
        if index % 40 == 0:
            self.play(GatewayDraining())

    @invariant()
    def live_are_those_not_ended(self) -> None:
        assert self.agent.live == len(self.received) - len(self.ended) <= 12

    @invariant()
    def counts_agree(self) -> None:
        agent: Any = self.agent
        live = [agent._ledger.get(i) for i in self.received if i in agent._ledger]
        kept = sum(entry.body_bytes for entry in live if entry.state != "streaming")
        assert agent._ledger.body_bytes == kept <= CONFIG.max_held_bytes
        for worker in agent._router._workers.values():
            assert worker.requests == sum(entry.worker == worker.name for entry in live)
            assert worker.sent_queued == sum(s.waiting for s in worker.sendings.values())
            assert abs(worker.sent_s - sum(s.cost_s for s in worker.sendings.values())) < 1e-6
        for tenant, state in agent._tenants._states.items():
            mine = [entry for entry in live if entry.request.tenant == tenant]
            assert state.in_flight == len(mine)
            assert state.waiting == sum(entry.state != "streaming" for entry in mine)

    def teardown(self) -> None:
        self.play(GatewayDrainExpired())
        assert set(self.ended) == set(self.received)
        assert self.agent.live == 0
        assert self.offered == self.settled
        assert set(self.offered.values()) <= {1}


GatewayMachine.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40)
TestGateway = GatewayMachine.TestCase
