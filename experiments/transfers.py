"""What the order of KV hand-overs is worth where prompts and answers have engines of their own, by how long KV takes on
the link and by how full the engines of the prompts are."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from experiments.pages.goal import Goal
from experiments.pages.paired import paired
from experiments.study import Figures, Finished, Options, Study, code_of_mesh
from hmas.contracts.control import TopologyName
from hmas.contracts.request import Slo
from hmas.engine.core.profile import EngineProfile
from hmas.engine.named import named_profile
from hmas.laws.scoring import is_ok
from hmas.sim.network.reads import ChunkedReads
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import POOL, MeshSetup, PoolSetup
from hmas.sim.workload import OfferedRequest, Workload
from hmas.worker.agent.config import SplitConfig
from hmas_lab.sim.sources import WorkloadSpec, build
from hmas_lab.sim.stored import cell_key

PROFILE, TRACE = "qwen3-32b-h100x2", "traces/mooncake_fast25_conversation.csv.gz"
PREFILLS, DECODES = 4, 4
ROLES = ("prefill",) * PREFILLS + ("decode",) * DECODES
SECONDS, APART_S, READ_RPS = 60.0, 300.0, 16.0  # of a run; between the parts of the trace that seeds take; read of it
KAPPAS, LOADS = (0.12, 0.47, 0.94), (0.8, 1.2)
TIGHT, LAX, TPOT_S = 3.0, 8.0, 0.2  # TTFT SLOs in times of a request's own; its own is that of an idle mesh
CHUNK_TOKENS = 256.0  # 64 MiB of the profile's model
STOCK, WHOLE, CHUNKS, KNOWN, INSTANT = "stock", "whole by deadline", "chunks", "chunks, most on time", "at once"
READS: Mapping[str, ChunkedReads | None] = {
    STOCK: None,
    WHOLE: ChunkedReads(window=1, order="edf"),
    CHUNKS: ChunkedReads(CHUNK_TOKENS),
    KNOWN: ChunkedReads(CHUNK_TOKENS, order="max-on-time", knows_rate=True),
    INSTANT: None,
}
MOT, FCFS = "MaxOnTime", "FCFS"
SYSTEMS = (*((MOT, reads) for reads in READS), (FCFS, STOCK), (FCFS, CHUNKS), (FCFS, INSTANT))
GAIN, WHOLE_GAIN, WORSE, PRODUCT = 10.0, 3.0, -0.5, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferCell:
    """One run: `kappa` is the seconds of a hand-over on an idle port to those of its prefill, `load` the prefill
    that is asked for to what the engines can do."""

    kappa: float
    load: float
    queue: str
    reads: str
    seed: int
    file: str

    def key(self) -> str:
        return cell_key(self)

    def __str__(self) -> str:
        return f"kappa {self.kappa:g}, load {self.load:g}, {self.queue}, {self.reads}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class TransferRow:
    """The share on time with each seed."""

    kappa: float
    load: float
    queue: str
    reads: str
    shares: tuple[float, ...]

    @property
    def share(self) -> float:
        return fmean(self.shares)


def prefill_s(profile: EngineProfile, tokens: int) -> float:
    """Returns the seconds of a prompt on an idle engine, which computes it in as few chunks as it can."""
    steps = -(-tokens // profile.limits.max_num_batched_tokens)
    return steps * profile.cost.c0_s + profile.cost.prefill_s(tokens, tokens**2 / 2.0)


def offered_to(cell: TransferCell, profile: EngineProfile) -> tuple[Workload, float]:
    """Returns the trace's lengths at Poisson arrivals, half of them tight and half lax, and what a port moves."""
    spec = WorkloadSpec(kind="trace", file=cell.file, duration_s=SECONDS, start_s=APART_S * cell.seed, stated=True)
    made = build(spec, READ_RPS, cell.seed).fitting(profile)
    own_s = {each.id: prefill_s(profile, each.request.prompt_tokens) for each in made.requests}
    tokens = sum(each.request.prompt_tokens for each in made.requests)
    tokens_per_s = tokens / (cell.kappa * sum(own_s.values()))
    rate_rps = cell.load * PREFILLS / fmean(own_s.values())
    rng, at_s, found = Random(f"{cell.seed} transfers"), 0.0, list[OfferedRequest]()
    for each in made.requests:
        at_s += rng.expovariate(rate_rps)
        if at_s > SECONDS:
            break
        alone_s = own_s[each.id] + each.request.prompt_tokens / tokens_per_s + profile.cost.c0_s
        slo = Slo(rng.choice((TIGHT, LAX)) * alone_s, TPOT_S)
        request = replace(each.request, arrival_s=at_s, slo=slo, slo_stated=True)
        found.append(replace(each, request=request, slo=slo, prefix_hashes=(), answer_hashes=()))
    else:
        raise ValueError(f"{cell.file} has too few requests from {spec.start_s:g} s on: read it at a higher rate")
    return replace(made, requests=tuple(found)), tokens_per_s


def setup_of(cell: TransferCell, profile: EngineProfile, tokens_per_s: float) -> MeshSetup:
    plain = MeshSetup(estimator="noisy", costs="engine", pin=TopologyName.FCFS if cell.queue == FCFS else None)
    moved = 1e6 * tokens_per_s if cell.reads == INSTANT else tokens_per_s
    pool = PoolSetup(
        POOL, profile, PREFILLS + DECODES, kv_tokens_per_s=moved, roles=ROLES, kv_chunked=READS[cell.reads]
    )
    return replace(plain, pools=(pool,), worker_config=replace(plain.worker_config, split=SplitConfig(rule="always")))


def compute(cell: TransferCell) -> Figures:
    profile = named_profile(PROFILE)
    workload, tokens_per_s = offered_to(cell, profile)
    result = MeshSim(setup_of(cell, profile, tokens_per_s), profile, PREFILLS + DECODES, workload, cell.seed).run()
    return {"share": fmean(map(is_ok, result.settlements)), "requests": len(result.settlements)}


def cells(options: Options, found: Finished) -> Iterator[Sequence[TransferCell]]:
    """Yields the runs seed by seed; none without the trace."""
    if options.data is None:
        return
    for seed in options.numbers:
        for kappa in (0.47, 0.94, 0.12):  # what is most asked for first
            yield [_cell(kappa, load, *system, seed, options.data) for load in LOADS for system in SYSTEMS]


def _cell(kappa: float, load: float, queue: str, reads: str, seed: int, data: Path | None) -> TransferCell:
    file = "" if data is None else str(data / TRACE)
    return TransferCell(kappa=kappa, load=load, queue=queue, reads=reads, seed=seed, file=file)


def rows_of(options: Options, found: Finished) -> list[TransferRow]:
    """Returns a row for each system where all systems have the same seeds."""
    rows: list[TransferRow] = []
    for kappa in KAPPAS:
        for load in LOADS:
            ran = [
                [found.get(_cell(kappa, load, *system, seed, options.data)) for system in SYSTEMS]
                for seed in options.numbers
            ]
            whole = [[run["share"] for run in runs if run] for runs in ran if all(runs)]
            if whole:
                shares = zip(*whole, strict=True)
                rows += [TransferRow(kappa, load, *system, each) for system, each in zip(SYSTEMS, shares, strict=True)]
    return rows


SystemsAtLoad = Mapping[tuple[str, str], TransferRow]


def _by_load(rows: Sequence[TransferRow]) -> list[SystemsAtLoad]:
    loads = dict.fromkeys((row.kappa, row.load) for row in rows)
    return [{(row.queue, row.reads): row for row in rows if (row.kappa, row.load) == load} for load in loads]


def gained(row: SystemsAtLoad, reads: str, queue: str = MOT) -> float:
    """Returns by how many points more requests are on time than with stock engines."""
    return 100.0 * (row[queue, reads].share - row[queue, STOCK].share)


def goals_of(rows: Sequence[TransferRow]) -> list[Goal]:
    by_load = _by_load(rows)
    middle = [row for row in by_load if row[MOT, STOCK].kappa == 0.47]

    def least(words: str, found: Sequence[float], goal: float) -> Goal:
        told = f"{min(found):+.1f} points at least" if found else ""
        return Goal(words, told, min(found) >= goal if found else None)

    product = [(gained(row, CHUNKS), gained(row, CHUNKS, FCFS)) for row in by_load]
    behind = [first for first, second in product if second <= 3.0]
    return [
        least(f"chunks by deadline at κ .47: {GAIN:+g} points over stock", [gained(r, CHUNKS) for r in middle], GAIN),
        least(f"whole reads by deadline there: {WHOLE_GAIN:+g}", [gained(row, WHOLE) for row in middle], WHOLE_GAIN),
        least(f"nowhere below stock {WORSE:+g}", [gained(row, CHUNKS) for row in by_load], WORSE),
        least(f"{PRODUCT:+g} behind MaxOnTime where it is at most +3 behind FCFS", behind, PRODUCT),
    ]


def page_of(rows: Sequence[TransferRow], options: Options, found: Finished) -> dict[str, Any]:
    by_load = _by_load(rows)

    def over(row: SystemsAtLoad, reads: str, queue: str = MOT) -> str:
        difference = paired(row[queue, reads].shares, row[queue, STOCK].shares)
        spread = f" ± {100 * difference.half:.1f}" if difference.half < inf else ""
        return f"{100 * difference.mean:+.1f}{spread}"

    return {
        "table_rows": [
            (f"{row[MOT, STOCK].kappa:g}", f"{row[MOT, STOCK].load:g}",
             *(f"{row[MOT, reads].share:.3f}" for reads in READS), over(row, CHUNKS), over(row, KNOWN))
            for row in by_load
        ],
        "product": [
            (f"{row[MOT, STOCK].kappa:g}", f"{row[MOT, STOCK].load:g}",
             *(f"{row[FCFS, reads].share:.3f}" for reads in (STOCK, CHUNKS, INSTANT)), over(row, CHUNKS, FCFS),
             over(row, CHUNKS))
            for row in by_load
        ],
        "reads": tuple(READS), "seeds": sorted({len(row[MOT, STOCK].shares) for row in by_load}),
        "loads": len(by_load), "of_loads": len(KAPPAS) * len(LOADS), "seconds": SECONDS, "prefills": PREFILLS,
        "decodes": DECODES, "profile": PROFILE, "tight": TIGHT, "lax": LAX, "tpot_s": TPOT_S, "chunk": CHUNK_TOKENS,
        "gains": [gained(row, CHUNKS) for row in by_load],
    }  # fmt: skip


STUDY: Study[TransferCell, TransferRow] = Study(
    name="transfers",
    about="What the order of KV hand-overs is worth, by how long KV takes and by how full the engines are.",
    takes=("out", "seeds", "processes", "cells", "data", "pages_only"),
    template=Path(__file__).with_name("report") / "transfers.md.j2",
    cells=cells,
    compute=compute,
    given=lambda cell, options, found: (),
    code=code_of_mesh,
    rows=rows_of,
    goals=goals_of,
    values=page_of,
)
