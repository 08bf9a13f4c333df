"""Measures how much CPU time a rehearsal takes: five minutes at 20 requests a second on four engines, by candidate."""

import os
from time import process_time
from typing import Any

from hmas.contracts.control import TopologyName
from hmas.contracts.outcome import Outcome
from hmas.contracts.rehearsal import Policy
from hmas.contracts.request import TagSource
from hmas.engine.core.profile import builtin_profile
from hmas.laws.request_rows import RequestRow
from hmas.sim.past_replay import Scene
from hmas.sim.rehearsal import rehearse
from hmas.sim.sources import WorkloadSpec, build

PROFILE = "qwen3-32b-h100x2"
RATE_RPS, ENGINES = 20.0, 4
FULL_S, SHORT_S = 300.0, 60.0
GOAL_S = 20.0  # of one core for each candidate, over FULL_S


def scene(duration_s: float) -> Scene:
    """Returns requests of the mix, each tagged with its true length and answered in time."""
    profile = builtin_profile(PROFILE)
    workload = build(WorkloadSpec(kind="mix", duration_s=duration_s), RATE_RPS, 1).fitting(profile)
    rows = tuple(
        RequestRow(
            arrival_s=r.request.arrival_s - duration_s,
            tenant=r.request.tenant,
            prompt_tokens=r.request.prompt_tokens,
            slo=r.slo,
            max_tokens=r.request.max_tokens,
            task=r.task,
            tagged_by=TagSource.MODEL,
            confidence=0.9,
            predicted_output_tokens=float(r.output_tokens),
            predicted_output_tokens_p90=1.5 * r.output_tokens,
            outcome=Outcome.FINISHED,
            output_tokens=r.output_tokens,
            ttft_s=0.1,
            tpot_s=0.01,
            last_token_s=0.1 + 0.01 * r.output_tokens,
        )
        for r in workload.requests
    )
    policy = Policy(topology=TopologyName.MAX_ON_TIME)
    return Scene(rows=rows, window_s=duration_s, profiles=(profile,) * ENGINES, workers=1, in_force=policy)


def rows() -> list[dict[str, Any]]:
    duration_s = FULL_S if os.environ.get("HMAS_BENCH_FULL") else SHORT_S
    replayed = scene(duration_s)
    began_s = process_time()
    rehearse(replayed, [Policy(topology=TopologyName.EDF)])
    each_s = (process_time() - began_s) / 2.0  # what is in force, and one candidate
    return [
        {
            "name": f"rehearsal: {duration_s:g} s at {RATE_RPS:g} req/s, {ENGINES} engines, CPU per candidate",
            "value": each_s,
            "unit": "s",
            "goal": f"<= {GOAL_S * duration_s / FULL_S:g}",
            "met": each_s <= GOAL_S * duration_s / FULL_S,
        },
        {"name": "rehearsal: CPU per request and run", "value": 1e3 * each_s / len(replayed.rows), "unit": "ms"},
    ]
