"""A tenant that floods pays first, and what a refused request is told."""

import pytest

from hmas.contracts.control import Hints
from hmas.contracts.request import Slo
from hmas.worker.agent.engines.service_view import EngineOccupancy, ServiceView
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.served_shares import ServedShares
from hmas.worker.agent.order.topologies.max_on_time import MaxOnTime, MaxOnTimeConfig
from tests.worker.builders import annotation, entry, request

CONFIG = MaxOnTimeConfig()
SERVED = CONFIG.fairness.served
SLO = Slo(10.0, 0.1)


def asking(seq: int, tenant: str = "t", prefill_s: float = 1.0, arrival_s: float = 0.0) -> QueueEntry:
    made = entry(seq, request(f"r{seq}", tenant=tenant, arrival_s=arrival_s, slo=SLO))
    made.annotate(annotation(1.0, ttft_s=prefill_s, tpot_s=0.0, slo=SLO))
    return made


def view(now_s: float) -> ServiceView:
    return ServiceView(now_s, (EngineOccupancy(cap=8, running=4, kv_tokens=0, kv_free_tokens=0),))


def test_shares_are_of_service_over_weight_and_are_forgotten() -> None:
    shares = ServedShares(SERVED)
    assert shares.excess("a") == 0.0
    shares.add(0.0, "a", 1.0, 300.0)
    shares.add(0.0, "b", 3.0, 300.0)
    assert (shares.excess("a"), shares.excess("b")) == pytest.approx((2.0, 2.0 / 3.0))
    shares.add(2.0 * SERVED.window_s, "b", 3.0, 300.0)
    assert shares.excess("a") < 0.5
    shares.add(SERVED.silent_s + 1.0, "b", 3.0, 1.0)
    assert shares.excess("a") == 0.0  # silent for so long, it counts no more, and neither does its weight
    assert shares.excess("b") == pytest.approx(1.0)


def test_what_is_told_at_one_instant_adds_up() -> None:
    single, joined = ServedShares(SERVED), ServedShares(SERVED)
    for shares, parts in ((single, (200.0,)), (joined, (50.0, 0.0, 150.0))):
        shares.add(1.0, "a", 1.0, 300.0)
        for part in parts:
            shares.add(5.0, "b", 1.0, part)
    assert joined.excess("a") == pytest.approx(single.excess("a"))
    assert joined.excess("b") == pytest.approx(single.excess("b"))


def test_as_many_tenants_are_known_as_there_is_room_for() -> None:
    shares = ServedShares(SERVED)
    for number in range(SERVED.max_tenants + 10):
        shares.add(0.0, f"t{number}", 1.0, 1.0)
    assert (shares.excess("t0"), shares.excess("t9")) == (0.0, 0.0)
    assert shares.excess(f"t{SERVED.max_tenants}") > 0.0


def fresh() -> MaxOnTime:
    """One that has seen what a step costs by itself: nothing."""
    topology = MaxOnTime(Hints(), CONFIG)
    topology.push(asking(1000, prefill_s=0.0))
    topology.pop()
    return topology


def served(topology: MaxOnTime, tenant: str, tokens: float, seq: int) -> None:
    topology.push(made := asking(seq, tenant, prefill_s=0.01))
    assert topology.pop() is made
    topology.on_served(made, tokens, final=False)
    topology.on_served(made, tokens, final=True)  # what was counted is not counted again


def test_the_tenant_that_floods_gives_up_its_work_before_the_others_give_up_dearer_work() -> None:
    topology = MaxOnTime(Hints(), CONFIG)
    for number in range(3):
        served(topology, f"small{number}", 100.0, number)
    served(topology, "flood", 900.0, 3)
    flood = [asking(10 + n, "flood", prefill_s=1.0) for n in range(8)]
    dear = [asking(20 + n, f"small{n}", prefill_s=2.5) for n in range(2)]
    for made in (*flood, *dear):
        topology.push(made)
    topology.observe(view(0.0))
    assert not any(made.relegated for made in dear)
    assert any(made.relegated for made in flood)


def test_below_half_as_much_again_as_its_share_a_tenant_is_as_good_as_another() -> None:
    topology = MaxOnTime(Hints(), CONFIG)
    served(topology, "more", 140.0, 0)
    served(topology, "less", 100.0, 1)
    cheap = [asking(10 + n, "more", prefill_s=1.0) for n in range(8)]
    dear = [asking(20 + n, "less", prefill_s=2.5) for n in range(2)]
    for made in (*cheap, *dear):
        topology.push(made)
    topology.observe(view(0.0))
    assert all(made.relegated for made in dear)


def test_after_a_burst_a_request_is_told_to_wait_until_what_goes_before_it_is_done() -> None:
    """Cheaper work at the cold rate of 0.8/s, of which it may wait 8 s."""
    topology = fresh()
    topology.observe(view(0.0))
    cheap = [asking(n, prefill_s=0.5) for n in range(24)]
    dear = asking(99, prefill_s=2.0)
    for made in (*cheap, dear):
        topology.push(made)
    topology.observe(view(0.0))
    assert dear.relegated
    kept_s = sum(made.prefill_s for made in cheap if not made.relegated)
    assert topology.promise_s(dear) == pytest.approx(max(0.0, kept_s / 0.8 - 8.0))


def test_promises_take_no_more_than_their_share_of_the_rate() -> None:
    """Each is of 2 s of work, at the cold rate of 0.8/s."""
    topology, told = fresh(), []
    for seq in range(10):
        dear = asking(seq, prefill_s=2.0)
        topology.push(dear)
        told.append(topology.promise_s(dear))
        topology.remove(dear)
    apart_s = 2.0 / (CONFIG.promised_share * 0.8)
    assert told == pytest.approx([max(0.0, n * apart_s - CONFIG.promised_ahead_s) for n in range(1, 11)])
    assert told[-1] > 0.0
    topology.observe(view(1000.0))
    topology.push(dear)
    assert topology.promise_s(dear) == 0.0  # a quiet time later


def test_who_was_promised_a_place_is_given_up_last() -> None:
    topology = fresh()
    cheap = [asking(n, prefill_s=1.0) for n in range(40)]
    dear = asking(99, prefill_s=4.0)
    dear.promised = True
    for made in (*cheap, dear):
        topology.push(made)
    topology.observe(view(0.0))
    assert any(made.relegated for made in cheap)
    assert not dear.relegated
