"""What cognition is worth: conclusions follow from the runs, and chance is called chance."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.pages.carried import present_commit
from experiments.pages.paired import paired
from experiments.report.worth import STUDY
from experiments.study import Options
from experiments.worth import COGNITION, INSTANT, cells_of_worth, closings, knowledge, masking, rows_of
from experiments.writer import write
from hmas.contracts.request import TaskType
from hmas.sim.workload import Workload
from hmas_lab.sim.cells import Cell, CellStore
from hmas_lab.sim.experiment import Experiment
from hmas_lab.sim.sources import WorkloadSpec
from tests.sim.sim_cases import offered

MIX, STATED = WorkloadSpec(kind="mix", duration_s=8.0), WorkloadSpec(kind="mix", duration_s=8.0, stated=True)
EXPERIMENT = Experiment(
    name="worth", title="Worth", page="worth", profile="tiny-emulated", engines=1, workloads=(MIX, STATED),
    systems=(*COGNITION.values(), INSTANT), loads=(0.8, 1.4), seeds=(1, 2, 3),
)  # fmt: skip
RATES = {"hmas-perfect": 0.9, "hmas": 0.85, "hmas-rules": 0.7, "hmas-prior": 0.6, "hmas-none": 0.5, INSTANT: 0.86}
CHANCE = (0.0, 0.01, -0.01)  # by seed


def write_page(experiment: Experiment, store: CellStore, out: Path) -> list[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("experiments.report.worth.experiment_of", lambda options: experiment)
        return write(STUDY, Options(out=out), store)


def _stored(folder: Path, rates: dict[str, float], masked: int = 995) -> CellStore:
    """Runs of these goodput rates; where SLOs are stated, perfect knowledge is ahead on some seeds only."""
    store = CellStore(folder / "cells")
    for cell in cells_of_worth(EXPERIMENT):
        rate = rates[cell.system] + CHANCE[cell.seed - 1]
        if cell.workload.stated and cell.system == "hmas-perfect":
            rate = rates["hmas-prior"] + 5 * CHANCE[cell.seed - 1]
        counts = {"granted": 1000, "masked": masked, "waited": 1000, "waited_masked": masked}
        counts |= {"late_granted": 300, "late_masked": 299}
        figures = {"score": {"goodput_rate": rate, "esg_rate": 1000 * rate}, "run": counts}
        store.put(cell, figures | {"cpu_s": 6.0})
        store.put(cell.capacity, {"rate_rps": 2.0, "cpu_s": 1.0})
    return store


def test_a_difference_is_told_from_chance_seed_by_seed() -> None:
    assert not paired((0.5, 0.7, 0.9), (0.4, 0.61, 0.8)).noise
    assert paired((0.5, 0.7, 0.9), (0.6, 0.5, 0.9)).noise
    assert paired((0.9,), (0.1,)).noise  # one seed tells nothing
    found = paired((1.0, 2.0, 3.0), (0.0, 0.0, 0.0))
    assert found.mean == 2.0
    assert found.half == pytest.approx(4.303 / 3**0.5, rel=1e-3)


def test_the_share_is_that_of_the_distance_from_the_prior_to_perfect_knowledge(tmp_path: Path) -> None:
    rows, missing, cpu_s = rows_of(EXPERIMENT, _stored(tmp_path, RATES), "c1")
    assert not missing
    assert cpu_s == 6.0 * len(cells_of_worth(EXPERIMENT))
    shares = {(c.load, c.stated): c.share for c in closings(rows)}
    assert shares[1.4, False] == pytest.approx((0.85 - 0.6) / (0.9 - 0.6))
    assert shares[1.4, True] is None
    assert [m.late_cost.mean for m in masking(rows)] == pytest.approx([0.01, 0.01])


def test_the_page_says_what_the_runs_say(tmp_path: Path) -> None:
    page, facts, late = write_page(EXPERIMENT, _stored(tmp_path, RATES), tmp_path / "out")
    text = page.read_text()
    assert "close 83% of the distance" in text
    assert "goal ≥ 60%: met" in text
    assert "worth nothing, within what the seeds can tell, in 2 of 4 settings:\n\n- mix at 0.8 λ* (stated)" in text
    assert "gain more than chance in 4 of 4 settings:\n\n- mix at 0.8 λ* (tagged, +15.0 ± 0.0 points)\n" in text
    assert "They lose more than chance in none of 4 settings." in text
    assert "from 1.1 λ* on: met, 1 of 1 settings have it" in text
    assert "late annotations cost goodput at mix 1.4 λ*" in text
    assert facts.read_text().count('"cognition"') == 2 * 2 * 5
    assert late.read_text().count('"masked"') == 2
    worse = _stored(tmp_path / "worse", RATES | {"hmas": 0.65}, masked=700)
    text = write_page(EXPERIMENT, worse, tmp_path / "out")[0].read_text()
    assert "goal ≥ 60%: **not met**" in text
    assert "They lose more than chance in 4 of 4 settings:\n\n- mix at 0.8 λ* (tagged, -5.0 ± 0.0 points)\n" in text
    assert "from 1.1 λ* on: **not met**" in text
    assert "last third of the window 1 of 1 settings have it (mean 99.7 %, least 99.7 % on mix" in text
    none = _stored(tmp_path / "none", RATES | {"hmas-perfect": 0.6})
    assert "cognition is worth nothing here" in write_page(EXPERIMENT, none, tmp_path / "out")[0].read_text()


def test_what_is_not_run_anew_stands_with_its_commit(tmp_path: Path) -> None:
    write_page(EXPERIMENT, _stored(tmp_path / "old", RATES), tmp_path)
    facts = tmp_path / "worth.json"
    facts.write_text(facts.read_text().replace(present_commit(), "c0"))
    again = replace(EXPERIMENT, loads=(1.4,))
    store, new = CellStore(tmp_path / "cells"), _stored(tmp_path / "new", RATES | {"hmas": 0.65})
    for cell in cells_of_worth(again):
        store.put(cell, {k: v for k, v in (new.get(cell) or {}).items() if k != "cell"})
    page = write_page(EXPERIMENT, store, tmp_path)[0].read_text()
    rows = {(r["load"], r["commit"]): r for r in json.loads(facts.read_text()) if r["cognition"] == "shipped"}
    assert {key: round(row["goodput_rate"], 2) for key, row in rows.items()} == {
        (0.8, "c0"): 0.85, (1.4, present_commit()): 0.65,
    }  # fmt: skip
    assert "10 of 20 rows were computed by earlier code (c0)" in page


def test_what_was_not_run_is_named(tmp_path: Path) -> None:
    store = CellStore(tmp_path / "cells")
    text = write_page(EXPERIMENT, store, tmp_path / "out")[0].read_text()
    assert "Not run: 66 runs" in text
    assert "Masking in overload: not measured." in text


def test_runs_without_delay_are_made_where_no_slo_is_stated_only() -> None:
    cells = cells_of_worth(EXPERIMENT)
    assert {c.workload.stated for c in cells if c.system == INSTANT} == {False}
    assert len({c.capacity for c in cells}) == 1
    assert isinstance(cells[0], Cell)


def test_knowledge_is_what_the_predictions_explain() -> None:
    rows = [offered(i, 0.0, 50, 10 * 2 ** (i % 5)) for i in range(130)]
    exact = tuple(replace(r, recorded=(r.task, 0.9, 2.0 * r.output_tokens + 1.0, 1e4)) for r in rows)
    known = knowledge(Workload("w", exact, 1.0))
    assert (known.accuracy, known.prompts) == (1.0, 130)
    assert known.bias == pytest.approx(0.693, abs=0.01)
    assert (known.sd, known.r2, known.r2_in_type) == pytest.approx((0.0, 1.0, 1.0), abs=1e-9)
    by_type = tuple(replace(r, recorded=(TaskType.QA, 0.9, 10.0 + list(TaskType).index(r.task), 1e4)) for r in rows)
    guess = knowledge(Workload("w", by_type, 1.0))
    assert guess.accuracy == pytest.approx(1 / 13)
    assert guess.r2_in_type == 0.0
