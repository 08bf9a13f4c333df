"""The page of the vLLM that is short of memory, from made runs."""

from dataclasses import replace

from benchmarks.vllm.memory import (
    FROZEN,
    LOADS,
    MOVING,
    PLAIN,
    SHIPPED,
    SIMULATED,
    MemoryRun,
    MemorySetting,
    differences,
    page,
    verdicts,
)
from hmas.mesh.compare.workload import SloFactors
from hmas_lab.sim.systems import system_names

RATES = {PLAIN: 0.3, SHIPPED: 0.8, MOVING: 0.82, FROZEN: 0.7}


def runs(**errors: float) -> list[MemoryRun]:
    """One run of each system and load; `errors` are those of its prediction, by its name in the simulator."""
    return [
        MemoryRun(
            system=system, load=load, seed=1, goodput_rate=rate, tpot_compliance=0.9, ttft_p50_s=0.5, preemptions=7,
            slower=1.25, predicted=rate + errors.get(SIMULATED[system].name.replace("-", "_"), 0.0), valid=True,
        )
        for load in LOADS
        for system, rate in RATES.items()
    ]  # fmt: skip


def test_each_system_has_its_like_in_the_simulator() -> None:
    assert set(SIMULATED) == set(RATES)
    assert {system.name for system in SIMULATED.values()} <= set(system_names())


def test_order_and_values_are_judged() -> None:
    right, _ = verdicts(runs(hmas=-0.01))
    assert "mesh, moving > mesh > mesh, frozen > plain vLLM: the same" in right
    assert "Largest error of a value: -1.0 points (mesh; goal at most 5: holds)" in right
    wrong, _ = verdicts(runs(hmas_frozen=0.2))
    assert "another one" in wrong
    assert "Largest error of a value: +20.0 points (mesh, frozen; goal at most 5: does not hold)" in wrong
    assert verdicts([]) == []


def test_the_order_of_systems_that_differ_by_chance_is_not_judged() -> None:
    seeds = [replace(run, seed=seed) for seed in (1, 2) for run in runs(hmas=-0.6)]
    told, _ = verdicts(seeds)
    assert "6 pairs differ by more than chance, seed by seed; of these, 4 predicted with the same one ahead." in told
    noisy = [replace(run, goodput_rate=0.5 if run.seed == 2 else run.goodput_rate) for run in seeds]
    assert "No two systems differ by more than chance" in verdicts(noisy)[0]


def test_the_page_has_means_and_each_run() -> None:
    text = page(MemorySetting(SloFactors(1.1, 0.5), 2.0), 60.0, runs())
    assert "| 1.2 λ* | plain vLLM | 0.300 | 0.300 | 7 |" in text
    assert "| 1.4 λ* | 1 | mesh, moving | 0.820 | 0.820 | 0.900 | 0.50 | 7 | × 1.25 |" in text
    assert "- all runs are valid" in text
    assert "**2.00 req/s**" in text
    assert "--num-gpu-blocks-override 160" in text


def test_the_mesh_is_compared_seed_by_seed_where_all_runs_are_valid() -> None:
    second = [replace(run, seed=2, goodput_rate=run.goodput_rate + 0.01) for run in runs()]
    third = [replace(run, seed=3, goodput_rate=0.0, valid=run.system != FROZEN) for run in runs()]
    line, _ = differences([*runs(), *second, *third])
    assert line.startswith("1.2 λ*, 2 seeds: the mesh +10.0 ± 0.0 points against mesh, frozen and +50.0 ± 0.0 points")
    assert "plain vLLM preempts 7 times a run" in line
    assert "memory is not short here" in differences([replace(run, preemptions=0) for run in runs()])[0]


def test_the_page_names_invalid_runs() -> None:
    made = [replace(run, valid=run.system != FROZEN or run.load != LOADS[0]) for run in runs()]
    text = page(MemorySetting(SloFactors(1.1, 0.5), 2.0), 60.0, made)
    assert "**invalid runs**: mesh, frozen at 1.2 λ*, seed 1" in text
