"""Orders from packages that raise, are slow or answer nonsense: each is taken out, and the default order serves on."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest

from hmas.contracts.control import INITIAL_TOPOLOGY, Hints, TopologyName
from hmas.contracts.worker import CycleTicked, TopologyFailed, TopologySwitched, WorkerEffect
from hmas.worker.agent.agent import WorkerAgent
from hmas.worker.agent.config import WorkerConfig
from hmas.worker.agent.engines.service_view import ServiceView
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.plugged import PluggedOrder, plugged
from hmas.worker.agent.order.topologies import TOPOLOGIES
from hmas.worker.agent.order.topologies.base import KeyOrdered
from hmas.worker.agent.queue_view import in_force, queue_view
from tests.builders.control import topology_received
from tests.worker.builders import Scripted, dispatched, engine, entry, refused, request, sampled

MINE = TopologyName("mine")
CONFIG = WorkerConfig(worker="w1", incarnation="i1", address="host:1", pool="m", static_n_run=2)


class Mine(KeyOrdered):
    """Last come, first served, as it should be: what is wrong stands in the classes below."""

    name = MINE
    uses_tags = False

    def key(self, entry: QueueEntry) -> float:
        return -float(entry.seq)


class RaisesAtPush(Mine):
    def key(self, entry: QueueEntry) -> float:
        return 1.0 / (entry.seq - 3)  # ZeroDivisionError at the third request


class RaisesAtPeek(Mine):
    def peek(self) -> QueueEntry | None:
        if len(self) > 1:
            raise LookupError("no idea")
        return super().peek()


class RaisesAtPop(Mine):
    def pop(self) -> QueueEntry | None:
        raise RuntimeError("not today")


class PopsAnother(Mine):
    def pop(self) -> QueueEntry | None:
        waiting = sorted(self, key=lambda each: each.seq)
        self.remove(waiting[0])
        return waiting[0]


class PeeksWhatIsGone(Mine):
    def remove(self, entry: QueueEntry) -> None:
        self.gone = entry

    def peek(self) -> QueueEntry | None:
        return getattr(self, "gone", None) or super().peek()


class PeeksNoEntry(Mine):
    def peek(self) -> Any:
        return "r1"


class RanksByText(Mine):
    def pop(self) -> QueueEntry | None:
        popped = super().pop()
        if popped is not None:
            popped.urgency = "soon"  # type: ignore[assignment]
        return popped


class RanksByNothing(Mine):
    def key(self, entry: QueueEntry) -> float:
        return float("nan")


class RaisesWhenItObserves(Mine):
    paced = True

    def observe(self, view: ServiceView) -> None:
        raise OSError("no such file")


class GivesUpStrangers(Mine):
    paced = True

    def late(self) -> list[QueueEntry]:
        return [entry(99)]


class RaisesAtWhy(Mine):
    def why(self, entry: QueueEntry, now_s: float) -> str:
        raise KeyError(entry.request.tenant)


class Withholds(Mine):
    def peek(self) -> QueueEntry | None:
        return None

    def pop(self) -> QueueEntry | None:
        return None


def broken(hints: Hints) -> Mine:
    raise ImportError("no module named torch")


FAULTS: Mapping[str, tuple[Callable[[Hints], Any], str]] = {
    "raises at push": (lambda hints: RaisesAtPush(), "push raised ZeroDivisionError"),
    "raises at peek": (lambda hints: RaisesAtPeek(), "peek raised LookupError: no idea"),
    "raises at pop": (lambda hints: RaisesAtPop(), "pop raised RuntimeError: not today"),
    "pops another": (lambda hints: PopsAnother(), "pop returned another request than peek"),
    "peeks no entry": (lambda hints: PeeksNoEntry(), "peek returned what is not queued"),
    "ranks by text": (lambda hints: RanksByText(), "urgency 'soon' is not a number"),
    "ranks by NaN": (lambda hints: RanksByNothing(), "urgency nan is not a number"),
    "raises when it observes": (lambda hints: RaisesWhenItObserves(), "observe raised OSError: no such file"),
    "is not made": (broken, "the call that makes it raised ImportError: no module named torch"),
    "is no order": (lambda hints: object(), "the call that makes it raised AttributeError"),
}


def worker(make: Callable[[Hints], Any], *, engines: int = 1) -> Scripted:
    agent = Scripted(CONFIG)
    agent.agent = WorkerAgent(CONFIG, plugged({**TOPOLOGIES, MINE: make}))
    agent.state = agent.agent._state
    agent.connect(0.0)
    for n in range(engines):
        agent.up(0.0, engine(f"e{n}"))
    return agent


def told(effects: list[WorkerEffect]) -> list[TopologyFailed]:
    return [effect for effect in effects if isinstance(effect, TopologyFailed)]


def serve_all(agent: Scripted, count: int) -> tuple[list[WorkerEffect], list[str]]:
    """Submits requests, of which two run at once, and lets each end. Returns all effects and what ran, in its order."""
    effects: list[WorkerEffect] = []
    effects += agent.step(1.0, topology_received(MINE))
    effects += agent.submit(1.1, *(request(f"r{n}", arrival_s=1.0 + n / 100) for n in range(count)))
    ran: list[str] = []
    for tick in range(400):
        now_s = 2.0 + tick * 0.1
        for name, _ in dispatched(effects):
            if name not in ran:
                ran.append(name)
                effects += agent.first_token(now_s, name) + agent.finish(now_s, name, 2)
        effects += agent.step(now_s, sampled("e0")) + agent.step(now_s, CycleTicked())
        if tick % 20 == 0:
            effects += agent.step(now_s, topology_received(MINE, seq=tick + 2))
        if len(ran) == count:
            break
    return effects, ran


def test_one_that_does_its_work_is_left_alone() -> None:
    effects, ran = serve_all(worker(lambda hints: Mine()), 6)
    assert told(effects) == []
    assert ran == ["r0", "r1", "r5", "r4", "r3", "r2"], "two ran at once, then the last first"


@pytest.mark.parametrize("fault", FAULTS)
def test_one_that_fails_is_taken_out_and_every_request_is_served(fault: str) -> None:
    make, reason = FAULTS[fault]
    agent = worker(make)
    effects, ran = serve_all(agent, 6)
    assert sorted(ran) == [f"r{n}" for n in range(6)]
    assert refused(effects) == []
    (failed,) = told(effects)
    assert (failed.topology, failed.instead) == (MINE, INITIAL_TOPOLOGY)
    assert reason in failed.reason
    switched = [effect for effect in effects if isinstance(effect, TopologySwitched)]
    assert switched[-1].after is INITIAL_TOPOLOGY
    assert agent.state.queue.topology is INITIAL_TOPOLOGY


def test_the_place_in_its_code_is_told() -> None:
    effects, _ = serve_all(worker(lambda hints: RaisesAtPush()), 6)
    assert "in test_plugged_orders.py, line " in told(effects)[0].reason


def test_one_that_gives_up_what_does_not_wait_here_is_taken_out() -> None:
    order = PluggedOrder(MINE, lambda hints: GivesUpStrangers(), Hints())
    order.push(entry(1))
    order.observe(ServiceView(1.0, ()))
    assert order.late() == ()
    assert order.fault == "late returned what is not queued"
    assert order.pop() is not None


def test_what_was_removed_and_is_peeked_again_is_nonsense() -> None:
    order = PluggedOrder(MINE, lambda hints: PeeksWhatIsGone(), Hints())
    first, second = entry(1), entry(2)
    order.push(first)
    order.push(second)
    order.remove(second)
    assert order.peek() is first
    assert order.fault == "peek returned what is not queued"
    assert order.pop() is first
    assert (order.pop(), len(order), list(order)) == (None, 0, [])


def test_one_that_holds_everything_back_while_engines_idle_is_taken_out() -> None:
    agent = worker(lambda hints: Withholds())
    effects, ran = serve_all(agent, 4)
    assert sorted(ran) == ["r0", "r1", "r2", "r3"]
    (failed,) = told(effects)
    assert failed.reason == "it gave nothing for 10 s while 4 requests waited and no engine had any"


def test_it_may_hold_back_what_waits_while_an_engine_has_work() -> None:
    agent = worker(lambda hints: Withholds())
    agent.submit(0.1, request("r0"))  # granted by arrival, before the order is there
    agent.step(1.0, topology_received(MINE, valid_for_s=1000.0))
    agent.submit(1.1, request("r1"))
    effects: list[WorkerEffect] = []
    for tick in range(200):
        effects += agent.step(2.0 + tick * 0.1, CycleTicked())
    assert told(effects) == []


def test_it_comes_back_by_no_later_decision() -> None:
    agent = worker(lambda hints: RaisesAtPop())
    serve_all(agent, 2)
    for seq, name in ((600, TopologyName.EDF), (601, MINE)):
        effects = agent.step(60.0, topology_received(name, seq=seq))
        assert told(effects) == []
    assert agent.state.queue.topology is INITIAL_TOPOLOGY


def test_a_copy_fails_for_itself_alone() -> None:
    order = PluggedOrder(MINE, lambda hints: RaisesAtPop(), Hints())
    for seq in range(3):
        order.push(entry(seq))
    twin = deepcopy(order)
    assert [popped.seq for popped in iter(twin.pop, None)] == [2, 0, 1], "its head, and the rest by arrival"
    assert (order.fault, len(order)) == (None, 3)
    assert twin.fault is not None


def test_who_looks_at_the_queue_does_no_harm_to_it() -> None:
    agent = worker(lambda hints: RaisesAtWhy())
    agent.step(1.0, topology_received(MINE))
    agent.submit(1.1, *(request(f"r{n}", arrival_s=1.0 + n / 100) for n in range(5)))
    rows = list(in_force(queue_view(agent.state)))
    assert [row.request_id for row in rows] == ["r4", "r2", "r3"], "its first, and the rest by arrival"
    assert rows[0].why == "by its order, which does not say why"
    assert told(agent.step(1.2, CycleTicked())) == []
    assert agent.state.queue.topology == MINE


def test_a_copy_that_cannot_be_made_is_served_by_arrival() -> None:
    class Uncopied(Mine):
        def __deepcopy__(self, memo: object) -> "Uncopied":
            raise TypeError("cannot copy a socket")

    order = PluggedOrder(MINE, lambda hints: Uncopied(), Hints())
    for seq in range(3):
        order.push(entry(seq))
    assert [popped.seq for popped in iter(deepcopy(order).pop, None)] == [0, 1, 2]
    assert order.fault is None


def test_built_in_orders_are_not_wrapped() -> None:
    made = plugged({**TOPOLOGIES, MINE: lambda hints: Mine()})
    assert all(made[name] is make for name, make in TOPOLOGIES.items())
    assert isinstance(made[MINE](Hints()), PluggedOrder)
