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
    all_cells,
    day,
    faults,
    rows_of,
    summary_of,
)
from experiments.report.day import write_page
from hmas.engine.core.profile import builtin_profile

NAMES = [regime.name for regime in REGIMES]
BEST, OTHER = FIXED[0].value, FIXED[1].value


def run_of(**on_time: float) -> dict[str, Any]:
    shares = dict.fromkeys(NAMES, 0.8) | {NAMES[int(name[1:])]: share for name, share in on_time.items()}
    return {"on_time": shares, "requests": dict.fromkeys(NAMES, 100), "switches": [], "spans": [], "cpu_s": 30.0}


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
    days = len(SEEDS) * len(VERSIONS) * (len(FIXED) + 1)
    assert len({cell.key() for cell in all_cells(SEEDS, adaptive=True)}) == days


def test_harsher_days_have_more_requests_and_longer_pauses() -> None:
    profile = builtin_profile(PROFILE)
    first, *harsher = (day(profile, 1, REGIMES[3:4], version) for version in VERSIONS.values())
    assert [len(each.requests) / len(first.requests) for each in harsher] == pytest.approx([1.3, 1.7], rel=0.1)
    assert first.duration_s < harsher[0].duration_s < harsher[1].duration_s


def test_a_harsher_day_is_told_by_itself(tmp_path: Path) -> None:
    found = {DayCell(system=name, seed=11): run for name, (run,) in results().items()}
    assert "### Harshest" not in write_page(found, tmp_path)[0].read_text()
    for name, (run,) in results(r2=0.9, r3=0.9, r4=0.9).items():
        found[DayCell(system=name, seed=11, version="harshest")] = run
    text = write_page(found, tmp_path)[0].read_text()
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
    found[DayCell(system=BEST, seed=12)] = run_of()
    page, data = write_page(found, tmp_path)
    text = page.read_text()
    assert "(11)" in text
    assert "**So adaptation has no place on this day**" in text
    assert text.count("**missed**") == 3
    assert "| 11 | 700 | bursts | edf | bandit | +5.0 | -1.0 |" in text
    assert "no clear gain: 2 (there the best candidate had +1.5 points in the median, and at most +1.5)" in text
    assert "by 4.0 points in the median of 2 rehearsals" in text
    body = json.loads(data.read_text())
    assert set(body["summary"]) >= {"best_fixed", "per_regime_best", "adaptive"}
    assert set(body["rows"][0]) == {"regime", "system", "goodput_rate", "sd"}
    with pytest.raises(ValueError, match="no seed"):
        write_page({cell: run for cell, run in found.items() if cell.system != BEST}, tmp_path)


def test_adaptation_is_told_of_each_day_on_which_it_was_run(tmp_path: Path) -> None:
    found = {DayCell(system=name, seed=11): run for name, (run,) in results().items()}
    assert "Not run on first; so its goals are not measured." in write_page(found, tmp_path)[0].read_text()
    switch = {"at_s": 1.0, "regime": NAMES[2], "kind": "outcome", "decision": "edf", "by": "llm", "reason": "x",
              "predicted": 0.05, "observed": 0.04}  # fmt: skip
    harsh = results(run_of(r2=0.9, r3=0.9, r4=0.9) | {"switches": [switch]}, r2=0.9, r3=0.9, r4=0.9)
    for name, (run,) in harsh.items():
        found[DayCell(system=name, seed=11, version="harsher")] = run
    page, data = write_page(found, tmp_path)
    text = page.read_text()
    assert "Not run on first with these seeds." in text
    assert "### Adapted: harsher day\n" in text
    assert text.count("| met |") == 3
    assert "| 11 | 1 | bursts | edf | llm | +5.0 | +4.0 |" in text
    assert [each["version"] for each in json.loads(data.read_text())["switches"]] == ["harsher"]


def test_a_cell_is_another_with_another_parameter() -> None:
    cell = DayCell(system=BEST, seed=1)
    assert len({cell.key(), replace(cell, seed=2).key(), replace(cell, regime_s=100.0).key()}) == 3
