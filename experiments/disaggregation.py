"""When two engines should serve a request, one its prompt and one its answer: always, by a threshold of tokens, or so
that the fewest requests are expected to be late, beside requests that one engine serves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.pages.goal import Goal
from experiments.pages.paired import paired
from experiments.routing.workloads import MOONCAKE
from experiments.routing.workloads import build as recorded
from experiments.study import Figures, Finished, Options, Study, code_of_mesh
from hmas.engine.core.profile import EngineProfile
from hmas.engine.named import named_profile
from hmas.laws.scoring import is_ok
from hmas.sim.perceived import FOLDER, perceived
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import POOL, MeshSetup, PoolSetup
from hmas.sim.workload import OfferedRequest, Workload
from hmas.worker.agent.config import SplitConfig
from hmas_lab.sim.sources import WorkloadSpec, build
from hmas_lab.sim.stored import cell_key

ENGINES, SECONDS = 4, 120.0
FIRST_SEED = 4  # the rule was made with those before
PRIOR = "prior"  # what is expected of requests without a text: what was seen of others
A100, H100 = "llama2-70b-a100x4", "qwen3-32b-h100x2"
LINK_BYTES_S = 12.5e9  # 100 Gb/s
KV_BYTES = {A100: 327_680, H100: 262_144}  # of a token, in float16
P, D = "prefill", "decode"
ROLES = {"1P3D": (P, D, D, D), "2P2D": (P, P, D, D), "3P1D": (P, P, P, D)}
THRESHOLDS = (256, 1024)
WHOLE, AUTO = "whole", "auto"
SYSTEMS = (WHOLE, *ROLES, *(f"beyond {tokens}" for tokens in THRESHOLDS), AUTO)
NEAR, AHEAD, ROWS_AHEAD = 2.0, 5.0, 3
HEAVY_RPS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Requests of the mix, with prompts and answers so many times as long, or a recorded trace of that name, whose
    prompts share their beginnings; `rates` in requests per second."""

    name: str
    profile: str
    rates: tuple[float, ...]
    prompt: float = 1.0
    answer: float = 1.0

    @property
    def is_recorded(self) -> bool:
        return self.name == MOONCAKE


TRAFFIC = (
    Traffic(name="mix", profile=A100, rates=(8.0, 10.0, 12.0)),
    Traffic(name="chat", profile=A100, rates=(8.0, 10.0, 12.0), prompt=0.4, answer=1.67),
    Traffic(name="code", profile=A100, rates=(6.0, 9.0, 12.0), prompt=2.0, answer=0.22),
    Traffic(name="mix", profile=H100, rates=(42.0, 52.0, 62.0)),
    Traffic(name=MOONCAKE, profile=H100, rates=(4.0, 6.0, 8.0)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCell:
    """One run of a system."""

    traffic: Traffic
    rate_rps: float
    system: str
    seed: int

    def key(self) -> str:
        return cell_key(self)

    def __str__(self) -> str:
        return f"{self.traffic.name} on {self.traffic.profile} at {self.rate_rps:g}/s, {self.system}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class SplitRow:
    """A system's share on time with each seed, of a workload at a rate. `cached`: the mean share of prompt tokens that
    the engines which computed them had cached."""

    workload: str
    profile: str
    rate_rps: float
    system: str
    shares: tuple[float, ...]
    cached: float = 0.0

    @property
    def share(self) -> float:
        return fmean(self.shares)


def offered_to(cell: SplitCell, data: Path | None = None) -> Workload:
    """Returns the requests, as the perception that ships reads their prompts; those of a trace have none. Raises
    ValueError without the folder `data` of a trace."""
    traffic, profile = cell.traffic, named_profile(cell.traffic.profile)
    if traffic.is_recorded:
        if data is None:
            raise ValueError(f"{traffic.name} is a recorded trace: give --data FOLDER with traces/ in it")
        return recorded(traffic.name, data, cell.rate_rps, SECONDS, cell.seed, profile).workload
    spec = WorkloadSpec(kind="poisson", duration_s=SECONDS)
    made = build(spec, cell.rate_rps, cell.seed, prompts=True)

    def sized(each: OfferedRequest) -> OfferedRequest:
        tokens = max(1, round(each.request.prompt_tokens * traffic.prompt))
        request = replace(each.request, prompt_tokens=tokens)
        return replace(each, request=request, output_tokens=max(1, round(each.output_tokens * traffic.answer)))

    sizes = replace(made, requests=tuple(map(sized, made.requests)))
    return perceived(sizes.fitting(profile), folder=FOLDER)


def setup_of(cell: SplitCell, profile: EngineProfile) -> MeshSetup:
    plain, system = MeshSetup(), cell.system
    split = SplitConfig(rule="never" if system == WHOLE else "auto" if system == AUTO else "always")
    roles = ROLES.get(system, ROLES["2P2D"] if system.startswith("beyond") else ())
    if system.startswith("beyond"):
        split = SplitConfig(rule="beyond", beyond_tokens=int(system.rpartition(" ")[2]))
    tokens_per_s = LINK_BYTES_S / KV_BYTES[cell.traffic.profile]
    pool = PoolSetup(POOL, profile, ENGINES, kv_tokens_per_s=tokens_per_s, roles=roles)
    reads = PRIOR if cell.traffic.is_recorded else plain.estimator
    return replace(plain, pools=(pool,), worker_config=replace(plain.worker_config, split=split), estimator=reads)


def compute(cell: SplitCell, data: Path | None) -> Figures:
    profile = named_profile(cell.traffic.profile)
    mesh = MeshSim(setup_of(cell, profile), profile, ENGINES, offered_to(cell, data), cell.seed)
    result = mesh.run()
    done = [each for each in mesh.journeys.values() if each.cached_tokens is not None]
    prompts = sum(each.offered.request.prompt_tokens for each in done)
    return {
        "share": fmean(map(is_ok, result.settlements)),
        "requests": len(result.settlements),
        "cached": sum(each.cached_tokens or 0 for each in done) / max(1, prompts),
    }


def cells(options: Options, found: Finished) -> Iterator[Sequence[SplitCell]]:
    for heavy in (False, True):  # what takes longest comes last
        for seed in _seeds(options):
            for nth in (1, 2, 0):
                yield [
                    SplitCell(traffic=traffic, rate_rps=traffic.rates[nth], system=system, seed=seed)
                    for traffic in TRAFFIC
                    if (traffic.rates[0] > HEAVY_RPS) is heavy
                    for system in SYSTEMS
                ]


def _seeds(options: Options) -> range:
    return range(FIRST_SEED, FIRST_SEED + options.seeds)


def rows_of(options: Options, found: Finished) -> list[SplitRow]:
    """Returns a row for each system of the loads at which all have the same seeds."""
    rows: list[SplitRow] = []
    for traffic in TRAFFIC:
        for rate_rps in traffic.rates:
            figures_of: dict[str, list[Figures]] = {system: [] for system in SYSTEMS}
            for seed in _seeds(options):
                ran = {
                    system: found.get(SplitCell(traffic=traffic, rate_rps=rate_rps, system=system, seed=seed))
                    for system in SYSTEMS
                }
                if all(figures is not None for figures in ran.values()):
                    for system, figures in ran.items():
                        figures_of[system].append(figures or {})
            if figures_of[WHOLE]:
                rows += [
                    SplitRow(
                        traffic.name, traffic.profile, rate_rps, system,
                        shares=tuple(each["share"] for each in figures_of[system]),
                        cached=fmean(each["cached"] for each in figures_of[system]),
                    )
                    for system in SYSTEMS
                ]  # fmt: skip
    return rows


def _by_load(rows: Sequence[SplitRow]) -> list[Mapping[str, SplitRow]]:
    loads = dict.fromkeys((row.workload, row.profile, row.rate_rps) for row in rows)
    return [{row.system: row for row in rows if (row.workload, row.profile, row.rate_rps) == load} for load in loads]


def _best_split(row: Mapping[str, SplitRow]) -> SplitRow:
    return max((row[system] for system in ROLES), key=lambda each: each.share)


def _behind(row: Mapping[str, SplitRow]) -> float:
    """Returns by how many points auto is ahead of the better of whole and the best ratio, which nobody knows before."""
    return 100 * (row[AUTO].share - max(row[WHOLE].share, _best_split(row).share))


def goals_of(rows: Sequence[SplitRow]) -> list[Goal]:
    ahead = [_behind(row) for row in _by_load(rows)]
    near = f"never more than {NEAR:g} points behind the better of whole and the best fixed ratio"
    more = f"{AHEAD:g} points and more ahead of both in {ROWS_AHEAD} rows"
    if not ahead:
        return [Goal(near, "", None), Goal(more, "", None)]
    told = f"{min(ahead):+.1f} to {max(ahead):+.1f} points"
    many = sum(each >= AHEAD for each in ahead)
    return [Goal(near, told, min(ahead) >= -NEAR), Goal(more, f"{many} of {len(ahead)}", many >= ROWS_AHEAD)]


def page_of(rows: Sequence[SplitRow], options: Options, found: Finished) -> dict[str, Any]:
    by_load = _by_load(rows)

    def points(row: Mapping[str, SplitRow], other: SplitRow) -> str:
        difference = paired(row[AUTO].shares, other.shares)
        spread = f" ± {100 * difference.half:.1f}" if len(other.shares) > 1 else ""
        return f"{100 * difference.mean:+.1f}{spread}"

    return {
        "first": [
            (row[AUTO].workload, row[AUTO].profile, f"{row[AUTO].rate_rps:g}", f"{row[WHOLE].share:.3f}",
             f"{_best_split(row).share:.3f} ({_best_split(row).system})",
             f"{max(row[name].share for name in SYSTEMS if name.startswith('beyond')):.3f}", f"{row[AUTO].share:.3f}",
             points(row, row[WHOLE]), points(row, _best_split(row)))
            for row in by_load
        ],
        "all": [
            (row[AUTO].workload, row[AUTO].profile, f"{row[AUTO].rate_rps:g}",
             *(f"{row[system].share:.3f}" for system in SYSTEMS))
            for row in by_load
        ],
        "cached": [
            (row[AUTO].workload, f"{row[AUTO].rate_rps:g}", *(f"{row[system].cached:.3f}" for system in SYSTEMS))
            for row in by_load if row[WHOLE].cached
        ],
        "systems": SYSTEMS, "over_whole": [100 * (row[AUTO].share - row[WHOLE].share) for row in by_load],
        "wrong": [
            100 * (_best_split(row).share - min(row[name].share for name in ROLES)) for row in by_load
        ],
        "over_split": [100 * (row[AUTO].share - _best_split(row).share) for row in by_load],
        "seeds": sorted({len(row[AUTO].shares) for row in by_load}), "first_seed": FIRST_SEED,
        "loads": len(by_load), "of_loads": sum(len(traffic.rates) for traffic in TRAFFIC), "seconds": SECONDS,
        "engines": ENGINES, "traffic": TRAFFIC, "recorded": MOONCAKE,
    }  # fmt: skip


STUDY: Study[SplitCell, SplitRow] = Study(
    name="disaggregation",
    about="When one engine should compute a prompt and another one answer: always, beyond a threshold, or by who is "
    "expected to be late.",
    template=Path(__file__).with_name("report") / "disaggregation.md.j2",
    cells=cells,
    compute=compute,
    takes=("out", "seeds", "processes", "cells", "data", "pages_only"),
    given=lambda cell, options, found: (options.data,),
    code=code_of_mesh,
    rows=rows_of,
    goals=goals_of,
    values=page_of,
)
