"""Every figure of V_short and V_long beside its definition, computed plainly from the reports of a few seconds, which
all lie within both windows."""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, floor, log2
from random import Random
from statistics import fmean, pstdev

import pytest

from hmas.contracts.control_agents import EpochGranted, GatewayReported, PublishLong, PublishShort, TimerTicked
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.contracts.telemetry import EngineSample, GatewayTelemetry, RequestOffered, RequestQueued, RequestSettled
from hmas.contracts.views import VLong, VShort
from hmas.laws.scoring import Verdict, verdict
from hmas.qos.agent import QosAgent
from hmas.qos.agent.config import QosConfig
from hmas.qos.agent.long import LongWindow
from hmas.qos.agent.workers import WorkerTrack
from tests.qos.test_qos_agent import SAMPLE, finished, first_token, settled, telemetry

SECONDS = 4.0  # of reports, from 0 on
LONG_S = 5.0  # a window counts as long as one of its buckets at least
WEIGHTS = {"a": 1.0, "b": 3.0, "c": 2.0}
SEEDS = pytest.mark.parametrize("seed", range(4))


@dataclass
class Told:
    """What was reported, in order."""

    offered: list[RequestOffered] = field(default_factory=list)
    settled: list[RequestSettled] = field(default_factory=list)
    queued: list[RequestQueued] = field(default_factory=list)
    ttfts: list[float] = field(default_factory=list)
    tpots: list[float] = field(default_factory=list)
    samples: dict[str, list[EngineSample]] = field(default_factory=dict)
    seen: list[VShort] = field(default_factory=list)

    @property
    def judged(self) -> list[tuple[RequestSettled, Verdict]]:
        return [(row, v) for row in self.settled if (v := verdict(row)).judged]


def some_settled(rng: Random, number: int) -> RequestSettled:
    outcome = rng.choice([Outcome.FINISHED] * 5 + [Outcome.ENGINE_ERROR, Outcome.CANCELLED, Outcome.INVALID_REQUEST])
    came = outcome is Outcome.FINISHED or rng.random() < 0.5
    return settled(
        f"r{number}",
        tenant=rng.choice("abc"),
        task=rng.choice([TaskType.QA, TaskType.DIALOGUE]),
        outcome=outcome,
        slo=Slo(2.0, 0.07),
        prompt_tokens=rng.randint(1, 2000),
        output_tokens=rng.choice([1, 2, 40, 300]) if came else 0,
        predicted_output_tokens=float(rng.randint(1, 300)),
        ttft_s=rng.choice([0.5, 1.0, 3.0]) if came else None,
        tpot_s=rng.choice([0.03, 0.05, 0.09]) if came else None,
        last_token_s=rng.uniform(3.0, 20.0) if came else None,
        relegated=rng.random() < 0.3,
    )


def play(seed: int) -> tuple[Told, VShort, VLong]:
    """Reports at random, ten a second, from two workers with two engines each, and ticks."""
    rng, told, agent = Random(seed), Told(), QosAgent(QosConfig(long_every_s=SECONDS, arrival_reorder_s=0.5))
    agent.step(0.0, EpochGranted(1))
    totals = dict.fromkeys(("e0", "e1", "e2", "e3"), 0)
    for tick in range(int(10 * SECONDS)):
        now_s = tick / 10
        for worker, engines in (("v", ("e0", "e1")), ("w", ("e2", "e3"))):
            samples = []
            for name in engines:
                totals[name] += rng.choice([0, 0, 1])
                sample = replace(
                    SAMPLE, engine=name, up=name != "e3", running=rng.randint(0, 9), kv_usage=rng.random(),
                    kv_capacity_tokens={"e0": 1000, "e1": 3000}.get(name, 2000), utilisation=rng.random(),
                    preemptions_total=totals[name], prefill_tokens_per_s=rng.uniform(0, 900),
                    decode_tokens_per_s=rng.uniform(0, 300),
                )  # fmt: skip
                samples.append(sample)
                told.samples.setdefault(name, []).append(sample)
            queued = [
                RequestQueued(
                    request_id=f"{worker}{tick}", tenant="a", task=TaskType.QA, prompt_tokens=50,
                    predicted_output_tokens=rng.uniform(10, 90), age_s=0.0, waits=False,
                )
            ] * rng.randint(0, 2)  # fmt: skip
            firsts = [first_token(f"{worker}{tick}", rng.uniform(0.1, 4.0))] * rng.randint(0, 1)
            ends = [finished(f"{worker}{tick}", output_tokens=rng.choice([1, 9]), tpot_s=rng.uniform(0.02, 0.2))]
            told.queued += queued
            told.ttfts += [each.ttft_s for each in firsts]
            told.tpots += [each.tpot_s for each in ends if each.output_tokens > 1]
            agent.step(
                now_s,
                telemetry(
                    worker, queued_count=tick % 5, queued_tokens=tick % 7, engines=tuple(samples),
                    queued=tuple(queued), first_tokens=tuple(firsts), finished=tuple(ends),
                ),
            )  # fmt: skip
        offers = [
            RequestOffered(
                request_id=f"r{tick}", tenant=(tenant := rng.choice("abc")), prompt_tokens=rng.randint(1, 70_000),
                age_s=0.05, weight=WEIGHTS[tenant], slo_stated=rng.random() < 0.4,
            )
        ] * rng.randint(0, 2)  # fmt: skip
        ends_told = [some_settled(rng, tick)] if rng.random() < 0.6 else []
        told.offered += offers
        told.settled += ends_told
        agent.step(now_s, GatewayReported(GatewayTelemetry("g", "m", tuple(offers), tuple(ends_told))))
        told.seen += [e.view for e in agent.step(now_s, TimerTicked()) if isinstance(e, PublishShort)]
    effects = agent.step(SECONDS, TimerTicked())
    (short,) = [e.view for e in effects if isinstance(e, PublishShort)]
    (long,) = [e.view for e in effects if isinstance(e, PublishLong)]
    told.seen.append(short)
    return told, short, long


@SEEDS
def test_v_short(seed: int) -> None:
    told, view, _ = play(seed)
    judged = told.judged
    kept = [v for row, v in judged if not row.relegated]
    mean_output = fmean(q.predicted_output_tokens for q in told.queued)
    arriving = (sum(o.prompt_tokens for o in told.offered) + mean_output * len(told.offered)) / SECONDS
    served = sum(fmean(s.prefill_tokens_per_s + s.decode_tokens_per_s for s in rows) for rows in told.samples.values())
    up = [rows for name, rows in told.samples.items() if name != "e3"]
    capacity = sum(rows[-1].kv_capacity_tokens for rows in up)
    figures = {
        "arrival_rps": len(told.offered) / SECONDS,
        "settled_rps": len(told.settled) / SECONDS,
        "kept_rps": len(kept) / SECONDS,
        "violation_rate": fmean(not v.ok for _, v in judged),
        "ttft_violation_rate": fmean(not v.ttft_ok for _, v in judged),
        "tpot_violation_rate": fmean(not v.tpot_ok for _, v in judged),
        "kept_violation_rate": fmean(not v.ok for v in kept),
        "arriving_tokens_per_s": arriving,
        "served_tokens_per_s": served,
        "mismatch": max(0.0, arriving / (served + 1.0) - 1.0),
        "utilisation": fmean(fmean(s.utilisation for s in rows) for rows in up),
        "kv_usage": sum(rows[-1].kv_usage * rows[-1].kv_capacity_tokens for rows in up) / capacity,
        "running": sum(rows[-1].running for rows in told.samples.values()),
        "queued": 2 * ((int(10 * SECONDS) - 1) % 5),
        "queued_tokens": 2 * ((int(10 * SECONDS) - 1) % 7),
    }
    assert {name: getattr(view, name) for name in figures} == pytest.approx(figures)
    assert (view.ttft.count, view.tpot.count) == (len(told.ttfts), len(told.tpots))
    assert view.ttft.p50_s == pytest.approx(sorted(told.ttfts)[(len(told.ttfts) - 1) // 2], rel=0.02)
    assert [(e.worker, e.engine, e.up) for e in view.engines] == [
        ("v", "e0", True), ("v", "e1", True), ("w", "e2", True), ("w", "e3", False),
    ]  # fmt: skip
    for engine in view.engines:
        rows = told.samples[engine.engine]
        assert engine.utilisation == pytest.approx(fmean(s.utilisation for s in rows))
        grown = rows[-1].preemptions_total - rows[0].preemptions_total
        assert engine.preemptions_per_s == pytest.approx(grown / SECONDS)


@SEEDS
def test_v_long(seed: int) -> None:
    told, _, view = play(seed)
    judged = told.judged
    ok = sum(v.ok for _, v in judged)
    prompts = [o.prompt_tokens for o in told.offered]
    outputs = [r.output_tokens for r, _ in judged if r.outcome is Outcome.FINISHED and r.output_tokens]
    work = [r.prompt_tokens + 2.0 * r.predicted_output_tokens for r, _ in judged]
    mismatches = [v.mismatch for v in told.seen if v.served_tokens_per_s > 0.0 or v.queued > 0]
    seconds = [sum(1 for o in told.offered if int(o.request_id[1:]) // 10 == s) for s in range(int(SECONDS))]
    arrivals = [int(o.request_id[1:]) / 10 - 0.05 for o in told.offered]
    settled_by_s = [t for t in sorted(arrivals) if t <= SECONDS - 0.5]
    gaps = [b - a for a, b in pairwise(settled_by_s)]
    figures = {
        "arrival_rps": len(prompts) / LONG_S,
        "arrival_cv": pstdev(gaps) / fmean(gaps),
        "burstiness": max(seconds) / (len(prompts) / SECONDS),
        "prompt_mean": fmean(prompts),
        "prompt_cv": pstdev(prompts) / fmean(prompts),
        "output_mean": fmean(outputs),
        "output_cv": pstdev(outputs) / fmean(outputs),
        "predicted_total_cv": pstdev(work) / fmean(work),
        "goodput": ok / LONG_S,
        "goodput_rate": min(1.0, ok / len(prompts)),
        "esg_rate": sum(v.gain for _, v in judged) / LONG_S,
        "violation_rate": fmean(not v.ok for _, v in judged),  # all in one bucket, so that all weigh the same
        "ttft_violation_rate": fmean(not v.ttft_ok for _, v in judged),
        "tpot_violation_rate": fmean(not v.tpot_ok for _, v in judged),
        "utilisation": fmean(v.utilisation for v in told.seen),
        "mismatch_mean": fmean(mismatches),
        "queued": told.seen[-1].queued,
        "stated_share": fmean(o.slo_stated for o in told.offered),
    }
    assert {name: getattr(view, name) for name in figures} == pytest.approx(figures, rel=1e-6)
    assert view.mismatch_p95 == pytest.approx(sorted(mismatches)[floor(0.95 * (len(mismatches) - 1))], rel=0.02)
    ttfts = sorted(r.ttft_s for r, _ in judged if r.ttft_s is not None)
    tpots = [r.tpot_s for r, _ in judged if r.tpot_s is not None and r.output_tokens > 1]
    assert (view.ttft.count, view.tpot.count) == (len(ttfts), len(tpots))
    for name, values in (("prompt_histogram", prompts), ("output_histogram", outputs)):
        expected = [0] * 12
        for tokens in values:
            expected[min(11, max(0, ceil(log2(tokens / 64))))] += 1
        assert list(getattr(view, name)) == expected
    for share in view.tenants:
        own = [(r, v) for r, v in judged if r.tenant == share.name]
        assert share.weight == WEIGHTS[share.name]
        assert share.offered == sum(o.tenant == share.name for o in told.offered)
        counts = (len(own), sum(v.ok for _, v in own), sum(v.ttft_ok for _, v in own), sum(v.tpot_ok for _, v in own))
        assert (share.settled, share.ok, share.ttft_ok, share.tpot_ok) == counts
        assert share.tokens_served == sum(r.prompt_tokens + 2 * r.output_tokens for r, _ in own if r.output_tokens)
    assert {s.name: s.offered for s in view.tasks} == {s.name: s.settled for s in view.tasks}
    assert sum(s.settled for s in view.tasks) == len(judged)
    served = [s.tokens_served / s.weight for s in view.tenants]
    assert view.jain_index == pytest.approx(sum(served) ** 2 / (len(served) * sum(x * x for x in served)))


def test_before_anything_is_reported_nothing_is_queued() -> None:
    assert LongWindow(QosConfig(), "m").view(3.0, 1, 1).queued == 0
    worker = WorkerTrack(QosConfig(), "w")
    assert (worker.queued, worker.queued_tokens, worker.engines, worker.oldest_wait_s(3.0)) == (0, 0, {}, 0.0)
