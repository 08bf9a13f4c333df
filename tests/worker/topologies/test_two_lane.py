"""Two lanes for short and long requests."""

import pytest

from hmas.contracts.control import Hints
from hmas.worker.agent.engines.service_view import EngineOccupancy, ServiceView
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.topologies.two_lane import TwoLane, TwoLaneConfig
from tests.worker.builders import annotation, entry, request


def lasting(seq: int, total_s: float) -> QueueEntry:
    made = entry(seq, request(f"r{seq}"))
    made.annotate(annotation(1.0, ttft_s=total_s, tpot_s=0.0))
    return made


@pytest.mark.parametrize(("weight", "order"), [(0.75, "ffsfffsf"), (0.5, "fsfsfsfs"), (0.25, "sfsssfss")])
def test_two_lanes_share_the_dispatches_by_weight(weight: float, order: str) -> None:
    lanes = TwoLane(Hints(lane_gate_s=1.0, fast_weight=weight), TwoLaneConfig())
    for seq in range(20):
        lanes.push(lasting(seq, 1.0 if seq < 10 else 1.25))
    served = ""
    for _ in range(8):
        popped = lanes.pop()
        assert popped is not None
        served += "f" if popped.total_s <= 1.0 else "s"
    assert served == order


def test_each_lane_has_its_own_slots() -> None:
    lanes = TwoLane(Hints(lane_gate_s=1.0, fast_slots=0.75), TwoLaneConfig())
    lanes.observe(ServiceView(0.0, (EngineOccupancy(cap=4, running=0, kv_tokens=0, kv_free_tokens=0),)))
    for seq in range(10):
        lanes.push(lasting(seq, 1.0 if seq < 5 else 2.0))
    taken = [popped for _ in range(9) if (popped := lanes.pop()) is not None]
    assert sorted(each.total_s for each in taken) == [1.0, 1.0, 1.0, 2.0]
    lanes.on_served(taken[0], 1.0, final=False)
    assert lanes.peek() is None
    lanes.on_served(taken[0], 1.0, final=True)
    assert lanes.pop() is not None
    assert lanes.pop() is None


def test_the_gate_is_the_median_and_follows_what_comes() -> None:
    lanes = TwoLane(Hints(), TwoLaneConfig(gate_step=2.0))
    waiting = [lasting(seq, float(seq)) for seq in range(1, 6)]
    lanes.rebuild(waiting)
    assert (lanes._gate, len(lanes._fast), len(lanes._slow)) == (3.0, 3, 2)
    lanes.push(lasting(9, 4.0))
    assert (lanes._gate, len(lanes._fast)) == (6.0, 4)
    lanes.push(lasting(10, 6.0))
    assert (lanes._gate, len(lanes._slow)) == (3.0, 3)
    assert len(lanes) == 7
