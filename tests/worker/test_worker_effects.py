"""What the worker's steps tell, exactly: reports of requests and engines, reservations, stops and what becomes of the
books when something ends."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.control import Hints, TupleReceived
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.execution import Adopt, Declined, EngineShare, FirstToken, Started, Submit, Withdraw
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Cost, KindCost, Slo, TaskType
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.contracts.worker import CycleTicked, EngineWentDown, GatewayLost, HeartbeatDue, PublishTelemetry, WorkerEffect
from hmas.worker.agent.agent import WorkerConfig
from hmas.worker.agent.config import EngineStateConfig
from hmas.worker.agent.engines.admission import AdmissionGate
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.engines.service_view import ServiceView
from hmas.worker.agent.order.topologies.hybrid import Hybrid, HybridConfig
from tests.builders.control import control_tuple, engine_control
from tests.worker.builders import (
    Scripted,
    annotation,
    dispatched,
    engine,
    entry,
    granted,
    loads,
    refused,
    request,
    sampled,
    stopped,
)

CONFIG = WorkerConfig(
    worker="w1", incarnation="i1", address="host:1", pool="m", prefill_window_s=1000.0, telemetry_period_s=0.125
)


def worker(*engines: str, gateways: tuple[str, ...] = ("g1",), **changes: Any) -> Scripted:
    return Scripted(replace(CONFIG, **changes), *(engine(name) for name in engines), gateways=gateways)


def telemetry(effects: list[WorkerEffect]) -> WorkerTelemetry:
    (found,) = [e.telemetry for e in effects if isinstance(e, PublishTelemetry)]
    return found


def test_telemetry_tells_the_whole_life_of_a_request() -> None:
    agent = worker("e1")
    agent.step(0.0, CycleTicked())
    agent.submit(1.0, request("r1", arrival_s=0.5, slo=Slo(4.0, 0.1)))
    agent.annotate(1.0, "r1", annotation(40.0, p90=60.0, ttft_s=0.25, tpot_s=0.03125))
    agent.first_token(1.5, "r1")
    agent.progress(2.0, "r1", 9)
    told = telemetry(agent.step(2.0, CycleTicked()))
    (queued,) = told.queued
    assert (queued.prompt_tokens, queued.predicted_output_tokens, queued.predicted_output_tokens_p90) == (100, 40, 60)
    assert (queued.age_s, queued.waits, queued.task, queued.tpot_slo_s, queued.needed_tpot_s) == (
        1.0,
        False,
        TaskType.QA,
        0.1,
        0.1,
    )
    (sent,) = told.dispatched
    assert (sent.engine, sent.waited_s, sent.age_s, sent.tenant) == ("e1", 0.0, 1.0, "t1")
    (first,) = told.first_tokens
    assert (first.ttft_s, first.prefill_s, first.age_s, first.engine, first.ttft_slo_s) == (1.0, 0.5, 0.5, "e1", 4.0)
    (running,) = told.running
    assert (running.output_tokens, running.run_s, running.predictor) == (9, 1.0, "v1")
    assert (running.predicted_output_tokens_p90, running.upper_output_tokens) == (60, 60.0)
    (seen,) = told.engines
    assert (seen.running, seen.busy, seen.n_run, seen.up, seen.suspected) == (0, 0.5, 8, True, False)
    agent.finish(3.5, "r1", 17)
    told = telemetry(agent.step(4.0, CycleTicked()))
    (done,) = told.finished
    assert (done.outcome, done.output_tokens, done.censored, done.engine) == (Outcome.FINISHED, 17, False, "e1")
    assert (done.run_s, done.prefill_s, done.tpot_s, done.age_s) == (2.5, 0.5, 2.0 / 16, 0.5)
    assert (done.predicted_output_tokens_p90, done.predictor, done.tpot_slo_s) == (60, "v1", 0.1)
    assert [*told.running, *told.queued, *told.dispatched, *told.first_tokens] == []
    assert told.engines[0].busy == 0.75
    assert telemetry(agent.step(5.0, CycleTicked())).finished == ()


def test_of_what_ended_before_a_token_no_latency_is_told() -> None:
    agent = worker("e1")
    agent.submit(1.0, request("r1"), request("r2"))
    agent.fail(2.0, "r1", retryable=False)
    agent.first_token(2.0, "r2")
    agent.finish(3.0, "r2", 1)
    lost, one = telemetry(agent.step(3.0, CycleTicked())).finished
    assert (lost.outcome, lost.censored, lost.prefill_s, lost.tpot_s) == (Outcome.ENGINE_ERROR, True, 0.0, 0.0)
    assert (one.prefill_s, one.tpot_s) == (1.0, 0.0), "between one token and the next there is none"


def test_an_engines_sample_is_told_as_it_was_read() -> None:
    agent = worker("e1")
    sample = sampled(
        running=3, waiting=2, kv_usage=0.25, preemptions_total=7, step_s=0.05, prefill_tokens_per_s=11.0,
        decode_tokens_per_s=13.0,
    )  # fmt: skip
    agent.step(1.0, sample)
    (seen,) = telemetry(agent.step(1.0, CycleTicked())).engines
    assert (seen.running, seen.waiting, seen.kv_usage, seen.preemptions_total) == (3, 2, 0.25, 7)
    assert (seen.step_s, seen.prefill_tokens_per_s, seen.decode_tokens_per_s) == (0.05, 11.0, 13.0)
    assert (seen.utilisation, seen.time_used, seen.kv_capacity_tokens) == (0.25, 0.0, 100_000)


def test_a_report_is_due_a_little_before_its_period_is_over() -> None:
    agent = worker("e1", telemetry_period_s=1.0, running_report_period_s=2.0)
    agent.submit(0.0, request("r1"))
    told = []
    for now_s in (0.0, 0.98, 0.99, 1.5, 1.97, 2.0, 3.0, 3.99, 4.98):
        effects = agent.step(now_s, CycleTicked())
        if any(isinstance(effect, PublishTelemetry) for effect in effects):
            told.append((now_s, len(telemetry(effects).running)))
    assert told == [(0.0, 1), (0.99, 0), (2.0, 1), (3.0, 0), (3.99, 1), (4.98, 0)]


# --- memory


def gated(**changes: Any) -> tuple[AdmissionGate, EngineState]:
    gate = AdmissionGate(delta_frag=0.25, growth=1.5)
    state = EngineState(engine(**({"kv_capacity_tokens": 6400, "block_size": 16, "max_model_len": 2000} | changes)),
        EngineStateConfig())  # fmt: skip
    state.budget_blocks = gate.budget_blocks(state)
    return gate, state


def test_blocks_are_counted_whole_and_no_further_than_the_engine_goes() -> None:
    gate, state = gated()
    assert state.budget_blocks == 300
    made = entry(1, request("r1", prompt_tokens=100))
    needs = [gate.need(state, made, tokens) for tokens in (1.0, 12.0, 13.0, 1900.0, 9000.0)]
    assert needs == [7, 7, 8, 125, 125]
    assert [gate.could_ever(state, tokens) for tokens in (1999, 2000)] == [True, False]
    gate, state = gated(max_model_len=0)
    assert gate.need(state, made, 9000.0) == 300, "a reservation above the budget is cut to it"
    assert [gate.could_ever(state, tokens) for tokens in (4799, 4800)] == [True, False]
    gate, state = gated(kv_capacity_tokens=0, max_model_len=0)
    assert gate.need(state, made, 9000.0) == 569
    assert gate.could_ever(state, 10**9)
    assert gate.admits(0.0, state, made, 10**9)


def test_one_that_outgrows_its_bounds_gets_more_each_time() -> None:
    gate, _ = gated()
    made = entry(1, request("r1", max_tokens=500))
    made.admit(80.0, 60.0, 1)
    made.output_tokens = 70
    assert gate.grown(made) == 80.0
    made.output_tokens = 80
    assert gate.grown(made) == 121.0
    made.output_tokens = 400
    assert gate.grown(made) == 500.0
    made.output_tokens = 600
    assert gate.grown(made) == 600.0, "what was produced is there"


def test_an_adopted_request_is_in_the_books_as_if_granted_here() -> None:
    agent = worker("e1")
    agent.step(1.0, sampled(running=2, kv_usage=0.5))
    books = agent.state.fleet["e1"]
    adopt = Adopt(
        request=request("r1"), attempt=2, annotation=annotation(40.0), engine="e1", grant=5, output_tokens=7,
        granted_s=0.5, first_token_s=0.75,
    )  # fmt: skip
    agent.say(1.0, adopt)
    made = agent.state.queue.get("r1")
    assert made is not None
    assert (made.attempt, made.grant, made.granted_s, made.first_token_s, made.output_tokens) == (2, 5, 0.5, 0.75, 7)
    assert (books.books.decoding, list(books.running), bool(books.prefill)) == (1, ["r1"], False)
    assert made.blocks == books.books.blocks > 0
    assert agent.state.queue.waiting == 0
    agent.at["r2"] = "g1"
    (sent,) = granted(agent.submit(2.0, request("r2")))
    assert sent.grant == 6, "numbers of grants only rise"


# --- what ends, and what it leaves behind


def clean(agent: Scripted) -> None:
    """Nothing is left of any request."""
    state = agent.state
    assert list(state.queue.entries()) == []
    assert (state.queue.waiting, state.queue.parked, state.queue.queued_tokens, state.queue.queued_s) == (0, 0, 0, 0.0)
    assert (state.untagged, state.queue.unwilling) == ({}, {})
    for each in state.fleet.values():
        assert (each.running, each.books.blocks, each.books.decoding, each.books.contexts) == ({}, 0, 0, 0.0)
        assert (each.in_flight, each.books.prefill.seconds, bool(each.prefill)) == (0, 0.0, False)
    for gateway in state.gateways.values():
        assert (gateway.unstarted, gateway.parked) == ({}, {})


@pytest.mark.parametrize("way", ["finish", "first and finish", "fail", "decline", "withdraw", "mute and decline"])
def test_whatever_ends_a_request_leaves_nothing_behind(way: str) -> None:
    agent = worker("e1", static_n_run=1)
    agent.mute = way == "mute and decline"
    agent.submit(1.0, replace(request("r1"), relegate=False), replace(request("r2"), relegate=False))
    agent.step(1.4, CycleTicked())  # their tags do not come
    assert agent.state.fleet["e1"].in_flight == 1
    for name in ("r1", "r2"):
        match way:
            case "finish":
                agent.finish(2.0, name, 5)
            case "first and finish":
                agent.first_token(2.0, name)
                agent.finish(2.0, name, 5)
            case "fail":
                agent.fail(2.0, name, retryable=False)
            case "withdraw" if name == "r1":
                agent.say(2.0, Withdraw("r2", 1))
                agent.finish(2.0, "r1", 5)
            case "decline" | "mute and decline":
                agent.say(2.0, Declined(name, agent.grants[name].grant))
            case _:
                pass
    clean(agent)


def test_a_second_first_token_and_late_messages_change_nothing() -> None:
    agent = worker("e1", gateways=("g1", "g2"))
    agent.submit(1.0, request("r1"))
    number = agent.grants["r1"].grant
    agent.say(2.0, FirstToken("r1", number + 1))
    agent.say(2.0, FirstToken("r1", number), "g2")
    assert agent.state.fleet["e1"].books.decoding == 0
    agent.first_token(2.0, "r1")
    agent.first_token(3.0, "r1")
    made = agent.state.queue.get("r1")
    assert made is not None
    assert (made.first_token_s, agent.state.fleet["e1"].books.decoding) == (2.0, 1)
    agent.progress(3.0, "r1", 5)
    agent.progress(3.0, "r1", 4)
    assert made.output_tokens == 5
    agent.finish(4.0, "r1", 5)
    assert agent.first_token(5.0, "r1") == agent.finish(5.0, "r1", 5) == []
    clean(agent)


@pytest.mark.parametrize(("computes", "stopped_too"), [(0.0, ["r2"]), (5.0, [])])
def test_of_an_engine_that_stands_still_all_without_a_token_are_asked_back(
    computes: float, stopped_too: list[str]
) -> None:
    agent = worker("e1")
    agent.submit(0.0, request("r1"), request("r2"), request("r3"))
    agent.first_token(1.0, "r3")
    agent.step(2.0, sampled(running=3, decode_tokens_per_s=computes))
    effects = agent.fail(30.0, "r1", stalled=True, retryable=False)
    assert [stop.request_id for stop in stopped(effects)] == stopped_too


def test_a_stop_is_asked_for_once_and_only_of_what_was_granted_here() -> None:
    agent = worker("e1", "e2", gateways=("g1", "g2"))
    agent.submit(0.0, request("r1"), request("r2"))
    assert {each.engine for each in agent.grants.values()} == {"e1", "e2"}
    agent.submit(0.0, request("r3"), gateway="g2")
    own = Adopt(
        request=request("own"), attempt=1, annotation=None, engine="e1", grant=0, output_tokens=0, granted_s=0.0,
        first_token_s=None,
    )  # fmt: skip
    agent.say(0.0, own)
    agent.step(1.0, GatewayLost("g2"))
    on_first = [name for name, each in agent.grants.items() if each.engine == "e1" and name != "r3"]
    assert [each.request_id for each in stopped(agent.step(2.0, EngineWentDown("e1", "gone")))] == on_first
    assert stopped(agent.step(2.0, EngineWentDown("e1", "gone"))) == []
    made = agent.state.queue.get("r3")
    assert made is not None
    assert made.orphaned_s == 1.0


def test_a_request_that_comes_back_is_counted_afresh() -> None:
    agent = worker("e1", "e2")
    agent.submit(1.0, request("r1"))
    agent.say(1.0, Started("r1", agent.grants["r1"].grant))
    first = agent.grants["r1"]
    assert dispatched(agent.fail(2.0, "r1")) == [("r1", "e2")]
    made = agent.state.queue.get("r1")
    assert made is not None
    assert (made.granted_s, made.first_token_s, made.output_tokens, made.tried) == (
        2.0,
        None,
        0,
        (f"{first.engine}#1",),
    )
    assert agent.state.fleet[first.engine].in_flight == 0
    assert agent.grants["r1"].grant == first.grant + 1
    agent.finish(3.0, "r1", 2)
    clean(agent)


def test_a_later_attempt_waits_until_the_old_grant_is_answered() -> None:
    agent = worker("e1")
    agent.submit(1.0, request("r1"))
    old = agent.grants["r1"]
    agent.say(1.0, Withdraw("r1", 1))
    assert agent.say(1.5, Submit(request=request("r1"), attempt=3)) == []
    assert agent.say(1.5, Submit(request=request("r1"), attempt=2)) == []
    agent.say(1.5, Withdraw("r1", 2))  # of an attempt that never came
    (sent,) = granted(agent.say(2.0, Declined("r1", old.grant)))
    assert (sent.attempt, sent.grant) == (3, old.grant + 1)
    agent.say(2.0, Started("r1", sent.grant))
    agent.say(2.5, Submit(request=request("r1"), attempt=4))
    agent.say(2.5, Withdraw("r1", 4))
    assert granted(agent.say(3.0, Declined("r1", sent.grant))) == []
    clean(agent)


def test_the_pump_grants_and_parks_no_more_than_its_bounds() -> None:
    agent = worker("e1", "e2", max_grants_per_pump=3)
    assert len(granted(agent.submit(0.0, *(request(f"r{i}") for i in range(5))))) == 5
    agent = worker(max_grants_per_pump=3)
    agent.mute = True
    agent.submit(0.0, *(request(f"r{i}") for i in range(8)))
    assert len(granted(agent.up(1.0, engine("e1")))) == 3
    assert len(granted(agent.step(1.0, CycleTicked()))) == 3
    assert len(granted(agent.step(1.0, CycleTicked()))) == 2


def test_loads_tell_what_each_gateway_may_run_and_the_backlog() -> None:
    agent = worker("e1", gateways=("g1", "g2"), static_n_run=4)
    agent.submit(0.0, *(request(f"r{i}", prompt_tokens=800) for i in range(6)))
    told = dict(loads(agent.step(0.0, HeartbeatDue())))
    assert [told[name].shares for name in ("g1", "g2")] == [
        (EngineShare("e1", 3, generating=False),), (EngineShare("e1", 1, generating=False),)
    ]  # fmt: skip
    load = told["g1"]
    assert (load.queued, load.running, load.draining) == (2, 4, False)
    each_s = 800 / 8000 + 200 * 0.03
    assert load.backlog_s == pytest.approx(6 * each_s / (0.5 * 4))
    assert load.queued_tokens == 2 * 1000


def test_the_floor_of_predictions_falls_at_once_and_rises_slowly() -> None:
    agent = worker("e1", floor_rise=0.25)
    state = agent.state
    for seen_s, floor_s in ((0.5, 0.5), (0.25, 0.25), (0.75, 0.375), (0.375, 0.375)):
        state.see_prefill(seen_s)
        assert state.prefill_floor_s == floor_s
    kinds = KindCost(EngineKind(hardware="A100"), Cost(1.0, 0.1)), KindCost(EngineKind(hardware="L4"), Cost(2.0, 0.1))
    state.see_costs(kinds[:1])
    assert state.kind_floors_s == {}, "of one kind there is one floor"
    state.see_costs(kinds)
    assert state.kind_floors_s == {kinds[0].kind: 1.0, kinds[1].kind: 2.0}
    state.see_costs(tuple(replace(each, cost=Cost(each.cost.ttft_s + 1.0, 0.1)) for each in kinds))
    assert state.kind_floors_s == {kinds[0].kind: 1.25, kinds[1].kind: 2.25}
    state.see_costs(()) if False else None


def test_a_measurement_is_regulated_by_once() -> None:
    agent = worker("e1")
    control = engine_control(n_run=8, b_token=8, b_max=8, gain_b=4.0, u_low=0.25, u_high=0.5)
    agent.step(0.0, TupleReceived(control_tuple(engines=(control,))))
    agent.step(1.0, sampled(kv_usage=1.0))
    budgets = []
    for now_s in (1.0, 1.1):
        agent.step(now_s, CycleTicked())
        budgets.append(agent.state.fleet["e1"].regulator.b_token)
    agent.step(1.2, sampled(kv_usage=1.0))
    agent.step(1.2, CycleTicked())
    assert [*budgets, agent.state.fleet["e1"].regulator.b_token] == [6, 6, 4]
    agent.step(9.0, CycleTicked())
    assert agent.state.fleet["e1"].b_token == 4


def test_lag_is_what_a_cycle_comes_late() -> None:
    agent = worker("e1")
    lags = []
    for now_s in (1.0, 1.1, 1.5, 9.0):
        agent.step(now_s, CycleTicked())
        lags.append(agent.state.lag_s)
    assert lags == [0.0, pytest.approx(0.0), pytest.approx(0.3), 0.5]


# --- orders


def test_tags_that_make_a_request_be_on_time_take_it_back() -> None:
    order = Hybrid(Hints(), HybridConfig())
    order.observe(ServiceView(0.0, ()))
    late, other = entry(1, request("late")), entry(2, request("other"))
    late.annotate(annotation(10.0, ttft_s=9.0, slo=Slo(4.0, 0.1)))
    other.annotate(annotation(10.0, ttft_s=1.0, slo=Slo(4.0, 0.1)))
    order.push(late)
    order.push(other)
    assert order.peek() is other
    assert late.relegated
    late.annotate(annotation(10.0, ttft_s=0.25, slo=Slo(2.0, 0.1)))
    order.reannotate(late)
    assert not late.relegated
    assert order.peek() is late
    assert len(order) == 2


def test_a_prompt_that_is_too_long_is_refused() -> None:
    agent = worker("e1")
    assert refused(agent.submit(0.0, request("r1", prompt_tokens=9000)))[0].outcome is Outcome.NEVER_FITS


def test_the_peak_grows_with_each_grant_and_a_forecast_is_not_kept_for_long() -> None:
    _, state = gated()
    assert state.books.peak_blocks(0.0) == 0
    made = entry(1, request("r1", prompt_tokens=100))
    made.admit(60.0, 60.0, 10)
    state.occupy(0.0, made, 0.1)
    assert state.books.peak_blocks(0.25) == (160 + 15) // 16
    state.limit(8, 8)
    state.budget_blocks = 300
    state.occupancy(0.25)
    assert state._occupancy is not None
    state.limit(8, 8)
    state.budget_blocks = 19
    assert state.occupancy(0.25).kv_free_tokens == 9 * 16
    assert state._occupancy is None, "it holds as long as the forecast"
