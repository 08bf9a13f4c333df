"""A run of the mesh on jobs in a closed loop: the same agents and engines as everywhere, with what clients say of their
jobs, a name and a budget, and nothing of true lengths."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from experiments.length_bounds import bounds_of
from experiments.maestro.fleet import FleetRun
from experiments.maestro.orders import history
from hmas.contracts.control import TopologyName
from hmas.contracts.job import PrefixChain
from hmas.contracts.outcome import Outcome
from hmas.engine.core.profile import EngineProfile
from hmas.gateway.agent import GatewayAgent
from hmas.gateway.agent.config import GatewayConfig, JobOutlookConfig
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas.sim.workload import OfferedRequest, Workload
from hmas_lab.sim.jobs import JobClients, SimJob

HMAS = "hmas"
REQUESTS = "hmas-requests"  # the same mesh, to which nobody speaks of jobs
SRTF = "hmas-srtf"  # the same mesh with the topology `maestro`
TABLE = "hmas-table"  # the same mesh, whose due times go by Eq. 8's medians
MEDIANS = JobOutlookConfig(hopes=False)
MESHES = {
    HMAS: MeshSetup(estimator="none"),
    TABLE: MeshSetup(name=TABLE, estimator="none", gateway_config=GatewayConfig(gateway="g0", job_outlook=MEDIANS)),
    SRTF: MeshSetup(name=SRTF, estimator="none", pin=TopologyName.MAESTRO),
    REQUESTS: MeshSetup(name=REQUESTS, estimator="none"),
}


def run_mesh(
    system: str, before: Iterable[SimJob], profile: EngineProfile, engines: int, jobs: Sequence[SimJob], until_s: float,
    seed: int,
) -> FleetRun:  # fmt: skip
    """Runs one of `MESHES`. `before` are jobs that ended before the run, from which the gateway has learnt."""
    clients, caches = JobClients(jobs), profile.limits.enable_prefix_caching
    first = tuple(_said(system, offered, caches) for offered in clients.first())
    seconds = max(job.arrival_s for job in jobs)
    workload = Workload("jobs", tuple(sorted(first, key=lambda r: r.request.arrival_s)), seconds)
    mesh = MeshSim(MESHES[system], profile, engines, workload, seed, cutoff_s=until_s - seconds)
    for gateway in mesh.gateways.values():
        assert isinstance(gateway.agent, GatewayAgent)
        for template, stages in history(before):
            gateway.agent.job_outlook.profiles.learn(template, stages)

    def settled(request_id: str) -> None:
        if mesh.journeys[request_id].outcome is Outcome.FINISHED:
            for offered in clients.ended(mesh.heap.now_s, request_id):
                mesh.offer(_said(system, offered, caches))

    mesh.on_settled = settled
    result = mesh.run()
    cores = [endpoint.engine for endpoint in mesh.endpoints.values()]
    stats = [engine.core.stats() for engine in cores]
    return FleetRun(
        mesh.journeys,
        tuple(engine.busy_s for engine in cores),
        sum(s.prefix_cache_queries for s in stats),
        sum(s.prefix_cache_hits for s in stats),
        bounds_of(result.run),
    )


def _said(system: str, offered: OfferedRequest, caches: bool) -> OfferedRequest:
    """Returns a request as its client sends it. Without prefix caches only what tells the agent is kept of a chain."""
    request = offered.request
    if not caches:
        chain = request.prefix
        request = replace(request, prefix=PrefixChain(chain.nodes[:1], (0,)))
    if system == REQUESTS:
        return replace(offered, request=request, job="", job_budget_s=None)
    return replace(offered, request=request)
