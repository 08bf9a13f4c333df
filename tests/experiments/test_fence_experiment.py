"""The rows and the page of `python -m experiments fence`, and the coverage that every page of results prints."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from experiments.execute import cells_of
from experiments.fence import STUDY, row_of, rows_of, runs_of
from experiments.report.pages import pages_of
from experiments.study import Options
from experiments.writer import put, write
from hmas.laws.scoring import score
from hmas_lab.sim.cells import CellStore
from hmas_lab.sim.experiment import Experiment, load_experiment

TINY = """
title: Tiny
page: loads
profile: tiny-emulated
engines: 1
workloads: [{kind: poisson, duration_s: 12}]
loads: [0.8]
seeds: [1, 2]
systems: [vllm, hmas]
"""


def write_pages(experiment: Experiment, store: CellStore, out: Path, whole: Sequence[str] = ()) -> list[Path]:
    return put(pages_of([experiment], store, out, whole=whole, data=None), out, "run")


def figures(fifths: list[tuple[int, int]], buckets: list[tuple[int, int]], goodput: float = 0.9) -> dict[str, Any]:
    def tallies(pairs: list[tuple[int, int]]) -> list[dict[str, int]]:
        return [{"admitted": n, "outgrown": m} for n, m in pairs]

    (total,) = tallies([(sum(n for n, _ in fifths), sum(m for _, m in fifths))])
    parts = {"total": total, "fifths": tallies(fifths), "buckets": tallies(buckets), "at_grant": total}
    blocks = {"reserved_blocks": 400, "unused_blocks": 100}
    all_of = asdict(score([], 1.0)) | {"goodput_rate": goodput}
    run = {"coverage": parts | blocks, "topologies": [], "layouts": [], "regulated": [{"n_run": 48}]}
    return {"run": run, "score": all_of, "cpu_s": 1.0}


STEADY = [(500, 50)] * 5


def test_seeds_are_counted_together() -> None:
    found = [figures(STEADY, [(600, 90), (1900, 160)]), figures(STEADY, [(600, 90), (1900, 160)], 0.8)]
    row = row_of("mix", 0.8, found)
    assert (row.outgrown, row.worst_fifth, row.worst_bucket, row.unused_blocks) == (0.1, 0.1, 0.15, 0.25)
    assert (row.requests, row.seeds, row.goodput_rate, row.holds) == (5000, 2, 0.85, True)
    assert row_of("mix", 0.8, found[:1]).worst_bucket == 0.0842  # the other one has too few requests by itself


def test_one_bad_fifth_but_the_first_breaks_the_goal() -> None:
    late = [*STEADY[:4], (500, 75)]
    assert row_of("mix", 0.8, [figures(late, [(2500, 275)])]).missed == "worst fifth 15.0 %"
    assert row_of("mix", 0.8, [figures(late[::-1], [(2500, 275)])]).holds
    assert not row_of("mix", 0.8, [figures(STEADY, [(1000, 160), (1500, 90)])]).holds


def stored(tmp_path: Path) -> tuple[Experiment, CellStore]:
    (tmp_path / "tiny.yaml").write_text(TINY)
    experiment, store = load_experiment(tmp_path / "tiny.yaml"), CellStore(tmp_path / "cells")
    for cell in cells_of(experiment):
        if cell.system == "hmas":
            store.put(cell, figures(STEADY, [(2500, 250)]))
    return experiment, store


def test_the_page_says_what_goodput_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment, store = stored(tmp_path)
    monkeypatch.setattr("experiments.fence.FILE", tmp_path / "tiny.yaml")
    options = Options(out=tmp_path / "out")
    assert {cell.kind for cell in runs_of(experiment)} == {"run"}
    out = options.out
    write(STUDY, options, store)
    (facts,) = json.loads((out / "fence.json").read_text())
    assert {"workload", "load", "seeds", "epsilon", "outgrown", "worst_bucket", "worst_fifth", "unused_blocks"} <= set(
        facts
    )
    once = {"seeds": 1, "requests": facts["first_requests"], "goodput_rate": 0.93}
    (out / "fence_before.json").write_text(json.dumps([facts | once]))
    write(STUDY, options, store)
    text = (out / "fence.md").read_text()
    assert "at most 3.0 points lower" in text
    assert "in 1 of 1 settings it is further below than that" in text
    assert " by 3.0." in text
    assert "hold in 1 of 1 settings." in text
    assert "semantic" not in text
    (row,) = rows_of(options, store)
    (out / "fence_before.json").write_text(json.dumps([facts | once | {"workload": "semantic"}]))
    (out / "fence.json").write_text(json.dumps([asdict(replace(row, workload="semantic"))]))
    write(STUDY, options, {})
    text = (out / "fence.md").read_text()
    assert f"- at 0.8 λ*, {row.worst_fifth:.1%} outgrow in the worst fifth".replace("%", " %") in text
    assert "the goodput rate changed by -3.0 points" in text
    assert text.count("is not known from these runs") == 1


def test_a_page_of_results_prints_coverage(tmp_path: Path) -> None:
    experiment, store = stored(tmp_path)
    write_pages(experiment, store, tmp_path / "out", ())
    page = (tmp_path / "out" / "loads.md").read_text()
    assert "10.0 % of 5000 requests that our systems admitted outgrew theirs" in page
    assert "| 48, 48, 48 | not recorded |" in page


def test_a_fence_of_another_load_or_of_several_seeds_is_not_compared() -> None:
    row = row_of("mix", 0.8, [figures(STEADY, [(2500, 250)], 0.9), figures(STEADY, [(2500, 250)], 0.8)])
    before = {"seeds": 1, "requests": 2500, "goodput_rate": 0.93}
    assert row.change_from(before) == pytest.approx(-0.03)
    assert row.change_from(before | {"requests": 2400}) is None
    assert row.change_from(before | {"seeds": 2}) is None
    assert replace(row, first_goodput_rate=None).change_from(before) is None
