"""A day of nine regimes in one run of the mesh: fixed topologies beside a meta controller that rehearses before it
switches. Pure but for the answers of perception, which are kept."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from statistics import fmean, stdev
from time import process_time
from typing import Any

from experiments.length_bounds import bounds_of
from experiments.study import Figures, Finished, Options
from hmas.contracts.control import AuditRecord, TopologyName
from hmas.contracts.control_agents import RehearsalAnswered, Rehearse
from hmas.contracts.past import PastBlock
from hmas.contracts.request import Slo
from hmas.engine.core.profile import EngineProfile, builtin_profile
from hmas.laws.scoring import is_ok
from hmas.meta.agent.config import MetaConfig, RehearsalConfig
from hmas.sim.faults import Fault, FaultKind
from hmas.sim.past.rehearsal import of_blocks
from hmas.sim.perceived import FOLDER, perceived
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas.sim.workload import OfferedRequest, Workload
from hmas_lab.sim.sources import WorkloadSpec, build
from hmas_lab.sim.stored import cell_key

PROFILE, ENGINES = "llama2-70b-a100x4", 3
CAPACITY_RPS = 5.6  # λ* of the mix on three such engines, from that on two (3.72 requests/s), rounded
REGIME_S = 240.0
SEEDS = (41, 42, 43, 44, 45)  # fixed before any adaptive run; rules were made with 11 to 13 and with 21 and 22
FIXED = (
    TopologyName.MAX_ON_TIME, TopologyName.SJF, TopologyName.EDF, TopologyName.HYBRID, TopologyName.WFQ,
    TopologyName.TWO_LANE, TopologyName.FCFS,
)  # fmt: skip
ADAPTIVE = "adaptive"
REHEARSAL = RehearsalConfig(enabled=True, window_s=120.0)
SELECTORS = "rules"
ADAPTED = MetaConfig(selector=SELECTORS, rehearsal=REHEARSAL)
LEAST_LOSS = 0.02  # by which the day's best fixed topology must lose to a regime's best for adaptation to have a place
LEAST_REGIMES = 3  # in as many regimes
Change = Callable[[OfferedRequest, Random], OfferedRequest]


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the day: its loads are `load` times those of the regimes, and after each regime nothing new comes
    for `pause_s`."""

    load: float
    pause_s: float

    @property
    def each_s(self) -> float:
        return REGIME_S + self.pause_s


FIRST = "first"
# Each harsher one has more load, and longer pauses, so that a regime inherits less from the one before it.
VERSIONS = {FIRST: Version(1.0, 30.0), "harsher": Version(1.3, 120.0), "harshest": Version(1.7, 240.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRegime:
    """One regime of the day. `kind` is that of its workload and `load` its rate in `CAPACITY_RPS`; `change` alters each
    request, and `added` returns further ones, by a seed and the load of the day's version."""

    name: str
    load: float
    kind: str = "mix"
    change: Change | None = None
    added: Callable[[int, float], list[OfferedRequest]] | None = None
    fault: tuple[FaultKind, str, float] | None = None  # kind, target and factor, for all of the regime


def _strict(offered: OfferedRequest, draw: Random) -> OfferedRequest:
    """Every second request needs its tokens in six tenths of the time."""
    if draw.random() < 0.5:
        return offered
    return _with_slo(offered, replace(offered.slo, tpot_s=0.6 * offered.slo.tpot_s))


def _misjudged(offered: OfferedRequest, draw: Random) -> OfferedRequest:
    """Perception says five times too much of one half and five times too little of the other."""
    if offered.recorded is None:
        return offered
    factor = 5.0 if draw.random() < 0.5 else 0.2
    task, confidence, median, p90 = offered.recorded
    return replace(offered, recorded=(task, confidence, factor * median, factor * p90))


def _long(offered: OfferedRequest, draw: Random) -> OfferedRequest:
    """Prompts of most of the context."""
    tokens = draw.randint(2200, 3400)
    request = replace(offered.request, prompt_tokens=tokens)
    return replace(offered, request=request, output_tokens=min(offered.output_tokens, 600))


def _flood(seed: int, load: float) -> list[OfferedRequest]:
    """One tenant offers as much again as the pool can carry."""
    spec = WorkloadSpec(kind="poisson", duration_s=REGIME_S, stated=True, tenants=(("flood", 1.0),))
    return list(build(spec, load * CAPACITY_RPS, seed + 500, prompts=True).requests)


def _backlog(seed: int, load: float) -> list[OfferedRequest]:
    """Long answers of a batch, all within 20 s, that need only be there in four minutes."""
    spec = WorkloadSpec(kind="poisson", duration_s=20.0, stated=True, tenants=(("batch", 1.0),))
    found = build(spec, 15.0 * load, seed + 700, prompts=True).requests
    slo = Slo(ttft_s=240.0, tpot_s=1.0, ttlt_s=240.0, whole=True)
    return [_with_slo(replace(offered, output_tokens=300 + offered.output_tokens % 500), slo) for offered in found]


def _with_slo(offered: OfferedRequest, slo: Slo) -> OfferedRequest:
    return replace(offered, slo=slo, request=replace(offered.request, slo=slo))


REGIMES = (
    DayRegime(name="calm", load=0.6),
    DayRegime(name="TPOT-strict mix", load=1.3, change=_strict),
    DayRegime(name="bursts", kind="burst", load=1.1),
    DayRegime(name="a tenant floods", load=0.8, added=_flood),
    DayRegime(name="lengths misjudged five-fold", load=1.4, change=_misjudged),
    DayRegime(name="one engine three times slower", load=1.0, fault=(FaultKind.SLOW, "e2", 3.0)),
    DayRegime(name="long contexts", load=0.5, change=_long),
    DayRegime(name="a batch backlog", load=0.8, added=_backlog),
    DayRegime(name="an engine lost", load=1.0, fault=(FaultKind.FREEZE, "e2", 1.0)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCell:
    """One day of one system. `system` is the name of a fixed topology, or `ADAPTIVE`; `version` one of `VERSIONS`."""

    system: str
    seed: int
    profile: str = PROFILE
    engines: int = ENGINES
    regime_s: float = REGIME_S
    version: str = FIRST
    regimes: tuple[str, ...] = tuple(regime.name for regime in REGIMES)

    def key(self) -> str:
        return cell_key(self)


def fixed_cells(seeds: Sequence[int]) -> list[DayCell]:
    """Returns the days of all fixed topologies in every version, seed by seed."""
    return [
        DayCell(system=topology.value, seed=seed, version=version)
        for seed in seeds
        for version in VERSIONS
        for topology in FIXED
    ]


def adaptive_cells(version: str, seeds: Sequence[int]) -> list[DayCell]:
    return [DayCell(system=ADAPTIVE, seed=seed, version=version) for seed in seeds]


def cells(options: Options, found: Finished) -> Iterator[Sequence[DayCell]]:
    """Yields the days of the fixed topologies, and those of adaptation on the version on which it is judged, unless
    only the fixed ones are asked for (`fixed`)."""
    yield fixed_cells(SEEDS[: options.seeds])
    _, version = finished(options, found)
    if version is not None and "fixed" not in options.only:
        yield adaptive_cells(version, SEEDS[: options.seeds])


def finished(options: Options, found: Finished) -> tuple[dict[DayCell, Figures], str | None]:
    """Returns the days that are finished, and the version on which adaptation is judged."""
    seeds = SEEDS[: options.seeds]
    fixed = {cell: run for cell in fixed_cells(seeds) if (run := found.get(cell)) is not None}
    if (version := judged_version(fixed, seeds)) is None:
        return fixed, None
    adaptive = {cell: run for cell in adaptive_cells(version, seeds) if (run := found.get(cell)) is not None}
    return fixed | adaptive, version


def day(
    profile: EngineProfile, seed: int, regimes: Sequence[DayRegime] = REGIMES, version: Version = VERSIONS[FIRST]
) -> Workload:
    """Returns the requests of the whole day, as the perception that ships reads them."""
    read = [_regime(profile, regime, i, seed, version) for i, regime in enumerate(regimes)]
    rows = [offered for part in read for offered in part]
    return Workload("day", tuple(rows), len(regimes) * version.each_s)


def _regime(profile: EngineProfile, regime: DayRegime, index: int, seed: int, version: Version) -> list[OfferedRequest]:
    own = 100 * seed + index
    spec = WorkloadSpec(kind=regime.kind, duration_s=REGIME_S, stated=True)
    found = list(build(spec, version.load * regime.load * CAPACITY_RPS, own, prompts=True).requests)
    if regime.added is not None:
        found += regime.added(own, version.load)
    found.sort(key=lambda offered: offered.request.arrival_s)
    named = [
        replace(each, request=replace(each.request, id=f"d{index}r{i:05d}", arrival_s=each.request.arrival_s))
        for i, each in enumerate(found)
        if each.request.arrival_s < REGIME_S
    ]
    workload = perceived(Workload(regime.name, tuple(named), REGIME_S), folder=FOLDER)
    rows = list(workload.requests)
    if regime.change is not None:
        rows = [regime.change(each, Random(f"{own} {each.id}")) for each in rows]
    later = index * version.each_s
    shifted = [
        replace(each, request=replace(each.request, arrival_s=each.request.arrival_s + later), prompt="")
        for each in rows
    ]
    return list(Workload(regime.name, tuple(shifted), REGIME_S).fitting(profile).requests)


def faults(regimes: Sequence[DayRegime] = REGIMES, version: Version = VERSIONS[FIRST]) -> tuple[Fault, ...]:
    begins = (i * version.each_s for i in range(len(regimes)))
    return tuple(
        Fault(at_s=at_s, kind=r.fault[0], target=r.fault[1], factor=r.fault[2], until_s=at_s + REGIME_S)
        for at_s, r in zip(begins, regimes, strict=True)
        if r.fault is not None
    )


def setup_of(system: str, version: Version) -> MeshSetup:
    if system == ADAPTIVE:
        return MeshSetup(name=ADAPTIVE, faults=faults(version=version), meta_config=ADAPTED)
    return MeshSetup(name=system, pin=TopologyName(system), faults=faults(version=version))


def compute(cell: DayCell) -> dict[str, Any]:
    """Runs one day and returns its figures as plain data: per regime the share of requests that were on time."""
    began_s, profile, version = process_time(), builtin_profile(cell.profile), VERSIONS[cell.version]
    setup, workload = setup_of(cell.system, version), day(profile, cell.seed, version=version)
    rehearsed_s: list[float] = []

    def rehearsal(effect: Rehearse, blocks: Iterable[PastBlock]) -> RehearsalAnswered:
        answered = of_blocks(effect, blocks)
        rehearsed_s.append(answered.cpu_s)
        return answered

    mesh = MeshSim(setup, profile, cell.engines, workload, cell.seed, cutoff_s=120.0, rehearsal=rehearsal)
    run = mesh.run()
    limits = [row.n_run for row in run.run.regulated]
    shares: dict[str, list[bool]] = {regime.name: [] for regime in REGIMES}
    for settlement in run.settlements:
        shares[REGIMES[int(settlement.offered_s // version.each_s)].name].append(is_ok(settlement))
    return {
        "on_time": {name: fmean(each) for name, each in shares.items()},
        "requests": {name: len(each) for name, each in shares.items()},
        "switches": [_switch(at_s, record, version) for at_s, record in mesh.control.audits if record.source == "meta"],
        "spans": [asdict(span) for span in run.run.topologies],
        "layouts": [asdict(span) for span in run.run.layouts],
        "n_run": [min(limits), fmean(limits), max(limits)],
        "rehearsed_s": sum(rehearsed_s),
        "cpu_s": process_time() - began_s,
        **bounds_of(run.run),
    }


def _switch(at_s: float, record: AuditRecord, version: Version) -> dict[str, Any]:
    regime = REGIMES[min(int(at_s // version.each_s), len(REGIMES) - 1)]
    return {
        "at_s": at_s, "regime": regime.name, "kind": record.kind,
        "decision": record.decision, "by": record.selector, "reason": record.reason,
        "predicted": record.predicted_gain, "observed": record.observed_gain,
    }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRow:
    """The mean share on time of one system in one regime over the seeds, and its standard deviation over them."""

    regime: str
    system: str
    goodput_rate: float
    sd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySummary:
    """Means over the day's regimes, each of which counts alike: of the fixed topology that is best over the day, of
    each regime's best, and of the adaptive mesh (None: not run). `losses` has by how much the best fixed topology
    is behind the best of each regime, `closed` the share of that distance that adaptation closes, and `worst` its least
    difference to the best fixed topology in any regime."""

    best_fixed: float
    best_topology: str
    per_regime_best: float
    adaptive: float | None
    losses: dict[str, float]
    closed: float | None
    worst: float | None

    @property
    def places(self) -> list[str]:
        """The regimes in which the best fixed topology loses `LEAST_LOSS` or more."""
        return [name for name, loss in self.losses.items() if loss >= LEAST_LOSS]


def judged_version(found: Mapping[DayCell, dict[str, Any]], seeds: Sequence[int]) -> str | None:
    """Returns the first version of the day that has a place for adaptation, by the fixed topologies' runs of all seeds:
    the one on which it is judged. None: none has, or runs are missing."""
    for version in VERSIONS:
        cells = {t.value: [DayCell(system=t.value, seed=seed, version=version) for seed in seeds] for t in FIXED}
        if any(cell not in found for each in cells.values() for cell in each):
            return None
        runs = {system: [found[cell] for cell in each] for system, each in cells.items()}
        if len(summary_of(rows_of(runs)).places) >= LEAST_REGIMES:
            return version
    return None


def rows_of(results: dict[str, list[dict[str, Any]]]) -> list[DayRow]:
    """Returns the rows from the figures of each system, seed by seed."""
    return [
        DayRow(
            regime=regime.name,
            system=system,
            goodput_rate=fmean(rates := [run["on_time"][regime.name] for run in runs]),
            sd=stdev(rates) if len(rates) > 1 else 0.0,
        )
        for regime in REGIMES
        for system, runs in results.items()
        if runs
    ]


def summary_of(rows: Sequence[DayRow]) -> DaySummary:
    """Judges the day. Raises ValueError without a row of a fixed topology."""
    table = {(row.regime, row.system): row.goodput_rate for row in rows}
    regimes = list(dict.fromkeys(row.regime for row in rows))
    systems = [t.value for t in FIXED if any(row.system == t.value for row in rows)]
    if not systems:
        raise ValueError("no fixed topology was run")
    days = {system: fmean(table[regime, system] for regime in regimes) for system in systems}
    best = max(days, key=lambda system: days[system])
    tops = {regime: max(table[regime, system] for system in systems) for regime in regimes}
    losses = {regime: tops[regime] - table[regime, best] for regime in regimes}
    ran = (regimes[0], ADAPTIVE) in table
    adaptive = fmean(table[regime, ADAPTIVE] for regime in regimes) if ran else None
    distance = fmean(losses.values())
    return DaySummary(
        best_fixed=days[best],
        best_topology=best,
        per_regime_best=fmean(tops.values()),
        adaptive=adaptive,
        losses=losses,
        closed=(adaptive - days[best]) / distance if adaptive is not None and distance > 0.0 else None,
        worst=min(table[r, ADAPTIVE] - table[r, best] for r in regimes) if ran else None,
    )
