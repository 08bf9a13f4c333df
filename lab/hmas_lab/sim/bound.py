"""An upper bound on goodput that no scheduler can exceed, not even one that knows every length and every arrival.

Model. A request counts if its first token comes within [a, d], d = a + SLO_ttft, and its last by D = d + SLO_tpot (n-1)
(the mean gap is at most SLO_tpot after a first token that came by d; a stated TTLT only tightens D, and a request
judged on its last token alone has d = D = a + TTLT). Its prompt must therefore be computed inside [a, d] and its other
n - 1 tokens be decoded inside [a, D].

Work. A step costs c0 + c_p P + c_pp pairs + c_d S + c_k C (P prompt tokens, S decoding sequences, C their context); if
it computes parts of R prompts, it obeys S + R <= max_num_seqs, C <= KV capacity, P + S <= max_num_batched_tokens. For
any weights t1 + t2 + t3 <= 1 therefore c0 >= c0 (t1 (S + R) / max_num_seqs + t2 C / capacity + t3 (P + S) /
max_num_batched_tokens), and the step lasts at least as long as the sum of what this charges to its tokens and parts; a
prompt has at least as many parts as it fills token budgets. Under these charges, prompt r costs w_p(r) and its decoding
w_d(r) seconds of engine time in every schedule; preemption and recomputation only add. Blocks of a prompt that an
earlier arrival shares are charged nothing, as if they were always found in the cache.

Bound. Cut time into buckets b, in each of which m engines have m * |b| seconds. Give each bucket a price v_b >= 0 per
second. Let A be the set of requests that count in some schedule, and x_rb the work of r done in b. Then

    |A| <= |A| + sum_b v_b (m |b| - sum_{r in A} x_rb)                           (the bracket is not negative)
         = sum_b v_b m |b| + sum_{r in A} (1 - sum_b v_b x_rb)
        <= sum_b v_b m |b| + sum_{all r} max(0, 1 - w_p(r) min_{b in [a,d]} v_b - w_d(r) min_{b in [a,D]} v_b),

since all of r's work lies in its windows. (Weak duality of the linear program that packs fractional requests.) Every
price vector gives a bound; good prices are sought by gradient descent on a smoothed form, and the bound is always
evaluated in its exact form.

Up to `ENUMERATED` requests the largest set is found by enumeration instead, where a set
passes if earliest-deadline-first with preemption on one server m times as fast does all its work in its windows, which
is exact for that relaxed server (Liu and Layland 1973; Horn 1974).

Jobs (`job_bound`). A job counts if all its calls have ended by its due time. A is then a set of jobs, and the work of r
that of all its calls: each is done between the instant at which the calls that it waits for can have ended at the
soonest, and that by which those that wait for it must begin at the latest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from itertools import combinations, product
from math import floor, inf

import numpy as np
from numpy.typing import NDArray

from hmas.engine.core.profile import EngineProfile
from hmas.sim.workload import OfferedRequest, Workload
from hmas_lab.sim.jobs import SimJob

ENUMERATED = 12
BUCKETS = 600
ITERATIONS = 300
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bound:
    """An upper bound: at most `requests` of the `offered` requests can meet their SLOs, that is `goodput` requests per
    second over `duration_s`."""

    requests: int
    offered: int
    duration_s: float

    @property
    def goodput(self) -> float:
        return self.requests / self.duration_s

    @property
    def goodput_rate(self) -> float:
        return self.requests / max(self.offered, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jobs:
    """The time windows (s) and the engine work of all requests, as arrays with one entry per request."""

    arrival: Floats
    first_due: Floats
    last_due: Floats
    prompt: Floats  # tokens to compute
    pairs: Floats
    decodes: Floats
    context: Floats  # summed over the decode steps

    def work(self, profile: EngineProfile, shares: tuple[float, float, float]) -> tuple[Floats, Floats]:
        """Returns (w_p, w_d), the engine work in s of each prompt and of its decoding, under the weights t1, t2, t3."""
        cost, limits = profile.cost, profile.limits
        seqs = min(limits.max_num_seqs, len(self.arrival))
        per_seq = cost.c0_s * shares[0] / seqs
        per_context = cost.c0_s * shares[1] / (limits.num_gpu_blocks * limits.block_size)
        per_token = cost.c0_s * shares[2] / limits.max_num_batched_tokens
        parts = np.ceil(self.prompt / limits.max_num_batched_tokens)
        prefill = self.prompt * (cost.c_p_s + per_token) + self.pairs * cost.c_pp_s + parts * per_seq
        decode = self.decodes * (cost.c_d_s + per_seq + per_token) + self.context * (cost.c_k_s + per_context)
        return prefill, decode


def upper_bound(workload: Workload, profile: EngineProfile, engines: int) -> Bound:
    """Returns how many of the requests can meet their SLOs at most, under any scheduler, on `engines` engines of
    one profile; the scheduler may place each request on any engine."""
    jobs = _jobs(workload.requests, profile)
    offered = len(workload.requests)
    if len(jobs.arrival) <= ENUMERATED:
        best = min((_enumerate(jobs, *jobs.work(profile, s), engines) for s in _shares()), default=0)
    else:
        scored = sorted((_flat_price(jobs, *jobs.work(profile, s), engines), s) for s in _shares())
        best = min(_descend(jobs, *jobs.work(profile, s), engines) for _, s in scored[:2])
    return Bound(min(best, len(jobs.arrival)), offered, workload.duration_s)


def job_bound(jobs: Sequence[SimJob], profile: EngineProfile, engines: int) -> int:
    """Returns how many of the jobs can be on time at most, under any scheduler that knows all jobs and lengths."""
    seen: set[int] = set()
    rows: list[tuple[float, ...]] = []
    owners: list[int] = []
    for number, job in enumerate(jobs):
        found = _job_rows(job, profile, seen)
        rows += found
        owners += [number] * len(found)
    if not rows:
        return 0
    calls = _as_jobs(rows)
    owner = np.unique(np.array(owners), return_inverse=True)[1]
    alone = int(owner.max()) + 1
    scored = sorted((_flat_price(calls, *calls.work(profile, s), engines, owner), s) for s in _shares())
    return min(alone, *(_descend(calls, *calls.work(profile, s), engines, owner) for _, s in scored[:2]))


def _job_rows(job: SimJob, profile: EngineProfile, seen: set[int]) -> list[tuple[float, ...]]:
    """Returns the rows of a job's calls, none if it cannot be on time even alone."""
    drafts, least = [], list[float]()
    for call in job.calls:
        row = _row(call.offered, _shared_tokens(call.offered, profile, seen))
        first, rest = _alone_s(row, profile)
        drafts.append(row)
        least.append(first + rest)
    begins, ends = list[float](), list[float]()
    for number, call in enumerate(job.calls):
        begins.append(max((ends[i] for i in call.after), default=job.arrival_s) + call.outside_s)
        ends.append(begins[-1] + least[number])
    dues = [job.due_s] * len(drafts)
    for number in range(len(drafts) - 1, -1, -1):
        for i in job.calls[number].after:
            dues[i] = min(dues[i], dues[number] - least[number] - job.calls[number].outside_s)
    if max(ends) > job.due_s:
        return []
    return [(begin, due, due, *row[3:]) for begin, due, row in zip(begins, dues, drafts, strict=True)]


def _shares() -> list[tuple[float, float, float]]:
    grid = (0.0, 0.25, 0.5, 0.75, 1.0)
    return [(a, b, 1.0 - a - b) for a, b in product(grid, grid) if a + b <= 1.0]


def _jobs(requests: tuple[OfferedRequest, ...], profile: EngineProfile) -> _Jobs:
    """Returns the windows and work of those requests that an otherwise idle engine can serve in time."""
    seen: set[int] = set()
    rows = []
    for offered in requests:
        cached = _shared_tokens(offered, profile, seen)
        row = _row(offered, cached)
        if _alone_in_time(row, offered, profile):
            rows.append(row)
    return _as_jobs(rows)


def _as_jobs(rows: list[tuple[float, ...]]) -> _Jobs:
    names = [f.name for f in fields(_Jobs)]
    return _Jobs(**dict(zip(names, np.array(rows, dtype=np.float64).reshape(-1, len(names)).T, strict=True)))


def _shared_tokens(offered: OfferedRequest, profile: EngineProfile, seen: set[int]) -> int:
    """Returns how many prompt tokens lie in leading blocks that an earlier request has too, and adds to `seen`."""
    if not profile.limits.enable_prefix_caching:
        return 0
    size, shared = profile.limits.block_size, 0
    for block in offered.prefix_hashes:
        if block not in seen:
            break
        shared += size
    seen.update(offered.prefix_hashes)
    return min(shared, offered.request.prompt_tokens - 1)


def _row(offered: OfferedRequest, cached: int) -> tuple[float, ...]:
    slo, arrival = offered.slo, offered.request.arrival_s
    decodes = offered.output_tokens - 1
    prompt = offered.request.prompt_tokens - cached
    first_due = arrival + slo.ttft_s
    last_due = first_due + slo.tpot_s * decodes
    if slo.whole:
        ttlt = slo.ttlt_s if slo.ttlt_s is not None else slo.ttft_s + slo.tpot_s * offered.output_tokens
        first_due = last_due = arrival + ttlt
    elif slo.ttlt_s is not None:
        last_due = min(last_due, arrival + slo.ttlt_s)
    pairs = prompt * (cached + prompt / 2)
    context = decodes * offered.request.prompt_tokens + decodes * (decodes + 1) / 2
    return (arrival, min(first_due, last_due), last_due, prompt, pairs, decodes, context)


def _alone_in_time(row: tuple[float, ...], offered: OfferedRequest, profile: EngineProfile) -> bool:
    arrival, first_due, last_due, _, _, decodes, _ = row
    first, rest = _alone_s(row, profile)
    gap_ok = offered.slo.whole or rest <= offered.slo.tpot_s * decodes
    return gap_ok and arrival + first <= first_due and arrival + first + rest <= last_due


def _alone_s(row: tuple[float, ...], profile: EngineProfile) -> tuple[float, float]:
    """Returns the seconds that the prompt of a row and its decoding take on an idle engine."""
    _, _, _, prompt, pairs, decodes, context = row
    cost = profile.cost
    first = cost.c0_s * -(-prompt // profile.limits.max_num_batched_tokens) + cost.c_p_s * prompt + cost.c_pp_s * pairs
    return first, decodes * (cost.c0_s + cost.c_d_s) + context * cost.c_k_s


# --- many requests: prices ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """Time cut into `count` buckets of `width` seconds. A request may compute its prompt in the buckets
    [start, first_end) and decode in [start, last_end)."""

    width: float
    count: int
    start: Ints
    first_end: Ints
    last_end: Ints


def _grid(jobs: _Jobs) -> _Grid:
    end = float(jobs.last_due.max())
    width = end / BUCKETS
    index = [
        np.minimum((t / width).astype(np.int64), BUCKETS - 1) for t in (jobs.arrival, jobs.first_due, jobs.last_due)
    ]
    return _Grid(width=width, count=BUCKETS, start=index[0], first_end=index[1] + 1, last_end=index[2] + 1)


def _flat_price(jobs: _Jobs, prefill: Floats, decode: Floats, engines: int, owner: Ints | None = None) -> float:
    """Returns the bound under one price for all buckets, which is quick to compute: the most promising weights are
    chosen by it."""
    total = np.sort(_by_owner(prefill + decode, owner))
    room = engines * float(jobs.last_due.max() - jobs.arrival.min())
    fits = int(np.searchsorted(np.cumsum(total), room, side="right"))
    return min(len(total), fits + 1)


def _range_minimum(values: Floats, start: Ints, end: Ints) -> Floats:
    """Returns min(values[start:end]) for every pair of `start` and `end`, by a sparse table."""
    table = [values]
    while 2 ** len(table) <= len(values):
        last, step = table[-1], 2 ** (len(table) - 1)
        table.append(np.minimum(last[:-step], last[step:]))
    level = np.log2(end - start).astype(np.int64)
    result = np.empty(len(start))
    for k in range(len(table)):
        at = level == k
        result[at] = np.minimum(table[k][start[at]], table[k][end[at] - 2**k])
    return result


def _by_owner(values: Floats, owner: Ints | None) -> Floats:
    """Returns the sums over the rows of each owner; the values themselves where each row stands for itself."""
    return values if owner is None else np.asarray(np.bincount(owner, values), dtype=np.float64)


def _exact(
    price: Floats, grid: _Grid, prefill: Floats, decode: Floats, room: float, owner: Ints | None = None
) -> float:
    """Returns the bound of the module's docstring under the prices `price`, in requests or jobs."""
    first = _range_minimum(price, grid.start, grid.first_end)
    rest = _range_minimum(price, grid.start, grid.last_end)
    return float(room * price.sum() + np.maximum(0.0, 1.0 - _by_owner(prefill * first + decode * rest, owner)).sum())


def _soft_minimum(weights: Floats, start: Ints, end: Ints) -> Floats:
    total = np.concatenate(([0.0], np.cumsum(weights)))
    soft: Floats = np.maximum(total[end] - total[start], 1e-300)
    return soft


def _spread(amount: Floats, start: Ints, end: Ints, count: int) -> Floats:
    """Returns the sum in each bucket when each amount is added to every bucket of its range [start, end)."""
    delta = np.bincount(start, amount, count + 1) - np.bincount(end, amount, count + 1)
    total: Floats = np.cumsum(delta)[:count]
    return total


def _descend(jobs: _Jobs, prefill: Floats, decode: Floats, engines: int, owner: Ints | None = None) -> int:
    """Searches prices with Adam on the smoothed dual and returns the lowest exact bound that it came across."""
    grid = _grid(jobs)
    room = engines * grid.width
    unit = 1.0 / float(np.mean(_by_owner(prefill + decode, owner)))  # prices are sought in this unit
    price, mean, square = np.full(grid.count, 0.05), np.zeros(grid.count), np.zeros(grid.count)
    p, d = prefill * unit, decode * unit
    best = float(len(jobs.arrival))
    for i in range(1, ITERATIONS + 1):
        heat = 0.2 * 0.01 ** (i / ITERATIONS)
        weights = np.exp(-price / heat)
        s1 = _soft_minimum(weights, grid.start, grid.first_end)
        s2 = _soft_minimum(weights, grid.start, grid.last_end)
        soft1 = -heat * np.log(s1 / (grid.first_end - grid.start))
        soft2 = -heat * np.log(s2 / (grid.last_end - grid.start))
        active = _by_owner(p * soft1 + d * soft2, owner) < 1.0
        if owner is not None:
            active = active[owner]
        load = _spread(p * active / s1, grid.start, grid.first_end, grid.count)
        load += _spread(d * active / s2, grid.start, grid.last_end, grid.count)
        gradient = np.clip(1.0 - weights * load / (room * unit), -10.0, 10.0)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
        rate = 0.1 * 0.02 ** (i / ITERATIONS)
        price -= rate * (mean / (1 - 0.9**i)) / (np.sqrt(square / (1 - 0.99**i)) + 1e-12)
        price = np.maximum(price, 0.0)
        if i % 5 == 0:
            best = min(best, _exact(price * unit, grid, prefill, decode, room, owner))
    return floor(best + 1e-6)


# --- few requests: enumeration ------------------------------------------------------------------------------------


def _enumerate(jobs: _Jobs, prefill: Floats, decode: Floats, engines: int) -> int:
    """Returns the size of the largest set of requests that earliest-deadline-first completes in time."""
    count = len(jobs.arrival)
    pieces = [
        [
            (float(jobs.arrival[r]), float(jobs.first_due[r]), float(prefill[r]) / engines),
            (float(jobs.arrival[r]), float(jobs.last_due[r]), float(decode[r]) / engines),
        ]
        for r in range(count)
    ]
    for size in range(count, 0, -1):
        for chosen in combinations(range(count), size):
            if _in_time([piece for r in chosen for piece in pieces[r]]):
                return size
    return 0


def _in_time(pieces: list[tuple[float, float, float]]) -> bool:
    """Tells whether preemptive EDF on one server completes all pieces (release, deadline, work), in s, in time."""
    pieces.sort()
    ready: list[tuple[float, float]] = []
    now, i = 0.0, 0
    while i < len(pieces) or ready:
        if not ready:
            now = max(now, pieces[i][0])
        while i < len(pieces) and pieces[i][0] <= now:
            heappush(ready, (pieces[i][1], pieces[i][2]))
            i += 1
        due, work = heappop(ready)
        until = pieces[i][0] if i < len(pieces) else inf
        if now + work <= until:
            now += work
            if now > due + 1e-9:
                return False
        else:
            heappush(ready, (due, work - (until - now)))
            now = until
    return True
