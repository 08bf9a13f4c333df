"""Writes the page about a vLLM on an H100, from what `hmas compare` and `hmas calibrate` have written there."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from experiments.h100 import CHUNKS, RATES_RPS, SIDES, ChunkRow
from experiments.report.goodput import compared_table, gaps_said
from experiments.report.template import percent, render, table

PROFILE, POINTS = "h100.yaml", "h100.points.jsonl"


def write_page(rows: Sequence[ChunkRow], seeds: int, out: Path) -> list[Path]:
    """Writes `h100.md` and `h100-chunks.json` into `out`, beside the measured files, and returns their paths. Raises
    OSError if one of those is missing."""
    measured = {rate: json.loads((out / f"h100-{rate:g}.json").read_text()) for rate in RATES_RPS}
    (profile,) = yaml.safe_load((out / PROFILE).read_text()).values()
    page, facts = out / "h100.md", out / "h100-chunks.json"
    text = render(
        Path(__file__).with_name("h100.md.j2"),
        said="\n".join(_said(rate, of) for rate, of in measured.items()),
        measured=[(f"{rate:g}", len(of["seeds"])) for rate, of in measured.items()],
        prefill_error=percent(profile["fit"]["prefill_mean"]), decode_error=percent(profile["fit"]["decode_mean"]),
        tables=[compared_table(of) for of in measured.values()],
        valid=_valid(measured), scatter=_scatter(out / POINTS), served=_served(measured),
        verdict=gaps_said(*measured.values()), chunk_seeds=seeds,
        chunks=table(
            ("requests/s", "", *(f"{chunk} tokens" for chunk in CHUNKS)),
            [(f"{rate:g}", side, *(_cell(rows, side, rate, chunk) for chunk in CHUNKS))
             for rate in RATES_RPS for side in SIDES],
        ),
        chunks_said="\n".join(_best(rows, rate) for rate in RATES_RPS),
    )  # fmt: skip
    page.write_text(text, encoding="utf-8")
    facts.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return [page, facts]


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
        "What it costs, in ESG (the expected service gain: tokens served, those of late requests for less) and in\n"
        f"the longest waits: {'; '.join(told)}.\nThe requests that cannot be on time wait for those that can."
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
