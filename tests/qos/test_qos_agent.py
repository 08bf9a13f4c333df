import math
from dataclasses import fields, is_dataclass, replace
from statistics import fmean, linear_regression
from typing import Any

import pytest

from hmas.contracts.control_agents import (
    EpochGranted,
    EpochLost,
    GatewayReported,
    KeepPast,
    PastRestored,
    PublishLong,
    PublishShort,
    QosEffect,
    TimerTicked,
    WorkerReported,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.past import OPEN_FROM
from hmas.contracts.request import Slo, TaskType
from hmas.contracts.telemetry import (
    FirstTokenSeen,
    GatewayTelemetry,
    RequestDispatched,
    RequestFinished,
    RequestOffered,
    RequestSettled,
)
from hmas.contracts.views import Tail, VLong, VShort
from hmas.laws.request_rows import unpack
from hmas.qos.agent import QosAgent
from hmas.qos.agent.config import QosConfig
from hmas.qos.agent.shares import OTHER
from tests.builders.telemetry import (
    engine_sample,
    first_token_seen,
    request_finished,
    request_queued,
    request_settled,
    worker_telemetry,
)

SLO = Slo(4.0, 0.07)
SAMPLE = engine_sample(
    running=3, kv_usage=0.5, kv_capacity_tokens=1000, prefill_tokens_per_s=300.0, decode_tokens_per_s=200.0, n_run=8,
    b_token=8, utilisation=0.6,
)  # fmt: skip


def telemetry(worker: str = "w", pool: str = "m", **changes: Any) -> WorkerReported:
    base = worker_telemetry(worker, pool=pool, engines=(SAMPLE,))
    return WorkerReported(replace(base, **changes))


def gateway(offered: tuple[RequestOffered, ...] = (), settled: tuple[RequestSettled, ...] = ()) -> GatewayReported:
    return GatewayReported(GatewayTelemetry("g", "m", offered, settled))


def settled(name: str = "r", tenant: str = "a", **changes: Any) -> RequestSettled:
    base = request_settled(name, tenant=tenant, slo=SLO)
    return replace(base, **changes)


def finished(name: str, **changes: Any) -> RequestFinished:
    base = request_finished(name)
    return replace(base, **changes)


def first_token(name: str, ttft_s: float) -> FirstTokenSeen:
    return first_token_seen(name, ttft_s=ttft_s)


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
    queued = tuple(request_queued(f"o{i}", age_s=0.05) for i in range(10))
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
        *(
            settled(name, outcome=Outcome.CANCELLED, ttft_s=None, tpot_s=None, last_token_s=None, withdrawn_s=left_s)
            for name, left_s in (("stopped", SLO.ttft_s), ("gave-up", SLO.ttft_s + 0.25))
        ),
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
    for view in (short_of(effects), long_of(effects)):
        assert (view.ttft, view.tpot) == (Tail(), Tail())
        assert (view.violation_rate, view.ttft_violation_rate, view.tpot_violation_rate) == (0.0, 0.0, 0.0)
    assert (short_of(effects).kv_usage, short_of(effects).utilisation, long_of(effects).stated_share) == (0.0, 0.0, 0.0)
    assert_finite(short_of(effects))
    assert_finite(long_of(effects))


def test_a_standby_aggregates_in_silence_and_goes_on_from_there() -> None:
    agent = QosAgent(QosConfig())
    agent.step(0.0, gateway(settled=(settled(ttft_s=9.0),)))
    assert agent.step(0.3, TimerTicked()) == []
    (standby,), _ = agent.views()
    assert (standby.violation_rate, standby.epoch) == (1.0, 0)
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
    assert seqs == list(range(1, len(seqs) + 1))


def test_oldest_wait_follows_dispatch_settlement_and_an_emptied_queue() -> None:
    agent = granted()
    rows = tuple(request_queued(f"q{i}", prompt_tokens=10, predicted_output_tokens=10.0) for i in range(3))
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


def test_a_settled_request_waits_at_no_worker() -> None:
    agent = granted()
    row = request_queued("q")
    for worker in ("v", "w"):
        agent.step(0.0, telemetry(worker, queued_count=2, queued=(row,)))
    assert short_of(agent.step(1.0, TimerTicked())).oldest_wait_s == 1.0
    agent.step(1.1, gateway(settled=(settled("q"),)))
    assert short_of(agent.step(1.5, TimerTicked())).oldest_wait_s == 0.0


def test_before_a_request_was_predicted_prompts_alone_arrive() -> None:
    agent = granted()
    agent.step(0.0, gateway((RequestOffered(request_id="o", tenant="a", prompt_tokens=100, age_s=0.0),)))
    assert short_of(agent.step(1.0, TimerTicked())).arriving_tokens_per_s == pytest.approx(100.0)


def test_the_kv_memory_of_engines_that_do_not_tell_its_size_weighs_the_same() -> None:
    agent = granted()
    samples = tuple(
        replace(SAMPLE, engine=f"e{i}", kv_usage=usage, kv_capacity_tokens=0) for i, usage in enumerate((0.2, 0.6))
    )
    agent.step(0.0, telemetry(engines=samples))
    assert short_of(agent.step(0.3, TimerTicked())).kv_usage == pytest.approx(0.4)


def test_an_engine_that_was_not_heard_within_the_window_did_nothing_in_it() -> None:
    agent = granted(worker_lost_after_s=60.0)
    agent.step(0.0, telemetry(engines=(replace(SAMPLE, b_saturated=1),)))
    view = short_of(agent.step(10.0, TimerTicked()))
    (engine,) = view.engines
    assert (engine.utilisation, engine.b_saturated, engine.goodput_tokens_per_s) == (0.0, 0, 0.0)
    assert (view.served_tokens_per_s, view.utilisation) == (0.0, 0.0)
    assert engine.running == SAMPLE.running, "of its last report"


@pytest.mark.parametrize(("ttft_s", "tpot_s", "counts"), [(4.0, 0.07, True), (4.01, 0.07, False), (4.0, 0.071, False)])
def test_an_answer_at_its_very_slos_is_in_time(ttft_s: float, tpot_s: float, counts: bool) -> None:
    agent = granted()
    agent.step(0.0, telemetry(first_tokens=(first_token("r", ttft_s),)))
    agent.step(0.1, telemetry(finished=(finished("r", output_tokens=50, tpot_s=tpot_s, tpot_slo_s=0.07),)))
    (engine,) = short_of(agent.step(1.0, TimerTicked())).engines
    assert (engine.goodput_tokens_per_s > 0.0) is counts


def test_an_answer_has_a_time_per_token_from_two_tokens_on() -> None:
    agent = granted()
    ends = tuple(finished(f"r{tokens}", output_tokens=tokens) for tokens in (1, 2, 3))
    agent.step(0.0, telemetry())
    agent.step(1.0, telemetry(finished=ends))
    agent.step(1.0, gateway(settled=tuple(settled(f"r{tokens}", output_tokens=tokens) for tokens in (1, 2, 3))))
    effects = agent.step(5.0, TimerTicked())
    assert (short_of(effects).tpot.count, long_of(effects).tpot.count) == (2, 2)


def test_an_answer_that_is_not_streamed_has_no_time_per_token_and_is_not_called_in_time() -> None:
    agent = granted()
    agent.step(0.0, telemetry())
    agent.step(1.0, telemetry(finished=(finished("whole", tpot_s=0.0),)))
    agent.step(1.0, gateway(settled=(settled("whole", tpot_s=0.0),)))
    view = short_of(agent.step(1.5, TimerTicked()))
    assert (view.tpot.count, view.engines[0].goodput_tokens_per_s) == (0, 0.0)
    agent.step(1.6, telemetry(finished=(finished("one", output_tokens=1, tpot_s=0.0),)))
    assert short_of(agent.step(2.0, TimerTicked())).engines[0].goodput_tokens_per_s > 0.0
    assert long_of(agent.step(5.0, TimerTicked())).tpot.count == 0


def slope(rows: list[tuple[int, float]], floor: float) -> float:
    """The slope of a line through (bucket of five seconds, value) per minute, over their mean or the floor."""
    return linear_regression(*zip(*rows, strict=True)).slope * 12.0 / max(fmean(y for _, y in rows), floor)


def test_each_trend_is_of_its_own_series_and_of_closed_buckets_alone() -> None:
    agent = granted()
    offers = [0, 0, 1, 0, 0, 1, 1, 1, 1, 2, 1, 9]  # less than one a bucket; the last is still being filled
    prompts = [0, 0, 1, 0, 0, 1, 1, 1, 2, 2, 2, 999]
    late = [0, 0, 0, 0, 1, 0, 0, 2, 3, 1, 2, 9]
    judged = [10, 5, 20, 0, 10, 5, 8, 10, 20, 4, 10, 9]  # in each bucket
    for number, (count, prompt, bad) in enumerate(zip(offers, prompts, late, strict=True)):
        now_s = 5.0 * number
        rows = tuple(
            RequestOffered(request_id=f"{number}-{i}", tenant="a", prompt_tokens=prompt, age_s=0.0)
            for i in range(count)
        )
        ends = tuple(settled(f"s{number}-{i}", ttft_s=9.0 if i < bad else 1.0) for i in range(judged[number]))
        agent.step(now_s, gateway(rows, ends))
        effects = agent.step(now_s, TimerTicked())
    view = long_of(effects)
    closed = range(len(offers) - 1)
    assert view.trend_arrival == pytest.approx(slope([(i, offers[i]) for i in closed], 1.0))
    assert view.trend_prompt == pytest.approx(slope([(i, prompts[i]) for i in closed if offers[i]], 1.0))
    assert view.trend_violation == pytest.approx(slope([(i, late[i] / judged[i]) for i in closed if judged[i]], 0.01))


def test_who_holds_the_lease_answers_for_the_pools() -> None:
    agent = QosAgent(QosConfig())
    assert not agent.publishes
    agent.step(0.0, EpochGranted(0))
    assert agent.publishes
    agent.step(1.0, EpochLost())
    assert not agent.publishes


def test_a_new_owner_tells_of_the_past_that_was_kept_and_of_a_pool_that_it_does_not_know_nothing() -> None:
    old, new = granted(), granted()
    offer = RequestOffered(request_id="r", tenant="a", prompt_tokens=100, age_s=0.0)
    old.step(1.0, gateway((offer,)))
    assert [block.number for block in old.past(1.0, "m", 60.0)] == [OPEN_FROM]
    old.step(2.0, gateway(settled=(settled("r"),)))
    (kept,) = [e for e in old.step(6.0, TimerTicked()) if isinstance(e, KeepPast)]
    assert new.past(0.0, "m", 60.0) == []
    new.step(0.0, PastRestored(kept.pool, (kept.block,)))
    assert [block.rows for block in new.past(0.0, "m", 60.0)] == [kept.block.rows]
    assert new.past(0.0, "m", 60.0, first=kept.block.number + 1) == []


def test_late_ticks_make_up_for_nothing_and_do_not_lengthen_the_period() -> None:
    agent = granted(short_every_s=0.25)
    agent.step(0.0, telemetry())

    def told(now_s: float) -> bool:
        return any(isinstance(e, PublishShort) for e in agent.step(now_s, TimerTicked()))

    due = [now_s for now_s in (1.0, 1.2, 1.25, 1.45, 1.5, 9.0, 9.2, 9.25) if told(now_s)]
    assert due == [1.0, 1.25, 1.5, 9.0, 9.25]


@pytest.mark.parametrize("saturated", [-1, 0, 1])
def test_an_engine_is_saturated_at_either_end_of_its_range(saturated: int) -> None:
    agent = granted()
    agent.step(0.0, telemetry(engines=(replace(SAMPLE, b_saturated=saturated),)))
    view = short_of(agent.step(0.3, TimerTicked()))
    assert view.engines[0].b_saturated == saturated
    assert view.served_tokens_per_s == 500.0


def test_an_engine_alone_that_does_not_tell_its_memory_is_as_full_as_it_says() -> None:
    agent = granted()
    agent.step(0.0, telemetry(engines=(replace(SAMPLE, kv_usage=0.25, kv_capacity_tokens=0),)))
    assert short_of(agent.step(0.3, TimerTicked())).kv_usage == 0.25


def test_workers_and_pools_are_forgotten_once_they_were_silent_for_longer_than_their_time() -> None:
    agent = granted(worker_lost_after_s=3.0, pool_forgotten_after_s=8.0)
    agent.step(0.0, telemetry(queued_count=5))
    assert short_of(agent.step(3.0, TimerTicked())).queued == 5
    view = short_of(agent.step(3.25, TimerTicked()))
    assert (view.queued, view.engines, view.oldest_wait_s) == (0, (), 0.0)
    assert short_of(agent.step(8.0, TimerTicked())).pool == "m"
    assert agent.step(8.25, TimerTicked()) == []


def test_waiting_requests_and_late_ones_are_followed_up_to_their_bounds() -> None:
    agent = granted(max_waiting=2, max_late=1)
    rows = tuple(request_queued(f"q{i}", age_s=4.0 - i) for i in range(3))
    agent.step(10.0, telemetry(queued_count=3, queued=rows))
    assert short_of(agent.step(10.0, TimerTicked())).oldest_wait_s == 4.0
    sent = tuple(
        RequestDispatched(request_id=f"q{i}", tenant="a", engine="e", waited_s=1.0, age_s=0.0) for i in range(2)
    )
    agent.step(10.25, telemetry(queued_count=1, dispatched=sent))
    assert short_of(agent.step(10.25, TimerTicked())).oldest_wait_s == 0.0, "the third was one too many"
    agent.step(10.5, telemetry(first_tokens=tuple(first_token(f"q{i}", 9.0) for i in range(2))))
    agent.step(10.5, telemetry(finished=(finished("q1", output_tokens=50),)))
    assert short_of(agent.step(10.5, TimerTicked())).engines[0].goodput_tokens_per_s == 0.0
    agent.step(10.75, telemetry(finished=(finished("q0", output_tokens=50),)))
    engine = short_of(agent.step(10.75, TimerTicked())).engines[0]
    assert engine.goodput_tokens_per_s > 0.0, "of too many late ones the first is forgotten"


def test_a_pool_that_neither_serves_nor_queues_tells_of_no_mismatch() -> None:
    idle = replace(SAMPLE, prefill_tokens_per_s=0.0, decode_tokens_per_s=0.0)
    offer = RequestOffered(request_id="o", tenant="a", prompt_tokens=100, age_s=0.0)

    def mismatch(queued_count: int, decode_tokens_per_s: float = 0.0) -> float:
        agent = granted()
        sample = replace(idle, decode_tokens_per_s=decode_tokens_per_s)
        agent.step(0.0, telemetry(engines=(sample,), queued_count=queued_count))
        agent.step(0.0, gateway((offer,)))
        agent.step(0.25, TimerTicked())
        return long_of(agent.step(5.25, TimerTicked())).mismatch_mean

    assert mismatch(0) == 0.0
    assert mismatch(1) > 0.0
    assert mismatch(0, decode_tokens_per_s=0.5) > 0.0


def test_what_a_worker_tells_of_a_request_is_told_of_its_past_before_its_end() -> None:
    agent = granted()
    agent.step(1.0, gateway((RequestOffered(request_id="r", tenant="a", prompt_tokens=100, age_s=0.0),)))
    agent.step(2.0, telemetry(queued=(request_queued("r", predicted_output_tokens=77.0),)))
    agent.step(2.5, telemetry(first_tokens=(first_token("r", 1.5),)))
    (block,) = agent.past(3.0, "m", 60.0)
    (row,) = unpack(block.rows)
    assert (row.predicted_output_tokens, row.ttft_s, row.outcome) == (77.0, 1.5, None)


def test_violations_weigh_half_as_much_after_each_half_life() -> None:
    agent = granted(long_bucket_s=5.0, smoothing_half_life_s=10.0)
    agent.step(0.0, gateway(settled=tuple(settled(f"late{i}", ttft_s=9.0, tpot_s=0.05) for i in range(3))))
    agent.step(10.0, gateway(settled=(settled("slow", tpot_s=0.09), settled("good"))))
    view = long_of(agent.step(10.0, TimerTicked()))
    weight = 0.5 * 3 + 2
    assert view.violation_rate == pytest.approx((0.5 * 3 + 1) / weight)
    assert view.ttft_violation_rate == pytest.approx(0.5 * 3 / weight)
    assert view.tpot_violation_rate == pytest.approx(1 / weight)


def test_a_late_request_that_ended_takes_no_place_of_those_that_run() -> None:
    agent = granted(max_late=2)
    agent.step(0.0, telemetry(first_tokens=tuple(first_token(name, 9.0) for name in ("r1", "r2"))))
    agent.step(0.1, telemetry(finished=(finished("r2", output_tokens=50),)))
    agent.step(0.2, telemetry(first_tokens=(first_token("r3", 9.0),)))
    agent.step(0.3, telemetry(finished=(finished("r1", output_tokens=50), finished("r3", output_tokens=50))))
    assert short_of(agent.step(1.0, TimerTicked())).engines[0].goodput_tokens_per_s == 0.0
