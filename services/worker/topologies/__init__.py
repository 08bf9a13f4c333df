"""Omega: the queue topologies a worker can be switched to, one file each (H-MAS App. C.2).

Invariants: a topology holds each entry once, `pop` gives what `peek` showed, its state is bounded by what is queued
(fair-share ones: + `MAX_IDLE` tenants), and equal histories give equal orders.
"""

from collections.abc import Callable

from hmas.contracts.control import Hints, TopologyName

from services.worker.config import Draw
from services.worker.topologies.base import Topology
from services.worker.topologies.cfs import Cfs
from services.worker.topologies.edf import Edf
from services.worker.topologies.fcfs import Fcfs
from services.worker.topologies.hybrid import Hybrid
from services.worker.topologies.llf import Llf
from services.worker.topologies.lottery import Lottery
from services.worker.topologies.max_on_time import MaxOnTime
from services.worker.topologies.mlfq import Mlfq
from services.worker.topologies.priority import Priority
from services.worker.topologies.rr import RoundRobin
from services.worker.topologies.sjf import Sjf
from services.worker.topologies.srtf import Srtf
from services.worker.topologies.stride import Stride
from services.worker.topologies.two_lane import TwoLane
from services.worker.topologies.wfq import Wfq

TOPOLOGIES: dict[TopologyName, Callable[[Hints, Draw], Topology]] = {
    TopologyName.FCFS: lambda hints, draw: Fcfs(),
    TopologyName.EDF: lambda hints, draw: Edf(),
    TopologyName.LLF: lambda hints, draw: Llf(),
    TopologyName.SJF: lambda hints, draw: Sjf(),
    TopologyName.SRTF: lambda hints, draw: Srtf(),
    TopologyName.TWO_LANE: lambda hints, draw: TwoLane(hints),
    TopologyName.WFQ: lambda hints, draw: Wfq(hints),
    TopologyName.STRIDE: lambda hints, draw: Stride(hints),
    TopologyName.LOTTERY: Lottery,
    TopologyName.CFS: lambda hints, draw: Cfs(hints),
    TopologyName.RR: lambda hints, draw: RoundRobin(hints),
    TopologyName.MLFQ: lambda hints, draw: Mlfq(hints),
    TopologyName.PRIORITY: lambda hints, draw: Priority(),
    TopologyName.MAX_ON_TIME: lambda hints, draw: MaxOnTime(hints),
    TopologyName.HYBRID: lambda hints, draw: Hybrid(hints),
}

__all__ = ["TOPOLOGIES", "Topology"]
