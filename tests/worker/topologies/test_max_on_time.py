"""The order of deadlines against one walk over all jobs, and what MaxOnTime adds to Moore-Hodgson."""

from dataclasses import replace
from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.control import Hints, StepTime
from hmas.contracts.request import Slo
from hmas.worker.agent.engines.service_view import EngineOccupancy, ServiceView
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order import deadline_order
from hmas.worker.agent.order.deadline_order import DeadlineOrder
from hmas.worker.agent.order.fairness import FairnessConfig
from hmas.worker.agent.order.planned_work import PlannedWork
from hmas.worker.agent.order.relegated import RelegatedConfig
from hmas.worker.agent.order.service_rate import ServiceRate, ServiceRateConfig
from hmas.worker.agent.order.surges import SurgesConfig
from hmas.worker.agent.order.topologies.max_on_time import (
    RELEGATED_RANK,
    MaxOnTime,
    MaxOnTimeConfig,
)
from hmas.worker.agent.order.work_model import WorkModelConfig
from tests.worker.builders import annotation, entry, request


def job_of(seq: int, row: tuple[int, int]) -> PlannedWork:
    return PlannedWork(entry(seq), float(row[1]), float(row[1]), float(row[0]), float(row[0]))


def naive(kept: list[PlannedWork], now_s: float, rate: float) -> PlannedWork | None:
    before, highest_priced = 0.0, None
    for job in sorted(kept, key=lambda j: j.rank):
        before += job.work
        if highest_priced is None or job.price >= highest_priced.price:
            highest_priced = job
        if before > rate * (job.due_s - now_s) + 1e-9:
            return job if job.work > rate * (job.due_s - now_s) else highest_priced
    return None


def naive_quickest(kept: list[PlannedWork], now_s: float, rate: float, share: float) -> PlannedWork | None:
    best, before, spare = None, 0.0, inf
    for job in sorted(kept, key=lambda j: j.rank):
        if best is None or (job.passing <= spare and job.passing < best.work):
            best = job
        before += job.work
        spare = min(spare, share * (rate * (job.due_s - now_s) - before))
    return best


def finished(kept: list[PlannedWork], rate: float, share: float) -> dict[int, float]:
    """When each job ends, by number, if the quickest goes first every time."""
    order, now_s, ends = DeadlineOrder(), 0.0, dict[int, float]()
    for job in kept:
        order.add(job)
    while (head := order.quickest(now_s, rate, share, 100)) is not None:
        order.remove(head.entry)
        now_s += head.work / rate
        ends[head.entry.seq] = now_s
    return ends


@given(st.integers(0, 1 << 30), st.sampled_from([0.05, 0.5, 1.0]), st.sampled_from([0.5, 1.0, 4.0]), st.booleans())
def test_short_jobs_that_go_first_make_no_planned_job_late(
    seed: int, share: float, rate: float, all_pass: bool
) -> None:
    """Whoever is on time in deadline order still is. Where every job may pass others, the sum of all waits is no longer
    than in that order; a short one that may not pass can be passed by a longer one."""
    rng = Random(seed)
    size, deadline_order.BLOCK = deadline_order.BLOCK, 3
    try:
        kept = [_job(rng, n, 1.0 if all_pass else 0.8) for n in range(rng.randrange(25))]
        planned, quick = finished(kept, rate, 0.0), finished(kept, rate, share)
    finally:
        deadline_order.BLOCK = size
    for job in kept:
        if planned[job.entry.seq] <= job.due_s:
            assert quick[job.entry.seq] <= job.due_s + 1e-9
    if all_pass:
        assert sum(quick.values()) <= sum(planned.values()) + 1e-6


def test_only_the_first_blocks_are_looked_at() -> None:
    size, deadline_order.BLOCK = deadline_order.BLOCK, 2
    try:
        order = DeadlineOrder()
        order.refill(job_of(seq, (9 - seq, 100 + seq)) for seq in range(6))
        assert [job.entry.seq for most in (1, 2, 3) if (job := order.quickest(0.0, 1.0, 1.0, most))] == [1, 3, 5]
    finally:
        deadline_order.BLOCK = size


@given(st.integers(0, 1 << 30))
def test_blocks_answer_as_one_walk_would(seed: int) -> None:
    rng = Random(seed)
    size, deadline_order.BLOCK = deadline_order.BLOCK, 3
    try:
        order, kept = DeadlineOrder(), dict[int, PlannedWork]()
        if rng.random() < 0.5:
            kept = {n: _job(rng, n) for n in range(rng.randrange(40))}
            order.refill(kept.values())
        for n in range(100, 160):
            if kept and rng.random() < 0.4:
                gone = kept.pop(rng.choice(sorted(kept)))
                assert order.remove(gone.entry) is gone
            else:
                kept[n] = _job(rng, n)
                order.add(kept[n])
            now_s, rate = rng.choice([0.0, 3.0]), rng.choice([0.5, 1.0, 4.0])
            assert order.sacrifice(now_s, rate) is naive(list(kept.values()), now_s, rate)
            assert order.first() is min(kept.values(), key=lambda j: j.rank, default=None)
            share = rng.choice([0.0, 0.1, 0.5, 1.0])  # one job in five may not pass others
            assert order.quickest(now_s, rate, share, 100) is naive_quickest(list(kept.values()), now_s, rate, share)
            assert len(order) == len(kept)
    finally:
        deadline_order.BLOCK = size


def _job(rng: Random, seq: int, passing: float = 0.8) -> PlannedWork:
    due_s = rng.choice([1.0, 5.0, 20.0, 60.0]) + rng.random()
    work = rng.randint(1, 8) / 8
    place_s, price = due_s + rng.random(), work / rng.choice([1.0, 2.0])
    return PlannedWork(entry(seq), place_s, due_s, work, price, passes=rng.random() < passing)


def view(now_s: float, running: int = 4) -> ServiceView:
    return ServiceView(now_s, (EngineOccupancy(cap=8, running=running, kv_tokens=0, kv_free_tokens=0),))


def prefilling(
    seq: int, work_s: float, *, ttft_s: float = 4.0, arrival_s: float = 0.0, weight: float = 1.0, priority: int = 0
) -> QueueEntry:
    """A request that takes `work_s` of the engine for its prompt and nothing else."""
    made = entry(seq, request(f"r{seq}", arrival_s=arrival_s, weight=weight, priority=priority))
    made.annotate(annotation(0.0, ttft_s=work_s, tpot_s=0.0, slo=Slo(ttft_s, 0.1)))
    return made


def filled(entries: list[QueueEntry]) -> MaxOnTime:
    topology = MaxOnTime(Hints(), MaxOnTimeConfig())
    for each in entries:
        each.relegated = False
        topology.push(each)
    return topology


def drained(topology: MaxOnTime) -> list[int]:
    order = []
    while (head := topology.peek()) is not None:
        assert topology.pop() is head
        order.append(head.seq)
    return order


def test_the_costliest_steps_aside_and_is_served_last() -> None:
    entries = [prefilling(1, 0.3, ttft_s=3.0), prefilling(2, 2.0, ttft_s=3.5), prefilling(3, 0.4, ttft_s=3.2)]
    topology = filled(entries)
    topology.observe(view(0.0))
    assert [e.seq for e in entries if e.relegated] == [2]
    assert drained(topology) == [1, 3, 2]


def test_equals_that_can_all_be_on_time_keep_deadline_order() -> None:
    entries = [prefilling(n, 0.1, ttft_s=9.0 - n) for n in range(5)]
    topology = filled(entries)
    topology.observe(view(0.0))
    assert not any(e.relegated for e in entries)
    assert drained(topology) == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(("share", "order"), [(0.0, [1, 2, 3, 4]), (0.3, [4, 1, 2, 3]), (1.0, [4, 2, 1, 3])])
def test_a_short_one_goes_first_where_the_others_have_time(share: float, order: list[int]) -> None:
    """The first can wait 0.7 s, of which the share is what a shorter one may take."""
    topology = MaxOnTime(Hints(slack_share=share), MaxOnTimeConfig(surges=SurgesConfig(least=1.0)))
    due = {1: (1.0, 2.6), 2: (0.5, 3.5), 3: (1.2, 9.0), 4: (0.1, 10.0)}
    for seq, (work_s, ttft_s) in due.items():
        topology.push(prefilling(seq, work_s, ttft_s=ttft_s))
    topology.observe(view(0.0))
    assert drained(topology) == order


def test_a_tenant_that_floods_passes_nobody() -> None:
    """Two tenants share; one was served 90 % of all tokens."""
    for flooding, order in ((False, [12, 11]), (True, [11, 12])):
        config = MaxOnTimeConfig(surges=SurgesConfig(least=1.0), fairness=FairnessConfig(tolerated=1.5))
        topology = MaxOnTime(Hints(slack_share=1.0), config)
        for tenant, tokens in (("flood", 9e5 if flooding else 1e5), ("other", 1e5)):
            served = entry(1, request("s", tenant=tenant))
            topology.on_served(served, tokens, True)
        for seq, tenant, work_s, ttft_s in ((11, "other", 1.0, 5.0), (12, "flood", 0.01, 20.0)):
            made = entry(seq, request(f"r{seq}", tenant=tenant, arrival_s=0.0))
            made.annotate(annotation(0.0, ttft_s=work_s, tpot_s=0.0, slo=Slo(ttft_s, 0.1)))
            topology.push(made)
        topology.observe(view(0.0))
        assert drained(topology) == order


def test_the_objective_of_tokens_keeps_deadline_order() -> None:
    topology = MaxOnTime(Hints(by_tokens=True, slack_share=1.0), MaxOnTimeConfig(surges=SurgesConfig(least=1.0)))
    for seq, (work_s, ttft_s) in {1: (1.0, 5.0), 2: (0.01, 20.0)}.items():
        topology.push(prefilling(seq, work_s, ttft_s=ttft_s))
    topology.observe(view(0.0))
    assert drained(topology) == [1, 2]


@pytest.mark.parametrize(("every_s", "first"), [(1, 10_002), (20, 10_001)])
def test_bursts_leave_less_of_the_slack_to_short_ones(every_s: int, first: int) -> None:
    """Equal loads, spread evenly or all of twenty seconds at once: only where they are even may the short one pass."""
    topology = MaxOnTime(
        Hints(), MaxOnTimeConfig(work=WorkModelConfig(rate=ServiceRateConfig(window_s=1e9, cold_s=1e9)))
    )

    def arrive(seq: int, work_s: float, second: float, ttft_s: float = 4.0) -> None:
        made = prefilling(seq, work_s, arrival_s=second, ttft_s=ttft_s)
        made.enqueued_s = second
        topology.push(made)

    for second in range(100):
        for n in range(every_s if second % every_s == 0 else 0):
            arrive(100 * second + n, 0.1, float(second))
        topology.observe(view(float(second)))
        while topology.pop() is not None:
            pass
    arrive(10_001, 1.0, 100.0, ttft_s=5.0)
    arrive(10_002, 0.5, 100.0, ttft_s=9.0)
    topology.observe(view(100.0))
    assert drained(topology)[0] == first


def test_one_that_goes_first_ranks_before_those_that_it_passes() -> None:
    long, short = prefilling(1, 1.0, ttft_s=5.0), prefilling(2, 0.01, ttft_s=9.0)
    topology = filled([long, short])
    topology.observe(view(0.0))
    assert drained(topology) == [2, 1]
    assert short.urgency <= long.urgency


@pytest.mark.parametrize("spare", [{"priority": 2}, {"weight": 0.25}])
def test_low_priority_and_low_weight_step_aside_first(spare: dict[str, float]) -> None:
    entries = [prefilling(n, 0.5, ttft_s=2.0) for n in range(1, 4)] + [prefilling(4, 0.4, ttft_s=1.9, **spare)]  # type: ignore[arg-type]
    topology = filled(entries)
    topology.observe(view(0.0))
    relegated = [e.seq for e in entries if e.relegated]
    assert 4 in relegated
    assert len(relegated) < len(entries)


def test_a_relegated_request_that_could_still_make_it_goes_before_one_that_cannot() -> None:
    gone, kept, still = prefilling(1, 0.1, ttft_s=0.3), prefilling(2, 4.0, ttft_s=6.0), prefilling(3, 4.2, ttft_s=6.1)
    topology = filled([gone, kept, still])
    topology.observe(view(0.0))
    topology.observe(view(0.4))
    assert [e.seq for e in (gone, kept, still) if e.relegated] == [1, 3]
    assert drained(topology) == [2, 3, 1]


def test_relegated_work_gets_its_share_under_lasting_overload() -> None:
    """Cheap requests that fill the engine for ever, and one that was given up: it waits, but not for ever, and all
    that are given up together get no more than their share."""
    topology = filled([])
    old = prefilling(0, 3.0, ttft_s=1.0)
    topology.push(old)
    seq, served_s, relegated_s, waited_s = 0, 0.0, 0.0, None
    for tick in range(6000):
        now_s = tick * 0.1
        for _ in range(2):
            seq += 1
            topology.push(prefilling(seq, 0.1, arrival_s=now_s, ttft_s=2.0))
        topology.observe(view(now_s))
        head = topology.pop()
        assert head is not None
        work = head.prefill_s
        served_s += work
        if head.relegated:
            relegated_s += work
            assert head.urgency >= RELEGATED_RANK  # also where it goes first because it claims its share
        if head is old:
            waited_s = now_s
    assert waited_s is not None
    assert waited_s < 400.0
    assert relegated_s <= 1.1 * RelegatedConfig().most_share * served_s + 3.0


def test_a_prompt_must_be_granted_earlier_where_engines_begin_late() -> None:
    busy = replace(view(0.0).engines[0], prefill_wait_s=2.0)
    for engine, can_wait in ((view(0.0).engines[0], True), (busy, False)):
        topology = MaxOnTime(Hints(), MaxOnTimeConfig())
        topology.observe(ServiceView(0.0, (engine,)))
        long = prefilling(1, 2.0, ttft_s=5.0)
        topology.push(long)
        topology.observe(ServiceView(2.0, (engine,)))
        assert long.relegated is not can_wait


@pytest.mark.parametrize("slots", [4, 256])
def test_a_long_answer_makes_way_on_full_engines_however_many_slots_they_have(slots: int) -> None:
    """An answer of 20 s begins after a short one that is due a second later, not after one due five seconds later."""
    topology = MaxOnTime(Hints(slack_share=0.0), MaxOnTimeConfig())
    full = replace(view(0.0, running=slots).engines[0], cap=slots)
    for n in range(200):
        topology.observe(ServiceView(n * 0.1, (full,)))
    for seq, ttft_s, tokens in ((1, 40.0, 1000.0), (2, 41.0, 1.0), (3, 45.0, 1.0)):
        made = entry(seq, request(f"r{seq}", arrival_s=20.0))
        made.annotate(annotation(tokens, ttft_s=0.1, tpot_s=0.02, slo=Slo(ttft_s, 0.1)))
        topology.push(made)
    assert drained(topology) == [2, 1, 3]


def test_a_step_by_itself_is_no_work_of_a_prompt() -> None:
    """Nine prompts that add 0.1 s each to steps of 0.5 s fit a second; nine of 0.6 s would not."""
    entries = [prefilling(n, 0.6, ttft_s=2.0) for n in range(9)]
    topology = MaxOnTime(Hints(), MaxOnTimeConfig())
    topology.observe(replace(view(0.0), prefill_floor_s=0.5))
    for each in entries:
        topology.push(each)
    topology.observe(replace(view(0.0), prefill_floor_s=0.5))
    assert not any(e.relegated for e in entries)


def test_ranks_put_relegated_requests_behind_all_others() -> None:
    entries = [prefilling(1, 0.3, ttft_s=3.0), prefilling(2, 9.0, ttft_s=3.5)]
    topology = filled(entries)
    topology.observe(view(0.0))
    drained(topology)
    assert entries[0].urgency < entries[1].urgency


def test_work_that_comes_in_lumps_is_no_slower_than_work_that_flows() -> None:
    """A bound on each sample would call an engine idle half of the time for each long prompt."""
    rate = ServiceRate(ServiceRateConfig())
    for n in range(1, 400):
        rate.add(1.0 if n % 2 else 0.0)
        rate.observe(n * 0.5)
    assert rate.value == pytest.approx(1.0, rel=0.1)
    for n in range(400, 500):
        rate.add(5.0)
        rate.observe(n * 0.5)
    assert rate.value <= rate.most


def test_a_rate_is_measured_only_while_requests_wait() -> None:
    rate = ServiceRate(ServiceRateConfig())
    before = rate.value
    for n in range(1, 50):
        rate.ran_dry()
        rate.observe(n * 0.5)
    assert rate.value == before


classed = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 30), st.booleans()), min_size=1, max_size=12)


@given(classed, st.sampled_from([0.5, 1.0, 3.0]))
def test_doubling_the_weight_of_a_class_never_lowers_its_share_on_time(
    offered: list[tuple[int, int, bool]], weight: float
) -> None:
    """Of each request: its work and due time in s, and whether it is of the class."""
    shares = []
    for utility in (weight, 2.0 * weight):
        topology = MaxOnTime(Hints(), MaxOnTimeConfig(max_single_drops=len(offered)))
        entries = []
        for seq, (work, due, inside) in enumerate(offered):
            made = prefilling(seq, float(work), ttft_s=2.0 * due)
            made.annotation = replace(made.annotation, utility=utility if inside else None)  # type: ignore[type-var]
            entries.append(made)
            topology.push(made)
        topology.observe(view(0.0))
        shares.append(sum(not e.relegated for e, (_, _, inside) in zip(entries, offered, strict=True) if inside))
    assert shares[1] >= shares[0]


def test_a_class_of_greater_weight_is_given_up_last() -> None:
    entries = [prefilling(n, 0.5, ttft_s=2.0) for n in range(1, 6)]
    heavy = entries[2]
    assert heavy.annotation is not None
    heavy.annotation = replace(heavy.annotation, utility=0.5)
    topology = filled(entries)
    topology.observe(view(0.0))
    assert heavy.relegated
    heavy.annotation = replace(heavy.annotation, utility=10.0)
    topology = filled(entries)
    topology.observe(view(0.0))
    assert not heavy.relegated
    assert any(e.relegated for e in entries)


def urgency_behind(occupancy: EngineOccupancy) -> float:
    """The urgency of a request of 100 prompt and 400 output tokens behind an engine that has long been as full."""
    order = MaxOnTime(Hints(), MaxOnTimeConfig())
    for step in range(400):
        order.observe(ServiceView(0.01 * step, (occupancy,)))
    waiting = entry(1, request("r1", prompt_tokens=100))
    waiting.annotate(annotation(400.0, ttft_s=0.1, tpot_s=0.05, slo=Slo(10.0, 0.1)))
    order.push(waiting)
    assert order.pop() is waiting
    return waiting.urgency


def test_decoding_puts_a_request_back_equally_where_slots_and_where_memory_are_scarce() -> None:
    """An engine that has room for 40 such sequences delays the next one by as much, whatever it is that is full."""

    def urgency(cap: int, kv_tokens: int) -> float:
        return urgency_behind(EngineOccupancy(cap=cap, running=40, kv_tokens=kv_tokens, kv_free_tokens=0))

    scarce_slots = urgency(40, 0)
    assert scarce_slots == pytest.approx(9.9 + 0.12 * 400 * 0.05, rel=0.02)
    assert urgency(256, 40 * (100 + 400 // 2)) == pytest.approx(scarce_slots, rel=0.02)


def test_the_prompts_part_of_a_step_is_not_counted_beside_the_prompts_themselves() -> None:
    """What a sequence takes of a step is nearly all prompts that follow it; its context is its own."""

    def urgency(sequence_s: float, context_s: float) -> float:
        step = StepTime(base_s=0.01, sequence_s=sequence_s, context_s=context_s)
        return urgency_behind(
            EngineOccupancy(cap=256, running=40, kv_tokens=0, kv_free_tokens=0, step=step, room_s=0.05, used_s=0.05)
        )

    assert urgency(0.005, 1e-5) == pytest.approx(urgency(0.0, 1e-5))
    assert urgency(0.0, 1e-4) > urgency(0.0, 1e-5) > urgency(0.0, 1e-6)
