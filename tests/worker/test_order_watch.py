"""An order of a package that does not return is interrupted on the loop on which the worker really runs."""

import asyncio
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop

from hmas.contracts.control import Hints, TopologyName
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.plugged import PluggedOrder
from hmas.worker.agent.order.topologies.base import KeyOrdered
from hmas.worker.order_watch import CALL_S, MOST_SHARE, WINDOW_S, OrderTooSlow, OrderWatch
from tests.worker.builders import entry

ENDLESS = TopologyName("endless")


class Endless(KeyOrdered):
    name = ENDLESS

    def key(self, entry: QueueEntry) -> float:
        while entry.seq == 2:
            pass
        return float(entry.seq)


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """The test's own time-out uses the same signal and timer."""
    handler, timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    yield
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, *timer)


def test_a_call_without_an_end_is_interrupted_and_the_loop_goes_on() -> None:
    async def main() -> PluggedOrder:
        order = PluggedOrder(ENDLESS, lambda hints: Endless(), Hints(), OrderWatch())
        for seq in range(4):
            order.push(entry(seq))
            await asyncio.sleep(0)
        return order

    order = uvloop.run(main())
    assert order.fault is not None
    told = "push raised OrderTooSlow: a call took more than 0.5 s (in test_order_watch.py, line "
    assert order.fault.startswith(told), order.fault
    assert [popped.seq for popped in iter(order.pop, None)] == [0, 1, 2, 3]
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0), "no alarm is left"


def test_what_is_not_within_a_call_is_never_interrupted() -> None:
    watch = OrderWatch()
    assert watch(sum, [1, 2]) == 3
    signal.raise_signal(signal.SIGALRM)


def test_calls_that_take_most_of_the_time_together_are_too_slow() -> None:
    now_s = 0.0

    def pass_time(took_s: float) -> None:
        nonlocal now_s
        now_s += took_s

    def call(watch: OrderWatch, share: float, windows: int) -> None:
        for _ in range(50 * windows):
            pass_time((1.0 - share) * WINDOW_S / 50)
            watch(pass_time, share * WINDOW_S / 50)

    watch = OrderWatch(lambda: now_s)
    call(watch, 0.9 * MOST_SHARE, 3)
    with pytest.raises(OrderTooSlow, match="its calls took 55% of 5 s"):
        call(watch, 1.1 * MOST_SHARE, 3)
    call(watch, 0.9 * MOST_SHARE, 3)


def test_other_threads_are_not_bounded() -> None:
    watch = OrderWatch()
    before = signal.getitimer(signal.ITIMER_REAL)[0]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(watch, signal.getitimer, signal.ITIMER_REAL).result()[0] >= 0.9 * before
    assert 0.0 < watch(signal.getitimer, signal.ITIMER_REAL)[0] <= CALL_S
