"""Which orders of packages a worker has taken out, and since when the one in force holds everything back."""

from collections.abc import Mapping, Sequence
from math import inf

from hmas.contracts.control import TopologyName
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.order.plugged import PluggedOrder
from hmas.worker.agent.order.queue import RequestQueue

WITHHELD_S = 10.0


def fault_in(queue: RequestQueue) -> str | None:
    """Returns what the order in force did that it may not, in the first lane in which it did; None for a built-in."""
    for lane in queue.lanes:
        order = queue.order(lane)
        if not isinstance(order, PluggedOrder):
            return None
        if order.fault is not None:
            return order.fault
    return None


class OrderFaults:
    """`taken_out` has the fault of each order that is not used any more, by name."""

    def __init__(self) -> None:
        self.taken_out: dict[TopologyName, str] = {}
        self._withheld_s = inf  # since when

    def take_out(self, queue: RequestQueue) -> TopologyName:
        """Notes the fault of the order in force, which must have one, and returns its name."""
        fault = fault_in(queue)
        assert fault is not None
        self.taken_out[queue.topology] = fault
        return queue.topology

    def see_withheld(self, now_s: float, queue: RequestQueue, engines: Mapping[int, Sequence[EngineState]]) -> None:
        """Finds an order of a package that gives nothing for `WITHHELD_S` although something waits in a lane and no
        engine of that lane has anything to do. An order may hold back only what should not start beside what runs."""
        for lane in queue.lanes:
            order = queue.order(lane)
            if not isinstance(order, PluggedOrder) or order.fault is not None:
                break
            idle = engines[lane] and not any(engine.running for engine in engines[lane])
            if len(order) and idle and order.peek() is None:
                self._withheld_s = min(self._withheld_s, now_s)
                if now_s - self._withheld_s >= WITHHELD_S:
                    waiting = f"{len(order)} request{'s' if len(order) > 1 else ''} waited"
                    order.fail(f"it gave nothing for {WITHHELD_S:.0f} s while {waiting} and no engine had any")
                return
        self._withheld_s = inf
