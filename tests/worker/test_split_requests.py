"""A worker splits requests between two engines: which pair it takes, its books of both, and what may go wrong."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.execution import Adopt, Ended, Prefilled, Proceed
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo
from hmas.contracts.worker import EngineWentDown, GatewayLost, ToGateway, WorkerEffect
from hmas.worker.agent.agent import WorkerConfig
from hmas.worker.agent.config import SplitConfig
from hmas.worker.agent.split.rules import ANY, DECODER_ALONE, SPLIT
from hmas.worker.agent.split.slack import Slack, harm, slacks
from tests.worker.builders import Scripted, annotation, dispatched, engine, entry, granted, request, sampled, stopped

P, D = "p", "d"


def config(rule: str = "always", **changes: Any) -> WorkerConfig:
    split = SplitConfig(rule=rule, **changes)
    return WorkerConfig(worker="w1", incarnation="i1", address="host:1", pool="m", static_n_run=8, split=split)


def two(rule: str = "always", **changes: Any) -> Scripted:
    engines = (engine(P, kv="nixl-pull", role="prefill"), engine(D, kv="nixl-pull", role="decode"))
    return Scripted(config(rule, **changes), *engines)


def pairs(effects: list[WorkerEffect]) -> list[tuple[str, str]]:
    return [(grant.prefill, grant.engine) for grant in granted(effects)]


def proceeds(effects: list[WorkerEffect]) -> list[Proceed]:
    """The first token of a request that comes at 0 is due after 4 s."""
    said = [e.message for e in effects if isinstance(e, ToGateway) and isinstance(e.message, Proceed)]
    return [replace(each, due_in_s=round(each.due_in_s, 9) if each.due_in_s else None) for each in said]


def prefilled(agent: Scripted, now_s: float, name: str = "r1", cached: int | None = 0) -> list[WorkerEffect]:
    return agent.say(now_s, Prefilled(name, agent.grants[name].grant, cached))


def booked(agent: Scripted, name: str) -> tuple[int, int]:
    """The requests and the KV blocks in the books of an engine, those included that prompts keep."""
    books = agent.state.fleet[name].books
    return len(books.running), books.blocks + books.kept_blocks


def test_the_books_of_both_engines_from_the_grant_to_the_first_token() -> None:
    agent = two()
    assert pairs(agent.submit(0.0, request(prompt_tokens=100))) == [(P, D)]
    answer_blocks = booked(agent, D)[1]
    assert (booked(agent, P), booked(agent, D)[0]) == ((1, 7), 1)  # 100 tokens and the first one, in blocks of 16
    assert agent.state.running == 1
    assert proceeds(prefilled(agent, 0.2)) == [Proceed("r1", 1, D, 3.8)]
    assert (booked(agent, P), booked(agent, D)) == ((0, 7), (1, answer_blocks))
    agent.first_token(0.3, "r1")
    assert (booked(agent, P), booked(agent, D)[0]) == ((0, 0), 1)
    agent.finish(1.0, "r1", 20)
    assert (booked(agent, P), booked(agent, D)) == ((0, 0), (0, 0))


def test_a_prompt_that_is_computed_twice_goes_on_twice_and_is_booked_once() -> None:
    agent = two()
    agent.submit(0.0, request())
    assert proceeds(prefilled(agent, 0.2)) == proceeds(prefilled(agent, 0.2)) == [Proceed("r1", 1, D, 3.8)]
    assert booked(agent, P) == (0, 7)


@pytest.mark.parametrize("phase", ["computing", "computed", "read"])
@pytest.mark.parametrize("outcome", [Outcome.FINISHED, Outcome.CANCELLED, Outcome.ENGINE_ERROR])
def test_nothing_stays_in_the_books_whenever_it_ends(phase: str, outcome: Outcome) -> None:
    agent = two()
    agent.submit(0.0, request())
    if phase != "computing":
        prefilled(agent, 0.2)
    if phase == "read":
        agent.first_token(0.3, "r1")
    agent.say(0.4, Ended(request_id="r1", grant=1, outcome=outcome, output_tokens=1))
    assert (booked(agent, P), booked(agent, D)) == ((0, 0), (0, 0))
    assert agent.state.split_books.legs == 0


def test_the_engine_that_lost_the_prompt_is_named_and_the_other_one_serves_the_request_whole() -> None:
    agent = two()
    agent.submit(0.0, request())
    assert pairs(agent.fail(0.2, "r1", at_prefill=True)) == [("", D)]
    assert agent.state.queue.get("r1").tried == (f"{P}#1",)  # type: ignore[union-attr]


def test_the_engine_that_lost_the_answer_is_named_otherwise() -> None:
    agent = two()
    agent.submit(0.0, request())
    prefilled(agent, 0.2)
    assert pairs(agent.fail(0.3, "r1")) == [("", P)]
    assert booked(agent, D) == (0, 0)


def test_an_engine_that_goes_down_is_asked_for_the_prompts_that_it_computes() -> None:
    agent = two()
    agent.submit(0.0, request())
    assert [each.request_id for each in stopped(agent.step(0.1, EngineWentDown(P, "gone")))] == ["r1"]
    assert dispatched(agent.fail(0.2, "r1")) == [("r1", D)]


@pytest.mark.parametrize(("prefilled_there", "blocks"), [(False, (1, 7)), (True, (0, 7))])
def test_a_request_that_is_adopted_is_booked_on_both(prefilled_there: bool, blocks: tuple[int, int]) -> None:
    agent = two()
    adopt = Adopt(
        request=request(), attempt=1, annotation=None, engine=D, grant=7, output_tokens=0, granted_s=0.0,
        first_token_s=None, prefill=P, prefilled=prefilled_there,
    )  # fmt: skip
    agent.connect(1.0, "g1", adopt)
    assert (booked(agent, P), booked(agent, D)[0]) == (blocks, 1)
    assert proceeds(agent.say(1.1, Prefilled("r1", 7))) == [Proceed("r1", 7, D, 2.9)]


def test_a_worker_that_knows_no_engine_yet_books_an_adopted_request_on_both() -> None:
    agent = Scripted(config())
    adopt = Adopt(
        request=request(), attempt=1, annotation=None, engine=D, grant=7, output_tokens=0, granted_s=0.0,
        first_token_s=None, prefill=P,
    )  # fmt: skip
    agent.connect(1.0, "g1", adopt)
    assert (booked(agent, P)[0], booked(agent, D)[0]) == (1, 1)
    agent.up(1.1, engine(P, kv="nixl-pull", role="prefill"))
    agent.say(1.2, Prefilled("r1", 7))
    assert (booked(agent, P)[0], booked(agent, D)[0]) == (0, 1)


def test_roles_bind_where_the_rule_says_so() -> None:
    short, long = request("short", prompt_tokens=100), request("long", prompt_tokens=400)
    agent = two("beyond", beyond_tokens=200)
    assert pairs(agent.submit(0.0, short, long)) == [("", D), (P, D)]
    assert pairs(two("never").submit(0.0, short)) == [("", "p")]


@pytest.mark.parametrize("kv", [("", ""), ("nixl-pull", ""), ("nixl-pull", "other")])
def test_engines_that_cannot_hand_over_serve_requests_whole(kv: tuple[str, str]) -> None:
    agent = Scripted(config(), engine(P, kv=kv[0], role="prefill"), engine(D, kv=kv[1], role="decode"))
    assert [prefill for prefill, _ in pairs(agent.submit(0.0, request("r1"), request("r2")))] == ["", ""]


def alike(*names: str) -> Scripted:
    return Scripted(config("auto"), *(engine(name, kv="nixl-pull") for name in names))


TIGHT = Slo(4.0, 0.025)  # of answers whose tokens take 0.02 s each


def decoding(*names: str, slo: Slo = TIGHT) -> Scripted:
    """Two engines, of which each in `names` has a request that has decoded for half a second and is to end in 0.8 s
    with some 0.2 s to spare."""
    agent = alike("e1", "e2")
    tags = annotation(50.0, ttft_s=0.1, tpot_s=0.02, slo=slo)
    adopted = [
        Adopt(request=request(f"on-{name}", slo=slo), attempt=1, annotation=tags, engine=name, grant=number,
              output_tokens=20, granted_s=0.0, first_token_s=0.1)
        for number, name in enumerate(names, 1)
    ]  # fmt: skip
    agent.connect(0.5, "g1", *adopted)
    agent.state.prefill_floor_s = agent.state.prior_floor_s = 0.0  # a step costs nothing without a prompt
    for name in names:
        agent.step(0.5, sampled(name, running=1, step_s=0.02))
    return agent


def ask(agent: Scripted, ttft_s: float, prompt_tokens: int = 4000) -> list[tuple[str, str]]:
    """A request comes whose prompt takes half a second; returns the pair that it is granted on, if it is."""
    slo = Slo(ttft_s, 0.1)
    found = agent.submit(0.5, request("new", prompt_tokens=prompt_tokens, arrival_s=0.5, slo=slo))
    return pairs(found)


@pytest.mark.parametrize(("taken", "free"), [("e1", "e2"), ("e2", "e1")])
def test_a_prompt_is_computed_where_nobody_is_late_by_it(taken: str, free: str) -> None:
    [(prefill, answers)] = ask(decoding(taken), 8.0)
    assert (prefill or answers) == free


def test_a_prompt_waits_while_it_would_make_somebody_late_and_its_own_time_allows() -> None:
    assert ask(decoding("e1", "e2"), 8.0) == []
    assert len(ask(decoding("e1", "e2"), 0.9)) == 1


def test_a_prompt_does_not_wait_if_it_makes_a_quarter_of_a_request_late() -> None:
    """Otherwise engines would stand idle until many prompts had to begin at once."""
    assert len(ask(decoding("e1", "e2"), 8.0, prompt_tokens=1500)) == 1
    assert ask(decoding("e1", "e2"), 8.0, prompt_tokens=2500) == []


def test_a_prompt_does_not_wait_for_those_who_have_time() -> None:
    assert len(ask(decoding("e1", "e2", slo=Slo(4.0, 0.2)), 8.0)) == 1


def test_prompts_and_answers_keep_apart_where_all_are_idle() -> None:
    """Engines stand in a line by their names: prompts come to the first one, answers to the last one."""
    assert ask(alike("e1", "e2", "e3"), 8.0) == [("e1", "e3")]


def test_what_reading_takes_is_learnt_from_answers() -> None:
    agent = two(smoothing=0.5)
    agent.submit(0.0, request(prompt_tokens=100))
    prefilled(agent, 0.2)
    agent.first_token(0.2 + 0.02 + 1.0, "r1")  # a step of the prior's 20 ms, and a second
    assert agent.state.split_books.token_s == pytest.approx(0.5 * 2e-5 + 0.5 * 1.0 / 100, rel=0.05)


def test_whose_prompt_goes_elsewhere_has_nothing_to_lose_where_it_is_computed() -> None:
    agent = two()
    agent.submit(0.0, request())
    assert slacks(agent.state.fleet[P], 0.0, 0.3) == []
    assert len(slacks(agent.state.fleet[D], 0.0, 0.3)) == 1
    assert (bool(agent.state.fleet[P].prefill), bool(agent.state.fleet[D].prefill)) == (True, False)


def test_a_request_is_delayed_by_the_prompts_behind_its_own() -> None:
    agent = Scripted(config(), engine("e1"))
    agent.state.prefill_floor_s = agent.state.prior_floor_s = 0.0
    agent.submit(0.0, request("first"), request("second"))
    behind, before = slacks(agent.state.fleet["e1"], 0.0, 0.3)
    assert behind.seconds - before.seconds == pytest.approx(agent.state.fleet["e1"].prefill.seconds / 2, rel=0.01)
    assert behind.seconds > before.seconds


def test_harm_is_what_comes_on_top() -> None:
    late, spare = Slack(-5.0, 10.0, 1.0), Slack(0.5, 10.0, 0.1)
    assert harm([late, spare]) == 0.0
    assert harm([late], prompt_s=1.0) < 0.01  # it is late anyway
    assert harm([spare], prompt_s=1.0) > 0.99
    assert harm([spare], step_s=0.1) > 0.99  # each of ten tokens takes longer
    assert harm([spare], prompt_s=0.1) < 0.01


def test_what_roles_allow() -> None:
    first, last, both = (engine("e", kv="nixl-pull", role=role) for role in ("prefill", "decode", ""))
    every = [(a, b) for a in (first, last, both) for b in (first, last, both)]
    allowed = {(a.role, b.role) for a, b in every if SPLIT.allows(a, b, whole=False)}
    assert allowed == {("prefill", "decode"), ("prefill", ""), ("", "decode"), ("", "")}
    assert [DECODER_ALONE.allows(each, each, whole=True) for each in (first, last, both)] == [False, True, True]
    assert not ANY.allows(engine("a"), engine("b"), whole=False)  # neither hands KV over


def test_prompts_that_others_are_to_read_take_memory() -> None:
    agent = two()
    fleet, waiting = agent.state.fleet[P], entry(1)
    before = fleet.memory_for(waiting, 8)
    fleet.keep(5)
    assert fleet.memory_for(waiting, 8) == before - 5


@pytest.mark.parametrize(("suspected", "pair"), [("e1", ("e2", "e3")), ("e3", ("e1", "e2"))])
def test_a_suspected_engine_has_neither_leg_while_others_have_room(suspected: str, pair: tuple[str, str]) -> None:
    agent = alike("e1", "e2", "e3")
    agent.state.fleet[suspected].suspect(0.0)
    agent.state.see_engines()
    agent.step(20.0, sampled(suspected))  # past the pause after which it may be tried
    for name in ("e1", "e2", "e3"):
        agent.step(20.0, sampled(name))
    assert pairs(agent.submit(20.0, request("new", arrival_s=20.0))) == [pair]


def snapshot(*, prefilled_there: bool, first_token_s: float | None) -> Adopt:
    return Adopt(
        request=request(), attempt=1, annotation=None, engine=D, grant=1, output_tokens=0, granted_s=0.0,
        first_token_s=first_token_s, prefill="" if first_token_s else P, prefilled=prefilled_there,
    )  # fmt: skip


@pytest.mark.parametrize(("first_token_s", "there"), [(None, (0, 7)), (0.3, (0, 0))])
def test_what_was_lost_with_a_stream_comes_with_the_next_one(
    first_token_s: float | None, there: tuple[int, int]
) -> None:
    agent = two()
    agent.submit(0.0, request())
    agent.step(0.1, GatewayLost("g1"))
    agent.connect(0.4, "g1", snapshot(prefilled_there=first_token_s is None, first_token_s=first_token_s))
    assert (booked(agent, P), booked(agent, D)[0]) == (there, 1)


def test_a_first_token_says_that_the_prompt_was_computed() -> None:
    agent = two()
    agent.submit(0.0, request())
    before = agent.state.split_books.token_s
    agent.first_token(0.3, "r1")
    assert booked(agent, P) == (0, 0)
    assert agent.state.split_books.token_s == before


def test_a_slot_that_awaits_a_prompt_is_not_looked_for_at_its_engine() -> None:
    """A sample shows fewer requests there than are booked, because one is still with the engine of its prompt: neither
    is a request of a lost gateway taken for gone, nor a stranger for one of ours."""
    agent = two()
    agent.submit(0.0, request("r1"))
    agent.step(3.0, sampled(D, running=1, waiting=0))
    agent.step(3.5, sampled(D, running=1, waiting=0))
    assert agent.state.fleet[D].counts.foreign == 1
    agent.step(4.0, GatewayLost("g1"))
    for now_s in (5.0, 6.0, 7.0):
        agent.step(now_s, sampled(D, running=0, waiting=0))
        agent.step(now_s, sampled(P, running=1, waiting=0))
    assert (booked(agent, P)[0], booked(agent, D)[0]) == (1, 1)


def test_of_a_lost_gateway_the_slots_come_free_where_each_engine_shows_it() -> None:
    agent = two()
    agent.submit(0.0, request("r1"))
    agent.step(1.0, GatewayLost("g1"))
    for now_s in (2.0, 3.0):
        agent.step(now_s, sampled(P, running=0, waiting=0))
    assert (booked(agent, P)[0], booked(agent, D)[0]) == (0, 1)  # the gateway goes on by itself
    for now_s in (3.3, 3.7):
        agent.step(now_s, sampled(D, running=0, waiting=0))
        assert booked(agent, D)[0] == 1  # it may be on its way
    for now_s in (4.5, 5.0):
        agent.step(now_s, sampled(D, running=0, waiting=0))
    assert (booked(agent, P), booked(agent, D)) == ((0, 0), (0, 0))


def test_what_is_gone_from_an_engine_is_not_what_has_yet_to_come_there() -> None:
    agent = two()
    agent.connect(0.0, "g2")
    agent.submit(0.0, request("r1"), gateway="g2")
    agent.say(0.2, Prefilled("r1", 1), "g2")
    agent.submit(0.3, request("r2"))
    agent.step(1.0, GatewayLost("g1"))
    for now_s in (2.0, 3.0, 4.0):
        agent.step(now_s, sampled(D, running=0, waiting=0))
    assert booked(agent, D)[0] == 2
