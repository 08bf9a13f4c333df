"""Measures how fast the simulator runs, and how its cost grows with rate and engines.

With `HMAS_BENCH_FULL=1` it simulates the 1200 s for which the goal is stated, otherwise 60 s of the same load.
"""

import os
from time import perf_counter
from typing import Any

from hmas.engine.core.profile import builtin_profile
from hmas.sim.bound import upper_bound
from hmas.sim.sources import WorkloadSpec, build
from hmas.sim.systems import run_system

PROFILE = "qwen3-32b-h100x2"
RATE_RPS, ENGINES = 50.0, 8
FULL_S, SHORT_S = 1200.0, 60.0
GOAL_RATIO = 20.0  # 1200 s in 60 s


def _run(system: str, rate_rps: float, engines: int, duration_s: float) -> tuple[float, float, int]:
    """Simulates one system and returns (wall seconds, virtual seconds, number of requests)."""
    profile = builtin_profile(PROFILE)
    workload = build(WorkloadSpec(kind="mix", duration_s=duration_s), rate_rps, 1).fitting(profile)
    started = perf_counter()
    result = run_system(system, workload, profile, engines, 1)
    return perf_counter() - started, result.run.ended_s, len(workload.requests)


def rows() -> list[dict[str, Any]]:
    duration_s = FULL_S if os.environ.get("HMAS_BENCH_FULL") else SHORT_S
    base_s, virtual_s, requests = _run("hmas", RATE_RPS, ENGINES, duration_s)
    ratio = duration_s / base_s
    doubled_rate_s, _, twice = _run("hmas", 2 * RATE_RPS, 2 * ENGINES, duration_s)
    doubled_engines_s, _, _ = _run("hmas", RATE_RPS, 2 * ENGINES, duration_s)
    fleet_s, _, _ = _run("vllm", RATE_RPS, ENGINES, duration_s)
    per_request = (doubled_rate_s / twice) / (base_s / requests)
    profile = builtin_profile(PROFILE)
    workload = build(WorkloadSpec(kind="mix", duration_s=duration_s), RATE_RPS, 1).fitting(profile)
    started = perf_counter()
    upper_bound(workload, profile, ENGINES)
    bound_s = perf_counter() - started
    return [
        {
            "name": f"sim: mesh, {RATE_RPS:g} req/s, {ENGINES} engines, {duration_s:g} s offered",
            "value": ratio,
            "unit": "x real time",
            "goal": f">= {GOAL_RATIO:g}",
            "met": ratio >= GOAL_RATIO,
        },
        {"name": "sim: mesh, virtual over wall, with the drain", "value": virtual_s / base_s, "unit": "x real time"},
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
