"""What the contracts themselves compute: few rules, each of which several rooms go by."""

import json
from dataclasses import asdict, replace

import pytest

from hmas.contracts.job import NO_CHAIN
from hmas.contracts.rehearsal import PastFigures, Rehearsal
from hmas.contracts.request import Cost
from hmas.contracts.views import MAX_VIEW_CHARS, DemandView, view_json
from tests.builders.requests import client_request
from tests.builders.telemetry import request_finished
from tests.builders.views import share_view, v_long, v_short

DEMAND = DemandView(tpot_slo_s=0.1, rps=1.0, requests=1, prompt_tokens=1, output_tokens=1, context_tokens=1.0)
FIGURES = PastFigures(requests=9, on_time=0.5, ttft_p50_s=1.0, ttft_p95_s=2.0, tenants=())


@pytest.mark.parametrize(("thread", "turn", "opening"), [(0, 0, False), (7, 0, True), (7, 8, False), (0, 8, False)])
def test_a_prompt_opens_a_thread_if_nothing_followed_the_users_first_message(
    thread: int, turn: int, opening: bool
) -> None:
    assert replace(NO_CHAIN, thread=thread, turn=turn).opening is opening
    assert replace(NO_CHAIN, thread=1, turn=0).opening
    assert not replace(NO_CHAIN, thread=1, turn=1).opening


@pytest.mark.parametrize(("max_tokens", "prefill_only"), [(0, True), (1, False), (None, False)])
def test_a_request_for_no_token_is_a_prefill_alone(max_tokens: int | None, prefill_only: bool) -> None:
    assert client_request(max_tokens=max_tokens).prefill_only is prefill_only


def test_the_service_time_is_the_prefill_and_that_of_each_output_token() -> None:
    cost = Cost(0.5, 0.25)
    assert cost.total_s(8.0) == 2.5


def test_the_wait_in_the_engine_is_no_part_of_a_requests_own_prefill() -> None:
    assert request_finished(prefill_s=0.75, engine_wait_s=0.5).own_prefill_s == 0.25


def test_a_rehearsal_misses_by_what_its_simulation_has_more_on_time() -> None:
    rehearsal = Rehearsal(window_s=300.0, observed=FIGURES, in_force=replace(FIGURES, on_time=0.75), candidates=())
    assert rehearsal.miss == 0.25


def test_a_view_is_written_without_its_demands() -> None:
    long, short = v_long(demands=(DEMAND,)), v_short()
    assert view_json(None) == "{}"
    assert json.loads(view_json(short)) == json.loads(json.dumps(asdict(short)))
    body = asdict(long)
    del body["demands"]
    assert json.loads(view_json(long)) == json.loads(json.dumps(body))


def test_a_view_of_the_most_characters_is_whole_and_a_longer_one_loses_its_longest_lists() -> None:
    some = v_long(tenants=(share_view(),) * 9, tasks=(share_view(),) * 3)
    room = MAX_VIEW_CHARS - len(view_json(some))
    whole = view_json(replace(some, pool=some.pool + "x" * room))
    assert len(whole) == MAX_VIEW_CHARS
    assert "left_out" not in whole
    cut = json.loads(view_json(replace(some, pool=some.pool + "x" * (room + 1))))
    assert cut["left_out"] == ["tenants"]
    assert "tenants" not in cut
    assert len(cut["tasks"]) == 3
    many = v_long(tenants=(share_view("n" * 999),) * 200, tasks=(share_view("n" * 999),) * 190)
    twice = json.loads(view_json(many))
    assert twice["left_out"] == ["tenants", "tasks"]
    assert len(view_json(many)) <= MAX_VIEW_CHARS
