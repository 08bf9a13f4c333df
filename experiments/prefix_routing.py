"""Measures routing by prefix inside one worker: agents' loops from tau-bench on several engines, each with a prefix
cache, with and without the chains by which the worker knows what an engine holds.

The requests of a job come at instants that are drawn beforehand: a gap after the time that the answer before would take
on an idle engine. The cost of slower answers to the next request is therefore not part of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from random import Random

import numpy as np

from experiments.workflows import TAU_BENCH, Workflow, read_workflows
from hmas.contracts.job import NO_CHAIN
from hmas.contracts.request import Request, Slo, TaskType
from hmas.engine.core.profile import builtin_profile
from hmas.laws.prefix_chain import chain_of_messages, piece_of, tenant_key
from hmas.laws.tokens import BYTES_PER_TOKEN
from hmas.sim.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas.sim.workload import OfferedRequest, Workload

PROFILE = "llama3.1-8b-rtx4090x1"
ENGINES = 4
JOBS_PER_S = (1.0, 3.0, 6.0)
GAP_MEDIAN_S, GAP_SIGMA = 3.0, 1.0
IDLE_TPOT_S = 0.03
TENANT = "acme"
SLO = Slo(2.0, 0.1)
LEAST_LOADED, BY_PREFIX = "least loaded", "by prefix"


@dataclass(frozen=True, slots=True)
class RoutingRow:
    """One run. `hit`: the share of prompt tokens that engines had cached. Times to first token are in s. `busiest`: the
    time that the busiest engine ran, over the mean of all."""

    routing: str
    jobs_per_s: float
    seed: int
    requests: int
    hit: float
    ttft_p50_s: float
    ttft_p90_s: float
    busiest: float
    goodput: float


def measure(
    data: Path, seeds: Sequence[int], say: Callable[[str], None], jobs_per_s: Sequence[float] = JOBS_PER_S
) -> list[RoutingRow]:
    """Returns the rows of all runs. `data` is the folder with `agentic/`."""
    jobs = read_workflows(data, TAU_BENCH)
    found = []
    for rate in jobs_per_s:
        for seed in seeds:
            workload = agent_loops(jobs, rate, seed)
            found += [_run(routing, workload, rate, seed) for routing in (LEAST_LOADED, BY_PREFIX)]
            say(f"{rate:g} jobs/s, seed {seed}")
    return found


def agent_loops(jobs: Sequence[Workflow], jobs_per_s: float, seed: int) -> Workload:
    """Returns all requests of the jobs, which start at random, `jobs_per_s` on average."""
    random, key = Random(f"{seed} loops"), tenant_key(TENANT)
    offered, start_s = list[OfferedRequest](), 0.0
    for job in random.sample(list(jobs), len(jobs)):
        start_s += random.expovariate(jobs_per_s)
        at_s = start_s
        for number, call in enumerate(job.calls):
            prompt = b"".join(map(piece_of, call.messages))
            later = job.calls[number + 1].messages if number + 1 < len(job.calls) else ()
            answer = piece_of(later[len(call.messages)]) if later else b""
            hashes, blocks = _block_hashes(prompt + answer), len(prompt) // _BLOCK_BYTES
            request = Request(
                id=f"{job.id} {number}", model="model", tenant=TENANT, flow="",
                prompt_tokens=max(1, len(prompt) // BYTES_PER_TOKEN), max_tokens=1024, stream=True, slo=SLO,
                slo_stated=True, priority=0, weight=1.0, importance=0.75, arrival_s=at_s,
                prefix=chain_of_messages(key, b"model", call.messages),
            )  # fmt: skip
            offered.append(
                OfferedRequest(
                    request=request, output_tokens=call.output_tokens, slo=SLO, task=TaskType.UNKNOWN,
                    prefix_hashes=hashes[:blocks], answer_hashes=hashes[blocks:],
                )
            )  # fmt: skip
            at_s += call.output_tokens * IDLE_TPOT_S + GAP_MEDIAN_S * random.lognormvariate(0.0, GAP_SIGMA)
    offered.sort(key=lambda each: each.request.arrival_s)
    return Workload("agent-loops", tuple(offered), start_s, f"tau-bench at {jobs_per_s:g} jobs/s, seed {seed}")


_BLOCK_BYTES = 16 * BYTES_PER_TOKEN


def _block_hashes(content: bytes) -> tuple[int, ...]:
    """Returns the chained hashes of the full blocks of 16 tokens."""
    state, hashes = blake2b(digest_size=6), []
    for begin in range(0, len(content) - _BLOCK_BYTES + 1, _BLOCK_BYTES):
        state.update(content[begin : begin + _BLOCK_BYTES])
        hashes.append(int.from_bytes(state.digest(), "big"))
    return tuple(hashes)


def _run(routing: str, workload: Workload, jobs_per_s: float, seed: int) -> RoutingRow:
    if routing == LEAST_LOADED:
        blind = (replace(r, request=replace(r.request, prefix=NO_CHAIN)) for r in workload.requests)
        workload = replace(workload, requests=tuple(blind))
    mesh = MeshSim(MeshSetup(estimator="prior"), builtin_profile(PROFILE), ENGINES, workload, seed)
    result = mesh.run()
    engines = [endpoint.engine for endpoint in mesh.endpoints.values()]
    stats = [engine.core.stats() for engine in engines]
    firsts = [j.first_token_s - j.offered.request.arrival_s for j in mesh.journeys.values() if j.first_token_s]
    busy = [engine.busy_s for engine in engines]
    return RoutingRow(
        routing=routing,
        jobs_per_s=jobs_per_s,
        seed=seed,
        requests=len(workload.requests),
        hit=sum(s.prefix_cache_hits for s in stats) / max(1, sum(s.prefix_cache_queries for s in stats)),
        ttft_p50_s=float(np.quantile(firsts, 0.5)),
        ttft_p90_s=float(np.quantile(firsts, 0.9)),
        busiest=max(busy) * len(busy) / sum(busy),
        goodput=result.score.goodput_rate,
    )
