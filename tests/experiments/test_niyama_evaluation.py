"""Niyama's evaluation: workloads as published, violations by its deadlines, the search, the page."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.niyama import evaluation
from experiments.niyama.evaluation import evaluate_all
from experiments.niyama.measure import ALLOWED, QosRun, measure, violated
from experiments.niyama.runs import TOLERANCE, NiyamaRuns, highest_rate
from experiments.niyama.systems import SYSTEMS
from experiments.niyama.workload import CLASSES, INTERACTIVE, QosLoad, build
from experiments.report.niyama import STUDY
from experiments.study import Options
from experiments.writer import write
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.laws.scoring import Settlement
from hmas_lab.sim.cells import CellStore


def test_synthetic_lengths_have_the_published_percentiles_and_classes_come_in_thirds() -> None:
    requests = build(
        QosLoad(source="synthetic", rate_rps=50.0, duration_s=1000.0, seed=3, low_share=0.2), None
    ).requests
    prompts = np.quantile([r.request.prompt_tokens for r in requests], (0.5, 0.9))
    outputs = np.quantile([r.output_tokens for r in requests], (0.5, 0.9))
    assert prompts == pytest.approx((1930, 6251), rel=0.03)
    assert outputs == pytest.approx((8, 43), rel=0.06)
    for name, slo in CLASSES:
        mine = [r for r in requests if r.request.tenant == name]
        assert len(mine) / len(requests) == pytest.approx(1 / 3, abs=0.01)
        assert {r.slo for r in mine} == {slo}
        assert np.mean([r.request.priority for r in mine]) == pytest.approx(0.2, abs=0.02)


def test_diurnal_arrivals_alternate_every_quarter_of_an_hour() -> None:
    arrivals = np.array(
        [
            r.request.arrival_s
            for r in build(
                QosLoad(source="synthetic", rate_rps=2.0, duration_s=3600.0, seed=1, peak_rps=6.0), None
            ).requests
        ]
    )
    rates = np.histogram(arrivals, bins=4, range=(0, 3600))[0] / 900
    assert rates == pytest.approx([2, 6, 2, 6], rel=0.1)


def test_a_recorded_source_needs_the_data_folder() -> None:
    with pytest.raises(ValueError, match="--data"):
        build(QosLoad(source="azure-2023-code", rate_rps=1.0, duration_s=10.0, seed=1), None)


def settled(slo: Slo, ttft_s: float | None, last_s: float | None, tokens: int = 11) -> Settlement:
    outcome = Outcome.FINISHED if last_s is not None else Outcome.TIMED_OUT
    tpot_s = None if ttft_s is None or last_s is None else (last_s - ttft_s) / (tokens - 1)
    return Settlement(
        request_id="r",
        tenant="t",
        task=TaskType.UNKNOWN,
        model="m",
        outcome=outcome,
        slo=slo,
        prompt_tokens=10,
        output_tokens=tokens,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        last_token_s=last_s,
        offered_s=0.0,
    )


@pytest.mark.parametrize(
    ("slo", "ttft_s", "last_s", "late"),
    [
        (INTERACTIVE, 5.9, 6.5, False),
        (INTERACTIVE, 1.0, 6.5, False),  # what the first token came early may be used up (Eq. 2)
        (INTERACTIVE, 1.0, 6.6, True),  # the last of eleven is due at 6.5
        (INTERACTIVE, 6.1, 6.4, True),
        (INTERACTIVE, 3.0, None, True),
        (CLASSES[1][1], 590.0, 599.0, False),
        (CLASSES[1][1], 1.0, 601.0, True),
        (CLASSES[1][1], 1.0, None, True),
    ],
)
def test_violations_are_those_of_the_cumulative_deadlines(
    slo: Slo, ttft_s: float | None, last_s: float | None, late: bool
) -> None:
    assert violated(settled(slo, ttft_s, last_s)) is late


@pytest.mark.parametrize("limit", [0.4, 2.71, 9.0])
def test_the_search_finds_the_highest_rate(limit: float) -> None:
    found = highest_rate(lambda rate: 1.0 if rate <= limit else 0.5, 2.0)
    assert limit / (1 + TOLERANCE) <= found <= limit


def test_the_search_says_when_nothing_helps() -> None:
    with pytest.raises(ValueError, match="in 16 runs"):
        highest_rate(lambda rate: 0.0, 2.0)


def test_a_run_tells_shares_that_agree_with_each_other() -> None:
    found = measure(
        QosRun("sarathi-srpf", QosLoad(source="synthetic", rate_rps=9.0, duration_s=120.0, seed=1, low_share=0.5)), None
    )
    assert found["all"] > ALLOWED
    assert found["long"] > found["short"]
    assert min(found["important"], found["low"]) <= found["all"] <= max(found["important"], found["low"])
    assert sum(found["classes"].values()) / 3 == pytest.approx(found["all"], abs=0.05)


def test_a_hopeless_run_is_given_up_early() -> None:
    load = QosLoad(source="synthetic", rate_rps=60.0, duration_s=120.0, seed=1)
    whole, given_up = (measure(QosRun("sarathi-fcfs", load, hopeless), None) for hopeless in (False, True))
    assert given_up["all"] > ALLOWED
    assert given_up["steps"] < whole["steps"] / 2


def test_finished_runs_are_not_made_again(tmp_path: Path) -> None:
    told: list[str] = []
    for _ in range(2):
        runs = NiyamaRuns(CellStore(tmp_path, lambda _: "code"), None, told.append)
        runs(QosRun("niyama", QosLoad(source="synthetic", rate_rps=2.0, duration_s=20.0, seed=1)))
    assert len(told) == 1


def test_relegation_saves_what_can_be_saved() -> None:
    """At twice what the engine can do: the interactive class lives."""
    load = QosLoad(source="synthetic", rate_rps=8.0, duration_s=200.0, seed=1)
    edf, niyama = (measure(QosRun(name, load), None) for name in ("sarathi-edf", "niyama"))
    assert niyama["classes"]["Q1"] < 0.02
    assert niyama["all"] <= edf["all"]


def test_important_requests_are_relegated_last() -> None:
    load = QosLoad(source="synthetic", rate_rps=14.0, duration_s=200.0, seed=1, low_share=0.3)
    found = measure(QosRun("niyama", load), None)
    assert found["low"] > 2 * found["important"]


@pytest.mark.long
def test_the_page_says_what_the_runs_gave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "DIURNAL_RUN_S", 20.0)
    found, _ = evaluate_all(tmp_path / "cells", None, 20.0, 1, lambda _: None)
    page, facts = write(STUDY, Options(out=tmp_path, cells=tmp_path / "cells", seconds=20.0), {})
    text = page.read_text()
    assert all(part in text for part in ("Figure 7b", "Table 3", "Figure 9", "Figure 10", "synthetic lengths"))
    assert f"{found[0].goodput['niyama']:.2f}" in text
    document = json.loads(facts.read_text())
    assert document["evaluations"][0]["goodput"] == found[0].goodput
    assert document["evaluations"][0]["loads"]["niyama"]["6.0"]["all"] == found[0].loads["niyama"][6.0]["all"]


def test_every_system_is_there_by_its_name() -> None:
    assert all(name == baseline.name for name, baseline in SYSTEMS.items())
