"""The experiment about orders of jobs: its workload, its queue of calls, and its page."""

import gzip
import json
from pathlib import Path
from statistics import fmean

import pytest

from experiments.maestro.measure import ENGINES, LOADS, STRESS_BATCH, SYSTEMS, JobCell, compute
from experiments.maestro.mesh import TABLE
from experiments.maestro.orders import CLAIRVOYANT, EDF, FCFS, MAESTRO, ORACLE, VLLM
from experiments.maestro.workload import PROMPTS, TAU, WHO, job_alone_s, make_jobs
from experiments.pages.template import render
from experiments.report.maestro import STUDY, goals_of, page_of, rows_of
from hmas_loadgen.workflows.applications import APPLICATIONS

ROLES = (
    "Orchestrator", "WebSurfer", "Verification_Expert", "DataAnalysis_Expert", "Assistant", "PythonDebugging_Expert"
)  # fmt: skip


def zipped(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in rows).encode()))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with lengths of answers for every role."""
    folder = tmp_path_factory.mktemp("data")
    steps: list[dict[str, object]] = []
    for n in (20, 50, 100):
        steps += [
            {"role": "assistant", "tokens": n, "tool_calls": [1]}, {"role": "assistant", "tokens": 2 * n},
            {"role": "tool", "tokens": 3 * n},
        ]  # fmt: skip
    zipped(folder / TAU, [{"steps": steps}])
    zipped(folder / WHO, [{"steps": [{"role": name, "tokens": 50 + 100 * i} for name in ROLES for i in range(8)]}])
    for name in PROMPTS:
        rows = [{"response_model": "gpt", "response_tokens": 100 * i} for i in range(1, 9)]
        zipped(folder / "prompts" / f"{name}.jsonl.gz", [*rows, {"response_model": "human", "response_tokens": 9999}])
    return folder


def cell(system: str, **changes: object) -> JobCell:
    return JobCell(kind="run", seconds=60.0, caches=False, load=1.0, seed=1, system=system, **changes)  # type: ignore[arg-type]


def test_jobs_are_the_same_for_a_seed_and_like_the_paper_in_number_and_class(data: Path) -> None:
    profile = cell("").engine
    jobs = make_jobs(data, profile, 5.0, 400.0, 1)
    assert jobs == make_jobs(data, profile, 5.0, 400.0, 1)
    assert {job.template for job in jobs} == set(APPLICATIONS)
    assert 2.8 < fmean(len(job.calls) for job in jobs) < 3.5
    assert 0.5 < fmean(not job.interactive for job in jobs) < 0.68
    assert all(job_alone_s(profile, job) < job.budget_s for job in jobs)
    mostly = make_jobs(data, profile, 5.0, 400.0, 1, STRESS_BATCH)
    assert 0.75 < fmean(not job.interactive for job in mostly) < 0.85


@pytest.mark.parametrize("system", [*SYSTEMS, "hmas-srtf", "hmas-table", "hmas-requests"])
def test_each_system_keeps_all_jobs_where_there_is_room(system: str, data: Path) -> None:
    found = compute(cell(system), 0.1, data)
    assert found["job_goodput"] == 1.0
    assert found["wasted"] == 0.0
    assert 1.0 <= found["busy_ratio"] <= ENGINES


@pytest.mark.long
def test_under_overload_jobs_count_and_no_order_exceeds_the_bound(data: Path) -> None:
    bound = compute(JobCell(kind="bound", seconds=60.0, caches=False, seed=1), 12.0, data)["bound"]
    kept = {s: compute(cell(s), 12.0, data)["job_goodput"] for s in (FCFS, MAESTRO, ORACLE, CLAIRVOYANT)}
    assert kept[FCFS] < kept[MAESTRO] <= bound
    assert kept[CLAIRVOYANT] <= bound < 1.0


def test_cached_prompts_are_found_by_the_jobs_next_calls(data: Path) -> None:
    found = compute(JobCell(kind="run", seconds=60.0, caches=True, seed=1, system=VLLM), 0.5, data)
    assert found["hit"] > 0.2


def test_the_page_says_which_goals_were_missed(tmp_path: Path) -> None:
    figures = dict.fromkeys(("interactive", "batch", "interactive_wait_s", "job_p50_s", "hit", "cpu_s"), 0.5)
    found: list[tuple[JobCell, dict[str, float]]] = []
    goodput = {FCFS: 0.1, EDF: 0.2, MAESTRO: 0.6, ORACLE: 0.7, CLAIRVOYANT: 0.8, "hmas": 0.65, TABLE: 0.66}
    for caches in (False, True):
        found.append((JobCell(kind="capacity", seconds=60.0, caches=caches), {"jobs_per_s": 1.0}))
        for batch, load in [*((None, load) for load in LOADS), (STRESS_BATCH, 2.0)]:
            point = {"seconds": 60.0, "caches": caches, "batch": batch, "load": load, "seed": 1}
            found.append((JobCell(kind="bound", system="bound", **point), {"bound": 0.9}))  # type: ignore[arg-type]
            for system in (*SYSTEMS, TABLE):
                own = {"job_goodput": goodput.get(system, 0.3), "wasted": 0.4, "busy_ratio": 1.0}
                found.append((JobCell(kind="run", system=system, **point), figures | own))  # type: ignore[arg-type]
    reached = {goal.words: goal.met for goal in goals_of(rows_of(found), caches=False)}
    assert reached["FCFS < EDF < Maestro ≤ Oracle-SRTF at 1.4"]
    assert reached["H-MAS is best of all that are not clairvoyant at 1.4"]
    assert not reached["H-MAS closes half of the distance from Maestro to the clairvoyant order at 1.4"]
    assert not reached["H-MAS ≥ 0.9 of the bound at 1.4"]
    assert not reached["H-MAS's forecast is worth more than Eq. 8's medians at 1.4 and 2"]
    rows = rows_of(found)
    text = render(STUDY.page, **page_of(rows, found, 60.0))
    assert "**no**" in text
    assert "`thunderagent` kept as many jobs as `continuum`" in text
    assert "`maestro` kept as many" not in text
    assert {row.workload for row in rows if row.paper} == {
        f"applications-batch-{STRESS_BATCH:g}{suffix}" for suffix in ("", "+cache")
    }
