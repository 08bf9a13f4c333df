"""Measures in simulation how accurate the header `Retry-After` of refused requests is.

A plain run gives the refusals. In a second run all refused requests are sent again after the advised time, repeatedly
if they are refused again. In further runs, one for each wait of `WAITS_S`, copies of a sample of the refused requests
are sent that long after the refusal, while all else stays the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, nan
from statistics import median

from hmas.engine.core.profile import EngineProfile, builtin_profile
from hmas.laws.scoring import is_ok
from hmas.sim.coverage import BoundTally
from hmas.sim.experiment import chunked
from hmas.sim.mesh import MeshSim
from hmas.sim.perceived import FOLDER, perceived
from hmas.sim.rehearsal import of_blocks
from hmas.sim.sources import WorkloadSpec, build
from hmas.sim.systems import HMAS, MESHES
from hmas.sim.workload import OfferedRequest, Workload

WAITS_S = (1, 2, 3, 4, 6, 8, 12, 20, 30, 45)
ROUNDS = 5  # at most so many times is a refused request sent again
TENANT = "alpha"  # this tenant prefers a refusal to a late answer; it sends 4 of 10 requests
PROFILE, CHUNK_TOKENS = "qwen3-32b-h100x2", 1024


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


def measure(
    scenario: RefusalScenario, capacity_rps: float, seeds: Sequence[int], most: int, progress: Callable[[str], None]
) -> Advice:
    """Measures over all seeds how right the `Retry-After` of a scenario's refusals is; `capacity_rps` is λ*. At most
    `most` refusals per seed are tried again after each of `WAITS_S`. `progress` gets one line of text per seed."""
    offered = refused = others = admitted = outgrown = 0
    kept = [0, 0]
    sample: list[Refused] = []
    followed: list[Followed] = []
    for seed in seeds:
        requests = _requests(scenario, capacity_rps, seed)
        plain, again = _run(scenario, requests, seed), _run(scenario, requests, seed, follow=True)
        found = sorted((at_s, i) for i, (at_s, _) in plain.advice.items() if _counts(scenario, at_s))
        sample += _sample(scenario, requests, plain, [i for _, i in found[:: max(1, ceil(len(found) / most))]], seed)
        followed += _followed(scenario, again)
        offered += sum(not r.request.relegate for r in requests)
        refused += len(plain.advice)
        admitted += plain.bounds.admitted
        outgrown += plain.bounds.outgrown
        willing = [r.id for r in requests if r.request.relegate]
        others += len(willing)
        kept = [n + sum(run.met[i] for i in willing) for n, run in zip(kept, (plain, again), strict=True)]
        progress(f"{scenario.name}, seed {seed}: {len(plain.advice)} refused")
    rates = (kept[0] / others, kept[1] / others)
    return Advice(
        scenario=scenario,
        offered=offered,
        refused=refused,
        sample=tuple(sample),
        followed=tuple(followed),
        others=rates,
        outgrown=outgrown / admitted if admitted else nan,
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
