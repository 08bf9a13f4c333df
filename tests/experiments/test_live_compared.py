"""The page of `hmas compare`: each goal is judged seed by seed."""

import json
from pathlib import Path
from typing import Any

from experiments.__main__ import main
from experiments.live.compared import STUDY, goals, page_of, pairs_of
from experiments.pages.template import render


def side(*rates: float, esg: float = 100.0, ttft_s: float = 1.0) -> dict[str, Any]:
    runs = [{"goodput_rate": rate, "esg_rate": esg, "ttft_p50_s": ttft_s} for rate in rates]
    return {"runs": runs, "valid": True, "invalid_reasons": []}


def run(mesh: dict[str, Any], direct: dict[str, Any]) -> dict[str, Any]:
    return {"rate_rps": 7.0, "window_s": 60.0, "seeds": [1, 2], "direct": direct, "mesh": mesh}


def capacity(mesh: dict[str, Any], direct: dict[str, Any]) -> dict[str, Any]:
    point = {"rate_rps": 7.0, "direct": direct, "mesh": mesh}
    return {"capacity_rps": 5.0, "window_s": 60.0, "seeds": [1, 2], "overload": point, "light": point}


def test_each_seed_counts_for_each_goal(tmp_path: Path) -> None:
    good = run(side(0.97, 0.96), side(0.7, 0.8)), capacity(side(1.0, 1.0), side(0.9, 1.0))
    assert [goal.met for goal in goals(list(pairs_of(*good)))] == [True] * 4
    bad = run(side(0.97, 0.95, esg=99.0, ttft_s=1.4), side(0.7, 0.8)), capacity(side(1.0, 0.9), side(0.9, 1.0))
    told = goals(list(pairs_of(*bad)))
    assert [goal.met for goal in told] == [False] * 4
    assert [goal.found for goal in told] == ["in 1 of 2 runs", "in 0 of 2 runs", "in 4 of 6 runs", "in 2 of 4 runs"]
    files = [tmp_path / "run.json", tmp_path / "capacity.json"]
    for file, page in zip(files, bad, strict=True):
        file.write_text(json.dumps(page))
    assert main(["compared", "--files", *map(str, files), "--out", str(tmp_path)]) == 0
    text = (tmp_path / "compared.md").read_text()
    assert text.startswith(render(STUDY.page, **page_of(*bad)).rstrip())
    assert main(["compared", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "compared.md").read_text() == text  # from the figures that the first one wrote
