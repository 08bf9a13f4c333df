"""What each topology means, by example."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.request import Slo
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.service_view import EngineOccupancy, ServiceView
from hmas.worker.agent.topologies import TOPOLOGIES, Topology
from hmas.worker.agent.topologies.mlfq import LEVEL_RANK
from hmas.worker.agent.topologies.priority import PriorityConfig
from tests.worker.builders import annotation, entry, request

FAIR = [TopologyName.WFQ, TopologyName.STRIDE, TopologyName.CFS, TopologyName.RR, TopologyName.LOTTERY]
QUANTUM = 500


def make(name: TopologyName, hints: Hints | None = None, seed: int = 1) -> Topology:
    return TOPOLOGIES[name](hints or Hints(quantum_tokens=QUANTUM), Random(seed))


def order(topology: Topology) -> list[str]:
    ids = []
    while (head := topology.peek()) is not None:
        assert topology.pop() is head
        ids.append(head.request.id)
    return ids


def costed(seq: int, total_s: float, *, slo_ttft: float = 100.0, tenant: str = "t1", priority: int = 0) -> QueueEntry:
    made = entry(seq, request(f"r{seq}", tenant=tenant, arrival_s=float(seq), priority=priority))
    made.annotate(annotation(10.0, ttft_s=total_s, tpot_s=0.0, slo=Slo(slo_ttft, 0.0)))
    return made


def fill(topology: Topology, entries: list[QueueEntry]) -> Topology:
    for each in entries:
        topology.push(each)
    return topology


def test_table_names_every_topology_by_its_own_name() -> None:
    assert set(TOPOLOGIES) == set(TopologyName)
    assert all(make(name).name is name for name in TopologyName)


def test_only_the_order_that_plans_ahead_promises_a_place() -> None:
    waiting = entry(1)
    promises = {name: fill(make(name), [waiting]).promise_s(waiting) for name in TopologyName}
    assert [name for name, promise_s in promises.items() if promise_s is not None] == [TopologyName.MAX_ON_TIME]


def test_fcfs_orders_by_arrival_at_the_gateway() -> None:
    late = entry(1, request("late", arrival_s=5.0))
    early = entry(2, request("early", arrival_s=1.0))
    assert order(fill(make(TopologyName.FCFS), [late, early])) == ["early", "late"]


def test_edf_orders_by_deadline_and_llf_by_laxity() -> None:
    # D: 50, 60, 70; laxity: 49, 20, 65
    entries = [costed(0, 1.0, slo_ttft=50.0), costed(0, 40.0, slo_ttft=60.0), costed(0, 5.0, slo_ttft=70.0)]
    for seq, each in enumerate(entries):
        each.seq = seq
        each.request = request(f"r{seq}")
    assert order(fill(make(TopologyName.EDF), entries)) == ["r0", "r1", "r2"]
    assert order(fill(make(TopologyName.LLF), entries)) == ["r1", "r0", "r2"]


@pytest.mark.parametrize("name", [TopologyName.SJF, TopologyName.SRTF])
def test_shortest_first(name: TopologyName) -> None:
    entries = [costed(1, 9.0), costed(2, 1.0), costed(3, 5.0), costed(4, 1.0)]
    assert order(fill(make(name), entries)) == ["r2", "r4", "r3", "r1"]


def test_priority_ages() -> None:
    waiting = costed(0, 1.0, priority=1)
    fresh = costed(1, 1.0, priority=0)
    fresh_later = entry(2, request("r2", priority=0, arrival_s=PriorityConfig().ageing_s + 0.1))
    assert order(fill(make(TopologyName.PRIORITY), [waiting, fresh_later, fresh])) == ["r1", "r0", "r2"]


def test_two_lane_shares_dispatches_by_weight_and_orders_lanes_by_slack() -> None:
    hints = Hints(lane_gate_s=2.0, fast_weight=0.75)
    fast = [costed(i, 1.0, slo_ttft=100.0 - i * 10) for i in range(6)]
    slow = [costed(10 + i, 9.0) for i in range(6)]
    ids = order(fill(make(TopologyName.TWO_LANE, hints), slow + fast))
    lanes = "".join("f" if int(i[1:]) < 10 else "s" for i in ids)
    assert lanes[:8].count("f") == 6  # six of the eight dispatches while both wait
    assert "ss" not in lanes[:8]
    assert [i for i in ids if int(i[1:]) < 10] == ["r5", "r4", "r3", "r2", "r1", "r0"]
    assert [i for i in ids if int(i[1:]) >= 10] == [f"r{10 + i}" for i in range(6)]


def test_two_lane_keeps_the_slots_of_each_lane_for_its_own() -> None:
    topology = make(TopologyName.TWO_LANE, Hints(lane_gate_s=2.0, fast_slots=0.25))
    fill(topology, [costed(i, 9.0) for i in range(6)] + [costed(10 + i, 1.0) for i in range(4)])
    topology.observe(ServiceView(0.0, (EngineOccupancy(cap=4, running=0, kv_tokens=0, kv_free_tokens=0),)))
    running = [entry for _ in range(9) if (entry := topology.pop()) is not None]
    assert sorted(e.total_s for e in running) == [1.0, 9.0, 9.0, 9.0]
    assert (topology.peek(), len(topology)) == (None, 6)
    topology.on_served(next(e for e in running if e.total_s == 9.0), 5.0, final=False)
    assert topology.peek() is None
    for total_s in (9.0, 1.0):  # the slot of one that ended goes to its own lane
        topology.on_served(next(e for e in running if e.total_s == total_s), 5.0, final=True)
        entry = topology.pop()
        assert entry is not None
        assert (entry.total_s, topology.peek()) == (total_s, None)


def test_two_lane_without_a_hint_gates_at_the_median() -> None:
    topology = make(TopologyName.TWO_LANE, Hints(fast_weight=0.95))
    entries = [costed(i, float(i + 1)) for i in range(10)]
    topology.rebuild(entries)
    first = order(topology)[:5]
    assert sorted(first) == [f"r{i}" for i in range(5)]


def test_two_lane_gate_follows_arrivals() -> None:
    topology = make(TopologyName.TWO_LANE, Hints(fast_weight=0.95))
    rng = Random(3)
    entries = [costed(i, rng.choice([1.0, 2.0, 30.0, 40.0])) for i in range(400)]
    fast = [e for e in order(fill(topology, entries))[:100] if int(e[1:]) >= 100]
    assert fast
    assert all(entries[int(e[1:])].total_s <= 2.0 for e in fast)


@pytest.mark.parametrize("name", FAIR)
@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (1.0, 2.0, 4.0)])
def test_backlogged_tenants_share_service_by_weight(name: TopologyName, weights: tuple[float, ...]) -> None:
    """Service over weight of any two backlogged tenants differs by a few requests and quanta at most."""
    rng = Random(7)
    topology = make(name)
    served = dict.fromkeys(("a", "b", "c"), 0.0)
    for seq in range(3000):
        tenant = "abc"[seq % 3]
        size = {"a": 20, "b": 100, "c": 400}[tenant]
        weight = weights[seq % 3]
        made = request(f"r{seq}", tenant=tenant, prompt_tokens=rng.randint(1, size), weight=weight)
        topology.push(entry(seq, made, tokens=float(rng.randint(1, 50))))
    largest = 400 + 2 * 50
    for _ in range(1000):
        head = topology.pop()
        assert head is not None
        real = head.request.prompt_tokens + 2.0 * rng.randint(1, 50)  # not what was predicted
        topology.on_served(head, real, True)
        served[head.request.tenant] += real
    shares = [served[t] / w for t, w in zip("abc", weights, strict=True)]
    bound: float = 2 * largest + 2 * QUANTUM
    if name is TopologyName.LOTTERY:  # proportional in expectation only
        bound = 0.25 * max(shares)
    assert max(shares) - min(shares) <= bound


@pytest.mark.parametrize("name", [*FAIR, TopologyName.MLFQ])
def test_idling_earns_no_credit(name: TopologyName) -> None:
    """A tenant that comes after others were served alone does not get their past service back."""
    topology = make(name)
    for seq in range(400):
        topology.push(entry(seq, request(f"a{seq}", tenant="a")))
    for _ in range(200):
        head = topology.pop()
        assert head is not None
        topology.on_served(head, head.service, True)
    for seq in range(400, 500):
        topology.push(entry(seq, request(f"b{seq}", tenant="b")))
    tenants: Counter[str] = Counter()
    for _ in range(60):
        head = topology.pop()
        assert head is not None
        topology.on_served(head, head.service, True)
        tenants[head.request.tenant] += 1
    if name is TopologyName.MLFQ:  # a newcomer starts at the top and sinks by what it gets, within a bounded number
        assert tenants["a"] > 0
    else:
        assert 15 <= tenants["a"] <= 45


@pytest.mark.parametrize("name", FAIR)
def test_opening_flows_gains_nothing(name: TopologyName) -> None:
    topology = make(name)
    for seq in range(600):
        tenant, flow = ("many", f"f{seq}") if seq % 2 else ("one", "")
        topology.push(entry(seq, request(f"r{seq}", tenant=tenant, flow=flow)))
    tenants: Counter[str] = Counter()
    for _ in range(200):
        head = topology.pop()
        assert head is not None
        topology.on_served(head, head.service, True)
        tenants[head.request.tenant] += 1
    assert abs(tenants["one"] - tenants["many"]) <= (40 if name is TopologyName.LOTTERY else 6)


def test_flows_of_one_tenant_take_turns() -> None:
    topology = make(TopologyName.STRIDE)
    entries = [entry(i, request(f"x{i}", flow="x")) for i in range(4)]
    entries += [entry(10 + i, request(f"y{i}", flow="y")) for i in range(4)]
    flows = [i[0] for i in order(fill(topology, entries))]
    assert all(left != right for left, right in pairwise(flows))


def test_wfq_serves_the_least_virtual_finish() -> None:
    long = entry(1, request("long", tenant="a", prompt_tokens=1000))
    short = entry(2, request("short", tenant="b", prompt_tokens=10))
    heavy = entry(3, request("heavy", tenant="c", prompt_tokens=1000, weight=100.0))
    assert order(fill(make(TopologyName.WFQ), [long, short, heavy])) == ["heavy", "short", "long"]


def test_cfs_counts_tokens_as_they_are_served() -> None:
    topology = make(TopologyName.CFS, Hints(quantum_tokens=1))
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


def test_round_robin_serves_a_quantum_and_takes_back_what_was_overdrawn() -> None:
    topology = make(TopologyName.RR, Hints(quantum_tokens=400))
    entries = [entry(i, request(f"a{i}", tenant="a", prompt_tokens=100)) for i in range(8)]  # 200 tokens each
    entries += [entry(20 + i, request(f"b{i}", tenant="b", prompt_tokens=900)) for i in range(3)]  # 1000 each
    # b overdraws 600 at its first turn and sits out the next.
    assert order(fill(topology, entries)) == [
        "a0", "a1", "b0", "a2", "a3", "a4", "a5", "b1", "a6", "a7", "b2",
    ]  # fmt: skip


def test_mlfq_sinks_with_service_and_is_boosted() -> None:
    topology = make(TopologyName.MLFQ, Hints(quantum_tokens=400))
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


def test_lottery_is_a_function_of_its_seed() -> None:
    def draw(seed: int) -> list[str]:
        entries = [entry(i, request(f"r{i}", tenant=f"t{i % 5}")) for i in range(60)]
        return order(fill(make(TopologyName.LOTTERY, seed=seed), entries))

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


@pytest.mark.parametrize("name", FAIR)
def test_a_retry_goes_before_its_tenants_other_requests(name: TopologyName) -> None:
    topology = make(name)
    entries = [entry(i, request(f"r{i}")) for i in range(5)]
    fill(topology, entries)
    first = topology.pop()
    assert first is entries[0]
    topology.pop()
    topology.on_served(first, 0.0, True)
    first.tried = ("e1#1",)
    topology.push(first)
    assert order(topology) == ["r0", "r2", "r3", "r4"]


@pytest.mark.parametrize("name", list(TopologyName))
def test_idle_tenants_and_flows_are_forgotten(name: TopologyName) -> None:
    topology = make(name)
    for seq in range(20_000):
        topology.push(entry(seq, request(f"r{seq}", tenant=f"t{seq}", flow=f"f{seq}")))
        head = topology.pop()
        assert head is not None
        topology.on_served(head, head.service, True)
    shares = getattr(topology, "_shares", {})
    assert len(shares) <= 4097
    assert not list(topology)
