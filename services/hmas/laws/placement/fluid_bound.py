"""How much any plan could keep on time at most, by a fluid linear program. It needs scipy, of the extra `plan`.

Let a step of duration T on an instance of type t have P prompt tokens, S decoding sequences and C tokens of context, so
that T = c0 + c_p P + c_pp pairs + c_d S + c_k C. An answer of n tokens is on time only if the n - 1 steps that decode
it last (n - 1) SLO_tpot together at most. Cut the durations into intervals [T_j, T_j+1), from c0 on and the last one
without end. For the requests on time let x_rt be the part of request r on type t, y_rtj its decoded tokens in steps of
interval j, X_tj the time that instances of type t spend in such steps, and z_tj the seconds of these that compute
prompts and read context. Then, with N_t instances over H seconds, in any run

    sum_j y_rtj = (n_r - 1) x_rt                         each token is decoded in one step
    sum_j T_j y_rtj <= (n_r - 1) SLO_tpot,r x_rt         no step of the interval is shorter than T_j
    c_d sum_r y_rtj + z_tj <= X_tj (1 - c0 / T_j+1)      what a step does besides its base, sum of T - c0
    sum_j z_tj = sum_r work_rt x_rt                      the prompt, and the context read at each of its tokens
    sum_r y_rtj <= max_num_seqs X_tj / T_j               of at most X_tj / T_j steps
    sum_j X_tj <= N_t H,  sum_t x_rt <= 1,  and sum_t gpus_t N_t <= the cards of each kind of hardware.

What is late takes room besides; when a first token is due, whole instances, and which of them decodes an answer are
left out. So the most requests that these conditions allow, the greatest sum of x, is an upper limit. A sequence that is
preempted gets a token from the prefill that resumes it, for which less may be computed than is charged here: the limit
is strict where memory does not run out.

Like requests make one class, with the shortest lengths and the longest SLO of all in it, which only raises the limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, log

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from hmas.contracts.pool_plan import Budget, Catalogue, InstanceType
from hmas.laws.placement.candidates import types_of
from hmas.laws.placement.demand import PoolDemand

GRID = 1.25  # ratio of two durations of a step that bound an interval
SINGLE = 150  # up to so many requests, each is a class of its own
SLO_RATIO, LENGTH_RATIO = 1.1, 1.3  # within which the requests of a class are alike
ROUNDING = 1e-7


@dataclass(frozen=True, slots=True)
class _Alike:
    """So many requests with at least these tokens, which need a time per token of at most `tpot_slo_s` seconds."""

    count: int
    prompt_tokens: int
    output_tokens: int
    tpot_slo_s: float


class _Rows:
    """Rows of a sparse matrix, each of which is at most (or exactly) its right side."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, float]] = []
        self.right: list[float] = []

    def add(self, terms: Sequence[tuple[int, float]], right: float = 0.0) -> None:
        row = len(self.right)
        self.entries += [(row, column, value) for column, value in terms]
        self.right.append(right)

    def matrix(self, columns: int) -> coo_matrix:
        rows, cols, values = zip(*self.entries, strict=True)
        return coo_matrix((values, (rows, cols)), shape=(len(self.right), columns))


class _Program:
    """The linear program; its columns are numbered as they are made."""

    def __init__(self) -> None:
        self.gains: list[float] = []
        self.most: list[float] = []
        self.under, self.equal = _Rows(), _Rows()

    def column(self, gain: float = 0.0, most: float = inf) -> int:
        self.gains.append(-gain)
        self.most.append(most)
        return len(self.gains) - 1

    def solve(self) -> float:
        columns = len(self.gains)
        found = linprog(
            np.array(self.gains),
            A_ub=self.under.matrix(columns).tocsr(),
            b_ub=np.array(self.under.right),
            A_eq=self.equal.matrix(columns).tocsr(),
            b_eq=np.array(self.equal.right),
            bounds=np.array([(0.0, most) for most in self.most]),
            method="highs-ipm",  # several times as fast here as the simplex
        )
        if found.status != 0:
            raise RuntimeError(f"HiGHS did not solve the fluid bound: {found.message}")
        return -float(found.fun)


def fluid_bound(
    demands: Sequence[PoolDemand], catalogue: Catalogue, budgets: Sequence[Budget], seconds: Sequence[float] = ()
) -> float:
    """Returns the share of all requests that no plan within the budgets exceeds, however many instances of each type
    it has, also fractions.

    `seconds` are those from each pool's first arrival until the last answer that can be on time has ended; without
    them the demand's own, as of a stream that goes on for ever. Raises ValueError if some pool has no type that fits.
    """
    program = _Program()
    taken: dict[str, list[tuple[int, float]]] = {budget.hardware: [] for budget in budgets}
    for demand, horizon_s in zip(demands, seconds or [each.seconds for each in demands], strict=True):
        kinds = types_of(demand, catalogue, budgets)
        counts = [program.column() for _ in kinds]
        for kind, count in zip(kinds, counts, strict=True):
            taken[kind.hardware].append((count, float(kind.gpus)))
        _add_pool(program, demand, kinds, counts, horizon_s)
    for budget in budgets:
        if taken[budget.hardware]:
            program.under.add(taken[budget.hardware], float(budget.gpus))
    requests = sum(len(demand.requests) for demand in demands)
    return min(1.0, program.solve() / requests + ROUNDING)


def fluid_share(demand: PoolDemand, instances: Sequence[InstanceType], seconds: float | None = None) -> float:
    """Returns the share of the demand that no order exceeds on these instances; `seconds` as in `fluid_bound`."""
    program = _Program()
    kinds = tuple(dict.fromkeys(instances))
    counts = [program.column(most=float(instances.count(kind))) for kind in kinds]
    _add_pool(program, demand, kinds, counts, demand.seconds if seconds is None else seconds)
    return min(1.0, program.solve() / len(demand.requests) + ROUNDING)


def _add_pool(
    program: _Program, demand: PoolDemand, kinds: Sequence[InstanceType], counts: Sequence[int], horizon_s: float
) -> None:
    """Adds the columns and rows of one pool. `counts` are the columns of the numbers of instances."""
    alike = _alike(demand)
    slowest_s = max(each.tpot_slo_s for each in alike)
    parts = [[program.column(gain=1.0) for _ in kinds] for _ in alike]
    for each, own in zip(alike, parts, strict=True):
        program.under.add([(part, 1.0) for part in own], float(each.count))
    for number, (kind, count) in enumerate(zip(kinds, counts, strict=True)):
        served = [(each, own[number]) for each, own in zip(alike, parts, strict=True)]
        _add_type(program, kind, count, served, horizon_s, slowest_s)


def _add_type(
    program: _Program,
    kind: InstanceType,
    count: int,
    served: Sequence[tuple[_Alike, int]],
    horizon_s: float,
    slowest_s: float,
) -> None:
    """Adds one type of a pool. `served` are the classes with the columns of their parts on that type."""
    steps_s = _grid(kind, slowest_s)
    spent = [program.column() for _ in steps_s]
    other = [program.column() for _ in steps_s]
    decoded: list[list[int]] = []
    for each, part in served:
        tokens = each.output_tokens - 1
        own = [program.column() for _ in steps_s] if tokens else []
        decoded.append(own)
        if tokens:
            program.equal.add([*((y, 1.0) for y in own), (part, -float(tokens))])
            paced = [(y, step_s) for y, step_s in zip(own, steps_s, strict=True)]
            program.under.add([*paced, (part, -tokens * each.tpot_slo_s * (1.0 + 1e-9))])
    work = [(part, -_other_s(each, kind)) for each, part in served]
    program.equal.add([*((z, 1.0) for z in other), *work])
    program.under.add([*((x, 1.0) for x in spent), (count, -horizon_s)])
    for j, (step_s, next_s) in enumerate(zip(steps_s, [*steps_s[1:], inf], strict=True)):
        room = 1.0 - kind.step.c0_s / next_s
        tokens_here = [own[j] for own in decoded if own]
        program.under.add([*((y, kind.step.c_d_s) for y in tokens_here), (other[j], 1.0), (spent[j], -room)])
        if tokens_here:
            program.under.add([*((y, 1.0) for y in tokens_here), (spent[j], -kind.max_num_seqs / step_s)])


def _grid(kind: InstanceType, slowest_s: float) -> list[float]:
    """Returns the shortest step of each interval: from the base of the type's steps to beyond every SLO."""
    count = max(2, 1 + ceil(log(max(1.0, slowest_s / kind.step.c0_s)) / log(GRID)))
    return [kind.step.c0_s * GRID**j for j in range(count + 1)]


def _other_s(each: _Alike, kind: InstanceType) -> float:
    """Returns the seconds of steps that one request of the class takes besides its sequences: its prompt, and what is
    read of its context at each decoded token."""
    prompt, tokens = each.prompt_tokens, each.output_tokens - 1
    context = tokens * prompt + tokens * (tokens + 1) / 2.0
    return kind.step.prefill_s(prompt, prompt * prompt / 2.0) + kind.step.c_k_s * context


def _alike(demand: PoolDemand) -> list[_Alike]:
    """Returns the classes of a demand: those of its requests whose SLOs and lengths are nearly the same."""
    requests = demand.requests
    if len(requests) <= SINGLE:
        return [_Alike(1, each.prompt_tokens, each.output_tokens, each.tpot_slo_s) for each in requests]
    found: dict[tuple[int, int, int], _Alike] = {}
    for each in requests:
        tokens = each.prompt_tokens + each.output_tokens
        key = _step(each.tpot_slo_s, SLO_RATIO), _step(each.output_tokens, LENGTH_RATIO), _step(tokens, LENGTH_RATIO)
        known = found.get(key)
        if known is None:
            found[key] = _Alike(1, each.prompt_tokens, each.output_tokens, each.tpot_slo_s)
        else:
            found[key] = _Alike(
                known.count + 1,
                min(known.prompt_tokens, each.prompt_tokens),
                min(known.output_tokens, each.output_tokens),
                max(known.tpot_slo_s, each.tpot_slo_s),
            )
    return list(found.values())


def _step(value: float, ratio: float) -> int:
    return int(log(value) // log(ratio))
