"""The limits of a tenant, and promises, hold over several gateways together."""

from collections import Counter, deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.gateway import TenantLimits
from hmas.contracts.use import UseReport
from hmas.gateway.agent.admission.limits import TenantGate
from hmas.gateway.agent.admission.promises import Promises
from hmas.gateway.agent.config import GatewayConfig, NeighbourConfig

TENANT = "alice"
TICK_S = 0.05


@dataclass
class Replicas:
    """Gateways' tenant gates that hear one another's reports `delay_s` late, as long as `bus` is up."""

    count: int
    limits: TenantLimits
    delay_s: float = 0.005
    bus: bool = True
    accepted: Counter[str] = field(default_factory=Counter)
    peak: int = 0  # most requests in flight at once

    def __post_init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, int, UseReport]] = []
        self._number = 0
        self._incarnations: dict[str, str] = {}
        self.gates: dict[str, TenantGate] = {}
        for i in range(self.count):
            self.start(f"g{i}", "1")

    def start(self, name: str, incarnation: str) -> None:
        config = GatewayConfig(gateway=name, incarnation=incarnation)
        gate = self.gates[name] = TenantGate(config)
        gate.change(self.now_s, (self.limits,))
        self._incarnations[name] = incarnation

    def run(self, until_s: float) -> None:
        while self.now_s < until_s:
            self.now_s += TICK_S
            while self._due and self._due[0][0] <= self.now_s:
                _, _, report = heappop(self._due)
                for gate in self.gates.values():
                    gate.hear(self.now_s, report)
            for name, gate in self.gates.items():
                uses = gate.exchange(self.now_s)
                if uses is not None and self.bus:
                    self._number += 1
                    report = UseReport(
                        gateway=name, incarnation=self._incarnations[name], uses=uses, promised=(), redeemed=()
                    )
                    heappush(self._due, (self.now_s + self.delay_s, self._number, report))

    def ask(self, name: str, prompt_tokens: int = 100) -> bool:
        gate = self.gates[name]
        if gate.refusal(self.now_s, TENANT, prompt_tokens) is not None:
            return False
        gate.accept(self.now_s, TENANT, prompt_tokens)
        self.accepted[name] += 1
        return True

    def end(self, name: str, tokens: int) -> None:
        self.gates[name].ended(TENANT, waiting=True, tokens=tokens)

    def load(self, seconds: float, rates: list[float], seed: int = 1, held_s: float = 0.5) -> int:
        """Sends Poisson streams, one per gateway, whose requests last `held_s`; returns how many were accepted."""
        random, end_s, before = Random(seed), self.now_s + seconds, sum(self.accepted.values())
        arrivals = []
        for i, rate in enumerate(rates):
            at_s = self.now_s
            while rate and (at_s := at_s + random.expovariate(rate)) < end_s:
                arrivals.append((at_s, f"g{i}"))
        ends: list[tuple[float, str]] = []
        for at_s, name in sorted(arrivals):
            while ends and ends[0][0] <= at_s:
                ended_s, where = heappop(ends)
                self.run(ended_s)
                self.end(where, 50)
            self.run(at_s)
            if self.ask(name):
                heappush(ends, (at_s + held_s, name))
            self.peak = max(self.peak, len(ends))
        self.run(end_s)
        for _, name in ends:
            self.end(name, 50)
        return sum(self.accepted.values()) - before


def limits(kind: str, limit: int) -> TenantLimits:
    change: dict[str, Any] = {kind: limit}
    return TenantLimits(tenant=TENANT, **change)


UNEVEN = {1: [1.0], 2: [0.9, 0.1], 4: [0.7, 0.2, 0.08, 0.02]}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("gateways", [2, 4])
@pytest.mark.parametrize("kind", ["requests_per_min", "tokens_per_min"])
def test_a_rate_is_that_of_one_gateway(gateways: int, seed: int, kind: str) -> None:
    limit = 600 if kind == "requests_per_min" else 90_000  # 150 tokens a request
    taken = {}
    for count in (1, gateways):
        replicas = Replicas(count, limits(kind, limit))
        rates = [40.0 * share for share in UNEVEN[count]]
        taken[count] = [replicas.load(60.0, rates, seed), replicas.load(60.0, rates, seed + 100)]
    for alone, together in zip(taken[1], taken[gateways], strict=True):
        assert together == pytest.approx(alone, rel=0.05), taken
    assert taken[1][1] == pytest.approx(600, rel=0.05)


def test_the_load_may_move_to_another_gateway() -> None:
    replicas = Replicas(4, TenantLimits(tenant=TENANT, requests_per_min=600.0))
    replicas.load(60.0, [40.0, 0.0, 0.0, 0.0])
    assert replicas.load(60.0, [0.0, 0.0, 40.0, 0.0]) == pytest.approx(600, rel=0.05)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("gateways", [1, 2, 4])
@pytest.mark.parametrize("kind", ["max_in_flight", "max_queued"])
def test_what_is_in_flight_is_bounded_over_all(gateways: int, seed: int, kind: str) -> None:
    replicas = Replicas(gateways, limits(kind, 100))
    rates = [200.0 * share for share in UNEVEN[gateways]]
    replicas.load(3.0, rates, seed, held_s=1.0)
    assert replicas.peak <= 100 * (2 - 1 / gateways)  # a burst that begins at all gateways within one exchange
    replicas.peak = 0
    accepted = replicas.load(60.0, rates, seed, held_s=1.0)
    assert replicas.peak <= 100 + gateways - 1
    assert accepted == pytest.approx(60 * 100, rel=0.05)


def test_who_asks_little_is_served_at_any_gateway() -> None:
    replicas = Replicas(4, TenantLimits(tenant=TENANT, requests_per_min=4.0, tokens_per_min=3_000.0, max_in_flight=2))
    for i in range(4):
        replicas.run(i * 20.0 + 1.0)
        assert replicas.ask(f"g{i}", prompt_tokens=1_000)
        replicas.end(f"g{i}", 0)


def test_a_burst_at_all_gateways_at_once_takes_what_one_gateway_gives() -> None:
    replicas = Replicas(4, TenantLimits(tenant=TENANT, requests_per_min=600.0))
    replicas.run(5.0)
    for _ in range(600):
        for name in replicas.gates:
            replicas.ask(name)
    assert sum(replicas.accepted.values()) <= 600 + 4
    assert sum(replicas.accepted.values()) >= 600 * 0.95


def test_without_the_bus_each_has_its_last_lease_and_then_its_share() -> None:
    replicas = Replicas(4, TenantLimits(tenant=TENANT, requests_per_min=600.0))
    replicas.load(60.0, [40.0 * share for share in UNEVEN[4]])
    replicas.bus = False
    replicas.run(replicas.now_s + 60.0)  # each lease fills to its share
    assert replicas.load(60.0, [40.0, 0.0, 0.0, 0.0]) == pytest.approx(300, rel=0.05)
    assert replicas.load(60.0, [20.0] * 4) == pytest.approx(600 + 450, rel=0.05)
    replicas.bus = True
    assert replicas.load(60.0, [40.0, 0.0, 0.0, 0.0]) <= 600  # what the leases gave too much is paid back
    assert replicas.load(60.0, [40.0, 0.0, 0.0, 0.0]) == pytest.approx(600, rel=0.05)


@pytest.mark.parametrize("limit", ["max_in_flight", "max_queued"])
def test_a_tenant_that_may_have_nothing_gets_nothing_without_the_bus_either(limit: str) -> None:
    def asked(most: int) -> list[bool]:
        mesh = Replicas(2, TenantLimits(tenant=TENANT, **{limit: most}))
        for name in mesh.gates:
            mesh.run(mesh.now_s + 2.0)
            if mesh.ask(name):
                mesh.end(name, 0)
        mesh.bus = False
        mesh.run(mesh.now_s + 20.0)
        return [mesh.ask("g0"), mesh.ask("g1"), mesh.ask("g1")]

    assert asked(0) == [False, False, False]
    assert asked(1) == [True, True, False]  # each of them, because none can know of the other


def test_a_gateway_that_died_leaves_its_share_and_one_that_starts_takes_up_the_rest() -> None:
    replicas = Replicas(2, TenantLimits(tenant=TENANT, requests_per_min=600.0, max_in_flight=20))
    replicas.load(60.0, [20.0, 20.0], held_s=0.1)
    for _ in range(10):
        replicas.ask("g0")
    del replicas.gates["g0"]
    replicas.run(replicas.now_s + 3.0)
    taken = sum(replicas.ask("g1") for _ in range(40))
    assert taken >= 19  # those in flight at the other died with it
    for _ in range(taken):
        replicas.end("g1", 0)
    assert replicas.load(60.0, [0.0, 40.0], held_s=0.1) == pytest.approx(600, rel=0.05)
    replicas.start("g0", "2")
    replicas.run(replicas.now_s + 1.0)
    assert replicas.load(60.0, [20.0, 20.0], held_s=0.1) == pytest.approx(600, rel=0.05)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0.001, 0.4)), max_size=200),
    st.integers(1, 4),
    st.floats(0.0, 0.4),
    st.integers(1, 60),
)
def test_never_more_than_an_exchange_too_much(
    asks: list[tuple[int, float]], gateways: int, delay_s: float, limit: int
) -> None:
    """Whatever comes when: what is taken stays below what one bucket gives, but for a lease and an overdraft of each
    gateway."""
    replicas = Replicas(gateways, TenantLimits(tenant=TENANT, requests_per_min=float(limit)), delay_s)
    replicas.run(3.0)
    for which, gap_s in asks:
        replicas.run(replicas.now_s + gap_s)
        replicas.ask(f"g{which % gateways}")
    given = limit + limit * replicas.now_s / 60.0
    leases = limit * (gateways - 1) / gateways
    assert sum(replicas.accepted.values()) <= given + leases + 2 * gateways


def test_a_promise_of_one_gateway_is_kept_by_another_and_once() -> None:
    a, b = (Promises(GatewayConfig(gateway=name)) for name in "ab")
    assert a.make(10.0, "x", 5.0) == 5.0
    assert a.changed
    told, redeemed = a.report(10.2)
    assert not a.changed
    b.hear(110.2, told, redeemed)  # its clock is another
    assert not b.redeem(114.9, "x")
    assert b.redeem(115.0, "x")
    told, redeemed = b.report(115.1)
    assert (told, redeemed) == ((), ("x",))
    a.hear(15.1, told, redeemed)
    assert not a.redeem(15.1, "x")


def test_limits_hold_for_more_tenants_than_a_report_has() -> None:
    neighbours = NeighbourConfig(max_reported=8)
    names = [f"t{i:02}" for i in range(12)]
    table = tuple(TenantLimits(tenant=name, requests_per_min=600, max_in_flight=40) for name in names)
    gates = [TenantGate(GatewayConfig(gateway=g, incarnation="1", neighbours=neighbours)) for g in ("g0", "g1")]
    for gate in gates:
        gate.change(0.0, table)
    taken, peak, running = Counter[str](), Counter[str](), deque[tuple[float, TenantGate, str]]()
    for step in range(1200):
        now_s = step * TICK_S
        reports = [(f"g{i}", gate.exchange(now_s)) for i, gate in enumerate(gates)]
        for (name, uses), gate in product(reports, gates):
            if uses is not None:
                assert len(uses) <= 8
                report = UseReport(gateway=name, incarnation="1", uses=uses, promised=(), redeemed=())
                gate.hear(now_s, report)
        while running and running[0][0] <= now_s:
            _, gate, tenant = running.popleft()
            gate.ended(tenant, waiting=True, tokens=0)
        for gate, tenant, _ in product(gates, names, range(2)):
            if gate.refusal(now_s, tenant, 100) is None:
                gate.accept(now_s, tenant, 100)
                running.append((now_s + 0.5, gate, tenant))
                taken[tenant] += 1
        in_flight = Counter(tenant for _, _, tenant in running)
        peak |= in_flight if now_s > 2.0 else Counter()  # later than the first reports
    assert [taken[name] for name in names] == [pytest.approx(1200, rel=0.05)] * 12  # a burst of one minute's, and one
    assert max(peak.values()) <= 42
