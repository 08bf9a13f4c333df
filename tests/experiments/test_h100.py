"""The page about a vLLM on an H100: made from its files, and these agree with one another."""

import csv
import json
from pathlib import Path
from shutil import copy

import pytest

from experiments.h100 import POINTS, PROFILE, RATES_RPS, SIDES, STUDY
from experiments.study import Options
from experiments.writer import write

RESULTS = Path(__file__).parents[2] / "docs/results"
ROWS = "h100-chunks.json"
MEASURED = [f"h100-{rate:g}.json" for rate in RATES_RPS]


def test_the_page_is_that_of_its_figures(tmp_path: Path) -> None:
    for name in (PROFILE, POINTS, ROWS, *MEASURED):
        copy(RESULTS / name, tmp_path)
    page, *_ = write(STUDY, Options(seeds=3, out=tmp_path), {})
    assert page.read_text() == (RESULTS / "h100.md").read_text()


@pytest.mark.parametrize("name", MEASURED)
def test_the_requests_are_those_of_the_shares(name: str) -> None:
    compared = json.loads((RESULTS / name).read_text())
    with (RESULTS / name).with_suffix(".csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for side in SIDES:
        for seed, run in zip(compared["seeds"], compared[side]["runs"], strict=True):
            own = [int(row["on_time"]) for row in rows if (row["side"], row["seed"]) == (side, str(seed))]
            assert len(own) == run["offered"]
            assert sum(own) / len(own) == pytest.approx(run["goodput_rate"])


def test_an_invalid_run_is_told(tmp_path: Path) -> None:
    for name in (PROFILE, POINTS, ROWS, *MEASURED):
        copy(RESULTS / name, tmp_path)
    spoilt = json.loads((tmp_path / MEASURED[0]).read_text())
    spoilt["mesh"]["invalid_reasons"] = ["the generator was late"]
    (tmp_path / MEASURED[0]).chmod(0o644)
    (tmp_path / MEASURED[0]).write_text(json.dumps(spoilt))
    page, *_ = write(STUDY, Options(seeds=3, out=tmp_path), {})
    assert "Invalid: the generator was late." in page.read_text()
