"""Measures in simulation how accurate the header `Retry-After` of refused requests is.

A plain run gives the refusals. In a second run all refused requests are sent again after the advised time, repeatedly
if they are refused again. In further runs, one for each wait of `WAITS_S`, copies of a sample of the refused requests
are sent that long after the refusal, while all else stays the same.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil, inf, isfinite, isnan, nan
from pathlib import Path
from statistics import median, median_high

from experiments.study import Figures, Finished, Options, Study, code_of_mesh
from hmas.engine.core.profile import EngineProfile, builtin_profile
from hmas.laws.scoring import is_ok
from hmas.sim.coverage import BoundTally
from hmas.sim.past.rehearsal import of_blocks
from hmas.sim.perceived import FOLDER, perceived
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.workload import OfferedRequest, Workload
from hmas.statera.agent.config import FenceConfig
from hmas_lab.sim.cells import Cell
from hmas_lab.sim.cells import compute as simulate
from hmas_lab.sim.experiment import chunked
from hmas_lab.sim.sources import WorkloadSpec, build
from hmas_lab.sim.stored import cell_key
from hmas_lab.sim.systems import HMAS, MESHES

WAITS_S = (1, 2, 3, 4, 6, 8, 12, 20, 30, 45)
ROUNDS = 5  # at most so many times is a refused request sent again
TENANT = "alpha"  # this tenant prefers a refusal to a late answer; it sends 4 of 10 requests
PROFILE, CHUNK_TOKENS = "qwen3-32b-h100x2", 1024
SAMPLE = 40  # refusals per seed and scenario that are retried after other waits
GOAL = 0.25
CAPACITY = Cell(
    kind="capacity", profile=PROFILE, engines=1, chunk_tokens=CHUNK_TOKENS,
    workload=WorkloadSpec(kind="poisson", duration_s=300.0, stated=True),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalScenario:
    """A load under which requests are refused: `load` in λ* for `duration_s`, and `burst` additional requests within
    `BURST_S` from `BURST_AT_S` on. Refusals between the instants `since_s` and `until_s` are evaluated."""

    name: str
    load: float
    duration_s: float
    since_s: float
    until_s: float
    burst: int = 0


BURST_AT_S, BURST_S = 30.0, 2.0
SCENARIOS = (
    RefusalScenario(name="steady overload at 1.3 λ*", load=1.3, duration_s=240.0, since_s=40.0, until_s=120.0),
    RefusalScenario(
        name="a burst of 500 requests in 2 s over 0.7 λ*",
        load=0.7,
        duration_s=150.0,
        since_s=BURST_AT_S,
        until_s=45.0,
        burst=500,
    ),
)


@dataclass(frozen=True, slots=True)
class Refused:
    """One refused request of the sample. `advised_s` is the value of `Retry-After`, whole seconds. `needed_s` is the
    shortest wait of `WAITS_S` after which a copy of the request met its SLOs; None if none did."""

    advised_s: int
    needed_s: int | None

    @property
    def error(self) -> float:
        """Relative error of the advice, |advised - needed| / needed. If no wait was long enough, `needed` is the
        longest wait tried, and any longer advice has error 0."""
        needed_s = WAITS_S[-1] if self.needed_s is None else self.needed_s
        if self.needed_s is None and self.advised_s >= needed_s:
            return 0.0
        return abs(self.advised_s - needed_s) / needed_s


@dataclass(frozen=True, slots=True)
class Followed:
    """One refused request whose client followed the advice. `advised_s` is the first `Retry-After`, whole seconds.
    `took_s` is the time from the first refusal to the arrival of the copy that met its SLOs; None if a copy was served
    late or the request was refused again after `ROUNDS` retries."""

    advised_s: int
    took_s: float | None

    @property
    def met(self) -> bool:
        """Whether the first retry met its SLOs."""
        return self.took_s == self.advised_s

    @property
    def error(self) -> float:
        """Relative error of the advice, |advised - took| / took; infinite if no retry met the SLOs."""
        return inf if self.took_s is None else abs(self.advised_s - self.took_s) / self.took_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """How good the advice (`Retry-After`) was in one scenario, over all seeds. In the runs without retries the tenant
    that prefers refusals offered `offered` requests, of which `refused` were refused; `sample` holds some of these.
    `followed` comes from other runs, in which every refused request is sent again when it was told to. `others` is the
    goodput rate of the other tenants in runs without retries and with them. `outgrown` is the share of the admitted
    requests whose answers outgrew their length bound in the runs without retries."""

    scenario: RefusalScenario
    offered: int
    refused: int
    sample: tuple[Refused, ...]
    followed: tuple[Followed, ...]
    others: tuple[float, float]
    outgrown: float

    @property
    def median_error(self) -> float:
        return median(r.error for r in self.sample) if self.sample else nan

    @property
    def median_followed_error(self) -> float:
        return median(f.error for f in self.followed) if self.followed else nan


@dataclass(slots=True)
class Run:
    """The outcome of one simulated run, by request id: `advice` holds when a request was refused and its `Retry-After`,
    both in seconds; `met` tells whether each request met its SLOs; `bounds` tallies the length bounds."""

    advice: dict[str, tuple[float, int]] = field(default_factory=dict)
    met: dict[str, bool] = field(default_factory=dict)
    bounds: BoundTally = field(default_factory=BoundTally)


def engine() -> EngineProfile:
    return chunked(builtin_profile(PROFILE), CHUNK_TOKENS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionCell:
    """A scenario, by name, with one seed, at a λ* in requests per second."""

    scenario: str
    seed: int

    def key(self) -> str:
        return cell_key(self)


def compute(cell: AdmissionCell | Cell, *rate_rps: float) -> Figures:
    if isinstance(cell, Cell):
        return simulate(cell, *rate_rps)
    return measure(next(s for s in SCENARIOS if s.name == cell.scenario), rate_rps[0], cell.seed)


def measure(scenario: RefusalScenario, capacity_rps: float, seed: int, most: int = SAMPLE) -> Figures:
    """Measures how right the `Retry-After` of a scenario's refusals is; `capacity_rps` is λ*. At most `most` refusals
    are tried again after each of `WAITS_S`."""
    requests = _requests(scenario, capacity_rps, seed)
    plain, again = _run(scenario, requests, seed), _run(scenario, requests, seed, follow=True)
    found = sorted((at_s, i) for i, (at_s, _) in plain.advice.items() if _counts(scenario, at_s))
    chosen = [i for _, i in found[:: max(1, ceil(len(found) / most))]]
    willing = [r.id for r in requests if r.request.relegate]
    return {
        "offered": sum(not r.request.relegate for r in requests), "refused": len(plain.advice),
        "sample": [(r.advised_s, r.needed_s) for r in _sample(scenario, requests, plain, chosen, seed)],
        "followed": [(f.advised_s, f.took_s) for f in _followed(scenario, again)],
        "willing": len(willing), "kept": [sum(run.met[i] for i in willing) for run in (plain, again)],
        "admitted": plain.bounds.admitted, "outgrown": plain.bounds.outgrown,
    }  # fmt: skip


def advice_of(scenario: RefusalScenario, runs: Sequence[Figures]) -> Advice:
    """Returns the advice of a scenario over its runs, one per seed."""
    total = {name: sum(run[name] for run in runs) for name in ("offered", "refused", "willing", "admitted", "outgrown")}
    alone, all_back = (sum(run["kept"][i] for run in runs) / total["willing"] for i in (0, 1))
    return Advice(
        scenario=scenario,
        offered=total["offered"],
        refused=total["refused"],
        sample=tuple(Refused(*each) for run in runs for each in run["sample"]),
        followed=tuple(Followed(*each) for run in runs for each in run["followed"]),
        others=(alone, all_back),
        outgrown=total["outgrown"] / total["admitted"] if total["admitted"] else nan,
    )


def _counts(scenario: RefusalScenario, at_s: float) -> bool:
    return scenario.since_s <= at_s <= scenario.until_s


def _followed(scenario: RefusalScenario, run: Run) -> list[Followed]:
    """Returns the requests first refused between `since_s` and `until_s` of the scenario, without those whose next
    retry would come after the end of the run."""
    found = []
    for first, (at_s, advised_s) in run.advice.items():
        if "~" in first or not _counts(scenario, at_s):
            continue
        last = next(i for n in range(ROUNDS, -1, -1) if (i := _copy_id(first, n)) in run.met)
        if run.met[last]:
            sent_s, header_s = run.advice[_copy_id(first, int(last.partition("~")[2]) - 1)]
            found.append(Followed(advised_s, round(sent_s + header_s - at_s, 6)))
        elif last not in run.advice or last == _copy_id(first, ROUNDS):
            found.append(Followed(advised_s, None))
    return found


def _sample(
    scenario: RefusalScenario, requests: Sequence[OfferedRequest], plain: Run, refused: Sequence[str], seed: int
) -> list[Refused]:
    by_id = {r.id: r for r in requests}
    needed_s: dict[str, int] = {}
    for wait_s in WAITS_S:
        copies = [_copy(by_id[i], 1, plain.advice[i][0] + wait_s) for i in refused]
        run = _run(scenario, [*requests, *(c for c in copies if c.request.arrival_s < scenario.duration_s)], seed)
        for first in refused:
            if run.met.get(_copy_id(first, 1), False):
                needed_s.setdefault(first, wait_s)
    return [Refused(plain.advice[i][1], needed_s.get(i)) for i in refused]


def _copy_id(first: str, number: int) -> str:
    return f"{first}~{number}" if number else first


def _copy(first: OfferedRequest, number: int, at_s: float) -> OfferedRequest:
    return replace(first, request=replace(first.request, id=_copy_id(first.content, number), arrival_s=at_s))


def _requests(scenario: RefusalScenario, capacity_rps: float, seed: int) -> list[OfferedRequest]:
    rows = _offered(capacity_rps * scenario.load, scenario.duration_s, seed)
    if scenario.burst:
        burst = _offered(scenario.burst / BURST_S, BURST_S, seed + 1000)
        rows += [
            replace(r, request=replace(r.request, id=f"burst-{r.id}", arrival_s=r.request.arrival_s + BURST_AT_S))
            for r in burst
        ]
    named = tuple(r if r.request.tenant != TENANT else _prefers_refusal(r) for r in rows)
    return list(perceived(Workload("admission", named, scenario.duration_s), folder=FOLDER).requests)


def _prefers_refusal(offered: OfferedRequest) -> OfferedRequest:
    return replace(offered, request=replace(offered.request, relegate=False), content=offered.id)


def _offered(rate_rps: float, duration_s: float, seed: int) -> list[OfferedRequest]:
    return list(
        build(WorkloadSpec(kind="poisson", duration_s=duration_s, stated=True), rate_rps, seed, prompts=True)
        .fitting(engine())
        .requests
    )


def _run(scenario: RefusalScenario, requests: Sequence[OfferedRequest], seed: int, *, follow: bool = False) -> Run:
    ordered = tuple(sorted(requests, key=lambda r: r.request.arrival_s))
    workload = Workload("admission", ordered, scenario.duration_s)
    mesh = MeshSim(MESHES[HMAS], engine(), 1, workload, seed, rehearsal=of_blocks)
    run = Run()

    def advised(request_id: str, retry_after_s: float) -> None:
        header_s = ceil(retry_after_s)
        run.advice[request_id] = mesh.heap.now_s, header_s
        number, at_s = int(request_id.partition("~")[2] or 0) + 1, mesh.heap.now_s + header_s
        if follow and number <= ROUNDS and at_s < scenario.duration_s:
            mesh.offer(_copy(mesh.journeys[request_id].offered, number, at_s))

    mesh.on_advice = advised
    result = mesh.run()
    run.met = {s.request_id: is_ok(s) for s in result.settlements}
    if result.run.coverage is not None:
        run.bounds = result.run.coverage.total
    return run


def given(cell: AdmissionCell | Cell, options: Options, found: Finished) -> tuple[float, ...]:
    return () if isinstance(cell, Cell) else ((found.get(CAPACITY) or {})["rate_rps"],)


def rows_of(options: Options, found: Finished) -> list[Advice]:
    """Returns the advice of each scenario, over the seeds that are finished."""
    runs = {
        s: [run for n in options.numbers if (run := found.get(AdmissionCell(scenario=s.name, seed=n)))]
        for s in SCENARIOS
    }
    return [advice_of(scenario, some) for scenario, some in runs.items() if some]


def page_of(rows: Sequence[Advice], capacity_rps: float, seeds: int) -> dict[str, object]:
    return {
        "TENANT": TENANT, "PROFILE": PROFILE, "CHUNK_TOKENS": CHUNK_TOKENS, "WAITS_S": WAITS_S, "GOAL": GOAL,
        "capacity_rps": capacity_rps, "seeds": seeds, "rows": [_row(advice) for advice in rows],
        "EPSILON": FenceConfig().epsilon, "bounds": [(advice.scenario.name, advice.outgrown) for advice in rows],
    }  # fmt: skip


def _plain(advice: Advice) -> dict[str, object]:
    names = ("median_error", "median_followed_error", "outgrown")
    return asdict(advice) | {name: _number(getattr(advice, name)) for name in names}


def _row(advice: Advice) -> tuple[str, ...]:
    sample, followed = advice.sample, advice.followed
    head = (advice.scenario.name, f"{advice.refused} of {advice.offered}", str(len(followed)))
    if not sample or not followed:
        return (*head, *["not measured"] * 10)
    return (
        *head,
        *_against_goal(advice.median_followed_error),
        f"{sum(f.met for f in followed) / len(followed):.0%}",
        f"{median_high(f.advised_s for f in followed)}",
        " / ".join(f"{rate:.3f}" for rate in advice.others),
        str(len(sample)),
        *_against_goal(advice.median_error),
        f"{sum(r.needed_s == 1 for r in sample) / len(sample):.0%}",
        f"{sum(r.needed_s is None for r in sample) / len(sample):.0%}",
    )


def _against_goal(error: float) -> tuple[str, str]:
    if isnan(error):
        return "not measured", "not measured"
    return f"{error:.0%}" if isfinite(error) else "never on time", "met" if error <= GOAL else "**not met**"


def _number(error: float) -> float | None:
    return round(error, 4) if isfinite(error) else None


STUDY: Study[AdmissionCell | Cell, Advice] = Study(
    name="admission",
    about="Measures how accurate `Retry-After` is: sends refused requests again when told, and after other waits. It "
    "takes about 10 minutes.",
    takes=("out", "seeds", "processes", "cells"),
    defaults=Options(cells=Path("out/admission-cells")),
    cells=lambda options, found: [
        [CAPACITY],
        [AdmissionCell(scenario=s.name, seed=n) for n in options.numbers for s in SCENARIOS],
    ],
    compute=compute,
    given=given,
    code=code_of_mesh,
    rows=rows_of,
    plain=_plain,
    values=lambda rows, options, found: page_of(rows, (found.get(CAPACITY) or {})["rate_rps"], options.seeds),
)
