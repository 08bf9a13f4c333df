"""The queue in the order in which it would be served: it is what is served then, and looking changes nothing."""

from copy import deepcopy
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.control import Hints, TopologyName, TopologyReceived
from hmas.contracts.queue import MAX_ROWS, MAX_WHY_CHARS, QueueQuery, QueueReply
from hmas.contracts.request import Slo
from hmas.wire.codec import decode, encode
from hmas.worker.agent.config import WorkerConfig
from hmas.worker.agent.queue_view import MAX_COPIED, QueueView, in_force, queue_view, under
from hmas.worker.onlookers import FRESH_S, REST, Onlookers
from tests.builders.control import topology_received
from tests.worker.builders import Scripted, annotation, dispatched, engine, request, sampled

SLOTS = 2


def decided(topology: TopologyName) -> TopologyReceived:
    return topology_received(topology, valid_for_s=1e6, reason="", selector="pin")


def waiting(topology: TopologyName, seed: int, count: int) -> Scripted:
    """A worker whose two slots are taken, with `count` requests behind them."""
    rng = Random(seed)
    mesh = Scripted(WorkerConfig(worker="w", incarnation="i", address="a", pool="m"), engine(max_num_seqs=SLOTS))
    mesh.step(0.0, decided(topology))
    for number in range(SLOTS + count):
        now_s = 0.01 * number
        made = request(
            f"r{number}", tenant=f"t{rng.randrange(3)}", flow=f"f{rng.randrange(2)}", arrival_s=now_s,
            prompt_tokens=rng.randrange(50, 3000), weight=rng.choice((1.0, 2.0)), priority=rng.randrange(-1, 3),
            slo=Slo(rng.choice((0.2, 1.0, 8.0)), 0.1),
        )  # fmt: skip
        mesh.submit(now_s, made)
        if rng.random() < 0.8:
            tags = annotation(rng.uniform(5, 400), ttft_s=rng.uniform(0.01, 1.0), slo=made.slo)
            mesh.annotate(now_s, made.id, tags)
    return mesh


def ids(seen: QueueView) -> list[str]:
    return [row.request_id for row in in_force(seen)]


@pytest.mark.parametrize("topology", TopologyName)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 25))
def test_the_order_that_is_told_is_the_order_that_is_served(topology: TopologyName, seed: int, count: int) -> None:
    mesh = waiting(topology, seed, count)
    state = mesh.state
    told = ids(mesh.agent.queue_view())
    assert sorted(told) == sorted(entry.request.id for entry in state.queue.queued())
    again = ids(mesh.agent.queue_view())
    assert told == again  # looking changed nothing
    served = []
    if state.queue.paced:
        state.queue.observe(state.service_view(0))
    while state.queue.peek() is not None:
        served.append(state.queue.take().request.id)
    assert told == served


@pytest.mark.parametrize("topology", [TopologyName.FCFS, TopologyName.EDF, TopologyName.SJF])
def test_the_worker_grants_in_the_order_that_it_told(topology: TopologyName) -> None:
    mesh = waiting(topology, 3, 12)
    told = ids(mesh.agent.queue_view())
    granted: list[str] = []
    running, now_s = list(mesh.grants), 1.0
    while running:
        done, now_s = running.pop(0), now_s + 1.0
        effects = mesh.first_token(now_s, done) + mesh.finish(now_s, done)
        effects += mesh.step(now_s, sampled(running=len(running)))
        new = [name for name, _ in dispatched(effects)]
        granted += new
        running += new
    assert granted == told


@pytest.mark.parametrize("topology", TopologyName)
def test_another_order_is_that_after_a_switch(topology: TopologyName) -> None:
    mesh = waiting(TopologyName.EDF, 11, 20)
    seen = mesh.agent.queue_view()
    list(in_force(seen))  # the order in force is made first
    told = [row.request_id for row in under(seen, topology, MAX_ROWS).rows]
    assert told == [row.request_id for row in under(seen, topology, MAX_ROWS).rows]
    queue = mesh.state.queue
    queue.switch(topology, Hints())
    if queue.paced:
        queue.observe(mesh.state.service_view(0))
    served = []
    while queue.peek() is not None:
        served.append(queue.take().request.id)
    assert told == served


def test_rows_tell_when_a_request_starts_and_whether_it_will_be_late() -> None:
    mesh = waiting(TopologyName.FCFS, 5, 6)
    rows = list(in_force(mesh.agent.queue_view()))
    speed = mesh.state.meter.speed(mesh.state.cold_speed())
    ahead_s = 0.0
    for row in rows:
        entry = mesh.state.queue.get(row.request_id)
        assert entry is not None
        assert row.start_s == pytest.approx(ahead_s / speed)
        due_s = entry.ttft_deadline_s - entry.prefill_s - mesh.state.now_s
        assert row.slack_s == pytest.approx(due_s - ahead_s / speed)
        assert row.service_s == entry.total_s
        ahead_s += entry.total_s
    assert any(row.slack_s is not None and row.slack_s < 0.0 for row in rows)


@pytest.mark.parametrize("topology", TopologyName)
def test_each_topology_says_why(topology: TopologyName) -> None:
    for row in in_force(waiting(topology, 1, 8).agent.queue_view()):
        assert 0 < len(row.why) <= MAX_WHY_CHARS


def test_without_an_engine_nothing_is_predicted() -> None:
    mesh = Scripted(WorkerConfig(worker="w", incarnation="i", address="a", pool="m"))
    mesh.submit(0.0, request("r1"))
    assert [(row.start_s, row.slack_s) for row in in_force(mesh.agent.queue_view())] in ([], [(None, None)])


class Desk:
    """A worker's answers to onlookers, and how often its queue was looked at."""

    def __init__(self, mesh: Scripted, took_s: float = 0.0) -> None:
        self.now_s, self.looks = 100.0, 0
        self._mesh, self._took_s = mesh, took_s
        self.onlookers = Onlookers("w", self._look, lambda: self.now_s)

    def _look(self) -> QueueView:
        self.looks += 1
        self.now_s += self._took_s
        return queue_view(self._mesh.state)

    async def ask(self, **asked: object) -> QueueReply:
        data = await self.onlookers.answer(encode(QueueQuery(worker="w", **asked)))  # type: ignore[arg-type]
        assert data is not None
        return decode(QueueReply, data)


async def test_one_look_serves_all_who_ask_and_both_orders_are_of_it() -> None:
    desk = Desk(waiting(TopologyName.MAX_ON_TIME, 4, 20))
    first = await desk.ask()
    both = await desk.ask(topology="sjf", limit=5)
    assert desk.looks == 1
    assert [order.topology for order in both.orders] == ["max_on_time", "sjf"]
    assert [len(order.rows) for order in both.orders] == [5, 5]
    assert both.orders[0].rows == first.orders[0].rows[:5]
    assert len(first.orders[0].rows) == first.waiting - first.parked == 20
    services = [row.service_s for row in both.orders[1].rows]
    assert services == sorted(services)
    assert [o.topology for o in (await desk.ask(topology="max_on_time")).orders] == ["max_on_time"]
    assert [o.topology for o in (await desk.ask(topology="no such")).orders] == ["max_on_time"]
    desk.now_s += FRESH_S
    await desk.ask()
    assert desk.looks == 2


async def test_a_slow_look_is_not_repeated_soon() -> None:
    desk = Desk(waiting(TopologyName.FCFS, 4, 3), took_s=0.2)
    await desk.ask()
    desk.now_s += 0.9 * REST * 0.2
    assert (await desk.ask()).age_s == pytest.approx(0.9 * REST * 0.2)
    assert desk.looks == 1
    desk.now_s += 0.2 * REST * 0.2
    await desk.ask()
    assert desk.looks == 2


async def test_a_queue_that_is_too_long_is_counted_and_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hmas.worker.agent.queue_view.MAX_COPIED", 4)
    assert MAX_COPIED > MAX_ROWS
    told = await Desk(waiting(TopologyName.EDF, 4, 5)).ask(topology="fcfs")
    assert (told.ordered, told.orders, told.waiting, told.running) == (False, (), 5, SLOTS)


async def test_other_workers_and_nonsense_get_no_answer() -> None:
    onlookers = Desk(waiting(TopologyName.EDF, 4, 5)).onlookers
    assert await onlookers.answer(encode(QueueQuery(worker="other"))) is None
    assert await onlookers.answer(b"\xff\xff\xff") is None


def test_a_copy_has_a_state_of_its_own() -> None:
    mesh = waiting(TopologyName.MAX_ON_TIME, 2, 4)
    entry = mesh.state.queue.queued()[0]
    twin = deepcopy(entry)
    twin.relegated = not entry.relegated
    assert entry.relegated != twin.relegated
    assert twin.request is entry.request


WORDS = {
    TopologyName.FCFS: "arrived 1.0 s ago",
    TopologyName.EDF: "whole answer due in 7.0 s",
    TopologyName.TWO_LANE: "laxity 5.5 s in the lane for 1.5 s of work",
    TopologyName.SJF: "needs 1.5 s",
    TopologyName.MAX_ON_TIME: "on time if it starts within 2.5 s",
    TopologyName.HYBRID: "less important, to start within 2.5 s",
}


@pytest.mark.parametrize("topology", WORDS)
def test_the_words_tell_the_instants_that_put_a_request_there(topology: TopologyName) -> None:
    """It came at 10 with 0.5 s of prefill and 20 tokens of 0.05 s, and is due at 14 and 18."""
    mesh = Scripted(WorkerConfig(worker="w", incarnation="i", address="a", pool="m", static_n_run=1), engine())
    mesh.step(0.0, topology_received(topology))
    mesh.submit(9.0, request("runs", arrival_s=9.0))
    mesh.submit(10.0, request("r", arrival_s=10.0, slo=Slo(4.0, 0.2), priority=3))
    mesh.annotate(10.0, "r", annotation(20.0, ttft_s=0.5, tpot_s=0.05, slo=Slo(4.0, 0.2)))
    mesh.step(11.0, sampled("e1", running=1))
    (row,) = in_force(mesh.agent.queue_view())
    assert row.why == WORDS[topology]
    assert (row.waited_s, row.service_s, row.relegated, row.known) == (1.0, 1.5, False, True)
