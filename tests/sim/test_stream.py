"""The simulated stream between a gateway and a worker: in order, soft, silent, and opened again."""

from types import SimpleNamespace
from typing import Any

import pytest

from hmas.contracts.execution import Stop, Withdraw
from hmas.contracts.gateway import FromWorker, StreamChanged
from hmas.contracts.worker import FromGateway, GatewayConnected, GatewayLost
from hmas.sim.processes.heap import EventHeap
from hmas.sim.processes.process import SimProcess
from hmas.sim.processes.stream import SimStream
from hmas.sim.setup import Delays, MeshSetup

RELAY_S = 0.01


class Pair:
    """A gateway and a worker that only write down what they hear, and their stream."""

    def __init__(self) -> None:
        self.heap = EventHeap()
        self.setup = MeshSetup(delays=Delays(relay_s=RELAY_S))
        self.heard: dict[str, list[tuple[float, object]]] = {}
        self.gateway, self.worker = self.process("g0", 1), self.process("w0", 1)
        self.stream = SimStream(self, self.gateway, self.worker)  # type: ignore[arg-type]
        self.stream.open()

    def process(self, name: str, incarnation: int) -> SimProcess:
        return SimProcess(self, name, incarnation, SimpleNamespace())  # type: ignore[arg-type]

    def step(self, label: str, agent: Any, event: object, handlers: Any) -> None:
        self.heard.setdefault(label, []).append((round(self.heap.now_s, 6), event))

    def streams_of(self, name: str) -> list[SimStream]:
        return [self.stream]

    def at(self, at_s: float, call: Any, *args: Any) -> None:
        self.heap.at(at_s, call, *args)

    def to_worker(self, at_s: float, name: str) -> None:
        self.at(at_s, lambda: self.stream.to_worker(Withdraw(name, 1)))

    def to_gateway(self, at_s: float, name: str, gateway: str = "g0#1") -> None:
        self.at(at_s, lambda: self.stream.to_gateway(gateway, Stop(name, 1, "")))

    def run(self, until_s: float = 60.0) -> None:
        self.heap.run(until_s)

    def worker_heard(self, label: str = "w0") -> list[tuple[float, object]]:
        return [
            (at_s, e.message.request_id if isinstance(e, FromGateway) else e)  # type: ignore[union-attr]
            for at_s, e in self.heard[label]
        ]

    def gateway_heard(self, label: str = "g0") -> list[tuple[float, object]]:
        return [
            (at_s, e.message.request_id if isinstance(e, FromWorker) else e)  # type: ignore[union-attr]
            for at_s, e in self.heard[label]
        ]


OPENED = [(0.0, StreamChanged("w0", True))]
CONNECTED = [(0.0, GatewayConnected("g0#1"))]


def test_messages_come_after_the_delay_in_order_even_when_it_shrinks() -> None:
    pair = Pair()
    pair.to_worker(1.0, "a")
    pair.at(2.0, setattr, pair.stream, "delay_s", 0.5)
    pair.to_worker(2.0, "b")
    pair.at(2.1, setattr, pair.stream, "delay_s", 0.0)
    pair.to_worker(2.2, "c")
    pair.to_gateway(1.0, "d")
    pair.run()
    assert pair.worker_heard() == [*CONNECTED, (1.01, "a"), (2.51, "b"), (2.51, "c")]
    assert pair.gateway_heard() == [*OPENED, (1.01, "d")]


def test_a_broken_stream_loses_what_is_on_its_way_and_opens_again() -> None:
    pair = Pair()
    pair.to_worker(0.995, "lost")
    pair.to_gateway(0.995, "lost")
    pair.at(1.0, pair.stream.break_off)
    pair.to_worker(1.1, "dropped")
    pair.to_worker(1.5, "kept")
    pair.run()
    again_s = 1.0 + pair.setup.redial_s + RELAY_S
    assert pair.worker_heard() == [
        *CONNECTED, (1.0, GatewayLost("g0#1")), (again_s, GatewayConnected("g0#1")), (1.51, "kept"),
    ]  # fmt: skip
    assert pair.gateway_heard() == [
        *OPENED, (1.0, StreamChanged("w0", False, 0.0)), (again_s + RELAY_S, StreamChanged("w0", True)),
    ]  # fmt: skip


def test_what_a_short_parting_holds_up_comes_late() -> None:
    pair = Pair()
    pair.at(1.0, pair.stream.part)
    pair.to_worker(1.2, "a")
    pair.at(2.5, pair.stream.heal)
    pair.to_worker(2.6, "b")
    pair.run()
    assert pair.worker_heard() == [*CONNECTED, (2.5, "a"), (2.61, "b")]
    assert pair.gateway_heard() == OPENED


def test_both_ends_give_up_a_stream_that_is_parted_for_longer() -> None:
    pair = Pair()
    pair.at(1.0, pair.stream.part)
    pair.to_worker(1.2, "lost")
    pair.at(5.0, pair.stream.heal)
    pair.run()
    opened_s = pair.gateway_heard()[-1][0]
    assert pair.worker_heard()[1:] == [(3.0, GatewayLost("g0#1")), (opened_s - RELAY_S, GatewayConnected("g0#1"))]
    assert pair.gateway_heard()[1:] == [
        (3.0, StreamChanged("w0", False, 2.0)), (opened_s, StreamChanged("w0", True)),
    ]  # fmt: skip
    assert 5.0 < opened_s < 5.0 + pair.setup.redial_s + 3 * RELAY_S


def test_a_process_that_slept_for_a_moment_reads_what_waits() -> None:
    pair = Pair()
    pair.at(1.0, pair.worker.freeze)
    pair.to_worker(1.5, "a")
    pair.at(2.5, pair.worker.thaw)
    pair.run()
    assert pair.worker_heard() == [*CONNECTED, (2.5, "a")]
    assert pair.gateway_heard() == OPENED


@pytest.mark.parametrize("who", ["gateway", "worker"])
def test_a_process_that_slept_for_long_acts_on_nothing_stale(who: str) -> None:
    pair = Pair()
    sleeper: SimProcess = getattr(pair, who)
    pair.at(1.0, sleeper.freeze)
    pair.to_worker(1.5, "stale")
    pair.to_gateway(1.5, "stale")
    pair.at(6.0, sleeper.thaw)
    pair.run()
    gateway, worker = pair.gateway_heard(), pair.worker_heard()
    if who == "gateway":
        assert gateway[1] == (6.0, StreamChanged("w0", False, 0.0))
        assert worker[1:3] == [(1.51, "stale"), (3.0, GatewayLost("g0#1"))]
    else:
        assert gateway[1:3] == [(1.51, "stale"), (3.0, StreamChanged("w0", False, 2.0))]
        assert worker[1] == (6.0, GatewayLost("g0#1"))
    assert [type(e) for _, e in gateway].count(StreamChanged) == 3
    assert [e for _, e in worker].count(GatewayConnected("g0#1")) == 2


def test_a_dead_process_is_noticed_and_its_successor_is_another_one() -> None:
    pair = Pair()
    pair.at(1.0, pair.worker.kill)
    pair.at(1.0, pair.to_gateway, 1.2, "from the dead")
    pair.at(4.0, lambda: pair.stream.replace(pair.process("w0", 2)))
    pair.at(6.0, pair.gateway.kill)
    pair.at(7.0, lambda: pair.stream.replace(pair.process("g0", 2)))
    pair.to_gateway(7.5, "to the old one")
    pair.to_gateway(7.5, "to the new one", "g0#2")
    pair.run()
    assert pair.worker_heard() == CONNECTED
    assert pair.gateway_heard()[1] == (1.01, StreamChanged("w0", False, 0.0))
    assert [e for _, e in pair.worker_heard("w0-2")] == [
        GatewayConnected("g0#1"), GatewayLost("g0#1"), GatewayConnected("g0#2"),
    ]  # fmt: skip
    assert [e for _, e in pair.gateway_heard("g0-2")] == [StreamChanged("w0", True), "to the new one"]


def test_a_connection_that_is_lost_while_it_opens_is_made_again() -> None:
    """Otherwise one end would be open towards nobody for ever."""
    for fault in ("break_off", "kill"):
        pair = Pair()
        pair.at(1.0, pair.stream.break_off)
        between_s = 1.0 + pair.setup.redial_s + 1.5 * RELAY_S  # the worker has accepted, the gateway does not know yet
        if fault == "kill":
            pair.at(between_s, pair.worker.kill)
            pair.at(3.0, lambda p=pair: p.stream.replace(p.process("w0", 2)))
        else:
            pair.at(between_s, pair.stream.break_off)
        pair.to_worker(8.0, "a")
        pair.run()
        label = "w0-2" if fault == "kill" else "w0"
        assert [e for _, e in pair.worker_heard(label)][-2:] == [GatewayConnected("g0#1"), "a"]
        assert pair.gateway_heard()[-1][1] == StreamChanged("w0", True)


def test_a_process_makes_up_once_for_a_timer_that_it_slept_through() -> None:
    pair = Pair()
    ticks: list[float] = []
    pair.gateway.every(1.0, lambda: ticks.append(pair.heap.now_s))
    pair.at(1.5, pair.gateway.freeze)
    pair.at(4.5, pair.gateway.thaw)
    pair.at(6.5, pair.gateway.kill)
    pair.run()
    assert ticks == [1.0, 4.5, 5.0, 6.0]
