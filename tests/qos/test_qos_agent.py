import math
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from hmas.contracts.control_agents import (
    EpochGranted,
    EpochLost,
    GatewayReported,
    KeepPast,
    PublishLong,
    PublishShort,
    QosEffect,
    TimerTicked,
    WorkerReported,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.contracts.telemetry import (
    EngineSample,
    FirstTokenSeen,
    GatewayTelemetry,
    RequestDispatched,
    RequestFinished,
    RequestOffered,
    RequestQueued,
    RequestSettled,
    WorkerTelemetry,
)
from hmas.contracts.views import VLong, VShort
from hmas.qos.agent import QosAgent
from hmas.qos.agent.config import QosConfig
from hmas.qos.agent.shares import OTHER

SLO = Slo(4.0, 0.07)
SAMPLE = EngineSample(
    engine="e", up=True, running=3, waiting=0, kv_usage=0.5, kv_capacity_tokens=1000, preemptions_total=0,
    step_s=0.03, prefill_tokens_per_s=300.0, decode_tokens_per_s=200.0, n_run=8,
    b_token=8, utilisation=0.6, busy=1.0,
)  # fmt: skip


def telemetry(worker: str = "w", pool: str = "m", **changes: Any) -> WorkerReported:
    base = WorkerTelemetry(
        worker=worker,
        pool=pool,
        queued_count=0,
        queued_tokens=0,
        topology="sjf",
        bypass=False,
        control_expired=False,
        engines=(SAMPLE,),
        queued=(),
        dispatched=(),
        first_tokens=(),
        finished=(),
    )
    return WorkerReported(replace(base, **changes))


def gateway(offered: tuple[RequestOffered, ...] = (), settled: tuple[RequestSettled, ...] = ()) -> GatewayReported:
    return GatewayReported(GatewayTelemetry("g", "m", offered, settled))


def settled(name: str = "r", tenant: str = "a", **changes: Any) -> RequestSettled:
    base = RequestSettled(
        request_id=name,
        tenant=tenant,
        task=TaskType.QA,
        outcome=Outcome.FINISHED,
        slo=SLO,
        prompt_tokens=100,
        output_tokens=50,
        predicted_output_tokens=60.0,
        ttft_s=1.0,
        tpot_s=0.05,
        last_token_s=3.45,
        relegated=False,
        age_s=0.0,
    )
    return replace(base, **changes)


def finished(name: str, **changes: Any) -> RequestFinished:
    base = RequestFinished(
        request_id=name,
        tenant="a",
        task=TaskType.QA,
        engine="e",
        outcome=Outcome.FINISHED,
        prompt_tokens=100,
        output_tokens=50,
        predicted_output_tokens_p90=60.0,
        upper_output_tokens=80.0,
        predictor="v1",
        run_s=1.0,
        prefill_s=0.1,
        tpot_s=0.05,
        tpot_slo_s=0.07,
        censored=False,
        age_s=0.0,
    )
    return replace(base, **changes)


def first_token(name: str, ttft_s: float) -> FirstTokenSeen:
    return FirstTokenSeen(
        request_id=name,
        tenant="a",
        task=TaskType.QA,
        engine="e",
        ttft_s=ttft_s,
        prefill_s=0.1,
        ttft_slo_s=4.0,
        age_s=0.0,
    )


def granted(**changes: Any) -> QosAgent:
    agent = QosAgent(QosConfig(**changes))
    assert agent.step(0.0, EpochGranted(7)) == []
    return agent


def short_of(effects: list[QosEffect]) -> VShort:
    (view,) = [e.view for e in effects if isinstance(e, PublishShort)]
    return view


def long_of(effects: list[QosEffect]) -> VLong:
    (view,) = [e.view for e in effects if isinstance(e, PublishLong)]
    return view


def assert_finite(value: object) -> None:
    if isinstance(value, float):
        assert math.isfinite(value)
    elif isinstance(value, tuple):
        for item in value:
            assert_finite(item)
    elif is_dataclass(value):
        for field in fields(value):
            assert_finite(getattr(value, field.name))


def test_cadences_are_250_ms_and_5_s_per_pool() -> None:
    agent = granted()
    agent.step(0.0, telemetry())
    agent.step(0.0, telemetry(worker="x", pool="other-model"))
    shorts, longs = 0, 0
    for tick in range(1, 401):  # 20 s, a tick every 50 ms
        effects = agent.step(tick * 0.05, TimerTicked())
        shorts += sum(isinstance(e, PublishShort) for e in effects)
        longs += sum(isinstance(e, PublishLong) for e in effects)
    assert shorts in range(2 * 79, 2 * 82)
    assert longs == 2 * 4


def test_what_was_relegated_is_no_violation_of_what_was_kept() -> None:
    agent = granted()
    rows = [
        settled("kept"),
        settled("late", ttft_s=9.0),
        *(settled(f"r{i}", ttft_s=99.0, relegated=True) for i in range(8)),
    ]
    agent.step(0.0, gateway(settled=tuple(rows)))
    view = short_of(agent.step(1.0, TimerTicked()))
    assert (view.violation_rate, view.settled_rps) == pytest.approx((0.9, 10.0))
    assert (view.kept_violation_rate, view.kept_rps) == pytest.approx((0.5, 2.0))


def test_short_view_has_the_contract_s_definitions() -> None:
    agent = granted()
    agent.step(
        0.0,
        gateway(tuple(RequestOffered(request_id=f"o{i}", tenant="a", prompt_tokens=100, age_s=0.0) for i in range(10))),
    )
    queued = tuple(
        RequestQueued(
            request_id=f"o{i}",
            tenant="a",
            task=TaskType.QA,
            prompt_tokens=100,
            predicted_output_tokens=60.0,
            age_s=0.05,
        )
        for i in range(10)
    )
    agent.step(0.1, telemetry(queued_count=10, queued_tokens=1000, queued=queued))
    events = tuple(first_token(f"o{i}", 0.5) for i in range(9))
    agent.step(0.2, telemetry(queued_count=1, queued_tokens=100, first_tokens=(*events, first_token("o9", 5.0))))
    agent.step(0.3, telemetry(queued_count=1, queued_tokens=100, finished=(finished("o0"), finished("o9"))))
    agent.step(0.4, gateway(settled=(settled("o0"), settled("o9", ttft_s=5.0))))
    view = short_of(agent.step(1.0, TimerTicked()))
    assert (view.queued, view.queued_tokens, view.running) == (1, 100, 3)
    assert view.arrival_rps == pytest.approx(10.0)
    assert view.arriving_tokens_per_s == pytest.approx(10 * (100 + 60))
    assert view.served_tokens_per_s == pytest.approx(500.0)
    assert view.mismatch == pytest.approx(1600 / 501 - 1)
    assert (view.violation_rate, view.ttft_violation_rate, view.tpot_violation_rate) == (0.5, 0.5, 0.0)
    assert view.ttft.count == 10
    assert view.ttft.p99_s == pytest.approx(0.5, rel=0.02)
    assert view.ttft.p50_s == pytest.approx(0.5, rel=0.02)
    assert view.tpot.count == 2
    assert view.utilisation == pytest.approx(0.6)
    assert view.kv_usage == pytest.approx(0.5)
    assert view.oldest_wait_s == pytest.approx(0.95)
    assert (view.epoch, view.valid_for_s) == (7, 2.0)
    (engine,) = view.engines
    assert engine.goodput_tokens_per_s == pytest.approx(50.0)  # only o0 met both SLOs
    assert_finite(view)


def test_refused_and_failed_count_but_the_client_s_own_fault_does_not() -> None:
    agent = granted()
    rows = (
        settled("shed", outcome=Outcome.POOL_QUEUE_FULL, ttft_s=None, tpot_s=None, last_token_s=None),
        settled("broken", outcome=Outcome.ENGINE_ERROR, ttft_s=None, tpot_s=None, last_token_s=None),
        settled("garbage", outcome=Outcome.INVALID_REQUEST, ttft_s=None, tpot_s=None, last_token_s=None),
        settled("stopped", outcome=Outcome.CANCELLED),
        settled("gave-up", outcome=Outcome.CANCELLED, ttft_s=None, tpot_s=None, last_token_s=None),
        settled("good"),
    )
    agent.step(0.0, gateway(settled=rows))
    view = short_of(agent.step(0.3, TimerTicked()))
    assert view.violation_rate == pytest.approx(3 / 4)  # shed, broken, gave-up of those and good


def test_the_window_slides() -> None:
    agent = granted()
    agent.step(0.0, gateway(settled=(settled(ttft_s=9.0),)))
    assert short_of(agent.step(4.0, TimerTicked())).violation_rate == 1.0
    assert short_of(agent.step(6.0, TimerTicked())).violation_rate == 0.0


def test_views_without_any_request_are_zeros() -> None:
    agent = granted()
    agent.step(0.0, telemetry(engines=()))
    effects = agent.step(5.1, TimerTicked())
    assert (short_of(effects).mismatch, short_of(effects).oldest_wait_s) == (0.0, 0.0)
    assert (long_of(effects).goodput_rate, long_of(effects).jain_index) == (0.0, 1.0)
    assert_finite(short_of(effects))
    assert_finite(long_of(effects))


def test_a_standby_aggregates_in_silence_and_goes_on_from_there() -> None:
    agent = QosAgent(QosConfig())
    agent.step(0.0, gateway(settled=(settled(ttft_s=9.0),)))
    assert agent.step(0.3, TimerTicked()) == []
    assert agent.views()[0][0].violation_rate == 1.0
    agent.step(0.4, EpochGranted(3))
    view = short_of(agent.step(0.8, TimerTicked()))
    assert (view.violation_rate, view.epoch) == (1.0, 3)
    agent.step(0.9, EpochLost())
    assert agent.step(1.5, TimerTicked()) == []


def test_sequence_numbers_grow() -> None:
    agent = granted()
    agent.step(0.0, telemetry())
    seqs = [
        e.view.seq for t in range(1, 60) for e in agent.step(t * 0.25, TimerTicked()) if not isinstance(e, KeepPast)
    ]
    assert seqs == sorted(set(seqs))


def test_oldest_wait_follows_dispatch_settlement_and_an_emptied_queue() -> None:
    agent = granted()
    rows = tuple(
        RequestQueued(
            request_id=f"q{i}", tenant="a", task=TaskType.QA, prompt_tokens=10, predicted_output_tokens=10.0, age_s=0.0
        )
        for i in range(3)
    )
    agent.step(0.0, telemetry(queued_count=3, queued=rows[:1]))
    agent.step(1.0, telemetry(queued_count=3, queued=rows[1:]))
    assert short_of(agent.step(2.0, TimerTicked())).oldest_wait_s == 2.0
    sent = (RequestDispatched(request_id="q0", tenant="a", engine="e", waited_s=2.0, age_s=0.0),)
    agent.step(2.1, telemetry(queued_count=2, dispatched=sent))
    assert short_of(agent.step(3.0, TimerTicked())).oldest_wait_s == 2.0
    agent.step(3.1, gateway(settled=(settled("q1", outcome=Outcome.CANCELLED),)))
    assert short_of(agent.step(4.0, TimerTicked())).oldest_wait_s == 3.0
    agent.step(4.1, telemetry(queued_count=0))
    assert short_of(agent.step(5.0, TimerTicked())).oldest_wait_s == 0.0


def test_a_lost_worker_leaves_the_view() -> None:
    agent = granted()
    agent.step(0.0, telemetry(worker="dead", queued_count=5))
    agent.step(3.0, telemetry(worker="alive", queued_count=1))
    assert short_of(agent.step(3.2, TimerTicked())).queued == 6
    view = short_of(agent.step(4.0, TimerTicked()))
    assert view.queued == 1
    assert [e.worker for e in view.engines] == ["alive"]


def test_saturation_counts_only_when_it_lasted_the_window() -> None:
    agent = granted()
    low, free = replace(SAMPLE, b_saturated=-1), replace(SAMPLE, b_saturated=0)
    for i in range(10):
        agent.step(i * 0.1, telemetry(engines=(low,)))
    assert short_of(agent.step(1.0, TimerTicked())).engines[0].b_saturated == -1
    agent.step(1.1, telemetry(engines=(free,)))
    assert short_of(agent.step(1.3, TimerTicked())).engines[0].b_saturated == 0


def test_preemptions_survive_an_engine_restart() -> None:
    agent = granted()
    for t, total in ((0.0, 100), (0.1, 104), (0.2, 0), (0.3, 2)):
        agent.step(t, telemetry(engines=(replace(SAMPLE, preemptions_total=total),)))
    view = short_of(agent.step(1.0, TimerTicked()))
    assert view.engines[0].preemptions_per_s == pytest.approx(6.0)


def test_long_view() -> None:
    agent = granted()
    agent.step(0.0, telemetry())
    for i in range(100):
        t = i * 0.1
        tenant = "big" if i % 4 else "small"
        offer = RequestOffered(
            request_id=f"r{i}",
            tenant=tenant,
            prompt_tokens=100 if i % 2 else 300,
            age_s=0.0,
            weight=3.0 if tenant == "big" else 1.0,
        )
        late = 9.0 if i >= 50 else 1.0
        agent.step(t, gateway((offer,), (settled(f"r{i}", tenant, ttft_s=late, task=TaskType.DIALOGUE),)))
        agent.step(t, TimerTicked())
    view = long_of(agent.step(10.01, TimerTicked()))
    assert view.arrival_rps == pytest.approx(10.0, rel=0.01)
    assert view.arrival_cv == pytest.approx(0.0, abs=0.01)
    assert view.prompt_mean == pytest.approx(200.0)
    assert view.prompt_cv == pytest.approx(0.5)
    assert sum(view.prompt_histogram) == sum(view.output_histogram) == 100
    assert view.goodput_rate == pytest.approx(0.5)
    assert view.goodput == pytest.approx(5.0, rel=0.01)
    assert view.violation_rate > 0.5  # the recent half weighs more
    assert (view.ttft_violation_rate, view.tpot_violation_rate) == (view.violation_rate, 0.0)
    shares = {s.name: s for s in view.tenants}
    assert (shares["big"].offered, shares["small"].offered) == (75, 25)
    assert (shares["big"].weight, shares["small"].weight) == (3.0, 1.0)
    assert view.jain_index == pytest.approx(1.0)  # 75 to 25 at weights 3 to 1 is even
    assert [s.name for s in view.tasks] == [TaskType.DIALOGUE.value]
    assert_finite(view)


def test_trends_are_relative_slopes_per_minute() -> None:
    agent = granted()
    for i in range(120):
        n = 10 + i // 12  # from 10 to 19 a second within two minutes
        agent.step(
            float(i),
            gateway(
                tuple(RequestOffered(request_id=f"{i}-{k}", tenant="a", prompt_tokens=100, age_s=0.0) for k in range(n))
            ),
        )
        agent.step(float(i), TimerTicked())
    view = long_of(agent.step(125.0, TimerTicked()))
    assert view.trend_arrival == pytest.approx(5.0 / 15.0, rel=0.1)
    assert view.trend_prompt == pytest.approx(0.0, abs=1e-9)


def test_tenants_beyond_the_bound_are_other() -> None:
    agent = granted(max_names=4)
    for i in range(1000):
        agent.step(
            i * 0.001, gateway((RequestOffered(request_id=f"r{i}", tenant=f"tenant-{i}", prompt_tokens=10, age_s=0.0),))
        )
    view = long_of(agent.step(5.1, TimerTicked()))
    assert len(view.tenants) == 5
    assert view.tenants[-1].name == OTHER
    assert sum(s.offered for s in view.tenants) == 1000


def test_pools_are_bounded_and_forgotten() -> None:
    agent = granted(max_pools=2, pool_forgotten_after_s=10.0)
    for name in ("a", "b", "c"):
        agent.step(0.0, telemetry(pool=name))
    assert len([e for e in agent.step(0.3, TimerTicked()) if isinstance(e, PublishShort)]) == 2
    assert agent.step(11.0, TimerTicked()) == []
    agent.step(12.0, telemetry(pool="c"))
    assert short_of(agent.step(12.3, TimerTicked())).pool == "c"
