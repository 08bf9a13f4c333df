"""The day of nine regimes: its requests, its judgement and its page."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.day import (
    ADAPTIVE,
    FIXED,
    PROFILE,
    REGIME_S,
    REGIMES,
    SEEDS,
    VERSIONS,
    DayCell,
    DayRow,
    adaptive_cells,
    day,
    faults,
    fixed_cells,
    judged_version,
    rows_of,
    summary_of,
)
from experiments.pages.template import render
from experiments.report.day import STUDY, document_of, page_of
from experiments.writer import put
from hmas.engine.core.profile import builtin_profile


def write_page(found: dict[DayCell, dict[str, Any]], judged: str | None, out: Path) -> list[Path]:
    text = render(STUDY.page, **page_of(found, judged))
    return put({"day.md": text, "day.json": document_of(found, judged)}, out, STUDY.name)


NAMES = [regime.name for regime in REGIMES]
BEST, OTHER = FIXED[0].value, FIXED[1].value


def run_of(**on_time: float) -> dict[str, Any]:
    shares = dict.fromkeys(NAMES, 0.8) | {NAMES[int(name[1:])]: share for name, share in on_time.items()}
    return {"on_time": shares, "requests": dict.fromkeys(NAMES, 100), "switches": [], "spans": [], "cpu_s": 30.0,
            "layouts": [], "n_run": [16, 200.0, 256], "rehearsed_s": 243.0}  # fmt: skip


def results(adaptive: dict[str, Any] | None = None, **other: float) -> dict[str, list[dict[str, Any]]]:
    found = {topology.value: [run_of(r0=0.5)] for topology in FIXED}
    found |= {BEST: [run_of()], OTHER: [run_of(r1=0.2, **other)]}
    return found | ({ADAPTIVE: [adaptive]} if adaptive else {})


def test_there_are_nine_regimes_in_one_run_after_another() -> None:
    assert len(NAMES) == len(set(NAMES)) == 9
    for version in VERSIONS.values():
        assert len(faults(version=version)) == 2
        assert all(fault.at_s % version.each_s == 0.0 for fault in faults(version=version))
        assert all(fault.until_s == fault.at_s + REGIME_S for fault in faults(version=version))
    cells = [*fixed_cells(SEEDS), *(cell for version in VERSIONS for cell in adaptive_cells(version, SEEDS))]
    assert len({cell.key() for cell in cells}) == len(SEEDS) * len(VERSIONS) * (len(FIXED) + 1)


@pytest.mark.long
def test_harsher_days_have_more_requests_and_longer_pauses() -> None:
    profile = builtin_profile(PROFILE)
    first, *harsher = (day(profile, 1, REGIMES[3:4], version) for version in VERSIONS.values())
    assert [len(each.requests) / len(first.requests) for each in harsher] == pytest.approx([1.3, 1.7], rel=0.1)
    assert first.duration_s < harsher[0].duration_s < harsher[1].duration_s


def test_a_harsher_day_is_told_by_itself(tmp_path: Path) -> None:
    found = {DayCell(system=name, seed=11): run for name, (run,) in results().items()}
    assert "### Harshest" not in write_page(found, None, tmp_path)[0].read_text()
    for name, (run,) in results(r2=0.9, r3=0.9, r4=0.9).items():
        found[DayCell(system=name, seed=11, version="harshest")] = run
    text = write_page(found, None, tmp_path)[0].read_text()
    assert "### Harshest: 1.7 times the load, 240 s between two regimes (seed 11)" in text
    assert f"in 3 of 9 regimes ({', '.join(NAMES[2:5])})." in text


def test_the_best_fixed_topology_is_that_of_the_day_and_not_of_a_regime() -> None:
    summary = summary_of(rows_of(results(r5=0.9, r6=0.81)))
    assert summary.best_topology == BEST
    assert summary.places == [NAMES[5]]
    assert summary.losses[NAMES[6]] == pytest.approx(0.01)
    assert summary.per_regime_best == pytest.approx(summary.best_fixed + 0.11 / 9)
    assert (summary.adaptive, summary.closed, summary.worst) == (None, None, None)


def test_adaptation_is_judged_by_the_distance_that_it_closes_and_by_its_worst_regime() -> None:
    summary = summary_of(rows_of(results(run_of(r5=0.9, r2=0.77), r5=0.9)))
    assert summary.closed == pytest.approx((0.1 - 0.03) / 0.1)
    assert summary.worst == pytest.approx(-0.03)


def test_without_a_fixed_topology_there_is_nothing_to_judge_by() -> None:
    with pytest.raises(ValueError, match="no fixed topology"):
        summary_of([DayRow(regime="calm", system=ADAPTIVE, goodput_rate=1.0, sd=0.0)])


def test_the_page_has_the_seeds_that_all_have_and_says_what_was_missed(tmp_path: Path) -> None:
    switch = {
        "at_s": 700.0, "regime": NAMES[2], "kind": "outcome", "decision": "edf", "by": "bandit", "reason": "x",
        "predicted": 0.05, "observed": -0.01,
    }  # fmt: skip
    told = {
        "edf by rules: -7.0 points predicted (-9 to -5); sjf by llm: +1.5 points predicted (0 to 3)": 4.0,
        "wfq by bandit: -30.0 points predicted (-35 to -25)": 2.0,
    }
    reasons = [f"no clear gain: {gains}; the simulation misses by {by} points" for gains, by in told.items()]
    unclear = [switch | {"kind": "rejected", "predicted": None, "reason": reason} for reason in reasons]
    found = {}
    for system, (run,) in results(run_of(r2=0.77), r5=0.9).items():
        found[DayCell(system=system, seed=11)] = run | ({"switches": [switch, *unclear]} if system == ADAPTIVE else {})
    decided = switch | {"kind": "decided", "observed": None}
    taken_back = [decided | {"at_s": 800.0}, decided | {"at_s": 831.0, "kind": "rolled_back", "predicted": None}]
    found[DayCell(system=ADAPTIVE, seed=11)]["switches"] = [decided | {"at_s": 580.0}, switch, *taken_back, *unclear]
    found[DayCell(system=BEST, seed=12)] = run_of()
    page, data = write_page(found, None, tmp_path)
    text = page.read_text()
    assert "(11)" in text
    assert "**So adaptation has no place on this day.**" in text
    assert "**Runs of the fixed topologies are missing, so that adaptation is not judged; it ships off.**" in text
    of_all = {replace(cell, version=version): run for cell, run in found.items() for version in VERSIONS}
    whole = write_page(of_all, None, tmp_path / "whole")[0].read_text()
    assert "**No version of the day has a place for adaptation, so it ships off.**" in whole
    assert text.count("**missed**") == 3
    assert "| 11 | 580 | bursts | edf | bandit | +5.0 | -1.0 points |" in text
    assert "| 11 | 800 | bursts | edf | bandit | +5.0 | rolled back after 31 s |" in text
    assert "would have taken 10 % of one core" in text
    assert "no clear gain: 2 (there the best candidate had +1.5 points in the median, and at most +1.5)" in text
    assert "by 4.0 points in the median of 2 rehearsals" in text
    body = json.loads(data.read_text())
    assert set(body["summary"]) >= {"best_fixed", "per_regime_best", "adaptive"}
    assert set(body["rows"][0]) == {"regime", "system", "goodput_rate", "sd"}
    with pytest.raises(ValueError, match="no seed"):
        write_page({cell: run for cell, run in found.items() if cell.system != BEST}, None, tmp_path)


def test_adaptation_is_judged_on_the_first_day_that_has_a_place_for_it(tmp_path: Path) -> None:
    seeds = SEEDS[:1]
    found = {DayCell(system=name, seed=seeds[0]): run for name, (run,) in results().items()}
    harsh = results(r2=0.9, r3=0.9, r4=0.9)
    for version in ("harsher", "harshest"):
        for name, (run,) in harsh.items():
            found[DayCell(system=name, seed=seeds[0], version=version)] = run
    assert judged_version(found, seeds) == "harsher"
    assert judged_version(found, SEEDS[:2]) is None
    assert "On the harsher day it was not run" in write_page(found, "harsher", tmp_path)[0].read_text()
    switch = {"at_s": 1.0, "regime": NAMES[2], "kind": "decided", "decision": "edf", "by": "llm", "reason": "x",
              "predicted": 0.05, "observed": None}  # fmt: skip
    run = run_of(r2=0.9, r3=0.9, r4=0.9) | {"switches": [switch, switch | {"kind": "outcome", "observed": 0.04}]}
    found[DayCell(system=ADAPTIVE, seed=seeds[0], version="harsher")] = run
    page, data = write_page(found, "harsher", tmp_path)
    text = page.read_text()
    assert "### Adapted: harsher day\n" in text
    assert "**On the harsher day it meets 3 of 3 goals.** The best topology of each regime is 3.3 points above" in text
    assert text.count("| met |") == 3
    assert "| 41 | 1 | bursts | edf | llm | +5.0 | +4.0 points |" in text
    body = json.loads(data.read_text())
    assert {each["version"] for each in body["switches"]} == {"harsher"}
    assert body["judged"] == "harsher"
    assert set(body["harsher"]) == {"harsher", "harshest"}


def test_a_cell_is_another_with_another_parameter() -> None:
    cell = DayCell(system=BEST, seed=1)
    assert len({cell.key(), replace(cell, seed=2).key(), replace(cell, regime_s=100.0).key()}) == 3
