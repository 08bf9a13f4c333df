"""The request queue over every topology: nothing lost, nothing twice, the order right."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.request import Cost, KindCost, Slo
from hmas.worker.agent.engines.service_view import EngineOccupancy, ServiceView
from hmas.worker.agent.entry.entry import EntryState, QueueEntry
from hmas.worker.agent.order.queue import RequestQueue
from tests.conftest import examples
from tests.worker.builders import annotation, entry, request

KEYS: dict[TopologyName, Callable[[QueueEntry], float]] = {
    TopologyName.FCFS: lambda e: e.request.arrival_s,
    TopologyName.EDF: lambda e: e.deadline_s,
    TopologyName.SJF: lambda e: e.total_s,
}
picks = st.integers(0, 10_000)
hints = st.builds(
    Hints,
    lane_gate_s=st.none() | st.floats(0.1, 5.0),
    fast_weight=st.floats(0.0, 1.0),
    quantum_tokens=st.integers(0, 5000),
    fast_slots=st.none() | st.floats(0.0, 1.0),
)


SLOTS = 4


class QueueMachine(RuleBasedStateMachine):
    """Against a plain dict of what waits and what runs."""

    start: TopologyName | None = None  # None: also switches

    def __init__(self) -> None:
        super().__init__()
        self.queued: dict[str, QueueEntry] = {}
        self.parked: dict[str, QueueEntry] = {}
        self.running: dict[str, QueueEntry] = {}
        self.seq = 0

    @initialize(first=hints)
    def build(self, first: Hints) -> None:
        self.queue = RequestQueue(40, 1_000_000)
        if self.start is not None:
            self.queue.switch(self.start, first)

    @rule(
        tenant=st.sampled_from("abcd"), flow=st.sampled_from("xy"), prompt=st.integers(0, 3000),
        tokens=st.floats(0, 500), weight=st.sampled_from([0.5, 1.0, 3.0]), priority=st.integers(-3, 3),
        late=st.floats(0, 5),
    )  # fmt: skip
    def submit(
        self, tenant: str, flow: str, prompt: int, tokens: float, weight: float, priority: int, late: float
    ) -> None:
        self.seq += 1
        made = request(
            f"r{self.seq}", tenant=tenant, flow=flow, prompt_tokens=prompt, weight=weight, priority=priority,
            arrival_s=self.seq - late,
        )  # fmt: skip
        new = entry(self.seq, made, tokens=tokens)
        full = len(self.queued) + len(self.parked) >= 40
        assert (self.queue.refusal(new) is not None) == full
        if not full:
            self.queue.add(new)
            self.parked[made.id] = new
            if priority < 3:
                self.wake(0, len(self.parked))

    def _pick(self, of: dict[str, QueueEntry], pick: int) -> QueueEntry:
        return of[sorted(of)[pick % len(of)]]

    @precondition(lambda self: self.parked)
    @rule(first=st.integers(0, 3), last=st.integers(1, 9))
    def wake(self, first: int, last: int) -> None:
        for woken in list(self.parked.values())[first:last]:
            self.queue.wake(woken)
            self.queued[woken.request.id] = self.parked.pop(woken.request.id)

    @precondition(lambda self: self.queued)
    @rule(pick=picks)
    def park(self, pick: int) -> None:
        target = self._pick(self.queued, pick)
        self.queue.park(target)
        self.parked[target.request.id] = self.queued.pop(target.request.id)

    @precondition(lambda self: self.parked)
    @rule(pick=picks)
    def adopt(self, pick: int) -> None:
        target = self._pick(self.parked, pick)
        self.queue.run(target)
        self.running[target.request.id] = self.parked.pop(target.request.id)

    @precondition(lambda self: self.queued)
    @rule(count=st.integers(1, 6))
    def take(self, count: int) -> None:
        for _ in range(min(count, len(self.queued))):
            head = self.queue.peek()
            if head is None and self.started():
                break  # the slots of its lane are taken
            assert head is not None
            key = KEYS.get(self.queue.topology)
            if key is not None:
                assert head is min(self.queued.values(), key=lambda e: (key(e), e.seq))
            assert self.queue.take() is head
            del self.queued[head.request.id]  # KeyError: lost or twice
            self.running[head.request.id] = head

    @precondition(lambda self: self.queued or self.parked)
    @rule(pick=picks)
    def withdraw(self, pick: int) -> None:
        gone = self._pick(self.queued | self.parked, pick)
        self.queue.remove(gone)
        for of in (self.queued, self.parked):
            of.pop(gone.request.id, None)

    @precondition(lambda self: self.queued or self.parked or self.running)
    @rule(pick=picks, tokens=st.floats(0, 900), ttft=st.floats(0, 5), tpot=st.floats(0, 0.1))
    def annotate(self, pick: int, tokens: float, ttft: float, tpot: float) -> None:
        target = self._pick(self.queued | self.parked | self.running, pick)
        self.queue.annotate(target, annotation(tokens, ttft_s=ttft, tpot_s=tpot))

    @precondition(lambda self: self.running)
    @rule(pick=picks, output=st.integers(0, 800))
    def progress(self, pick: int, output: int) -> None:
        target = self._pick(self.running, pick)
        target.output_tokens = max(target.output_tokens, output)
        self.queue.account(target, target.received_service, final=False)

    @precondition(lambda self: self.running)
    @rule(pick=picks)
    def finish(self, pick: int) -> None:
        self.end(self._pick(self.running, pick))

    def end(self, target: QueueEntry) -> None:
        self.queue.account(target, target.received_service, final=True)
        self.queue.remove(target)
        del self.running[target.request.id]

    def started(self) -> list[QueueEntry]:
        """Those that run by the order in force."""
        return [each for each in self.running.values() if each.generation == self.queue.generation]

    @rule()
    def observe(self) -> None:
        engine = EngineOccupancy(cap=SLOTS, running=0, kv_tokens=0, kv_free_tokens=0)
        self.queue.observe(ServiceView(float(self.seq), (engine,)))

    @precondition(lambda self: self.running)
    @rule(pick=picks)
    def lose_engine(self, pick: int) -> None:
        target = self._pick(self.running, pick)
        if target.output_tokens:
            return
        target.tried += ("e1#1",)
        self.queue.park(target)
        self.parked[target.request.id] = self.running.pop(target.request.id)

    @precondition(lambda self: self.start is None)
    @rule(name=st.sampled_from(list(TopologyName)), new=hints)
    def switch(self, name: TopologyName, new: Hints) -> None:
        before = (self.queue.topology, self.queue.hints)
        assert self.queue.switch(name, new) == (before != (name, new))

    @invariant()
    def holds_exactly(self) -> None:
        if not hasattr(self, "queue"):
            return
        waiting = self.queued | self.parked
        assert (len(self.queue), self.queue.ready) == (len(waiting), len(self.queued))
        assert {e.request.id for e in self.queue.queued()} == set(self.queued)
        assert {e.request.id for e in self.queue.entries()} == set(waiting) | set(self.running)
        ordered = [e.request.id for e in self.queue._orders[0]]
        assert sorted(ordered) == sorted(self.queued)
        assert self.queue.queued_tokens == sum(e.work_tokens for e in waiting.values())
        assert self.queue.queued_s == pytest.approx(sum(e.total_s for e in waiting.values()), abs=1e-6)
        if not self.queued:
            assert self.queue.peek() is None
        elif self.queue.topology is not TopologyName.TWO_LANE or self.queue.hints.fast_slots is None:
            assert self.queue.peek() is not None
        else:
            assert self.queue.peek() is not None or self.started()

    def teardown(self) -> None:
        if not hasattr(self, "queue"):
            return
        self.wake(0, len(self.parked))
        while self.queued:
            while self.queue.peek() is None:
                self.end(self.started()[0])
            taken = self.queue.take()
            assert self.queued.pop(taken.request.id) is taken
            assert taken.state is EntryState.RUNNING
            self.running[taken.request.id] = taken


def _machine(name: TopologyName | None) -> type[QueueMachine]:
    return type(f"QueueMachine_{name}", (QueueMachine,), {"start": name})


@pytest.mark.parametrize("name", [None, *TopologyName], ids=str)
def test_queue_neither_loses_nor_repeats(name: TopologyName | None) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    most = examples(60 if name is None else 20)
    run_state_machine_as_test(_machine(name), settings=settings(max_examples=most, stateful_step_count=40))


def queued(queue: RequestQueue, new: QueueEntry) -> None:
    queue.add(new)
    queue.wake(new)


def drain(queue: RequestQueue) -> list[str]:
    ids = []
    while queue.peek() is not None:
        ids.append(queue.take().request.id)
    return ids


def filled(seed: int, count: int) -> RequestQueue:
    rng = Random(seed)
    queue = RequestQueue(10_000, 10**9)
    for seq in range(count):
        made = request(
            f"r{seq}", tenant=rng.choice("abcde"), flow=rng.choice("xy"), prompt_tokens=rng.randint(1, 4000),
            weight=rng.choice([1.0, 2.0]), arrival_s=seq + rng.random(), priority=rng.randint(0, 3),
        )  # fmt: skip
        queued(queue, entry(seq, made, tokens=rng.uniform(1, 500)))
    return queue


@pytest.mark.parametrize("name", list(TopologyName))
def test_after_a_switch_the_order_is_as_if_freshly_built(name: TopologyName) -> None:
    """Whatever was in force before, and although part of the queue was dispatched under it."""
    switched, plain = filled(5, 300), filled(5, 300)
    switched.switch(TopologyName.WFQ, Hints())
    switched.switch(TopologyName.SJF, Hints())
    taken = {switched.take().request.id for _ in range(50)}
    for each in plain.queued():
        if each.request.id in taken:
            plain.remove(each)
    switched.switch(name, Hints(quantum_tokens=700))
    plain.switch(TopologyName.EDF, Hints())
    plain.switch(name, Hints(quantum_tokens=700))
    assert drain(switched) == drain(plain)


def test_repeating_a_decision_keeps_the_order_and_its_accounts() -> None:
    queue = filled(5, 50)
    assert queue.switch(TopologyName.WFQ, Hints())
    generation = queue.generation
    assert not queue.switch(TopologyName.WFQ, Hints())
    assert queue.generation == generation


def test_token_bound_refuses_but_an_empty_queue_takes_any_size() -> None:
    queue = RequestQueue(10, 1000)
    large = entry(1, request("large", prompt_tokens=5000))
    assert queue.refusal(large) is None
    queue.add(large)
    refusal = queue.refusal(entry(2, request("small", prompt_tokens=10)))
    assert refusal is not None
    assert "1000" in refusal


def test_overtaken_counts_later_arrivals_dispatched_earlier() -> None:
    queue = RequestQueue(100, 10**9)
    queue.switch(TopologyName.SJF, Hints())
    long = entry(0, request("long"), tokens=5000.0)
    queued(queue, long)
    for seq in range(1, 8):
        queued(queue, entry(seq, request(f"r{seq}")))
    assert drain(queue)[-1] == "long"
    assert long.overtaken == 7


@pytest.mark.parametrize("parked", [False, True])
def test_what_one_order_gave_up_is_not_given_up_under_the_next(parked: bool) -> None:
    """Whether it waits in the order during the switch, or is parked and comes back after it."""
    queue = RequestQueue(100, 10**9)
    queue.switch(TopologyName.MAX_ON_TIME, Hints())
    entries = [entry(seq, request(f"r{seq}")) for seq in range(20)]
    for each in entries:
        each.annotate(annotation(0.0, ttft_s=2.0, tpot_s=0.0, slo=Slo(4.0, 0.1)))
        queued(queue, each)
    queue.observe(ServiceView(5.0, (EngineOccupancy(cap=8, running=4, kv_tokens=0, kv_free_tokens=0),)))
    given_up = [each for each in entries if each.relegated]
    assert given_up
    if parked:
        queue.park(given_up[0])
    queue.switch(TopologyName.EDF, Hints())
    if parked:
        queue.wake(given_up[0])
    assert not any(each.relegated for each in entries)


def test_overtaken_counts_none_of_those_that_waited_before() -> None:
    queue = filled(0, 0)
    queue.switch(TopologyName.SJF, Hints())
    for seq in range(3):
        queued(queue, entry(seq, request(f"before{seq}")))
    long = entry(3, request("long"), tokens=5000.0)
    queued(queue, long)
    for seq in range(4, 9):
        queued(queue, entry(seq, request(f"after{seq}")))
    assert drain(queue)[-1] == "long"
    assert long.overtaken == 5


def test_other_hints_make_another_order_of_the_same_topology() -> None:
    queue = filled(0, 0)
    assert queue.switch(TopologyName.TWO_LANE, Hints(fast_weight=0.5))
    switches = queue.switches
    assert queue.switch(TopologyName.TWO_LANE, Hints(fast_weight=0.75))
    assert queue.switches == switches, "the topology is the same"
    assert not queue.switch(TopologyName.TWO_LANE, Hints(fast_weight=0.75))
    assert queue.switch(TopologyName.SJF, Hints(fast_weight=0.75))
    assert queue.switches == switches + 1


@pytest.mark.parametrize("name", TopologyName)
def test_a_lane_counts_those_that_are_in_its_order(name: TopologyName) -> None:
    queue = filled(3, 0)
    queue.switch(name, Hints())
    entries = [entry(seq, request(f"r{seq}")) for seq in range(4)]
    for each in entries:
        queued(queue, each)
    queue.remove(entries[1])
    queue.park(entries[2])
    assert queue.waiting_in(0) == 2
    queue.take()
    assert queue.waiting_in(0) == 1
    queue.wake(entries[2])
    assert queue.waiting_in(0) == 2


def test_what_is_queued_is_ordered_by_its_times_on_the_kinds_that_are_up() -> None:
    queue = filled(3, 0)
    queue.switch(TopologyName.SJF, Hints())
    fast, slow = EngineKind(hardware="H100"), EngineKind(hardware="A100")
    times = {"a": (1.0, 5.0), "b": (3.0, 2.0), "parked": (0.5, 9.0)}
    for seq, (name, (on_fast, on_slow)) in enumerate(times.items()):
        made = entry(seq, request(name))
        costs = (KindCost(fast, Cost(on_fast, 0.0)), KindCost(slow, Cost(on_slow, 0.0)))
        queued(queue, made)
        queue.annotate(made, annotation(costs=costs))
    parked = queue.get("parked")
    assert parked is not None
    queue.park(parked)
    for kinds, first in (((fast,), "a"), ((slow,), "b"), ((fast,), "a")):
        queue.price_for(kinds)
        head = queue.peek()
        assert head is not None
        assert head.request.id == first
    queue.wake(parked)
    assert drain(queue) == ["parked", "a", "b"]
