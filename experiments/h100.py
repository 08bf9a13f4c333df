"""What a vLLM on an H100 would do with prefill chunks of other sizes, with the mesh and without, in virtual time: was
the engine that was measured a slow one by its settings? What `hmas compare` and `hmas calibrate` have measured there
stands beside."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from experiments.goodput import compared_table, gaps_said
from experiments.pages.template import percent, table
from experiments.study import CORES, Figures, Finished, Options, Study, code_of_mesh, plain, written
from hmas.engine.named import named_profile
from hmas.mesh.compare.cli import MAX_MODEL_LEN
from hmas.mesh.compare.simulated import SYSTEMS, Turn, in_turn
from hmas.mesh.compare.workload import ReplayWorkload
from hmas_lab.sim.stored import cell_key

CHUNKS = (256, 512, 1024, 2048, 8192)  # tokens: --max-num-batched-tokens
RATES_RPS = (9.0, 12.0)
SIDES = ("direct", "mesh")
WINDOW_S, PAUSE_S = 60.0, 40.0
PROFILE, POINTS = "h100.yaml", "h100.points.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkCell:
    """One side at one rate with one size of chunks, on one engine of the profile in a file, seed after seed."""

    side: str
    rate_rps: float
    chunk: int
    seeds: int
    file: str

    def key(self) -> str:
        return cell_key(replace(self, file=Path(self.file).read_text(encoding="utf-8")))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRow:
    """Shares of the offered requests that met their SLOs (`on_time`), that for the TTFT and that for the TPOT, means
    over the seeds."""

    side: str
    rate_rps: float
    chunk: int
    on_time: float
    ttft_in_time: float
    tpot_in_time: float


def cells_of(options: Options) -> list[ChunkCell]:
    file = str(options.out / PROFILE)
    return [
        ChunkCell(side=side, rate_rps=rate, chunk=chunk, seeds=options.seeds, file=file)
        for side, rate, chunk in product(SIDES, RATES_RPS, CHUNKS)
    ]


def compute(cell: ChunkCell) -> Figures:
    profile = named_profile(cell.file)
    profile = replace(profile, limits=replace(profile.limits, max_num_batched_tokens=cell.chunk))
    workload = ReplayWorkload(None, MAX_MODEL_LEN)
    turns = [
        Turn(workload.at(cell.rate_rps, WINDOW_S, seed), seed, at * (2 * WINDOW_S + PAUSE_S))
        for at, seed in enumerate(range(1, cell.seeds + 1))
    ]
    scores = [replay.score for replay in in_turn(SYSTEMS[cell.side], turns, profile, 1, WINDOW_S)]
    names = {"on_time": "goodput_rate", "ttft_in_time": "ttft_compliance", "tpot_in_time": "tpot_compliance"}
    return {name: fmean(getattr(score, of) for score in scores) for name, of in names.items()}


def rows_of(options: Options, found: Finished) -> list[ChunkRow]:
    """Returns the rows, if all are finished; otherwise those that lie in `options.out`."""
    runs = [(cell, found.get(cell)) for cell in cells_of(options)]
    if any(run is None for _, run in runs):
        return written(ChunkRow, options.out / "h100-chunks.json")
    shares = ("on_time", "ttft_in_time", "tpot_in_time")
    return [
        ChunkRow(side=c.side, rate_rps=c.rate_rps, chunk=c.chunk, **{name: run[name] for name in shares})
        for c, run in runs
        if run
    ]


def page_of(rows: Sequence[ChunkRow], options: Options, found: Finished) -> dict[str, object]:
    """Raises OSError if a measured file is missing in `options.out`."""
    measured = {rate: json.loads((options.out / f"h100-{rate:g}.json").read_text()) for rate in RATES_RPS}
    (profile,) = yaml.safe_load((options.out / PROFILE).read_text()).values()
    return {
        "said": "\n".join(_said(rate, of) for rate, of in measured.items()),
        "measured": [(f"{rate:g}", len(of["seeds"])) for rate, of in measured.items()],
        "prefill_error": percent(profile["fit"]["prefill_mean"]),
        "decode_error": percent(profile["fit"]["decode_mean"]),
        "tables": [compared_table(of) for of in measured.values()],
        "valid": _valid(measured), "scatter": _scatter(options.out / POINTS), "served": _served(measured),
        "verdict": gaps_said(*measured.values()), "chunk_seeds": options.seeds,
        "chunks": table(
            ("requests/s", "", *(f"{chunk} tokens" for chunk in CHUNKS)),
            [(f"{rate:g}", side, *(_cell(rows, side, rate, chunk) for chunk in CHUNKS))
             for rate in RATES_RPS for side in SIDES],
        ),
        "chunks_said": "\n".join(_best(rows, rate) for rate in RATES_RPS),
    }  # fmt: skip


def _said(rate_rps: float, compared: dict[str, Any]) -> str:
    alone, mesh = ([100.0 * run["goodput_rate"] for run in compared[side]["runs"]] for side in SIDES)
    return (
        f"At {rate_rps:g} requests/s {fmean(alone):.1f} % were on time at the engine alone ({min(alone):.0f} to "
        f"{max(alone):.0f}, {len(alone)} seeds), and {fmean(mesh):.1f} % behind the mesh ({min(mesh):.0f} to "
        f"{max(mesh):.0f})."
    )


def _scatter(points: Path) -> str:
    """Returns by how much the slowest prompt of a length took longer than the fastest, at most."""
    took = dict[str, list[float]]()
    for line in points.read_text(encoding="utf-8").splitlines()[1:]:
        point = json.loads(line)
        if point["kind"] == "prefill" and point["seconds"]:
            took.setdefault(point["id"].rpartition("-")[0], []).append(point["seconds"])
    return f"{100.0 * max(max(of) / min(of) - 1.0 for of in took.values()):.0f} %"


def _valid(measured: dict[float, dict[str, Any]]) -> str:
    wrong = [reason for of in measured.values() for side in SIDES for reason in of[side]["invalid_reasons"]]
    return f"Invalid: {'; '.join(wrong)}." if wrong else "All runs are valid: the generator was not late."


def _served(measured: dict[float, dict[str, Any]]) -> str:
    """Says what the mesh costs: the service of all requests, late ones too, and the longest waits."""
    told = []
    for rate_rps, of in measured.items():
        alone, mesh = (of[side] for side in SIDES)
        told.append(
            f"at {rate_rps:g}/s {100.0 * (mesh['esg_rate'] / alone['esg_rate'] - 1.0):+.1f} %, and a TTFT p99 of "
            f"{mesh['ttft_p99_s']:.0f} s instead of {alone['ttft_p99_s']:.0f} s"
        )
    return (
        "ESG is the expected service gain: tokens served, those of late requests for less. What the mesh costs in it "
        f"and in the longest waits: {'; '.join(told)}.\nThe requests that cannot be on time wait for those that can."
    )


def _at(rows: Sequence[ChunkRow], side: str, rate_rps: float, chunk: int) -> ChunkRow:
    return next(row for row in rows if (row.side, row.rate_rps, row.chunk) == (side, rate_rps, chunk))


def _cell(rows: Sequence[ChunkRow], side: str, rate_rps: float, chunk: int) -> str:
    row = _at(rows, side, rate_rps, chunk)
    return f"{percent(row.on_time)} ({percent(row.ttft_in_time)}, {percent(row.tpot_in_time)})"


def _best(rows: Sequence[ChunkRow], rate_rps: float) -> str:
    """Compares each side's best size."""
    alone, mesh = (
        max((_at(rows, side, rate_rps, chunk) for chunk in CHUNKS), key=lambda row: row.on_time) for side in SIDES
    )
    return (
        f"At {rate_rps:g}/s the best size for the engine alone is {alone.chunk} ({percent(alone.on_time)}), behind the "
        f"mesh {mesh.chunk} ({percent(mesh.on_time)})."
    )


STUDY = Study(
    name="h100",
    about="Simulates a vLLM on an H100 with prefill chunks of other sizes, beside what `hmas compare` has measured.",
    defaults=Options(seeds=3, processes=CORES, cells=Path("out/h100-cells")),
    cells=lambda options, found: [cells_of(options)],
    compute=compute,
    code=code_of_mesh,
    rows=rows_of,
    values=page_of,
    also=lambda rows, options, found: {"h100.json": None, "h100-chunks.json": [plain(row) for row in rows]},
)
