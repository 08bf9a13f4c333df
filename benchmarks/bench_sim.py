"""Measures how fast the simulator runs, with all seven agents and the cognition that ships, and how its cost grows with
rate and engines. Times are those of the processor, because a shared machine has no other that mean anything.

With `HMAS_BENCH_FULL=1` it simulates 1200 s, otherwise 60 s of the same load.
"""

import os
from time import process_time
from typing import Any

from hmas.engine.core.profile import builtin_profile
from hmas.sim.workload import Workload
from hmas_lab.sim.bound import upper_bound
from hmas_lab.sim.sources import WorkloadSpec, build
from hmas_lab.sim.systems import HMAS, needs_prompts, read_by, run_system

PROFILE = "qwen3-32b-h100x2"
RATE_RPS, ENGINES = 50.0, 8
FULL_S, SHORT_S = 1200.0, 60.0
GOAL_RATIO = 15.0
LEAST_SHARE = 0.7  # of the speed without cognition


def _workload(system: str, rate_rps: float, duration_s: float) -> Workload:
    """Returns the workload as the system's perception reads it, which happens once, before any run."""
    spec = WorkloadSpec(kind="mix", duration_s=duration_s)
    workload = build(spec, rate_rps, 1, prompts=needs_prompts(system))
    return read_by(system, workload.fitting(builtin_profile(PROFILE)))


def _run(system: str, rate_rps: float, engines: int, duration_s: float) -> tuple[float, float, int]:
    """Simulates one system and returns (seconds of the processor, virtual seconds, number of requests)."""
    workload = _workload(system, rate_rps, duration_s)
    started = process_time()
    result = run_system(system, workload, builtin_profile(PROFILE), engines, 1)
    return process_time() - started, result.run.ended_s, len(workload.requests)


def rows() -> list[dict[str, Any]]:
    duration_s = FULL_S if os.environ.get("HMAS_BENCH_FULL") else SHORT_S
    base_s, virtual_s, requests = _run(HMAS, RATE_RPS, ENGINES, duration_s)
    ratio = duration_s / base_s
    without_s, _, _ = _run("hmas-none", RATE_RPS, ENGINES, duration_s)
    doubled_rate_s, _, twice = _run(HMAS, 2 * RATE_RPS, 2 * ENGINES, duration_s)
    doubled_engines_s, _, _ = _run(HMAS, RATE_RPS, 2 * ENGINES, duration_s)
    fleet_s, _, _ = _run("vllm", RATE_RPS, ENGINES, duration_s)
    per_request = (doubled_rate_s / twice) / (base_s / requests)
    workload = _workload("vllm", RATE_RPS, duration_s)
    started = process_time()
    upper_bound(workload, builtin_profile(PROFILE), ENGINES)
    bound_s = process_time() - started
    return [
        {
            "name": f"sim: seven agents, {RATE_RPS:g} req/s, {ENGINES} engines, {duration_s:g} s in {base_s:.1f} s",
            "value": ratio,
            "unit": "x real time",
            "goal": f">= {GOAL_RATIO:g}",
            "met": ratio >= GOAL_RATIO,
        },
        {
            "name": "sim: speed with cognition to that without",
            "value": without_s / base_s,
            "unit": "x",
            "goal": f">= {LEAST_SHARE:g}",
            "met": without_s / base_s >= LEAST_SHARE,
        },
        {"name": "sim: mesh, virtual over real, with the drain", "value": virtual_s / base_s, "unit": "x real time"},
        {
            "name": "sim: cost per request at twice the rate and engines",
            "value": per_request,
            "unit": "x (1 is linear)",
            "goal": "<= 1.5",
            "met": per_request <= 1.5,
        },
        {"name": "sim: cost at twice the engines", "value": doubled_engines_s / base_s, "unit": "x"},
        {"name": "sim: vLLM fleet, same load", "value": duration_s / fleet_s, "unit": "x real time"},
        {"name": "sim: upper bound", "value": 1e6 * bound_s / requests, "unit": "us/request"},
    ]
