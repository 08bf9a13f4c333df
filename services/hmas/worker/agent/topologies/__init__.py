"""Omega: the queue topologies that a worker can be switched to, one file each (H-MAS App. C.2).

Invariants: a topology holds each entry once, `pop` returns what `peek` returned, its state is bounded by the number of
queued requests (in fair-share topologies plus `max_idle` tenants), and equal histories give equal orders.
"""

from collections.abc import Callable

from hmas.contracts.control import Hints, TopologyName
from hmas.worker.agent.config import RandomSource
from hmas.worker.agent.topologies.base import Topology
from hmas.worker.agent.topologies.cfs import Cfs
from hmas.worker.agent.topologies.edf import Edf
from hmas.worker.agent.topologies.fair_share import FairShareConfig
from hmas.worker.agent.topologies.fcfs import Fcfs
from hmas.worker.agent.topologies.hybrid import Hybrid, HybridConfig
from hmas.worker.agent.topologies.llf import Llf
from hmas.worker.agent.topologies.lottery import Lottery, LotteryConfig
from hmas.worker.agent.topologies.maestro import Maestro
from hmas.worker.agent.topologies.max_on_time import MaxOnTime, MaxOnTimeConfig
from hmas.worker.agent.topologies.mlfq import Mlfq, MlfqConfig
from hmas.worker.agent.topologies.priority import Priority, PriorityConfig
from hmas.worker.agent.topologies.rr import RoundRobin
from hmas.worker.agent.topologies.sjf import Sjf
from hmas.worker.agent.topologies.srtf import Srtf
from hmas.worker.agent.topologies.stride import Stride
from hmas.worker.agent.topologies.two_lane import TwoLane, TwoLaneConfig
from hmas.worker.agent.topologies.wfq import Wfq

TOPOLOGIES: dict[TopologyName, Callable[[Hints, RandomSource], Topology]] = {
    TopologyName.FCFS: lambda hints, rng: Fcfs(),
    TopologyName.EDF: lambda hints, rng: Edf(),
    TopologyName.LLF: lambda hints, rng: Llf(),
    TopologyName.SJF: lambda hints, rng: Sjf(),
    TopologyName.SRTF: lambda hints, rng: Srtf(),
    TopologyName.MAESTRO: lambda hints, rng: Maestro(),
    TopologyName.TWO_LANE: lambda hints, rng: TwoLane(hints, TwoLaneConfig()),
    TopologyName.WFQ: lambda hints, rng: Wfq(hints, FairShareConfig()),
    TopologyName.STRIDE: lambda hints, rng: Stride(hints, FairShareConfig()),
    TopologyName.LOTTERY: lambda hints, rng: Lottery(rng, LotteryConfig()),
    TopologyName.CFS: lambda hints, rng: Cfs(hints, FairShareConfig()),
    TopologyName.RR: lambda hints, rng: RoundRobin(hints, FairShareConfig()),
    TopologyName.MLFQ: lambda hints, rng: Mlfq(hints, MlfqConfig()),
    TopologyName.PRIORITY: lambda hints, rng: Priority(PriorityConfig()),
    TopologyName.MAX_ON_TIME: lambda hints, rng: MaxOnTime(hints, MaxOnTimeConfig()),
    TopologyName.HYBRID: lambda hints, rng: Hybrid(hints, HybridConfig()),
}

__all__ = ["TOPOLOGIES", "Topology"]
