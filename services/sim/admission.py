"""How right `Retry-After` is when it is followed: refused requests sent again after every wait there is to compare.

A run is made once; of the requests that it refuses a sample is taken. Then the same run is made again once for each
wait of `WAITS_S`, with a copy of every sampled request sent that long after its refusal, and with copies sent when they
were told to, again and again where they are refused again. Copies are few beside the load, and everything else is the
same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, nan
from statistics import median

from services.contracts.metrics import is_ok
from services.engine.profile import EngineProfile, builtin_profile
from services.sim.experiment import chunked
from services.sim.mesh import MeshSim
from services.sim.setup import MeshSetup
from services.sim.sources import WorkloadSpec, build
from services.sim.workload import OfferedRequest, Workload

WAITS_S = (1, 2, 3, 4, 6, 8, 12, 20, 30, 45)
ROUNDS = 5  # times that advice is followed
TENANT = "alpha"  # prefers a refusal; 4 of 10 requests are its
PROFILE, CHUNK_TOKENS = "qwen3-32b-h100x2", 1024


@dataclass(frozen=True, slots=True)
class Scenario:
    """`load` in lambda* over `duration_s`; with `burst`, so many requests besides within `BURST_S` from `BURST_AT_S`.
    Refusals between `since_s` and `until_s` are sampled."""

    name: str
    load: float
    duration_s: float
    since_s: float
    until_s: float
    burst: int = 0


BURST_AT_S, BURST_S = 30.0, 2.0
SCENARIOS = (
    Scenario("steady overload at 1.3 λ*", 1.3, 180.0, 40.0, 120.0),
    Scenario("a burst of 500 requests in 2 s over 0.7 λ*", 0.7, 90.0, BURST_AT_S, 45.0, burst=500),
)


@dataclass(frozen=True, slots=True)
class Refused:
    """`advised_s`: the header, whole seconds. `needed_s`: the least of `WAITS_S` after which a copy met its SLOs; None:
    none did. `took_s`: from the refusal to the copy that met its SLOs where each followed the advice of the one before;
    None: a copy was served late, or refused `ROUNDS` times."""

    at_s: float
    advised_s: int
    needed_s: int | None
    took_s: float | None

    @property
    def followed(self) -> bool:
        """Nobody follows advice beyond `WAITS_S`: most of the run is over by then."""
        return self.advised_s <= WAITS_S[-1]

    @property
    def met(self) -> bool:
        """The first copy that followed the advice met its SLOs."""
        return self.took_s == self.advised_s

    @property
    def followed_error(self) -> float:
        """|advised - took| / took; infinite where following led nowhere."""
        return inf if self.took_s is None else abs(self.advised_s - self.took_s) / self.took_s

    @property
    def error(self) -> float:
        """|advised - needed| / needed. Where no wait would have done, any advice beyond all of them is right."""
        needed_s = WAITS_S[-1] if self.needed_s is None else self.needed_s
        if self.needed_s is None and self.advised_s >= needed_s:
            return 0.0
        return abs(self.advised_s - needed_s) / needed_s


@dataclass(frozen=True, slots=True)
class Advice:
    """One scenario. `refused` of `offered` requests of the tenant, all seeds; the sample of the refusals."""

    scenario: Scenario
    offered: int
    refused: int
    sample: tuple[Refused, ...]

    @property
    def median_error(self) -> float:
        return median(r.error for r in self.sample) if self.sample else nan

    @property
    def median_followed_error(self) -> float:
        errors = [r.followed_error for r in self.sample if r.followed]
        return median(errors) if errors else nan


def engine() -> EngineProfile:
    return chunked(builtin_profile(PROFILE), CHUNK_TOKENS)


def measure(
    scenario: Scenario, capacity_rps: float, seeds: Sequence[int], most: int, progress: Callable[[str], None]
) -> Advice:
    """At most `most` refusals a seed, evenly over the time of the sample."""
    offered = refused = 0
    sample: list[Refused] = []
    for seed in seeds:
        requests = _requests(scenario, capacity_rps, seed)
        advice, _ = _run(scenario, requests, seed)
        found = sorted((at_s, i, s) for i, (at_s, s) in advice.items() if scenario.since_s <= at_s <= scenario.until_s)
        offered += sum(not r.request.relegate for r in requests)
        refused += len(advice)
        sample += _followed(scenario, requests, found[:: max(1, ceil(len(found) / most))], seed)
        progress(f"{scenario.name}, seed {seed}: {len(advice)} refused")
    return Advice(scenario, offered, refused, tuple(sample))


Refusal = tuple[float, str, float]  # when, request, advice


def _followed(
    scenario: Scenario, requests: Sequence[OfferedRequest], refusals: Sequence[Refusal], seed: int
) -> list[Refused]:
    by_id = {r.id: r for r in requests}

    def send(sendings: dict[int, float]) -> tuple[dict[int, tuple[float, float]], set[int]]:
        """Copies of refusals at these times. Of those refused again, when and the advice; those that met their SLOs."""
        copies = {f"{refusals[n][1]}-again": (n, at_s) for n, at_s in sendings.items() if at_s < scenario.duration_s}
        advice, ok = _run(
            scenario, [*requests, *(_copy(by_id, copy, at_s) for copy, (_, at_s) in copies.items())], seed
        )
        again = {n: advice[copy] for copy, (n, _) in copies.items() if copy in advice}
        return again, {n for copy, (n, _) in copies.items() if ok[copy]}

    tried = {wait_s: send({n: at_s + wait_s for n, (at_s, _, _) in enumerate(refusals)})[1] for wait_s in WAITS_S}
    took: dict[int, float] = {}
    sendings = {n: at_s + ceil(advised_s) for n, (at_s, _, advised_s) in enumerate(refusals)}
    for _ in range(ROUNDS):
        again, met = send(sendings)
        took |= {n: round(sendings[n] - refusals[n][0], 6) for n in met}
        sendings = {n: at_s + ceil(advised_s) for n, (at_s, advised_s) in again.items()}
    return [
        Refused(at_s, ceil(advised_s), next((w for w in WAITS_S if n in tried[w]), None), took.get(n))
        for n, (at_s, _, advised_s) in enumerate(refusals)
    ]


def _copy(by_id: dict[str, OfferedRequest], copy: str, at_s: float) -> OfferedRequest:
    original = by_id[copy.removesuffix("-again")]
    return replace(original, request=replace(original.request, id=copy, arrival_s=at_s))


def _requests(scenario: Scenario, capacity_rps: float, seed: int) -> list[OfferedRequest]:
    rows = _offered(capacity_rps * scenario.load, scenario.duration_s, seed)
    if scenario.burst:
        burst = _offered(scenario.burst / BURST_S, BURST_S, seed + 1000)
        rows += [
            replace(r, request=replace(r.request, id=f"burst-{r.id}", arrival_s=r.request.arrival_s + BURST_AT_S))
            for r in burst
        ]
    return [replace(r, request=replace(r.request, relegate=r.request.tenant != TENANT)) for r in rows]


def _offered(rate_rps: float, duration_s: float, seed: int) -> list[OfferedRequest]:
    return list(build(WorkloadSpec("poisson", duration_s, stated=True), rate_rps, seed).fitting(engine()).requests)


def _run(
    scenario: Scenario, requests: Sequence[OfferedRequest], seed: int
) -> tuple[dict[str, tuple[float, float]], dict[str, bool]]:
    """What was refused, with when and the advice; and whether each request met its SLOs."""
    ordered = tuple(sorted(requests, key=lambda r: r.request.arrival_s))
    mesh = MeshSim(MeshSetup(), engine(), 1, Workload("admission", ordered, scenario.duration_s), seed)
    result = mesh.run()
    return mesh.gateway.advice, {s.request_id: is_ok(s) for s in result.settlements}
