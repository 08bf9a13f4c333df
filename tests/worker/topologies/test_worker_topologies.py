"""What each topology means, by example."""

from itertools import pairwise
from random import Random

import pytest

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.request import Slo
from hmas.worker.agent.engines.service_view import EngineOccupancy, ServiceView
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.topologies import TOPOLOGIES, Topology
from tests.worker.builders import annotation, entry, request
from tests.worker.topologies.fair_service import (
    LARGEST,
    order_after_a_retry,
    shares_of_service,
    turns_beside_a_newcomer,
    turns_of_one_and_of_many_flows,
)


def make(name: TopologyName, hints: Hints | None = None) -> Topology:
    return TOPOLOGIES[name](hints or Hints())


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


def test_tags_change_every_order_but_that_of_arrival() -> None:
    assert [name for name in TopologyName if not make(name).uses_tags] == [TopologyName.FCFS]


def test_only_the_order_that_plans_ahead_promises_a_place() -> None:
    waiting = entry(1)
    promises = {name: fill(make(name), [waiting]).promise_s(waiting) for name in TopologyName}
    assert [name for name, promise_s in promises.items() if promise_s is not None] == [TopologyName.MAX_ON_TIME]


def test_fcfs_orders_by_arrival_at_the_gateway() -> None:
    late = entry(1, request("late", arrival_s=5.0))
    early = entry(2, request("early", arrival_s=1.0))
    assert order(fill(make(TopologyName.FCFS), [late, early])) == ["early", "late"]


def test_edf_orders_by_deadline() -> None:
    entries = [costed(0, 1.0, slo_ttft=50.0), costed(0, 40.0, slo_ttft=60.0), costed(0, 5.0, slo_ttft=70.0)]
    for seq, each in enumerate(entries):
        each.seq = seq
        each.request = request(f"r{seq}")
    assert order(fill(make(TopologyName.EDF), entries)) == ["r0", "r1", "r2"]


def test_sjf_orders_by_predicted_service_time() -> None:
    entries = [costed(1, 9.0), costed(2, 1.0), costed(3, 5.0), costed(4, 1.0)]
    assert order(fill(make(TopologyName.SJF), entries)) == ["r2", "r4", "r3", "r1"]


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


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (1.0, 2.0, 4.0)])
def test_backlogged_tenants_share_service_by_weight(weights: tuple[float, float, float]) -> None:
    shares = shares_of_service(make(TopologyName.WFQ), weights)
    assert max(shares) - min(shares) <= 2 * LARGEST


def test_idling_earns_no_credit() -> None:
    assert 15 <= turns_beside_a_newcomer(make(TopologyName.WFQ)) <= 45


def test_opening_flows_gains_nothing() -> None:
    one, many = turns_of_one_and_of_many_flows(make(TopologyName.WFQ))
    assert abs(one - many) <= 6


def test_a_retry_goes_before_its_tenants_other_requests() -> None:
    assert order_after_a_retry(make(TopologyName.WFQ)) == ["r0", "r2", "r3", "r4"]


def test_flows_of_one_tenant_take_turns() -> None:
    topology = make(TopologyName.WFQ)
    entries = [entry(i, request(f"x{i}", flow="x")) for i in range(4)]
    entries += [entry(10 + i, request(f"y{i}", flow="y")) for i in range(4)]
    flows = [i[0] for i in order(fill(topology, entries))]
    assert all(left != right for left, right in pairwise(flows))


def test_wfq_serves_the_least_virtual_finish() -> None:
    long = entry(1, request("long", tenant="a", prompt_tokens=1000))
    short = entry(2, request("short", tenant="b", prompt_tokens=10))
    heavy = entry(3, request("heavy", tenant="c", prompt_tokens=1000, weight=100.0))
    assert order(fill(make(TopologyName.WFQ), [long, short, heavy])) == ["heavy", "short", "long"]


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
