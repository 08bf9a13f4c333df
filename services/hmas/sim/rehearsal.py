"""The rehearsal: a pool's last requests once more through the simulated mesh, under what is in force and under each
candidate.

It is a pure function of the rows and the seeds. It says what it is worth first: where the simulation of what is in
force misses what was observed by more than `TRUSTED`, it abstains. The true output lengths load the engines only; the
agents get what perception said of each request at the time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from random import Random
from statistics import fmean

from hmas.contracts.control_agents import Rehearse
from hmas.contracts.outcome import Outcome
from hmas.contracts.past import PastBlock
from hmas.contracts.rehearsal import (
    PastFigures,
    Policy,
    PoolFacts,
    Rehearsal,
    Rehearsed,
    SloChange,
    TenantGain,
    TenantOnTime,
)
from hmas.contracts.request import Request, Slo, TagSource, TaskType
from hmas.engine.core.profile import EngineLimits, EngineProfile, StepCostModel
from hmas.laws.request_rows import RequestRow, unpack
from hmas.laws.scoring import Settlement, is_ok, quantile, ttlt_slo_s, verdict
from hmas.sim.mesh import WARM_S, MeshSim
from hmas.sim.setup import POOL, MeshSetup
from hmas.sim.workload import OfferedRequest, Workload

TRUSTED = 0.05  # the most by which the simulation of what is in force may miss what was observed
MIN_REQUESTS = 100  # fewer judged ones tell nothing
CUTOFF_S = 120.0
CHUNK_TOKENS = 2048  # vLLM's default, which engines do not report
BLOCK_S = 10.0  # requests of so many seconds are drawn together, because they share their queues
REQUEST_S = 0.0025  # CPU time of simulating a request once, as benchmarks/bench_rehearsal.py measures it
DRAWS = 400
MAX_TENANTS = 12  # whose gains are told
TAILS = (0.05, 0.95)  # of the interval
_Z90 = 1.2816
# Refused by what no topology changes: a limit, a key, the request itself.
_NOT_REPLAYED = frozenset(
    {
        Outcome.INVALID_REQUEST, Outcome.UNAUTHENTICATED, Outcome.FORBIDDEN, Outcome.UNKNOWN_MODEL,
        Outcome.UNKNOWN_PATH, Outcome.BODY_TOO_LARGE, Outcome.CLIENT_TOO_SLOW, Outcome.NEVER_FITS,
        Outcome.TENANT_REQUEST_RATE, Outcome.TENANT_TOKEN_RATE, Outcome.TENANT_IN_FLIGHT, Outcome.TENANT_QUEUE_FULL,
        Outcome.ENGINE_REFUSED,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a rehearsal replays. `rows` are in order of arrival; their `arrival_s` is below 0, because it counts from
    now. Judged are those of the last `window_s` seconds."""

    rows: tuple[RequestRow, ...]
    window_s: float
    profile: EngineProfile
    engines: int
    workers: int
    in_force: Policy

    def __post_init__(self) -> None:
        if self.engines < 1 or self.workers < 1:
            raise ValueError("a pool without engines cannot be rehearsed")
        if not self.window_s > 0.0:
            raise ValueError(f"the window must be longer than 0 s, got {self.window_s}")


def fitted_profile(facts: PoolFacts) -> EngineProfile:
    """Returns the profile of a pool's engines by their measured pace. Raises ValueError if that is not known."""
    pace = facts.pace
    if pace is None or pace.base_s <= 0.0:
        raise ValueError(
            "the pace of this pool's engines has not been measured yet: wait until they have worked for half a "
            "minute, or name a profile with --profile"
        )
    block = facts.block_size or 16
    capacity = facts.kv_capacity_tokens or facts.max_num_seqs * facts.max_model_len
    blocks = max(1, capacity // block)
    return EngineProfile(
        name="fitted",
        cost=StepCostModel(pace.base_s, pace.prompt_s, pace.sequence_s, pace.context_s),
        limits=EngineLimits(
            max_num_seqs=facts.max_num_seqs,
            max_num_batched_tokens=max(CHUNK_TOKENS, facts.max_num_seqs),
            block_size=block,
            num_gpu_blocks=blocks,
            max_model_len=min(facts.max_model_len, blocks * block),
            enable_prefix_caching=False,
        ),
        source="fitted to the pool's measured pace",
        model=facts.model,
        hardware=facts.hardware,
    )


def of_blocks(effect: Rehearse, blocks: Iterable[PastBlock], profile: EngineProfile) -> Rehearsal:
    """Returns the outcome of a rehearsal that a simulated meta controller asks for. Its CPU time is told by the number
    of requests, so that a run is the same each time."""
    rows = [replace(row, arrival_s=row.arrival_s - each.age_s) for each in blocks for row in unpack(each.rows)]
    scene = Scene(
        rows=tuple(sorted(rows, key=lambda row: row.arrival_s)),
        window_s=effect.window_s,
        profile=profile,
        engines=effect.facts.engines,
        workers=effect.facts.workers,
        in_force=effect.in_force,
    )
    cpu_s = REQUEST_S * len(rows) * (1 + len(effect.candidates))
    return replace(rehearse(scene, effect.candidates), cpu_s=cpu_s)


def rehearse(scene: Scene, candidates: Sequence[Policy], seeds: Sequence[int] = (1,)) -> Rehearsal:
    """Returns how the scene's requests would have fared under each candidate, beside what happened and what is in
    force. Each seed is one run of each, with other draws of the lengths that are not known."""
    rows = [row for row in scene.rows if row.outcome not in _NOT_REPLAYED and row.max_tokens != 0]
    start_s = max(-scene.window_s, _since_change(rows, scene.in_force))
    rows = [row for row in rows if row.arrival_s >= start_s - WARM_S]
    longest = scene.profile.limits.max_model_len
    rows = [row for row in rows if row.prompt_tokens + max(1, row.output_tokens) <= longest]
    judged = [i for i, row in enumerate(rows) if row.arrival_s > start_s and _judged(row)]
    # A candidate is compared on those that still wait as well: what has ended is what the policy in force preferred.
    counted = [i for i, row in enumerate(rows) if row.arrival_s > start_s and (row.outcome is None or _judged(row))]
    drawn = sum(1 for row in rows if row.outcome is not Outcome.FINISHED)
    observed = _figures(
        [rows[i].tenant for i in judged], [rows[i].on_time for i in judged], [rows[i].ttft_s for i in judged]
    )
    if len(judged) < MIN_REQUESTS:
        told = f"{len(judged)} requests came under {scene.in_force.topology}, fewer than {MIN_REQUESTS} tell nothing"
        return Rehearsal(
            window_s=-start_s, observed=observed, in_force=observed, candidates=(), abstains=told, drawn=drawn
        )
    (before, _), (_, base) = _replayed(scene, rows, (judged, counted), scene.in_force, seeds)
    miss = before.on_time - observed.on_time
    told = ""
    if abs(miss) > TRUSTED:
        told = (
            f"the simulation of what is in force has {before.on_time:.1%} on time, {observed.on_time:.1%} were: it "
            f"misses by {abs(miss) * 100:.1f} points, at most {TRUSTED * 100:.0f} are trusted"
        )
    if all(rows[i].last_token_s is None for i in judged):
        told = "no latency was observed, so that nothing vouches for the simulation"
    blocks = [int((rows[i].arrival_s - start_s) // BLOCK_S) for i in counted]
    found = []
    for candidate in candidates:
        ((figures, oks),) = _replayed(scene, rows, (counted,), candidate, seeds)
        gains = [after - earlier for after, earlier in zip(oks, base, strict=True)]
        low, high = spread(gains, blocks)
        tenants = _tenant_gains(figures, [rows[i].tenant for i in counted], gains, blocks)
        found.append(
            Rehearsed(policy=candidate, figures=figures, gain=fmean(gains), low=low, high=high, tenants=tenants)
        )
    return Rehearsal(
        window_s=-start_s, observed=observed, in_force=before, candidates=tuple(found), abstains=told, drawn=drawn
    )


def _since_change(rows: Sequence[RequestRow], in_force: Policy) -> float:
    """Returns the arrival of the first row since which all came under the topology in force."""
    other = [row.arrival_s for row in rows if row.topology not in ("", in_force.topology.value)]
    return max(other, default=float("-inf"))


def _judged(row: RequestRow) -> bool:
    """Tells whether it is known if the request was on time. One that has not ended is judged once its last token would
    be late."""
    if row.outcome is not None:
        return verdict(row.settled()).judged
    return -row.arrival_s > ttlt_slo_s(row.slo, int(row.predicted_output_tokens_p90 or row.max_tokens or 1000))


def _replayed(
    scene: Scene, rows: Sequence[RequestRow], parts: Sequence[Sequence[int]], policy: Policy, seeds: Sequence[int]
) -> list[tuple[PastFigures, list[float]]]:
    """Returns the figures of a policy for each part of the rows, and for each row of the part the share of seeds in
    which it was on time."""
    engines = policy.engines or scene.engines
    setup = MeshSetup(
        name="rehearsal",
        pin=policy.topology,
        hints=policy.hints,
        split=policy.split,
        workers=min(scene.workers, engines),
    )
    runs: list[list[Settlement]] = []
    for seed in seeds:
        workload = workload_of(rows, policy.slos, seed)
        runs.append(MeshSim(setup, scene.profile, engines, workload, seed, cutoff_s=CUTOFF_S).run().settlements)
    found = []
    for part in parts:
        oks = [fmean(is_ok(run[i]) for run in runs) for i in part]
        ttfts = [run[i].ttft_s for run in runs for i in part]
        found.append((_figures([rows[i].tenant for i in part], oks, ttfts), oks))
    return found


def workload_of(rows: Iterable[RequestRow], slos: Sequence[SloChange], seed: int) -> Workload:
    """Returns the rows as a workload that begins with the first of them. Lengths that are not known are drawn."""
    requests: list[OfferedRequest] = []
    first_s = last_s = 0.0
    for i, row in enumerate(rows):
        if not requests:
            first_s = row.arrival_s
        last_s = row.arrival_s
        changed = _changed(row, slos)
        slo = changed or row.slo
        request = Request(
            id=f"p{i:06d}",
            model=POOL,
            tenant=row.tenant,
            flow=row.job,
            prompt_tokens=max(1, row.prompt_tokens),
            max_tokens=row.max_tokens,
            stream=row.stream,
            slo=slo,
            slo_stated=row.stated or changed is not None,
            priority=row.priority,
            weight=row.weight,
            importance=row.importance,
            arrival_s=row.arrival_s - first_s,
            relegate=row.relegate,
        )
        requests.append(
            OfferedRequest(
                request=request,
                output_tokens=output_tokens(row, Random(f"{seed} length {i}")),
                slo=slo,
                task=row.task,
                recorded=_recorded(row),
            )
        )
    return Workload("past requests", tuple(requests), max(1.0, last_s - first_s))


def output_tokens(row: RequestRow, draw: Random) -> int:
    """Returns the length of the answer: the true one if it finished, otherwise one drawn from the log-normal
    distribution that was predicted, but no shorter than what came."""
    if row.outcome is Outcome.FINISHED:
        return max(1, row.output_tokens)
    median = max(1.0, row.predicted_output_tokens or row.max_tokens or 200.0)
    sigma = log(max(median, row.predicted_output_tokens_p90) / median) / _Z90
    tokens = int(median * exp(draw.gauss(0.0, sigma)))
    most = row.max_tokens if row.max_tokens is not None else 2**20
    return max(1, row.output_tokens, min(tokens, most))


def _changed(row: RequestRow, slos: Sequence[SloChange]) -> Slo | None:
    for change in slos:
        if change.name in (row.tenant, row.task.value):
            ttft_s = row.slo.ttft_s if change.ttft_s is None else change.ttft_s
            return replace(row.slo, ttft_s=ttft_s, tpot_s=change.tpot_s or row.slo.tpot_s)
    return None


def _recorded(row: RequestRow) -> tuple[TaskType, float, float, float] | None:
    """Returns what a model of perception said of the request; None where the prior answered, as it does here too."""
    if row.tagged_by is None or row.tagged_by is TagSource.PRIOR:
        return None
    median = row.predicted_output_tokens
    if median <= 0.0:
        return None
    return row.task, row.confidence, median, max(median, row.predicted_output_tokens_p90)


def _figures(tenants: Sequence[str], oks: Sequence[float], ttfts: Sequence[float | None]) -> PastFigures:
    by_tenant: dict[str, list[float]] = {}
    for tenant, ok in zip(tenants, oks, strict=True):
        by_tenant.setdefault(tenant, []).append(ok)
    firsts = sorted(ttft for ttft in ttfts if ttft is not None)
    shares = [TenantOnTime(tenant=name, requests=len(each), on_time=fmean(each)) for name, each in by_tenant.items()]
    return PastFigures(
        requests=len(oks),
        on_time=fmean(oks) if oks else 0.0,
        ttft_p50_s=quantile(firsts, 0.5) if firsts else 0.0,
        ttft_p95_s=quantile(firsts, 0.95) if firsts else 0.0,
        tenants=tuple(sorted(shares, key=lambda share: (-share.requests, share.tenant))),
    )


def _tenant_gains(
    figures: PastFigures, tenants: Sequence[str], gains: Sequence[float], blocks: Sequence[int]
) -> tuple[TenantGain, ...]:
    """Returns the gains among the requests of each of the first `MAX_TENANTS` tenants of the figures."""
    found = []
    for share in figures.tenants[:MAX_TENANTS]:
        own = [i for i, tenant in enumerate(tenants) if tenant == share.tenant]
        of_tenant = [gains[i] for i in own]
        low, high = spread(of_tenant, [blocks[i] for i in own])
        found.append(
            TenantGain(tenant=share.tenant, requests=share.requests, gain=fmean(of_tenant), low=low, high=high)
        )
    return tuple(found)


def spread(gains: Sequence[float], blocks: Sequence[int]) -> tuple[float, float]:
    """Returns the 90 % interval of the mean gain by the bootstrap over blocks of time, so that requests that waited in
    the same queue count as one observation. One observation has no spread, so that the gain may be anything."""
    sums: dict[int, tuple[float, int]] = {}
    for gain, block in zip(gains, blocks, strict=True):
        total, count = sums.get(block, (0.0, 0))
        sums[block] = total + gain, count + 1
    if len(sums) < 2:
        return -1.0, 1.0
    pairs, draw = list(sums.values()), Random("bootstrap")
    means = []
    for _ in range(DRAWS):
        sample = draw.choices(pairs, k=len(pairs))
        means.append(sum(total for total, _ in sample) / sum(count for _, count in sample))
    means.sort()
    return quantile(means, TAILS[0]), quantile(means, TAILS[1])
