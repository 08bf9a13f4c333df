"""The example package of classic orders: its entry points name them, and each does what its name says."""

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.request import Slo
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.queue import RequestQueue
from hmas.worker.agent.order.topologies import TOPOLOGIES, MakeTopology, Topology
from hmas.worker.agent.order.topologies.fair_share import FairShareConfig
from hmas_classic_orders.keys import AGEING_S
from hmas_classic_orders.lottery import TICKETS, Lottery, LotteryConfig, TicketTree
from hmas_classic_orders.shares import LEVEL_RANK, Mlfq, MlfqConfig, RoundRobin
from tests.worker.builders import annotation, entry, request
from tests.worker.topologies.fair_service import (
    LARGEST,
    order_after_a_retry,
    shares_of_service,
    turns_beside_a_newcomer,
    turns_of_one_and_of_many_flows,
)

PROJECT = Path(__file__).parents[2] / "examples" / "plugins" / "hmas-classic-orders" / "pyproject.toml"
QUANTUM = 500
FAIR = ("stride", "cfs", "rr", "lottery")


def entry_points() -> dict[str, MakeTopology]:
    """What the package adds, by name, loaded as an installed package's would be."""
    table = tomllib.loads(PROJECT.read_text())["project"]["entry-points"]["hmas.topologies"]
    return {name: EntryPoint(name, value, "hmas.topologies").load() for name, value in table.items()}


ORDERS = entry_points()


def make(name: str, hints: Hints | None = None) -> Topology:
    return ORDERS[name](hints or Hints(quantum_tokens=QUANTUM))


def order(topology: Topology) -> list[str]:
    return [head.request.id for head in iter(topology.pop, None)]


def fill(topology: Topology, entries: list[QueueEntry]) -> Topology:
    for each in entries:
        topology.push(each)
    return topology


def of(tenant: str, seq: int, prompt_tokens: int = 100, weight: float = 1.0) -> QueueEntry:
    return entry(seq, request(f"r{seq}", tenant=tenant, prompt_tokens=prompt_tokens, weight=weight), tokens=0.0)


def costed(seq: int, total_s: float, slo_ttft: float = 100.0) -> QueueEntry:
    made = entry(seq, request(f"r{seq}"))
    made.annotate(annotation(10.0, ttft_s=total_s, tpot_s=0.0, slo=Slo(slo_ttft, 0.0)))
    return made


def test_the_package_names_its_orders_by_their_own_names_and_takes_none_that_is_built_in() -> None:
    assert {name: make(name).name for name in ORDERS} == {name: TopologyName(name) for name in ORDERS}
    assert not set(ORDERS) & set(TOPOLOGIES)
    assert [name for name in ORDERS if not make(name).uses_tags] == ["priority"]


def waiting() -> list[QueueEntry]:
    """60 requests of three tenants, in order of arrival; c has twice the weight."""
    rng, made = Random(3), []
    for seq in range(60):
        tenant = rng.choice("abc")
        offered = request(
            f"r{seq}", tenant=tenant, flow=rng.choice("xy"), prompt_tokens=rng.randint(1, 4000),
            weight=1.0 + (tenant == "c"), arrival_s=seq + rng.random(), priority=rng.randint(0, 3),
        )  # fmt: skip
        made.append(entry(seq, offered, tokens=rng.uniform(1, 500)))
    return made


@pytest.mark.parametrize("name", ORDERS)
def test_a_worker_s_queue_takes_each_up_in_place_and_serves_each_request_once(name: str) -> None:
    queue = RequestQueue(100, 10**9, {**TOPOLOGIES, **ORDERS})
    for each in waiting():
        queue.add(each)
        queue.wake(each)
    assert queue.switch(TopologyName(name), Hints(quantum_tokens=QUANTUM))
    assert queue.uses_tags is (name != "priority")
    served = []
    while (head := queue.peek()) is not None:
        assert queue.take() is head
        assert 0 < len(queue.order(0).why(head, 100.0)) < 100
        served.append(head.request.id)
    assert served == order(fill(make(name), waiting()))
    assert sorted(served) == sorted(f"r{seq}" for seq in range(60))


@pytest.mark.parametrize("name", ORDERS)
def test_what_is_taken_out_is_not_served(name: str) -> None:
    entries = waiting()
    topology = fill(make(name), entries)
    for gone in entries[::3]:
        topology.remove(gone)
    assert len(topology) == 40
    assert sorted(order(topology)) == sorted(f"r{seq}" for seq in range(60) if seq % 3)


def test_the_least_laxity_goes_first() -> None:
    entries = [costed(0, 1.0, 50.0), costed(1, 40.0, 60.0), costed(2, 5.0, 70.0)]  # laxity 49, 20 and 65
    assert order(fill(make("llf"), entries)) == ["r1", "r0", "r2"]


def test_the_shortest_remaining_time_goes_first() -> None:
    entries = [costed(1, 9.0), costed(2, 1.0), costed(3, 5.0), costed(4, 1.0)]
    assert order(fill(make("srtf"), entries)) == ["r2", "r4", "r3", "r1"]


def test_priority_ages() -> None:
    waits = entry(0, request("r0", priority=1, arrival_s=0.0))
    fresh, later = (entry(i, request(f"r{i}", priority=0, arrival_s=AGEING_S + s)) for i, s in ((1, -0.1), (2, 0.1)))
    assert order(fill(make("priority"), [waits, later, fresh])) == ["r1", "r0", "r2"]


@pytest.mark.parametrize("name", FAIR)
@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (1.0, 2.0, 4.0)])
def test_backlogged_tenants_share_service_by_weight(name: str, weights: tuple[float, float, float]) -> None:
    shares = shares_of_service(make(name), weights)
    proportional_in_the_mean = 0.25 * max(shares)
    bound = proportional_in_the_mean if name == "lottery" else 2 * LARGEST + 2 * QUANTUM
    assert max(shares) - min(shares) <= bound


@pytest.mark.parametrize("name", FAIR)
def test_idling_earns_no_credit(name: str) -> None:
    assert 15 <= turns_beside_a_newcomer(make(name)) <= 45


def test_a_newcomer_starts_at_the_top_of_the_feedback_queue_and_sinks_by_what_it_gets() -> None:
    assert 0 < turns_beside_a_newcomer(make("mlfq")) < 30


@pytest.mark.parametrize("name", FAIR)
def test_opening_flows_gains_nothing(name: str) -> None:
    one, many = turns_of_one_and_of_many_flows(make(name))
    assert abs(one - many) <= (40 if name == "lottery" else 6)


@pytest.mark.parametrize("name", FAIR)
def test_a_retry_goes_before_its_tenants_other_requests(name: str) -> None:
    assert order_after_a_retry(make(name)) == ["r0", "r2", "r3", "r4"]


@pytest.mark.parametrize("name", ["stride", "cfs", "rr", "mlfq", "lottery"])
def test_idle_tenants_are_forgotten(name: str) -> None:
    topology = make(name)
    for seq in range(6_000):
        topology.push(of(f"t{seq}", seq))
        head = topology.pop()
        assert head is not None
        topology.on_served(head, head.service, True)
    shares: Any = topology
    assert len(shares._shares) <= 4097


def test_cfs_counts_tokens_as_they_are_served() -> None:
    topology = make("cfs", Hints(quantum_tokens=1))
    for seq in range(4):
        topology.push(entry(seq, request(f"r{seq}", tenant="ab"[seq % 2])))
    first = topology.pop()
    assert first is not None
    assert first.request.tenant == "a"
    topology.on_served(first, 100.0 + 2 * 4000, False)  # a long answer, still running
    second, third = topology.pop(), topology.pop()
    assert second is not None
    assert third is not None
    assert [second.request.tenant, third.request.tenant] == ["b", "b"]


def drained(order: Any) -> str:
    found = ""
    while (popped := order.pop()) is not None:
        found += popped.request.tenant
    return found


def test_round_robin_serves_a_quantum_and_what_is_overdrawn_is_paid_back() -> None:
    order = RoundRobin(Hints(quantum_tokens=200), FairShareConfig())
    for seq in range(6):
        order.push(of("a", seq))
    for seq in range(6, 12):
        order.push(of("b", seq))
    assert drained(order) == "aabbaabbaabb"
    order = RoundRobin(Hints(quantum_tokens=200), FairShareConfig())
    for seq in range(3):
        order.push(of("a", seq, 500))  # 300 beyond its quantum: two rounds are missed
    for seq in range(6, 14):
        order.push(of("b", seq))
    assert drained(order) == drained_by_definition([("a", 500)] * 3 + [("b", 100)] * 8, 200.0)


def drained_by_definition(requests: list[tuple[str, int]], quantum: float) -> str:
    """Serves tenants in turn, round by round; one in debt waits until its quanta have paid it."""
    queues: dict[str, list[int]] = {}
    for tenant, tokens in requests:
        queues.setdefault(tenant, []).append(tokens)
    credit = dict.fromkeys(queues, quantum)
    found = ""
    while any(queues.values()):
        for tenant, queue in queues.items():
            while queue and credit[tenant] > 0.0:
                credit[tenant] -= queue.pop(0)
                found += tenant
            if credit[tenant] <= 0.0 or not queue:
                credit[tenant] += quantum
    return found


def test_round_robin_gives_no_fresh_quantum_within_a_round() -> None:
    order = RoundRobin(Hints(quantum_tokens=200), FairShareConfig())
    order.push(of("b", 1, 300))
    order.push(of("a", 2))
    first = order.pop()
    assert first is not None
    assert first.request.tenant == "b"
    order.push(of("b", 3))  # it has overdrawn this round's quantum
    order.push(of("a", 4))
    assert drained(order) == "aab"
    share = order._share(of("c", 9))
    share.credit = 150.0
    order.charge(share, -500.0)
    assert share.credit == 200.0, "a refund is no more than a quantum"


def test_round_robin_remembers_who_has_used_this_round() -> None:
    order = RoundRobin(Hints(quantum_tokens=200), FairShareConfig())
    order.push(of("b", 1, 300))
    order.push(of("a", 2))
    assert order.pop() is not None
    for tenant, seq in (("b", 3), ("a", 4), ("a", 5)):
        order.push(of(tenant, seq))
    assert drained(order) == "aaab"


def test_mlfq_sinks_with_service_and_is_boosted() -> None:
    topology = make("mlfq", Hints(quantum_tokens=400))
    topology.push(entry(0, request("a0", tenant="a", prompt_tokens=5000)))
    topology.push(entry(1, request("a1", tenant="a")))
    assert topology.pop() is not None  # a has sunk by 5000 tokens
    topology.push(entry(2, request("b0", tenant="b")))
    low = topology.pop()
    assert low is not None
    assert low.request.id == "b0"
    assert low.urgency < LEVEL_RANK
    again = topology.pop()
    assert again is not None
    assert again.urgency >= LEVEL_RANK
    topology.on_served(again, 400.0 * 1000, True)
    topology.push(entry(3, request("a2", tenant="a")))
    topology.pop()  # the boost
    topology.push(entry(4, request("a3", tenant="a")))
    boosted = topology.pop()
    assert boosted is not None
    assert boosted.urgency < LEVEL_RANK


def test_a_feedback_queue_sinks_by_allotments_that_double_and_rises_at_a_boost() -> None:
    order = Mlfq(Hints(quantum_tokens=100), MlfqConfig(levels=4, boost_quanta=1000))
    share = order._share(of("a", 1, weight=2.0))
    levels = []
    for _ in range(16):
        order.charge(share, 100.0)
        levels.append((share.level, share.credit))
    # 200 on the first level, then 400 and 800; on the last one stays
    assert [level for level, _ in levels] == [0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3]
    assert levels[1][1] == levels[5][1] == levels[13][1] == 0.0
    assert order.key(share) == 3 * 2.0**40 + share.tag
    order._boost()
    assert (share.level, share.credit, order._since_boost) == (0, 0.0, 0.0)


def test_a_boost_comes_after_so_many_quanta_of_each_known_tenant() -> None:
    order = Mlfq(Hints(quantum_tokens=100), MlfqConfig(levels=4, boost_quanta=2))
    for seq in range(5):
        order.push(of("a", seq))
    order.push(of("b", 9))
    served = [order._since_boost for _ in range(4) if order.pop() is not None]
    assert served == [100.0, 200.0, 300.0, 0.0]


def test_lottery_is_a_function_of_its_seed() -> None:
    def draw(seed: int) -> list[str]:
        entries = [entry(i, request(f"r{i}", tenant=f"t{i % 5}")) for i in range(60)]
        return order(fill(Lottery(LotteryConfig(seed=seed)), entries))

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_a_lottery_that_begins_with_a_backlog_draws_each_of_it_once() -> None:
    waiting = [of(tenant, seq) for seq, tenant in enumerate("aabcabbc")]
    order = Lottery(LotteryConfig())
    order.rebuild(waiting)
    assert len(order) == 8
    drawn = [popped.seq for _ in range(8) if (popped := order.pop()) is not None]
    assert sorted(drawn) == list(range(8))
    assert (len(order), order.pop(), order._tree.total) == (0, None, 0)


def test_tickets_are_weight_over_expected_service() -> None:
    order = Lottery(LotteryConfig(bias_memory=0.5))
    first, second = of("a", 1, 64, weight=2.0), of("b", 2, 128)
    order.push(first)
    order.push(of("a", 3, 64))
    order.push(second)
    shares = order._shares
    tickets = order._tree._tickets
    assert tickets[shares["a"].slot] == 2 * TICKETS // 64
    assert tickets[shares["b"].slot] == TICKETS // 128
    assert order._tree.total == 2 * TICKETS // 64 + TICKETS // 128
    second.charged = 127.5
    order.on_served(second, 63.5, final=False)
    assert tickets[shares["b"].slot] == TICKETS // 128
    order.on_served(second, 63.5, final=True)  # (0.5 + 63.5) over (0.5 + 127.5): half of what was predicted
    assert tickets[shares["b"].slot] == TICKETS // 64
    order.remove(second)
    assert "b" not in order._shares
    assert order._tree.total == 2 * TICKETS // 64
    assert len(order) == 2


@given(st.lists(st.tuples(st.integers(0, 63), st.integers(0, 50)), max_size=60), st.integers(0, 5))
def test_ticket_tree_finds_the_holder(changes: list[tuple[int, int]], growths: int) -> None:
    tree = TicketTree()
    held = [0]
    for index, (slot, tickets) in enumerate(changes):
        if index % 7 == 0 and len(held) < 1 << growths:
            tree.grow()
            held += [0] * len(held)
        tree.put(slot % len(held), tickets)
        held[slot % len(held)] = tickets
    owners = [slot for slot, tickets in enumerate(held) for _ in range(tickets)]
    assert tree.total == len(owners)
    assert [tree.find(ticket) for ticket in range(tree.total)] == owners
