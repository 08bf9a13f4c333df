"""The page about layouts, live: the engines are those of the page in virtual time; an invalid run proves nothing."""

from dataclasses import replace
from pathlib import Path

from experiments.__main__ import main
from experiments.live.layouts import (
    CHOSEN,
    CHUNK_TOKENS,
    DIRECT,
    MIXED,
    PROFILE,
    STUDY,
    LayoutRun,
    LayoutSetup,
    document_of,
    engine_profile,
    goals,
    page_of,
    profile_text,
)
from experiments.pages.template import render
from experiments.writer import put
from hmas.engine.core.profile import parse_profiles


def run(system: str, seed: int, on_time: float) -> LayoutRun:
    return LayoutRun(
        system=system, seed=seed, on_time=on_time, esg_rate=100.0, ttft_p50_s=0.1, unfinished=3, classes=2,
        lag_p99_s=0.01, reasons=(),
    )  # fmt: skip


SETUP = LayoutSetup(seeds=(1, 2))
RUNS = [run(s, seed, rate) for seed in (1, 2) for s, rate in ((CHOSEN, 0.9), (MIXED, 0.7), (DIRECT, 0.5))]


def test_the_engines_compute_as_many_tokens_a_step_as_in_virtual_time() -> None:
    (profile,) = parse_profiles(profile_text()).values()
    assert profile == replace(engine_profile(), fit=profile.fit)
    assert profile.name == PROFILE
    assert profile.limits.max_num_batched_tokens == CHUNK_TOKENS


def test_goals_are_met_only_by_all_seeds_and_by_valid_runs() -> None:
    assert [goal.met for goal in goals(SETUP, RUNS)] == [True, True, True]
    worse = [replace(r, on_time=0.6) if (r.system, r.seed) == (CHOSEN, 2) else r for r in RUNS]
    assert [goal.met for goal in goals(SETUP, worse)] == [False, True, True]
    invalid = [replace(r, reasons=("late",)) if r.seed == 1 else r for r in RUNS]
    assert [goal.met for goal in goals(SETUP, invalid)] == [None, None, None]
    assert [goal.met for goal in goals(SETUP, [replace(r, reasons=("late",)) for r in RUNS])] == [None] * 3


def test_the_page_is_written_again_from_its_figures(tmp_path: Path) -> None:
    put({"live-layouts.json": document_of(SETUP, RUNS)}, tmp_path, STUDY.name)
    text = render(STUDY.page, **page_of(SETUP, RUNS))
    assert main(["live-layouts", "--pages-only", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "live-layouts.md").read_text().startswith(text.rstrip())
    assert "Chosen ahead of mixed: in 2 of 2 seeds whose runs are all valid: met" in text
