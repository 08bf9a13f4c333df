"""Tenants share by weight, through however many gateways they come."""

from dataclasses import replace
from random import Random

import pytest

from hmas.contracts.control import TopologyName
from hmas.contracts.outcome import Outcome
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas.sim.workload import OfferedRequest, Workload
from tests.sim.sim_cases import SMALL, offered

WEIGHTS = {"light": 1.0, "heavy": 3.0}


def backlog(seed: int, count: int, duration_s: float) -> Workload:
    """Two tenants of different weight that both send more within a second than is served in `duration_s`."""
    draw = Random(seed)
    rows: list[OfferedRequest] = []
    for i in range(count):
        tenant = draw.choice(list(WEIGHTS))
        row = offered(i, i / count, draw.randint(20, 80), draw.randint(20, 80), tenant=tenant)
        rows.append(replace(row, request=replace(row.request, weight=WEIGHTS[tenant])))
    return Workload("backlog", tuple(rows), duration_s)


def ratio(setup: MeshSetup, seed: int) -> float:
    """Returns the tokens of the heavy tenant by those of the light one, of what was answered within the time."""
    workload = backlog(seed, 1600, 20.0)
    result = MeshSim(setup, SMALL, 2, workload, seed, cutoff_s=0.0).run()
    served = dict.fromkeys(WEIGHTS, 0)
    for s in result.settlements:
        if s.outcome is Outcome.FINISHED:
            served[s.tenant] += s.output_tokens
    return served["heavy"] / served["light"]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_weights_hold_over_gateways(seed: int) -> None:
    one = MeshSetup(pin=TopologyName.WFQ)
    alone = ratio(one, seed)
    assert alone == pytest.approx(3.0, rel=0.1)  # the first ones come to an empty queue
    for weights in ((3, 1), (5, 3, 1, 1)):
        several = replace(one, gateways=len(weights), gateway_weights=weights)
        assert ratio(several, seed) == pytest.approx(alone, rel=0.05), weights
