"""Plain controls, in which a test changes what it is about."""

from dataclasses import replace
from typing import Any

from hmas.contracts.control import (
    ControlTuple,
    EngineControl,
    Fence,
    Hints,
    TopologyDecision,
    TopologyName,
    TopologyReceived,
)

DECISION = TopologyDecision(
    pool="m", topology=TopologyName.EDF, hints=Hints(), bypass=False, epoch=1, seq=1, valid_for_s=15.0, reason="why",
    selector="rules",
)  # fmt: skip
ENGINE_CONTROL = EngineControl(
    engine="e1", n_run=16, b_token=64, b_min=1, b_max=128, gain_b=1.0, u_low=0.7, u_high=0.9,
)  # fmt: skip
TUPLE = ControlTuple(worker="w1", engines=(), fence=Fence(), epoch=1, seq=1, valid_for_s=15.0)


def topology_decision(topology: TopologyName = TopologyName.EDF, **changes: Any) -> TopologyDecision:
    """A decision of the rules: the order by deadline, without a layout."""
    return replace(DECISION, topology=topology, **changes)


def topology_received(topology: TopologyName = TopologyName.EDF, **changes: Any) -> TopologyReceived:
    """The same, as it arrives from its publisher."""
    return TopologyReceived(topology_decision(topology, **changes))


def engine_control(engine: str = "e1", **changes: Any) -> EngineControl:
    return replace(ENGINE_CONTROL, engine=engine, **changes)


def control_tuple(worker: str = "w1", **changes: Any) -> ControlTuple:
    """A tuple that limits no engine and has no fence."""
    return replace(TUPLE, worker=worker, **changes)
