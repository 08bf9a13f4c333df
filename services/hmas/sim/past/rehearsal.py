"""The rehearsal: a pool's last requests once more through the simulated mesh, under what is in force and under each
candidate.

It is a pure function of the rows and the seeds. It says what it is worth first: where the simulation of what is in
force misses what was observed by more than `TRUSTED`, it abstains.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean

from hmas.contracts.control_agents import RehearsalAnswered, Rehearse
from hmas.contracts.outcome import Outcome
from hmas.contracts.past import PastBlock
from hmas.contracts.rehearsal import (
    WARM_S,
    PastFigures,
    Policy,
    Rehearsal,
    Rehearsed,
    TenantGain,
    TenantOnTime,
)
from hmas.laws.rehearsal import described
from hmas.laws.request_rows import OBSERVED, RequestRow, unpack
from hmas.laws.scoring import Settlement, is_ok, quantile, ttlt_slo_s, verdict
from hmas.sim.past.fitted import fitted_profiles
from hmas.sim.past.replay import Scene, replay_of

RETURN_SHARE = 0.9  # of the time before what is judged, over which what waited returns: agents begin without a past
TRUSTED = 0.05  # the most by which the simulation of what is in force may miss what was observed
MIN_REQUESTS = 100  # fewer judged ones tell nothing
BLOCK_S = 10.0  # requests that came within this time are drawn together, because they share their queues
REQUEST_S = 0.0025  # CPU time of simulating a request once, as benchmarks/bench_rehearsal.py measures it
DRAWS = 400
MAX_TENANTS = 12  # whose gains are told
TAILS = (0.05, 0.95)  # of the interval


def of_blocks(effect: Rehearse, blocks: Iterable[PastBlock]) -> RehearsalAnswered:
    """Returns the outcome of a rehearsal that a simulated meta controller asks for. Its CPU time is told by the number
    of requests, so that a run is the same each time."""
    try:
        profiles = fitted_profiles(effect.facts)
    except ValueError as error:
        return RehearsalAnswered(number=effect.number, rehearsal=None, error=str(error))
    rows = [replace(row, arrival_s=row.arrival_s - each.age_s) for each in blocks for row in unpack(each.rows)]
    scene = Scene(
        rows=tuple(sorted(rows, key=lambda row: row.arrival_s)),
        window_s=effect.window_s,
        profiles=profiles,
        workers=effect.facts.workers,
        in_force=effect.in_force,
        layouts=effect.facts.layouts,
    )
    replayed = sum(row.arrival_s > -effect.window_s - WARM_S for row in rows)
    cpu_s = REQUEST_S * replayed * (1 + len(effect.candidates))
    found = replace(rehearse(scene, effect.candidates), cpu_s=cpu_s)
    return RehearsalAnswered(number=effect.number, rehearsal=found, cpu_s=cpu_s)


def rehearse(scene: Scene, candidates: Sequence[Policy], seeds: Sequence[int] = (1,)) -> Rehearsal:
    """Returns how the scene's requests would have fared under each candidate, beside what happened and what is in
    force. Each seed is one run of each, with other draws of the lengths that are not known.

    What happened and what is in force are compared by what is known of each request now, which counts as on time until
    it is known to be late. Candidates are compared by how each request would end.
    """
    change_s = _since_change(scene.rows, scene.in_force)
    begin_s, start_s = max(-scene.window_s - WARM_S, change_s), max(-scene.window_s, change_s)
    replay = replay_of(scene, begin_s, RETURN_SHARE * (start_s - begin_s), start_s)
    rows = replay.rows
    stand = {i: _stands(rows[i]) for i in replay.young if rows[i].arrival_s > start_s}
    judged = [i for i, on_time in stand.items() if on_time is not None]
    tenants = [rows[i].tenant for i in judged]
    observed = _figures(tenants, [float(bool(stand[i])) for i in judged], [rows[i].ttft_s for i in judged])
    rehearsal = Rehearsal(
        window_s=-start_s,
        observed=observed,
        in_force=observed,
        candidates=(),
        drawn=sum(1 for row in rows if row.outcome is not Outcome.FINISHED),
    )
    if len(judged) < MIN_REQUESTS:
        few = f"{len(judged)} requests came under {_name(scene.in_force)}, fewer than {MIN_REQUESTS} tell nothing"
        return replace(rehearsal, abstains=few)
    runs = replay.run(scene.in_force, seeds)
    seen = [[_seen(rows[i], run[i]) for i in judged] for run in runs]
    standing = [fmean(bool(_stands(row)) for row in each) for each in zip(*seen, strict=True)]
    in_force = _figures(tenants, standing, [row.ttft_s for each in seen for row in each])
    base = _on_time(runs, judged)
    blocks = [int((rows[i].arrival_s - start_s) // BLOCK_S) for i in judged]
    found = []
    for candidate in candidates:
        runs = replay.run(candidate, seeds)
        oks = _on_time(runs, judged)
        gains = [after - earlier for after, earlier in zip(oks, base, strict=True)]
        low, high = spread(gains, blocks)
        figures = _figures(tenants, oks, [run[i].ttft_s for run in runs for i in judged])
        told_apart = _tenant_gains(figures, tenants, gains, blocks)
        found.append(
            Rehearsed(policy=candidate, figures=figures, gain=fmean(gains), low=low, high=high, tenants=told_apart)
        )
    rehearsal = replace(rehearsal, in_force=in_force, candidates=tuple(found))
    if all(rows[i].last_token_s is None for i in judged):
        return replace(rehearsal, abstains="no latency was observed, so that nothing vouches for the simulation")
    if abs(rehearsal.miss) > TRUSTED:
        missed = (
            f"the simulation of what is in force has {in_force.on_time:.1%} on time, {observed.on_time:.1%} were: it "
            f"misses by {abs(rehearsal.miss) * 100:.1f} points, at most {TRUSTED * 100:.0f} are trusted"
        )
        return replace(rehearsal, abstains=missed)
    return rehearsal


def _since_change(rows: Sequence[RequestRow], in_force: Policy) -> float:
    """Returns the arrival of the first row since which all came under the topology in force, or while nothing was
    scheduled."""
    mark = OBSERVED if in_force.observes else in_force.topology.value
    other = [row.arrival_s for row in rows if row.topology not in ("", mark)]
    return max(other, default=float("-inf"))


def _name(policy: Policy) -> str:
    return described(policy) if policy.observes else policy.topology.value


def _stands(row: RequestRow) -> bool | None:
    """Tells whether a request was on time, as far as is known now. None: it says nothing about the service."""
    slo, age_s = row.slo, -row.arrival_s
    if row.outcome is not None:
        told = verdict(row.settled())
        return told.ok if told.judged else None
    if age_s > ttlt_slo_s(slo, int(row.predicted_output_tokens_p90 or row.max_tokens or 1000)):
        return False
    if slo.whole or not row.stream:
        return True
    return (age_s if row.ttft_s is None else row.ttft_s) <= slo.ttft_s


def _seen(row: RequestRow, end: Settlement) -> RequestRow:
    """Returns the row with what would be known of it now, had it fared as in a replay."""
    age_s = -row.arrival_s
    ended = end.outcome is Outcome.FINISHED and end.last_token_s is not None and end.last_token_s <= age_s
    return replace(
        row,
        outcome=end.outcome if ended else None,
        output_tokens=end.output_tokens if ended else 0,
        ttft_s=end.ttft_s if end.ttft_s is not None and end.ttft_s <= age_s else None,
        tpot_s=end.tpot_s if ended else None,
        last_token_s=end.last_token_s if ended else None,
        withdrawn_s=None,
    )


def _on_time(runs: Sequence[Sequence[Settlement]], judged: Sequence[int]) -> list[float]:
    """Returns the share of runs in which each of the judged requests was on time in the end."""
    return [fmean(is_ok(run[i]) for run in runs) for i in judged]


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
