"""Measures how much CPU time a rehearsal takes: five minutes at 20 requests a second on four engines, by candidate; and
how much longer what serves takes beside one that has to share its core."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles
from subprocess import DEVNULL, PIPE, Popen
from time import perf_counter, process_time, sleep
from typing import Any

from hmas.contracts.control import TopologyName
from hmas.contracts.outcome import Outcome
from hmas.contracts.rehearsal import Policy, PoolEngine, PoolFacts
from hmas.contracts.request import TagSource
from hmas.engine.core.profile import builtin_profile
from hmas.laws.request_rows import RequestRow
from hmas.runtime.priority import LOWEST, weigh_session
from hmas.sim.past.rehearsal import rehearse
from hmas.sim.past.rehearse import MODULE, RehearsalQuestion, question_lines
from hmas.sim.past.replay import Scene
from hmas_lab.sim.sources import WorkloadSpec, build

PROFILE = "qwen3-32b-h100x2"
RATE_RPS, ENGINES = 20.0, 4
FULL_S, SHORT_S = 300.0, 60.0
GOAL_S = 20.0  # of one core for each candidate, over FULL_S
PIECE_S, EVERY_S, PIECES = 0.0028, 0.004, 500  # of work that serves, which takes 0.7 of a core
BUSY = "while True: pass"


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
        *_beside(replayed),
    ]


def _beside(replayed: Scene) -> list[dict[str, Any]]:
    """Returns how much longer pieces of work take, from the instant at which they are due, on a core on which a
    rehearsal runs than alone, and beside a process of the same priority."""
    engine = PoolEngine(max_num_seqs=0, max_model_len=0, kv_capacity_tokens=0, block_size=16)
    facts = PoolFacts(engines=(engine,) * ENGINES, workers=1)
    edf = Policy(topology=TopologyName.EDF)
    question = RehearsalQuestion(
        window_s=replayed.window_s, facts=facts, in_force=replayed.in_force, candidates=(edf,) * 8,
        profile=replayed.profiles[0],
    )  # fmt: skip
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        rounds = _rounds()
        alone = _pieces(rounds)
        with _running([sys.executable, "-m", MODULE], question_lines(question, replayed.rows)) as process:
            weigh_session(process.pid, LOWEST)
            rehearsing = _pieces(rounds)
            assert process.poll() is None, "the rehearsal ended before the measurement did"
        with _running([sys.executable, "-c", BUSY], b""):
            equal = _pieces(rounds)
    finally:
        os.sched_setaffinity(0, before)
    name = "work that takes 0.7 of a core beside a rehearsal on it"
    p99 = quantiles(rehearsing, n=100)[98] / quantiles(alone, n=100)[98]
    return [
        {"name": f"{name}, median over alone", "value": median(rehearsing) / median(alone), "unit": "x",
         "goal": "<= 1.1", "met": median(rehearsing) <= 1.1 * median(alone)},
        {"name": f"{name}, p99 over alone", "value": p99, "unit": "x", "goal": "<= 2", "met": p99 <= 2.0},
        {"name": "the same beside a process of its own priority, p99 over alone",
         "value": quantiles(equal, n=100)[98] / quantiles(alone, n=100)[98], "unit": "x"},
    ]  # fmt: skip


@contextmanager
def _running(command: list[str], asked: bytes) -> Iterator[Popen[bytes]]:
    """Runs a process on the core of this one, in a session of its own as the mesh's processes are, until the end of the
    block. It has three seconds to get to work."""
    with Popen(command, stdin=PIPE, stdout=DEVNULL, start_new_session=True) as process:
        assert process.stdin is not None
        process.stdin.write(asked)
        process.stdin.close()
        sleep(3.0)
        try:
            yield process
        finally:
            process.kill()


def _rounds() -> int:
    """Returns of how many rounds a piece of `PIECE_S` is."""
    rounds = 1_000
    took_s = []
    for _ in range(50):
        began_s = perf_counter()
        _work(rounds)
        took_s.append(perf_counter() - began_s)
    return max(1, round(rounds * PIECE_S / min(took_s)))


def _work(rounds: int) -> int:
    return sum(i * i for i in range(rounds))


def _pieces(rounds: int) -> list[float]:
    """Returns how long after it was due each piece of work is done; between two the process sleeps, as one that serves
    does."""
    found, due_s = [], perf_counter()
    for _ in range(PIECES):
        due_s += EVERY_S
        sleep(max(0.0, due_s - perf_counter()))
        _work(rounds)
        found.append(perf_counter() - due_s)
    return found
