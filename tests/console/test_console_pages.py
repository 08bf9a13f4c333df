"""The pages: what was heard goes in, what a browser draws comes out."""

import json
from copy import deepcopy
from dataclasses import replace

import pytest

from hmas.console.pages import PAGES, framed
from hmas.console.pages.control import view_control
from hmas.console.pages.jobs import view_jobs
from hmas.console.pages.lanes import SHOWN, SHOWN_S, view_lanes
from hmas.console.pages.now import RESTARTED_S, SILENT_S, view_now
from hmas.console.pages.queue import asked_of, view_queue
from hmas.console.pages.requests import view_request, view_requests
from hmas.console.pages.tenants import view_tenants
from hmas.console.pages.whatif import view_whatif
from hmas.console.question import WhatIfAnswer, WhatIfQuestion, question_of
from hmas.console.state import (
    KEPT_S,
    MAX_CURVES,
    MAX_FLAGS,
    MAX_PENDING,
    MAX_QUEUES,
    MAX_REASONS,
    MAX_RECENT,
    MAX_SEGMENTS,
    MAX_SPANS,
    POINTS,
    SAMPLE_S,
    WINDOW_S,
    Asked,
    ConsoleState,
)
from hmas.contracts.control import TopologyName as T
from hmas.contracts.outcome import Outcome
from hmas.contracts.scheduling_gain import SchedulingGain
from hmas.contracts.telemetry import SplitLegs
from tests.console.heard import (
    AUDIT,
    CONTROL,
    DISPATCHED,
    FINISHED,
    JOB,
    SAMPLE,
    SETTLED,
    decision,
    heartbeat,
    queue_told,
    rehearsal,
    settled,
    telemetry,
    v_short,
)


def engine(state: ConsoleState, now_s: float) -> tuple[str, str]:
    row = view_now(state, now_s, "")["engines"]["w1 e1"]
    return row["health"], row["words"]


def test_a_worker_that_falls_silent_turns_bad_and_comes_back() -> None:
    state = ConsoleState()
    state.hear(100.0, heartbeat())
    state.hear(100.0, telemetry())
    assert engine(state, 100.0 + SILENT_S) == ("ok", "up")
    assert engine(state, 100.1 + SILENT_S)[0] == "bad"
    assert SILENT_S < 2.0
    state.hear(103.0, heartbeat())
    state.hear(103.0, telemetry())
    assert engine(state, 103.0) == ("ok", "up")


def test_telemetry_after_a_pause_does_not_say_that_it_is_the_same_worker() -> None:
    state = ConsoleState()
    state.hear(100.0, heartbeat())
    state.hear(100.5, telemetry())
    state.hear(101.7, telemetry())  # of a process that was started meanwhile, perhaps
    assert engine(state, 101.8) == ("bad", "worker silent for 1 s")
    again, other = deepcopy(state), state
    again.hear(102.0, heartbeat())
    assert engine(again, 102.1) == ("ok", "up")
    other.hear(102.0, heartbeat(incarnation="i2"))
    assert engine(other, 102.1) == ("bad", "worker restarted")


def test_a_worker_that_was_started_anew_stands_out_for_a_while() -> None:
    state = ConsoleState()
    state.hear(100.0, heartbeat())
    state.hear(100.5, heartbeat(incarnation="i2"))
    state.hear(100.5, telemetry())
    assert engine(state, 100.6) == ("bad", "worker restarted")
    state.hear(101.0 + RESTARTED_S, heartbeat(incarnation="i2"))
    state.hear(101.0 + RESTARTED_S, telemetry())
    assert engine(state, 101.0 + RESTARTED_S) == ("ok", "up")


def test_an_engine_tells_what_is_wrong_with_it() -> None:
    state = ConsoleState()
    state.hear(1.0, heartbeat())
    assert engine(state, 1.0) == ("warn", "no report yet")
    for sample, words in (
        (replace(SAMPLE, up=False), "engine down"),
        (replace(SAMPLE, suspected=True), "engine gives no token"),
    ):
        state.hear(1.0, telemetry("w1", sample))
        assert engine(state, 1.0) == ("bad", words)
    asleep = telemetry("w1", replace(SAMPLE, asleep=True))
    state.hear(1.0, asleep)
    assert engine(state, 1.0) == ("warn", "asleep")
    state.hear(1.0, replace(asleep, queued_asleep=4))
    assert engine(state, 1.0) == ("warn", "asleep, 4 of the queued wait for such engines")
    state.hear(1.0, telemetry())
    state.hear(1.0, heartbeat(draining=True))
    assert engine(state, 1.0) == ("warn", "draining")
    state.hear(1.0, heartbeat(observed=(7, 0.25)))
    assert engine(state, 1.0) == ("warn", "observes: 7 grants after 0.25 s")
    assert view_now(state, 1.0 + 601.0, "")["engines"] == {}


def test_an_observed_pool_has_a_banner_and_what_scheduling_would_bring() -> None:
    state = ConsoleState()
    state.hear(10.0, v_short(arrival_rps=5.0, missed=0.2))
    state.hear(10.0, decision(T.MAX_ON_TIME))
    state.hear(10.0, heartbeat())
    assert "observing" not in framed("queue", state, 10.0, "")
    assert view_now(state, 10.0, "")["foretold"] == {}
    state.hear(11.0, heartbeat(observed=(7, 0.25)))
    assert all(framed(page, state, 11.0, "")["observing"] == {"m": True} for page in PAGES)
    now = view_now(state, 11.0, "")
    assert (now["pools"]["m"]["observes"], now["foretold"]) == (True, {"m": {}})
    gain = SchedulingGain(
        pool="m", window_s=300.0, requests=500, was=0.76, played=0.74, scheduled=0.97, low=0.95, high=0.99, engines=2,
        topology="max_on_time",
    )  # fmt: skip
    state.hear(12.0, gain)
    told = view_now(state, 42.0, "")["foretold"]["m"]
    assert (told["was"], told["scheduled"], told["low"], told["high"]) == (0.76, 0.97, 0.95, 0.99)
    assert (told["at_s"], told["requests"], told["abstains"]) == (12.0, 500, "")
    state.hear(60.0, replace(gain, abstains="it misses by 9 points"))
    told = view_now(state, 60.0, "")["foretold"]["m"]
    assert (told["was"], told["abstains"], "scheduled" in told) == (0.76, "it misses by 9 points", False)


def test_a_pin_is_a_flag_and_a_stretch_of_its_own() -> None:
    state = ConsoleState()
    state.hear(10.0, decision(T.MAX_ON_TIME))
    state.hear(15.0, decision(T.MAX_ON_TIME))
    state.hear(20.0, AUDIT)
    state.hear(20.0, decision(T.EDF, "pin", "pinned by ann"))
    state.hear(25.0, decision(T.EDF, "pin", "pinned by ann"))
    view = view_control(state, 26.0, "")
    first, second = view["topologies"].values()
    assert (first["topology"], first["from_s"], first["until_s"], first["pinned"]) == ("max_on_time", 10.0, 20.0, False)
    assert (second["topology"], second["from_s"], second["until_s"], second["pinned"]) == ("edf", 20.0, 25.0, True)
    assert second["proposer"] == "pin"
    assert [flag["kind"] for flag in view["flags"].values()] == ["pinned"]
    assert view["pools"] == {"m": {"pinned": "edf"}}
    state.hear(30.0, decision(T.EDF))
    assert view_control(state, 30.0, "")["pools"] == {"m": {"pinned": ""}}


def test_the_loops_of_an_engine_are_sampled_with_their_band() -> None:
    state = ConsoleState()
    state.hear(10.0, heartbeat())
    state.hear(10.0, CONTROL)
    state.hear(10.0, telemetry())
    state.sample(10.0)
    view = view_control(state, 10.0, "w1 e1")
    assert view["loop"] == {"10": [0.6, 0.7, 0.8, 16, 64]}
    assert view["set"]["b_max"] == 128
    assert (view["set"]["fence_least"], view["set"]["fence_most"]) == (1.1, 1.4)


def test_reasons_of_refusals_are_counted_for_ten_minutes() -> None:
    state = ConsoleState()
    refused = replace(SETTLED, outcome=Outcome.TENANT_REQUEST_RATE, ttft_s=None, last_token_s=None)
    state.hear(10.0, settled(refused, refused, SETTLED))
    state.hear(200.0, settled(replace(refused, outcome=Outcome.NO_ENGINE)))
    assert view_tenants(state, 200.0, "")["reasons"] == {"acme": {"tenant_request_rate": 2, "no_engine": 1}}
    state.sample(WINDOW_S + 100.0)
    assert view_tenants(state, WINDOW_S + 100.0, "")["reasons"] == {"acme": {"no_engine": 1}}


def test_promises_to_refused_requests_are_followed_to_their_ends() -> None:
    state = ConsoleState()
    refused = replace(SETTLED, outcome=Outcome.SLO_UNREACHABLE, ttft_s=None, tpot_s=None, last_token_s=None)
    back = replace(SETTLED, promised=True)
    late = replace(back, ttft_s=9.0)
    gone = replace(back, outcome=Outcome.CANCELLED, ttft_s=None, tpot_s=None, last_token_s=None)
    state.hear(10.0, settled(refused, refused, replace(refused, tenant="zeta"), SETTLED))
    state.hear(20.0, settled(back, late, replace(refused, promised=True), gone))
    assert view_tenants(state, 20.0, "")["promises"] == {
        "acme": {"made": 3, "kept": 1, "late": 1, "refused again": 1}, "zeta": {"made": 1},
    }  # fmt: skip
    state.sample(WINDOW_S + 100.0)
    assert view_tenants(state, WINDOW_S + 100.0, "")["promises"] == {}


@pytest.mark.parametrize("audit_first", [True, False])
def test_a_rehearsed_switch_tells_what_was_predicted_and_what_came(audit_first: bool) -> None:
    state = ConsoleState()
    decided = replace(AUDIT, kind="decided", selector="rules", predicted_gain=0.045)
    state.hear(10.0, decision(T.MAX_ON_TIME))
    for heard in (decided, decision(T.EDF))[:: 1 if audit_first else -1]:
        state.hear(20.0, heard)
    state.hear(30.0, decision(T.EDF, reason="kept: calm"))
    (first, second, third) = view_control(state, 31.0, "")["topologies"].values()
    assert "predicted" not in first
    assert (second["topology"], second["predicted"]) == ("edf", 0.045)
    assert "observed" not in second
    state.hear(90.0, replace(decided, kind="outcome", observed_gain=-0.01))
    (first, second, third) = view_control(state, 91.0, "")["topologies"].values()
    assert second["observed"] == -0.01
    assert "predicted" not in third
    assert [flag["kind"] for flag in view_control(state, 91.0, "")["flags"].values()] == ["outcome"]


def test_a_lane_has_a_requests_wait_prefill_and_decode() -> None:
    state = ConsoleState()
    state.hear(100.0, heartbeat())
    state.hear(100.0, telemetry(dispatched=(DISPATCHED,)))
    state.hear(102.1, telemetry(finished=(FINISHED,)))
    (span,) = view_lanes(state, 103.0, "")["spans"].values()
    assert (span["queued_s"], span["granted_s"], span["first_s"], span["ended_s"]) == (99.5, 100.0, 100.25, 102.0)
    assert span["lane"] == "w1 e1"
    assert view_lanes(state, 103.0 + SHOWN_S, "")["spans"] == {}


def legs(computed_s: float | None = 0.5, first_s: float | None = 0.75) -> SplitLegs:
    return SplitLegs(prefill_engine="e2", computed_s=computed_s, first_s=first_s)


@pytest.mark.parametrize(
    ("told", "prompt", "answer"),
    [
        (legs(), (99.5, 100.0, 100.5, 100.5), (100.5, 100.5, 100.75, 102.0)),
        (legs(first_s=None), (99.5, 100.0, 100.5, 100.5), (100.5, 100.5, 100.5, 102.0)),  # not streamed
        (legs(first_s=0.4), (99.5, 100.0, 100.5, 100.5), (100.5, 100.5, 100.5, 102.0)),  # told late that it is computed
        (legs(computed_s=None, first_s=None), (99.5, 100.0, 100.0, 102.0), None),
    ],
)
def test_each_leg_of_a_request_is_on_the_lane_of_its_engine(
    told: SplitLegs, prompt: tuple[float, ...], answer: tuple[float, ...] | None
) -> None:
    state = ConsoleState()
    state.hear(100.0, heartbeat())
    state.hear(100.0, telemetry("w1", SAMPLE, replace(SAMPLE, engine="e2"), dispatched=(DISPATCHED,)))
    state.hear(102.1, telemetry("w1", SAMPLE, replace(SAMPLE, engine="e2"), finished=(replace(FINISHED, legs=told),)))
    view = view_lanes(state, 103.0, "")
    spans = {span["leg"]: span for span in view["spans"].values()}
    times = {
        leg: (span["queued_s"], span["granted_s"], span["first_s"], span["ended_s"]) for leg, span in spans.items()
    }
    assert times == {"prompt": prompt, **({"answer": answer} if answer else {})}
    assert (spans["prompt"]["lane"], spans["prompt"]["partner"]) == ("w1 e2", "e1")
    if answer:
        assert (spans["answer"]["lane"], spans["answer"]["partner"]) == ("w1 e1", "e2")
    assert view["left_out"] == 0


def test_a_computed_prompt_is_well_whatever_becomes_of_the_answer() -> None:
    state = ConsoleState()
    state.hear(100.0, heartbeat())
    failed = replace(FINISHED, legs=legs(first_s=None), outcome=Outcome.ENGINE_ERROR)
    state.hear(102.1, telemetry("w1", SAMPLE, replace(SAMPLE, engine="e2"), finished=(failed,)))
    ends = {span["leg"]: span["outcome"] for span in view_lanes(state, 103.0, "")["spans"].values()}
    assert ends == {"prompt": "finished", "answer": "engine_error"}


@pytest.mark.parametrize(("ends", "left_out"), [(SHOWN, 0), (SHOWN + 1, 1), (MAX_SPANS + 9, MAX_SPANS + 9 - SHOWN)])
def test_lanes_tell_how_many_of_the_last_minute_are_left_out(ends: int, left_out: int) -> None:
    state = ConsoleState()
    for worker in ("w1", "w2"):
        state.hear(100.0, heartbeat(worker))
        state.hear(100.0, telemetry(worker))
    ended = tuple(replace(FINISHED, request_id=str(number)) for number in range(ends))
    state.hear(102.0, telemetry("w2", finished=ended[:3]))
    state.hear(102.1, telemetry("w1", finished=ended))
    view = view_lanes(state, 103.0, "w1")
    assert (len(view["spans"]), view["left_out"]) == (SHOWN, left_out)
    view = view_lanes(state, 103.0, "w2")
    assert len(view["spans"]) + view["left_out"] == 3
    assert view_lanes(state, 103.0 + SHOWN_S, "w1")["left_out"] == 0


def test_of_pools_that_are_not_heard_nothing_is_kept_and_new_ones_find_room() -> None:
    state = ConsoleState()
    decided = replace(AUDIT, kind="decided", selector="rules", predicted_gain=0.045)
    for number in range(MAX_CURVES + 9):
        state.hear(0.0, replace(decided, pool=f"audited{number}"))
    assert len(state._rehearsed) == MAX_CURVES
    for number in range(MAX_CURVES):
        state.hear(100.0, replace(decision(T.EDF), pool=f"m{number}"))
        state.hear(100.0, replace(v_short(arrival_rps=1.0, missed=0.0), pool=f"m{number}"))
        state.sample(100.0)
    assert state._rehearsed == {}
    state.hear(150.0, replace(decision(T.EDF), pool="new"))
    assert "new" not in state.top.decisions  # all others live
    state.hear(150.0, replace(decision(T.EDF), pool="m7"))
    state.hear(161.0, replace(decision(T.EDF), pool="new"))
    state.hear(161.0, replace(decision(T.EDF), pool="newer"))
    assert {"new", "newer", "m7"} <= state.top.decisions.keys()
    for pools in (state.top.decisions, state.top.short, state.load, state._current):
        assert not {"m0", "m1"} & pools.keys()
        assert len(pools) <= MAX_CURVES


def test_recent_requests_tell_whether_they_met_their_slo() -> None:
    state = ConsoleState()
    late = replace(SETTLED, request_id="r2", ttft_s=3.0)
    state.hear(1.0, settled(SETTLED, late, replace(SETTLED, request_id="r3", outcome=Outcome.INVALID_REQUEST)))
    rows = view_requests(state, 1.0, "")["recent"]
    assert {name: row["verdict"] for name, row in rows.items()} == {"r1": "met", "r2": "missed", "r3": "not judged"}


def test_requests_in_time_are_counted_over_the_last_steps() -> None:
    state = ConsoleState()
    state.hear(1.0, v_short(arrival_rps=10.0, missed=0.5))
    late = replace(SETTLED, request_id="r2", ttft_s=3.0)
    state.hear(1.0, settled(*[SETTLED] * 12, *[late] * 6))
    state.sample(2.0)
    assert view_now(state, 2.0, "")["pools"]["m"]["in_time_rps"] == 12 / SAMPLE_S
    for step in range(2, 5):
        state.sample(SAMPLE_S * step)
    rates = [row[1] for row in view_now(state, 8.0, "")["load"].values()]
    assert rates == [6.0, 3.0, 2.0, 0.0]


def asked_what_if(state: ConsoleState, question: WhatIfQuestion, told: WhatIfAnswer) -> None:
    state.hear(1.0, decision(T.FCFS))
    state.whatif.begin(1.0, question)
    state.whatif.end(told)


def test_a_what_if_tells_the_difference_by_tenant_with_its_spread() -> None:
    state, question = ConsoleState(), WhatIfQuestion(pool="m", topology=T.EDF)
    asked_what_if(state, question, WhatIfAnswer(9.0, rehearsal(), "fcfs"))
    view = view_whatif(state, 9.0, "pool=m&topology=edf")
    assert (view["state"], view["question"]) == ("told", question.model_dump(mode="json"))
    told = view["answer"]
    assert (told["in_force"], told["candidate"], told["switch"], told["drawn"]) == ("fcfs", "edf", "edf", 3)
    assert [row["on_time"] for row in told["rows"].values()] == [0.74, 0.725, 0.85]
    assert told["tenants"]["acme"] == {
        "requests": 150, "observed": 0.72, "in_force": 0.7, "candidate": 0.9, "gain": 0.2, "low": 0.1, "high": 0.3,
    }  # fmt: skip
    assert told["tenants"]["zeta"]["gain"] == -0.1
    for other in ("pool=m", "pool=m&topology=sjf", "pool=m&topology=edf&minutes=15"):
        assert view_whatif(state, 9.0, other)["state"] == "none"


def test_a_what_if_that_abstains_says_so_and_offers_no_switch() -> None:
    state = ConsoleState()
    asked_what_if(
        state, WhatIfQuestion(pool="m", topology=T.EDF), WhatIfAnswer(9.0, rehearsal(abstains="it misses"), "fcfs")
    )
    told = view_whatif(state, 9.0, "pool=m&topology=edf")["answer"]
    assert (told["abstains"], told["switch"]) == ("it misses", "")
    assert told["rows"]["candidate"]["on_time"] == 0.85


def test_a_switch_is_offered_for_the_topology_alone() -> None:
    for choice, switch in (("topology=edf", "edf"), ("topology=edf&engines=%2B1", ""), ("objective=tokens", "")):
        state, question = ConsoleState(), question_of(f"pool=m&{choice}")
        asked_what_if(state, question, WhatIfAnswer(9.0, rehearsal(), "fcfs"))
        assert view_whatif(state, 9.0, f"pool=m&{choice}")["answer"]["switch"] == switch


def test_a_what_if_tells_what_it_waits_for_and_why_it_failed() -> None:
    state, question = ConsoleState(), WhatIfQuestion(pool="m")
    assert view_whatif(state, 1.0, "")["question"]["pool"] == ""
    asked_what_if(state, question, WhatIfAnswer(9.0, error="no copy of qos"))
    assert (view_whatif(state, 9.0, "")["state"], view_whatif(state, 9.0, "")["error"]) == ("failed", "no copy of qos")
    state.whatif.begin(10.0, question)
    view = view_whatif(state, 14.0, "pool=m")
    assert (view["state"], view["busy"], view["since_s"], view["answer"]) == ("runs", True, 4.0, {})
    other = view_whatif(state, 14.0, "pool=m&minutes=15")
    assert (other["state"], other["busy"]) == ("none", True)


def test_an_address_that_cannot_be_read_asks_what_it_can() -> None:
    read = question_of("pool=a+b&minutes=7&topology=best&engines=%2B1&slo=chat%3Attft%3D800&more=1")
    assert read == WhatIfQuestion(pool="a b", engines="+1", slo="chat:ttft=800")
    assert question_of("=&&\0") == WhatIfQuestion()


def test_the_queue_is_shown_in_the_order_that_the_worker_told() -> None:
    state = ConsoleState()
    assert asked_of(state, "edf w1") == ("", "edf")
    state.hear(1.0, heartbeat())
    assert asked_of(state, "") == ("w1", "")
    assert asked_of(state, "no-order nobody") == ("w1", "")
    assert view_queue(state, 1.0, "")["state"] == "asked"
    state.take_queue(1.0, "w1", "", queue_told())
    view = view_queue(state, 1.0, "")
    assert (view["state"], view["in_force"], view["waiting"], view["topology"]) == (
        "told",
        "max_on_time",
        3,
        "in-force",
    )
    assert [(name, row["place"]) for name, row in view["rows"].items()] == [("a", 1), ("b", 2), ("c", 3)]
    a, b, c = view["rows"].values()
    assert (a["slack_s"], a["late"], a["relegated"], a["tenant"]) == (2.0, False, False, "acme")
    assert (b["slack_s"], b["late"], b["relegated"]) == (-1.0, True, True)
    assert not {"slack_s", "start_s", "late"} & c.keys()
    state.take_queue(2.0, "w1", "", None)
    assert view_queue(state, 2.0, "")["state"] == "silent"


def test_another_order_is_shown_beside_the_places_in_force() -> None:
    state = ConsoleState()
    state.hear(1.0, heartbeat())
    state.take_queue(1.0, "w1", "edf", queue_told("edf"))
    rows = view_queue(state, 1.0, "edf w1")["rows"]
    assert [(name, row["place"], row["in_force"]) for name, row in rows.items()] == [
        ("c", 1, 3),
        ("b", 2, 2),
        ("a", 3, 1),
    ]


def test_what_nobody_looks_at_is_forgotten() -> None:
    state = ConsoleState()
    for number in range(MAX_QUEUES + 3):
        state.take_queue(float(number) / 10, f"w{number}", "", queue_told())
    assert len(state.queues) == MAX_QUEUES
    state.jobs = Asked(1.0, [JOB])
    state.sample(2.0 + KEPT_S)
    assert state.queues == {}
    assert state.jobs is None


def test_jobs_are_told_by_template_the_slowest_first() -> None:
    state = ConsoleState()
    assert view_jobs(state, 1.0, "")["state"] == "asked"
    slow = replace(JOB, job="2", template="t2", begun_age_s=30.0, quiet_s=10.0)
    runs = replace(JOB, job="3", running=2, quiet_s=0.0, begun_age_s=5.0)
    state.jobs = Asked(1.0, [JOB, slow, runs])
    view = view_jobs(state, 1.0, "")
    first, second = view["templates"].values()
    assert (first["template"], first["mean_s"], first["cached"]) == ("t2", 20.0, 0.25)
    assert (second["jobs"], second["running"], second["mean_s"], second["calls"]) == (2, 1, 4.0, 3.0)
    assert list(view["now"]) == ["3"]
    assert view["now"]["3"]["open"] == 2
    state.jobs = Asked(1.0, None)
    assert view_jobs(state, 1.0, "")["state"] == "silent"


def test_a_switch_shows_what_came_of_it() -> None:
    state = ConsoleState()
    for at_s in range(0, 120, 2):
        if at_s == 0:
            state.hear(at_s, decision(T.FCFS))
        if at_s == 60:
            state.hear(at_s, decision(T.EDF))
        state.hear(at_s, v_short(arrival_rps=10.0, missed=0.5 if at_s < 62 else 0.1))
        state.sample(at_s)
    state.hear(119.0, decision(T.EDF))
    first, second = view_control(state, 120.0, "")["topologies"].values()
    assert (first["missed_before"], first["missed_after"]) == (-1.0, 0.5)
    assert (second["missed_before"], second["missed_after"]) == (0.5, 0.1)


def test_the_fence_shows_its_factors_and_whether_it_held() -> None:
    state = ConsoleState()
    state.hear(10.0, heartbeat())
    state.hear(10.0, CONTROL)
    assert view_control(state, 10.0, "")["fence"] == {}
    beyond = replace(FINISHED, request_id="r2", output_tokens=50)
    cut = replace(FINISHED, request_id="r3", output_tokens=50, censored=True)
    state.hear(10.0, telemetry(finished=(FINISHED, FINISHED, FINISHED, beyond, cut)))
    state.sample(10.0)
    fence = view_control(state, 10.0, "w1 e1")["fence"]
    assert (fence["answers"], fence["inside"]) == (4, 0.75)
    assert [(row["prompt_upto"], row["factor"]) for row in fence["factors"].values()] == [(512, 1.1), (2048, 1.4)]


TIMELINE = {
    "request_id": "r1", "tenant": "<b>acme</b>", "outcome": "finished", "output_tokens": 10, "ttft_s": 0.5,
    "total_s": 2.0, "slo": {"ttft_s": 2.0, "tpot_s": 0.1, "ttlt_s": None, "whole": False, "stated": True},
    "tags": {"predicted_output_tokens": 12.0}, "predicted_cost": {"ttft_s": 0.2, "tpot_s": 0.1, "total_s": 1.4},
    "attempts": [{"attempt": 1, "worker": "w1", "sent_s": 0.001}],
    "runs": [{"worker": "w1", "engine": "e1", "started_s": 0.3, "first_token_s": 0.5, "ended_s": 2.0}],
}  # fmt: skip


def test_a_requests_way_stands_against_its_deadline_and_its_prediction() -> None:
    view = view_request(TIMELINE)
    bars = {bar["what"]: (bar["from_s"], bar["until_s"]) for bar in view["bars"]}
    assert bars == {"waits": (0.0, 0.3), "prefill": (0.3, 0.5), "decode": (0.5, 2.0), "predicted": (0.3, 1.7)}
    marks = {mark["what"]: mark["at_s"] for mark in view["marks"]}
    assert marks == {"first token due": 2.0, "last token due": 3.0, "first token": 0.5, "end": 2.0}
    assert {"what": "runs 1 engine", "is": "e1"} in view["facts"]


SPLIT_RUN = {
    "worker": "w1", "engine": "e1", "prefill_engine": "e0", "started_s": 0.3, "computed_s": 0.4, "went_on_s": 0.41,
    "first_token_s": 0.5, "ended_s": 2.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "bars"),
    [
        ({}, {"prefill": ("w1 e0", 0.3, 0.4), "hand-over": ("w1 e1", 0.4, 0.5), "decode": ("w1 e1", 0.5, 2.0)}),
        ({"first_token_s": None}, {"prefill": ("w1 e0", 0.3, 0.4), "runs": ("w1 e1", 0.4, 2.0)}),
        ({"first_token_s": None, "ended_s": None}, {"prefill": ("w1 e0", 0.3, 0.4)}),
        ({"computed_s": None, "went_on_s": None, "first_token_s": None}, {"prefill": ("w1 e0", 0.3, 2.0)}),
    ],
)
def test_a_split_requests_bars_say_which_engine_did_what(
    changes: dict[str, None], bars: dict[str, tuple[str, float, float]]
) -> None:
    view = view_request({**TIMELINE, "runs": [{**SPLIT_RUN, **changes}]})
    found = {bar["what"]: (bar["where"], bar["from_s"], bar["until_s"]) for bar in view["bars"] if "where" in bar}
    assert found == bars


def test_a_requests_page_begins_with_the_sentence_of_hmas_why() -> None:
    view = view_request({"why": "Its pace was late by 1.00 s.", **TIMELINE})
    assert view["why"] == "Its pace was late by 1.00 s."
    assert all(fact["what"] != "why" for fact in view["facts"])


def test_a_request_in_flight_is_told_as_far_as_it_has_come() -> None:
    view = view_request({"request_id": "r", "outcome": "in flight", "slo": {"ttft_s": 2.0, "tpot_s": 0.1}, "runs": []})
    assert (view["bars"], view["why"]) == ([], "")
    assert [mark["what"] for mark in view["marks"]] == ["first token due", "last token due"]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_null_and_no_number_that_json_lacks(page: str) -> None:
    state = ConsoleState()
    empty = PAGES[page](state, 0.0, "unknown")
    state.hear(1.0, heartbeat())
    state.hear(1.0, CONTROL)
    state.hear(1.0, telemetry("w1", replace(SAMPLE, step_s=float("nan"), utilisation=float("inf"))))
    state.hear(1.0, telemetry(dispatched=(DISPATCHED,), finished=(FINISHED,)))
    state.hear(1.0, settled(SETTLED, replace(SETTLED, request_id="r4", ttft_s=None)))
    state.hear(1.0, decision(T.EDF))
    state.hear(1.0, AUDIT)
    state.sample(1.0)
    for view in (empty, PAGES[page](state, 1.5, "")):
        assert "null" not in json.dumps(view, allow_nan=False)


def test_what_is_kept_has_an_end() -> None:
    state = ConsoleState()
    for number in range(700):
        now_s = number * SAMPLE_S
        name = f"w{number}"
        state.hear(now_s, heartbeat(name))
        state.hear(now_s, decision(T.EDF, reason=str(number)))
        state.hear(now_s, AUDIT)
        state.hear(now_s, telemetry(name, finished=(replace(FINISHED, request_id=str(number)),)))
        state.hear(
            now_s, settled(*(replace(SETTLED, tenant=f"{number} {n}", outcome=Outcome.TIMED_OUT) for n in range(9)))
        )
        if number % 4 == 0:
            state.sample(now_s)
    many = tuple(replace(DISPATCHED, request_id=str(number)) for number in range(MAX_PENDING + 5))
    state.hear(0.0, telemetry(dispatched=many))
    for number in range(MAX_CURVES + 5):
        state.hear(0.0, replace(decision(T.EDF), pool=f"m{number}"))
    assert len(state.top.decisions) == MAX_CURVES
    assert len(state._waited) == MAX_PENDING
    assert len(state.alive) <= len(state.top.workers) + 1
    assert len(state.segments) == MAX_SEGMENTS
    assert len(state.flags) == MAX_FLAGS
    assert len(state.spans) == MAX_SPANS
    assert len(state.recent) == MAX_RECENT
    assert len(state.reasons.counts) <= MAX_REASONS
    assert len(state.loops) == MAX_CURVES
    assert all(len(curve) <= POINTS for curve in state.loops.values())
