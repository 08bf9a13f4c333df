"""The study of the order of hand-overs: what its systems are, what it offers, and what its goals say."""

from pathlib import Path
from statistics import fmean

import pytest

from experiments.study import Figures, Options
from experiments.transfers import (
    CHUNKS,
    FCFS,
    INSTANT,
    KAPPAS,
    LOADS,
    MOT,
    STOCK,
    SYSTEMS,
    WHOLE,
    TransferCell,
    TransferRow,
    goals_of,
    offered_to,
    page_of,
    prefill_s,
    rows_of,
    setup_of,
)
from hmas.engine.named import named_profile

PROFILE = named_profile("qwen3-32b-h100x2")


def rows(chunks: float, whole: float = 0.74, behind_fcfs: float = 0.42) -> list[TransferRow]:
    """Stock engines keep .7 behind MaxOnTime and .4 behind FCFS."""
    shares = dict.fromkeys(SYSTEMS, 0.9) | {
        (MOT, STOCK): 0.7, (MOT, CHUNKS): chunks, (MOT, WHOLE): whole, (FCFS, STOCK): 0.4, (FCFS, CHUNKS): behind_fcfs,
    }  # fmt: skip
    return [
        TransferRow(kappa, load, *system, (share,))
        for kappa in KAPPAS for load in LOADS for system, share in shares.items()
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("figures", "met"),
    [
        (rows(0.85), [True, True, True, True]),
        (rows(0.79), [False, True, True, False]),
        (rows(0.69), [False, True, False, False]),
        (rows(0.85, whole=0.72), [True, False, True, True]),
        (rows(0.85, behind_fcfs=0.5), [True, True, True, None]),
    ],
)
def test_goals(figures: list[TransferRow], met: list[bool | None]) -> None:
    assert [goal.met for goal in goals_of(figures)] == met


def test_without_a_run_nothing_is_judged() -> None:
    assert [goal.met for goal in goals_of([])] == [None] * 4


def test_a_load_has_rows_once_all_systems_have_a_seed() -> None:
    found = {(0.47, 0.8, *system): {"share": 0.5} for system in SYSTEMS}

    class Found:
        def get(self, cell: TransferCell) -> Figures | None:
            return found.get((cell.kappa, cell.load, cell.queue, cell.reads)) if cell.seed == 1 else None

    options = Options(seeds=2, data=Path("data"))
    assert [(row.queue, row.reads) for row in rows_of(options, Found())] == list(SYSTEMS)
    assert page_of(rows_of(options, Found()), options, Found())["loads"] == 1
    del found[0.47, 0.8, MOT, CHUNKS]
    assert rows_of(options, Found()) == []


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    lines = [f"{n / 20},{500 + 37 * (n % 400)},{20 + n % 50}" for n in range(20_000)]
    path.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *lines]))
    return str(path)


@pytest.mark.parametrize(("kappa", "load"), [(0.47, 0.8), (0.94, 1.2)])
def test_what_is_offered_has_the_load_and_the_links_that_it_says(trace: str, kappa: float, load: float) -> None:
    cell = TransferCell(kappa=kappa, load=load, queue=MOT, reads=STOCK, seed=1, file=trace)
    workload, tokens_per_s = offered_to(cell, PROFILE)
    own_s = [prefill_s(PROFILE, each.request.prompt_tokens) for each in workload.requests]
    moved_s = [each.request.prompt_tokens / tokens_per_s for each in workload.requests]
    assert sum(own_s) / workload.duration_s / 4 == pytest.approx(load, rel=0.15)
    assert sum(moved_s) / sum(own_s) == pytest.approx(kappa, rel=0.05)
    tight = [
        each.slo.ttft_s / (own + moved) < 5 for each, own, moved in zip(workload.requests, own_s, moved_s, strict=True)
    ]
    assert fmean(tight) == pytest.approx(0.5, abs=0.12)


def test_the_systems_are_set_as_they_are_called() -> None:
    made = {
        system: setup_of(
            TransferCell(kappa=0.47, load=0.8, queue=system[0], reads=system[1], seed=1, file=""), PROFILE, 9.0
        )
        for system in SYSTEMS
    }
    assert {system[0] for system, setup in made.items() if setup.pin is not None} == {FCFS}
    assert {system[1] for system, setup in made.items() if setup.pools[0].kv_chunked is None} == {STOCK, INSTANT}
    assert {system[1] for system, setup in made.items() if setup.pools[0].kv_tokens_per_s > 9.0} == {INSTANT}
