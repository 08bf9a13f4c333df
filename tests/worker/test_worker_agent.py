"""Event scripts and the exact effects they must have."""

from dataclasses import replace

from hmas.contracts.control import (
    Fence,
    FenceBucket,
    FenceTable,
    TopologyName,
    TupleReceived,
)
from hmas.contracts.execution import Grant, Started, Timeline
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Request, Slo, TaskType
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.contracts.worker import (
    ControlExpired,
    CycleTicked,
    EngineWentDown,
    FromGateway,
    HeartbeatDue,
    PublishHeartbeat,
    PublishTelemetry,
    SteerEngine,
    ToGateway,
    TopologySwitched,
    TopologyUnknown,
    WorkerEffect,
    WorkerEvent,
)
from hmas.laws.slo import tightest_tpot_s
from hmas.worker.agent.agent import WorkerConfig
from tests.builders.control import control_tuple, engine_control, topology_received
from tests.worker.builders import (
    ENGINE,
    Scripted,
    annotation,
    dispatched,
    engine,
    granted,
    refused,
    request,
    sampled,
    stopped,
)

CONFIG = WorkerConfig(worker="w1", incarnation="i1", address="host:1", pool="m", static_n_run=2)


def worker(*engines: str, config: WorkerConfig = CONFIG, **changes: object) -> Scripted:
    return Scripted(config, *(engine(name, **changes) for name in engines))


def submit(agent: Scripted, *requests: Request, now_s: float = 0.0) -> list[WorkerEffect]:
    return agent.submit(now_s, *requests)


def many(count: int, **fields: object) -> list[Request]:
    return [request(f"r{i}", arrival_s=float(i), **fields) for i in range(1, count + 1)]  # type: ignore[arg-type]


def decide(topology: TopologyName, *, bypass: bool = False, seq: int = 1, epoch: int = 1) -> WorkerEvent:
    return topology_received(topology, bypass=bypass, seq=seq, epoch=epoch)


def tune(
    n_run: int = 2,
    b_token: int = 8,
    *,
    b_min: int = 1,
    fence: Fence | None = None,
    seq: int = 1,
    gain: float = 4.0,
    epoch: int = 1,
) -> WorkerEvent:
    control = engine_control(n_run=n_run, b_token=b_token, b_min=b_min, b_max=8, gain_b=gain, u_low=0.5, u_high=0.8)
    return TupleReceived(
        control_tuple(engines=(control,), fence=fence or Fence(), epoch=epoch, seq=seq, valid_for_s=2.0)
    )


def telemetry(effects: list[WorkerEffect]) -> WorkerTelemetry:
    (found,) = [e.telemetry for e in effects if isinstance(e, PublishTelemetry)]
    return found


def test_the_engine_is_told_the_pace_that_the_request_may_turn_out_to_need() -> None:
    agent, unknown = worker("e1"), replace(request("r1", slo=Slo(6.0, 0.1)), slo_stated=False)
    (sent,) = granted(submit(agent, unknown))
    assert sent.pace_s == tightest_tpot_s(unknown.importance) < 0.1
    whole = request("r2", slo=Slo(6.0, 0.1, 9.0, whole=True))
    (sent,) = granted(submit(agent, whole, now_s=0.1))
    assert sent.pace_s is None


def test_a_request_walks_through() -> None:
    agent = worker("e1")
    agent.mute = True
    timeline = Timeline(
        engine="e1", topology="fcfs", queued_s=0.0, queue_length=0, overtaken=0, switches=0,
        upper_output_tokens=600.0, relegated=False,
    )  # fmt: skip
    grant = Grant(request_id="r1", attempt=1, grant=1, engine="e1", urgency=9.5, pace_s=0.1, timeline=timeline)
    assert submit(agent, request("r1", arrival_s=9.5), now_s=10.0) == [ToGateway("g1", grant)]
    assert agent.step(10.01, FromGateway("g1", Started("r1", 1))) == []
    assert agent.annotate(10.1, "r1", annotation(5.0)) == []
    assert agent.first_token(10.5, "r1") == []
    assert agent.progress(10.6, "r1", 3) == []
    assert agent.finish(10.75, "r1", 6) == []
    report = telemetry(agent.step(10.8, CycleTicked()))
    assert [q.request_id for q in report.queued] == ["r1"]
    assert report.queued[0].task is TaskType.QA
    assert [(d.request_id, d.engine, d.waited_s) for d in report.dispatched] == [("r1", "e1", 0.0)]
    (seen,) = report.first_tokens
    assert (seen.ttft_s, seen.prefill_s) == (1.0, 0.5)
    (done,) = report.finished
    assert (done.output_tokens, done.predictor, done.run_s) == (6, "v1", 0.75)
    assert (done.upper_output_tokens, done.prefill_s, round(done.tpot_s, 9), done.censored) == (
        10.0, 0.5, 0.05, False,
    )  # fmt: skip
    assert round(done.age_s, 9) == 0.05


def test_answers_that_turn_out_shorter_than_predicted_correct_the_predictions_to_come() -> None:
    agent = worker("e1", config=replace(CONFIG, static_n_run=64))
    for n in range(64):
        submit(agent, request(f"r{n}"), now_s=float(n))
        agent.annotate(n + 0.1, f"r{n}", annotation(800.0))
        agent.finish(n + 0.5, f"r{n}", 80)
    agent.step(64.0, CycleTicked())
    submit(agent, request("new"), now_s=65.0)
    agent.annotate(65.1, "new", annotation(400.0))
    (queued,) = [q for q in telemetry(agent.step(70.0, CycleTicked())).queued if q.request_id == "new"]
    assert queued.predicted_output_tokens < 80.0


def test_nothing_waits_for_an_annotation_and_late_tags_reorder_the_queue() -> None:
    agent = worker("e1", config=replace(CONFIG, static_n_run=1))
    agent.step(0.0, decide(TopologyName.SJF))
    assert dispatched(submit(agent, *many(3))) == [("r1", "e1")]
    agent.annotate(0.1, "r3", annotation(1.0))
    assert dispatched(agent.finish(0.2, "r1", 1)) == [("r3", "e1")]


def test_concurrency_is_capped_and_the_least_loaded_engine_is_chosen() -> None:
    agent = worker("e1", "e2")
    assert dispatched(submit(agent, *many(6))) == [("r1", "e1"), ("r2", "e2"), ("r3", "e1"), ("r4", "e2")]
    assert dispatched(agent.finish(1.0, "r2", 1)) == [("r5", "e2")]


def test_a_pump_is_bounded_and_the_next_event_goes_on() -> None:
    agent = worker(config=replace(CONFIG, static_n_run=10, max_grants_per_pump=3))
    agent.mute = True
    submit(agent, *many(8))
    assert len(dispatched(agent.up(1.0, engine()))) == 3
    assert len(dispatched(agent.step(1.1, CycleTicked()))) == 3
    assert len(dispatched(agent.step(1.2, CycleTicked()))) == 2


def test_head_of_line_waits_for_memory_and_blocks_what_would_fit() -> None:
    agent = worker("e1", kv_capacity_tokens=1000, config=replace(CONFIG, static_n_run=8))
    tight = [request("big", prompt_tokens=600, max_tokens=10, arrival_s=1.0)]
    tight += [request("next", prompt_tokens=600, max_tokens=10, arrival_s=2.0)]
    tight += [request("small", prompt_tokens=10, max_tokens=10, arrival_s=3.0)]
    assert dispatched(submit(agent, *tight)) == [("big", "e1")]
    assert dispatched(agent.finish(1.0, "big", 5)) == [("next", "e1"), ("small", "e1")]


def test_what_can_never_fit_is_refused_at_once_with_the_numbers() -> None:
    agent = worker("e1", "e2", kv_capacity_tokens=1000)
    (refusal,) = refused(submit(agent, request("huge", prompt_tokens=960)))
    assert (refusal.outcome, refusal.retry_after_s) == (Outcome.NEVER_FITS, None)
    assert "960" in refusal.message
    assert "944 tokens" in refusal.message  # 59 whole blocks of 16 in 950
    assert dispatched(submit(agent, request("fits", prompt_tokens=940))) == [("fits", "e1")]


def test_unknown_capacity_means_no_fence() -> None:
    agent = worker("e1", kv_capacity_tokens=0, max_model_len=0, config=replace(CONFIG, static_n_run=8))
    assert len(dispatched(submit(agent, *many(8, prompt_tokens=10**6)))) == 8


def test_a_full_queue_refuses_with_a_time_to_come_back() -> None:
    agent = worker("e1", config=replace(CONFIG, max_queued=1, static_n_run=1))
    first, second, third = many(3)
    submit(agent, first, second)
    (refusal,) = refused(submit(agent, third))
    assert refusal.outcome is Outcome.POOL_QUEUE_FULL
    assert refusal.retry_after_s is not None
    assert refusal.retry_after_s >= 1.0


def test_retry_after_follows_backlog_over_measured_speed() -> None:
    config = replace(CONFIG, max_queued=10, static_n_run=1)
    agent = worker("e1", config=config)
    agent.step(0.0, CycleTicked())
    submit(agent, *many(11))  # one runs, ten wait
    now = 0.0
    for tick in range(1, 5):  # one request of T_tot 1.1 s every 2.2 s: half speed
        rid = f"r{tick}"
        agent.annotate(now, rid, annotation(50.0))
        for other in range(5, 12):
            agent.annotate(now, f"r{other}", annotation(50.0))
        now += 2.2
        agent.finish(now - 1e-3, rid, 50)
        agent.step(now, CycleTicked())
    submit(agent, *[request(f"x{i}") for i in range(4)], now_s=now)
    for i in range(4):
        agent.annotate(now, f"x{i}", annotation(50.0))
    (refusal,) = refused(submit(agent, request("y"), now_s=now))
    assert refusal.retry_after_s is not None
    assert abs(refusal.retry_after_s - 10 * 1.1 / 0.5) < 2.0


def test_a_retryable_failure_goes_to_the_other_engine_once_and_before_the_rest() -> None:
    agent = worker("e1", "e2", config=replace(CONFIG, static_n_run=1))
    submit(agent, *many(4))
    assert agent.fail(1.0, "r1", "refused") == []
    # e1 is free, but r1 may go only to e2 and nothing overtakes it.
    assert dispatched(agent.finish(2.0, "r2")) == [("r1", "e2"), ("r3", "e1")]
    (refusal,) = refused(agent.fail(3.0, "r1", "again"))
    assert (refusal.outcome, refusal.attempt, refusal.message) == (Outcome.ENGINE_ERROR, 1, "again")


def test_an_engine_without_room_is_asked_again_in_the_same_order_as_long_as_patience_lasts() -> None:
    agent = worker("e1", config=replace(CONFIG, static_n_run=1))
    submit(agent, *many(2))
    assert agent.fail(1.0, "r1", busy=True) == []
    assert dispatched(agent.step(1.05, CycleTicked())) == []
    assert dispatched(agent.step(1.2, CycleTicked())) == [("r1", "e1")]
    (refusal,) = refused(agent.fail(1.0 + CONFIG.no_engine_patience_s, "r1", "queue full", busy=True))
    assert (refusal.outcome, refusal.message) == (Outcome.ENGINE_ERROR, "queue full")


def test_what_one_engine_has_no_room_for_goes_to_another() -> None:
    agent = worker("e1", "e2", config=replace(CONFIG, static_n_run=2))
    submit(agent, request("r1"))
    assert dispatched(agent.fail(1.0, "r1", busy=True)) == [("r1", "e2")]
    assert dispatched(agent.fail(1.0, "r1", busy=True)) == []
    assert dispatched(agent.step(1.2, CycleTicked())) == [("r1", "e1")]


def test_an_end_that_is_not_retryable_is_final_and_answered_with_nothing() -> None:
    agent = worker("e1", "e2")
    submit(agent, request("r1"))
    agent.first_token(0.5, "r1")
    assert agent.fail(1.0, "r1", "cut", output_tokens=3, retryable=False) == []
    (ended,) = telemetry(agent.step(1.1, CycleTicked())).finished
    assert (ended.outcome, ended.output_tokens, ended.censored) == (Outcome.ENGINE_ERROR, 3, True)


def test_an_engine_that_goes_down_keeps_the_queue_and_gets_it_back() -> None:
    agent = worker("e1", config=replace(CONFIG, static_n_run=2))
    submit(agent, *many(3))
    agent.first_token(0.5, "r2")
    (stop,) = stopped(agent.step(1.0, EngineWentDown("e1", "no answer")))
    assert (stop.request_id, stop.grant) == ("r1", agent.grants["r1"].grant)
    assert "no answer" in stop.reason
    assert agent.up(1.2, ENGINE) == [SteerEngine("e1", 2, 2)]  # both of its slots are taken until told otherwise
    assert dispatched(agent.fail(1.5, "r1", stop.reason)) == [("r1", "e1")]
    assert dispatched(agent.fail(1.6, "r2", "cut", output_tokens=4, retryable=False)) == [("r3", "e1")]


def test_without_engines_the_queue_waits_its_patience_out() -> None:
    agent = worker()
    submit(agent, *many(2))
    assert refused(agent.step(9.9, CycleTicked())) == []
    found = refused(agent.step(10.0, CycleTicked()))
    assert [(r.request_id, r.outcome) for r in found] == [("r1", Outcome.NO_ENGINE), ("r2", Outcome.NO_ENGINE)]
    (late,) = refused(submit(agent, request("r9"), now_s=11.0))
    assert late.outcome is Outcome.NO_ENGINE


def test_a_head_only_a_dead_engine_could_take_blocks_nobody() -> None:
    agent = worker("e1", max_model_len=1000)
    agent.up(0.0, engine("large", max_model_len=9000))
    agent.step(1.0, EngineWentDown("large", "gone"))
    effects = submit(agent, request("long", prompt_tokens=5000), request("short"), now_s=2.0)
    assert [(r.request_id, r.outcome) for r in refused(effects)] == [("long", Outcome.NO_ENGINE)]
    assert dispatched(effects) == [("short", "e1")]


def test_a_switch_reorders_what_waits() -> None:
    agent = worker("e1", config=replace(CONFIG, static_n_run=1))
    submit(agent, request("r0"), *many(3))
    for rid, tokens in (("r1", 90.0), ("r2", 10.0), ("r3", 50.0)):
        agent.annotate(0.0, rid, annotation(tokens))
    effects = agent.step(1.0, decide(TopologyName.SJF))
    assert effects == [TopologySwitched(TopologyName.FCFS, TopologyName.SJF, 3, "why")]
    assert agent.step(1.5, decide(TopologyName.SJF)) == []  # repeated to renew it
    order = [dispatched(agent.finish(2.0, rid, 1))[0][0] for rid in ("r0", "r2", "r3")]
    assert order == ["r2", "r3", "r1"]


def test_controls_expire_once_into_the_safe_default() -> None:
    agent = worker("e1")
    agent.step(0.0, decide(TopologyName.EDF))
    assert agent.step(0.0, tune(n_run=5)) == [SteerEngine("e1", 5, 8)]
    silent = [e for e in agent.step(2.0, CycleTicked()) if not isinstance(e, PublishTelemetry)]
    assert silent == [ControlExpired("tuple"), SteerEngine("e1", 2, 2)]
    effects = agent.step(15.0, CycleTicked())
    assert effects[:2] == [
        ControlExpired("topology"),
        TopologySwitched(TopologyName.EDF, TopologyName.FCFS, 0, "the last topology decision expired"),
    ]
    assert telemetry(effects).control_expired
    assert not [e for e in agent.step(16.0, CycleTicked()) if isinstance(e, ControlExpired)]
    agent.step(17.0, decide(TopologyName.EDF, seq=2))
    agent.step(17.0, tune(seq=2))
    assert not telemetry(agent.step(17.1, CycleTicked())).control_expired


def test_a_worker_without_the_topology_serves_in_order_of_arrival_and_says_so_once() -> None:
    agent = worker("e1")
    agent.step(1.0, decide(TopologyName.EDF))
    other = TopologyName("of_a_package")
    effects = agent.step(2.0, decide(other, seq=2))
    assert [e for e in effects if isinstance(e, TopologySwitched | TopologyUnknown)] == [
        TopologyUnknown(other, TopologyName.FCFS),
        TopologySwitched(TopologyName.EDF, TopologyName.FCFS, 0, "this worker has no topology of_a_package"),
    ]
    effects = agent.step(3.0, decide(other, seq=3))
    assert not [e for e in effects if isinstance(e, TopologySwitched | TopologyUnknown)]


def test_epochs_begin_anew_after_the_controls_expired() -> None:
    """A control bucket that was lost counts from 1 again."""
    agent = worker("e1")
    agent.step(0.0, decide(TopologyName.EDF, epoch=7))
    agent.step(0.0, tune(n_run=5, epoch=7))
    assert agent.step(1.0, decide(TopologyName.SJF, epoch=6)) == []
    assert agent.step(1.0, tune(n_run=3, epoch=6)) == []
    agent.step(15.0, CycleTicked())
    (switched,) = agent.step(15.1, decide(TopologyName.SJF, epoch=1))
    assert switched == TopologySwitched(TopologyName.FCFS, TopologyName.SJF, 0, "why")
    assert agent.step(15.1, tune(n_run=3, epoch=1)) == [SteerEngine("e1", 3, 8)]


def test_a_worker_without_controls_says_that_the_safe_default_is_in_force() -> None:
    """It was started while the control agents were silent, so nothing has expired."""
    agent = worker("e1")
    assert telemetry(agent.step(0.5, CycleTicked())).control_expired
    agent.step(0.6, decide(TopologyName.EDF))
    assert telemetry(agent.step(0.8, CycleTicked())).control_expired  # without a tuple the limits are static
    agent.step(0.9, tune(n_run=5))
    assert not telemetry(agent.step(1.1, CycleTicked())).control_expired


def test_older_epochs_and_numbers_are_ignored() -> None:
    agent = worker("e1")
    agent.step(0.0, decide(TopologyName.EDF, epoch=2, seq=5))
    assert agent.step(0.0, decide(TopologyName.SJF, epoch=1, seq=9)) == []
    assert agent.step(0.0, decide(TopologyName.SJF, epoch=2, seq=4)) == []
    assert agent.step(0.0, decide(TopologyName.SJF, epoch=3, seq=0)) != []


def test_bypass_outranks_the_tuple_and_lifts_the_fence() -> None:
    agent = worker("e1", kv_capacity_tokens=1600, max_num_seqs=4)
    agent.step(0.0, tune(n_run=1))
    assert len(dispatched(submit(agent, *many(6, prompt_tokens=700)))) == 1
    effects = agent.step(0.5, decide(TopologyName.SJF, bypass=True))
    assert effects[0] == SteerEngine("e1", 4, 4)
    assert len(dispatched(effects)) == 3
    effects = agent.step(0.6, decide(TopologyName.FCFS, seq=2))
    assert effects == [SteerEngine("e1", 1, 8)]


def test_the_fence_uses_the_bucket_of_its_own_predictor_and_the_clients_limit() -> None:
    fence = Fence((FenceTable("v1", (FenceBucket(128, 0.7), FenceBucket(1 << 31, 3.5))),))
    agent = worker("e1")
    agent.step(0.0, tune(n_run=8, fence=fence))
    uppers = {}
    cases = {
        "calibrated": (request("calibrated"), annotation(50.0)),
        "long": (request("long", prompt_tokens=500), annotation(50.0)),
        "capped": (request("capped", prompt_tokens=500, max_tokens=60), annotation(50.0)),
        "other": (request("other"), annotation(50.0, p90=130.0, version="v0")),
    }
    agent.step(0.0, EngineWentDown("e1", "pause"))
    for rid, (made, tags) in cases.items():
        submit(agent, made)
        agent.annotate(0.0, rid, tags)
    for grant in granted(agent.up(0.1, ENGINE)):
        uppers[grant.request_id] = grant.timeline.upper_output_tokens
    assert uppers == {"calibrated": 70.0, "long": 350.0, "capped": 60.0, "other": 130.0}


def test_tags_that_come_after_the_grant_make_the_bound() -> None:
    agent = worker("e1", kv_capacity_tokens=1600, config=replace(CONFIG, static_n_run=8))
    agent.step(0.0, tune(n_run=8, fence=Fence((FenceTable("v1", (FenceBucket(1 << 31, 1.6),)),))))
    submit(agent, request("r1", prompt_tokens=160))
    state = agent.state.fleet["e1"]
    assert state.books.blocks == 48  # 160 + the prior's 90 % quantile of 600
    agent.annotate(0.1, "r1", annotation(50.0, p90=100.0))
    assert state.books.blocks == 20
    entry = state.running["r1"]
    assert (entry.upper_output_tokens, entry.admitted_by, entry.admitted_p90) == (160.0, "v1", 100.0)
    agent.first_token(0.2, "r1")
    submit(agent, request("r2", prompt_tokens=160))
    agent.first_token(0.4, "r2")
    agent.progress(9.0, "r2", 601)
    agent.annotate(9.1, "r2", annotation(50.0, p90=1000.0))
    outgrown = state.running["r2"]
    assert (outgrown.upper_output_tokens, outgrown.admitted_by) == (600.0, "worker-prior")  # it stays a miss


def test_one_that_outgrows_its_bound_reserves_more() -> None:
    agent = worker("e1", kv_capacity_tokens=1600, config=replace(CONFIG, static_n_run=8))
    agent.step(0.0, tune(n_run=8, fence=Fence((), 700.0)))
    first = request("r1", prompt_tokens=160)
    submit(agent, first)
    agent.annotate(0.0, "r1", annotation(50.0))
    state = agent.state.fleet["e1"]
    assert state.books.blocks == 17  # 160 + the 90 % quantile of its tags, 100
    agent.first_token(1.0, "r1")
    agent.progress(1.0, "r1", 601)
    assert state.books.blocks == 58  # 160 + the rolling 752.25
    agent.finish(2.0, "r1", 620)
    assert state.books.blocks == 0


def test_the_inner_loop_throttles_above_the_band_and_holds_at_its_floor() -> None:
    agent = worker("e1")
    agent.step(0.0, tune(n_run=8))
    submit(agent, *many(3))
    for i in range(1, 4):
        agent.first_token(0.0, f"r{i}")

    def cycle(now_s: float, kv: float) -> list[WorkerEffect]:
        agent.step(
            now_s,
            sampled("e1", 3, waiting=0, kv_usage=kv, preemptions_total=0, step_s=0.01),
        )
        effects = agent.step(now_s, CycleTicked())
        return [e for e in effects if isinstance(e, SteerEngine | ToGateway)]

    assert cycle(0.1, 0.7) == []
    assert cycle(0.2, 1.0) == [SteerEngine("e1", 8, 7)]  # 8 - 4 * (1.0 - 0.8)
    for tick in range(3, 12):
        agent.step(0.0 + tick / 10, tune(n_run=8, seq=tick))
        cycle(tick / 10, 1.0)
    report = telemetry(agent.step(1.3, CycleTicked()))
    assert (report.engines[0].b_token, report.engines[0].b_saturated) == (3, -1)
    assert dispatched(submit(agent, request("r9"), now_s=1.3)) == []  # never below what decodes, nothing new
    assert [type(e) for e in cycle(1.4, 0.2)] == [SteerEngine, ToGateway]


def test_a_silent_engine_is_not_held_back_for_ever() -> None:
    agent = worker("e1")
    agent.step(0.0, tune(n_run=8, b_min=4, gain=100.0))
    submit(agent, *many(1))
    agent.step(
        0.1,
        sampled("e1", 1, waiting=0, kv_usage=1.0, preemptions_total=0, step_s=0.01),
    )
    agent.step(0.2, CycleTicked())
    agent.step(1.9, tune(n_run=8, b_min=4, gain=100.0, seq=2))
    assert dispatched(submit(agent, request("r2"), now_s=1.9)) == []
    assert dispatched(agent.step(2.2, CycleTicked())) == [("r2", "e1")]


def test_telemetry_comes_each_cycle_and_at_256_events() -> None:
    agent = worker("e1", config=replace(CONFIG, telemetry_events=4))
    assert telemetry(agent.step(0.0, CycleTicked())).queued == ()
    assert agent.step(0.05, CycleTicked()) == []
    first, second, third = many(3)
    submit(agent, first)  # queued and dispatched: two events
    agent.annotate(0.0, "r1", annotation())
    report = telemetry(submit(agent, second, now_s=0.06))
    assert (len(report.queued), len(report.dispatched)) == (1, 2)
    assert report.queued[0].age_s == 0.06
    agent.annotate(0.1, "r2", annotation())
    submit(agent, third, now_s=0.17)
    assert [q.request_id for q in telemetry(agent.step(0.2, CycleTicked())).queued] == ["r2"]
    running = [telemetry(agent.step(1.0 + t / 10, CycleTicked())).running for t in range(10)]
    assert [len(r) for r in running].count(2) == 1


def test_a_queued_request_is_told_with_its_tags_or_when_these_are_overdue() -> None:
    agent = worker("e1")
    submit(agent, request("tagged"), request("untagged"))
    agent.annotate(0.01, "tagged", annotation(tokens=500.0))
    (told,) = telemetry(agent.step(0.1, CycleTicked())).queued
    assert (told.request_id, told.predicted_output_tokens, told.tpot_slo_s) == ("tagged", 500.0, 0.1)
    assert telemetry(agent.step(0.2, CycleTicked())).queued == ()
    (late,) = telemetry(agent.step(0.31, CycleTicked())).queued
    assert (late.request_id, late.task, late.waits) == ("untagged", TaskType.UNKNOWN, False)
    assert telemetry(agent.step(0.5, CycleTicked())).queued == ()


def test_engine_samples_show_the_binding_resource() -> None:
    agent = worker("e1")
    submit(agent, request("r1"), request("impossible"))
    agent.annotate(0.0, "r1", annotation(tpot_s=0.02))
    agent.annotate(0.0, "impossible", annotation(tpot_s=0.2))  # its SLO is 0.1: met by no schedule
    agent.step(
        0.4,
        sampled("e1", 2, waiting=1, kv_usage=0.3, preemptions_total=7, step_s=0.05),
    )
    (sample,) = telemetry(agent.step(0.5, CycleTicked())).engines
    assert (sample.running, sample.waiting, sample.preemptions_total) == (2, 1, 7)
    assert sample.utilisation == 0.5  # a step of 0.05 s over a TPOT SLO of 0.1 s
    (sample,) = telemetry(agent.step(1.0, CycleTicked())).engines
    assert sample.busy == 1.0


def test_the_backlog_is_not_divided_by_the_speed_that_was_measured() -> None:
    """Else a worker that once measured little would be given little, and so never measure more."""
    agent = worker("e1")
    submit(agent, *many(10))
    backlogs = []
    for now_s in (1.0, 2.0):
        beat, _ = agent.step(now_s, HeartbeatDue())
        assert isinstance(beat, PublishHeartbeat)
        backlogs.append(beat.heartbeat.backlog_s)
        agent.state.meter.close(now_s, backlogged=False)
        agent.state.meter.add(0.001)
        agent.state.meter.close(now_s + 0.5, backlogged=True)
        assert agent.state.meter.speed(1.0) < 0.01
    assert backlogs[0] == backlogs[1] > 0.0


def test_heartbeat_tells_which_engines_are_suspected() -> None:
    agent = worker("e1", "e2")
    agent.state.fleet["e2"].suspect(0.0)
    beat, _ = agent.step(0.0, HeartbeatDue())
    assert isinstance(beat, PublishHeartbeat)
    assert [(each.engine, each.suspected) for each in beat.heartbeat.engines] == [("e1", False), ("e2", True)]
    assert "suspected" not in repr(beat)  # EngineSuspected logs it


def test_heartbeat_states_the_backlog() -> None:
    agent = worker("e1", config=replace(CONFIG, aliases=("m-alias",)))
    beat, _ = agent.step(0.0, HeartbeatDue())
    assert isinstance(beat, PublishHeartbeat)
    assert (beat.heartbeat.backlog_s, beat.heartbeat.queued) == (0.0, 0)
    submit(agent, *many(10))
    beat, _ = agent.step(1.0, HeartbeatDue())
    assert isinstance(beat, PublishHeartbeat)
    assert beat.heartbeat.queued == 8
    # ten times T_tot = 100/8000 + 200 * 0.03 over half the speed of two streams
    assert abs(beat.heartbeat.backlog_s - 10 * (100 / 8000 + 6.0) / 1.0) < 1e-9
    assert beat.heartbeat.engines[0].up
