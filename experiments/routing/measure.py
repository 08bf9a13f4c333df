"""Runs routers on their workloads. Each run is made once: its figures are kept under a digest of its parameters and its
code."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from experiments.length_bounds import bounds_of
from experiments.routing.rules import RULES
from experiments.routing.workloads import BLOCK_TOKENS, MOONCAKE, Sessions, build
from hmas.contracts.outcome import Outcome
from hmas.engine.core import EngineCore
from hmas.engine.core.profile import EngineProfile, builtin_profile
from hmas.gateway.agent.config import GatewayConfig
from hmas.sim.faults import Fault, FaultKind
from hmas.sim.processes.gateway_shell import SimGateway
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas.sim.workload import Journey
from hmas_lab.sim.stored import cell_key

PROFILES = {MOONCAKE: "qwen3-32b-h100x2"}  # others have no prompts that need so much memory
PROFILE = "llama3.1-8b-rtx4090x1"
ENGINES = 8
POOLED = "one pooled cache (bound)"
KILLED_AT, AFTER_S = 0.4, 10.0  # a gateway is killed at this share of a run; so long after that hits count as late


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingCell:
    """One run. `rate` is in jobs per second. `kill`: one gateway is killed in it."""

    workload: str
    rate: float
    seconds: float
    seed: int
    system: str
    gateways: int = 1
    kill: bool = False

    def key(self) -> str:
        return cell_key(self)


class _Mesh(MeshSim):
    """A mesh whose gateways choose by another rule."""

    def __init__(self, cell: RoutingCell, found: Sessions, profile: EngineProfile) -> None:
        self._rule, self._sessions = RULES[cell.system], found
        self._offered = {each.id: each for each in found.workload.requests}
        faults = (Fault(at_s=KILLED_AT * cell.seconds, kind=FaultKind.KILL, target="g0"),) if cell.kill else ()
        setup = MeshSetup(estimator="prior", workers=ENGINES, gateways=cell.gateways, faults=faults)
        super().__init__(setup, profile, ENGINES, found.workload, cell.seed, cutoff_s=300.0)

    def _gateway(self, name: str, incarnation: int) -> SimGateway:
        if self._rule is None:
            return super()._gateway(name, incarnation)
        config = GatewayConfig(gateway=name)
        rule = self._rule(config, self._core, self._offered, self._sessions.session_of)
        return SimGateway(self, config, incarnation, rule)

    def _core(self, worker: str) -> EngineCore:
        (endpoint,) = self.workers[worker].endpoints.values()
        endpoint.engine.catch_up()
        return endpoint.engine.core


def measure(cell: RoutingCell, data: Path) -> dict[str, Any]:
    """Returns the figures of a run. Times are in s; `hit` is the share of prompt tokens that engines had cached."""
    profile = builtin_profile(PROFILES.get(cell.workload, PROFILE))
    found = build(cell.workload, data, cell.rate, cell.seconds, cell.seed, profile)
    if cell.system == POOLED:
        return {"hit": pooled_hit(found, profile)}
    mesh = _Mesh(cell, found, profile)
    result = mesh.run()
    engines = [endpoint.engine for endpoint in mesh.endpoints.values()]
    journeys = list(mesh.journeys.values())
    ends = {s.request_id: s for s in result.settlements}
    good = {name for name, s in ends.items() if _is_good(s)}
    jobs: dict[str, bool] = {}
    for name in ends:
        job = found.job_of.get(name, name)
        jobs[job] = jobs.get(job, True) and name in good
    busy = [engine.busy_s for engine in engines]
    late = KILLED_AT * cell.seconds + AFTER_S
    return {
        "requests": len(journeys),
        "hit": _hit(journeys),
        "hit_late": _hit([j for j in journeys if j.offered.request.arrival_s >= late]),
        "ttft_p50_s": _quantile(journeys, 0.5),
        "ttft_p90_s": _quantile(journeys, 0.9),
        "busy_ratio": max(busy) * len(busy) / sum(busy),
        "goodput": len(good) / max(1, len(ends)),
        "job_goodput": fmean(jobs.values()),
        **bounds_of(result.run),
    }


def _is_good(settlement: Any) -> bool:
    slo = settlement.slo
    if settlement.outcome is not Outcome.FINISHED or settlement.ttft_s is None or settlement.tpot_s is None:
        return False
    return bool(settlement.ttft_s <= slo.ttft_s and settlement.tpot_s <= slo.tpot_s)


def _hit(journeys: Sequence[Journey]) -> float:
    done = [j for j in journeys if j.cached_tokens is not None]
    return sum(j.cached_tokens or 0 for j in done) / max(1, sum(j.offered.request.prompt_tokens for j in done))


def _quantile(journeys: Sequence[Journey], share: float) -> float:
    """Returns a quantile of the times to first token, where one that never came counts as infinite."""
    times = [j.first_token_s - j.offered.request.arrival_s if j.first_token_s else float("inf") for j in journeys]
    return float(np.quantile(times, share, method="higher"))


def pooled_hit(found: Sessions, profile: EngineProfile) -> float:
    """Returns the hits of one cache with the memory of all engines, which keeps what was used last, over the requests
    in their order of arrival, each computed and answered at once."""
    capacity, cache = ENGINES * profile.limits.num_gpu_blocks, OrderedDict[int, None]()
    hits = tokens = 0
    for offered in found.workload.requests:
        most = (offered.request.prompt_tokens - 1) // BLOCK_TOKENS
        blocks = offered.prefix_hashes
        cached = next((i for i, block in enumerate(blocks[:most]) if block not in cache), len(blocks[:most]))
        hits, tokens = hits + cached * BLOCK_TOKENS, tokens + offered.request.prompt_tokens
        for block in reversed(blocks + offered.answer_hashes):
            cache[block] = None
            cache.move_to_end(block)
        own = max(0, offered.request.prompt_tokens // BLOCK_TOKENS - len(blocks))
        for i in range(own):
            cache[hash((offered.id, i))] = None
        while len(cache) > capacity:
            cache.popitem(last=False)
    return hits / max(1, tokens)
