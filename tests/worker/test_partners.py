"""Engines that serve in pairs alone, and engines that look as if they could hand KV over and cannot: which pairs a
worker makes, and what becomes of requests where none is left."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.execution import Adopt, Prefilled, Refusal
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import SGLANG, EngineInfo
from hmas.contracts.worker import CycleTicked, EnginesUnpaired, EngineWentDown, ToGateway, WorkerEffect
from hmas.worker.agent.config import SplitConfig
from hmas.worker.agent.split.rules import hands_over
from tests.worker.builders import Scripted, engine, granted, request, sampled
from tests.worker.test_split_requests import config, pairs

P, D = "p", "d"


def half(name: str, role: str, **changes: Any) -> EngineInfo:
    return engine(name, **({"kv": SGLANG, "role": role, "bootstrap_port": 8998} | changes))


def prompts(name: str = P, **changes: Any) -> EngineInfo:
    return half(name, "prefill", **changes)


def answers(name: str = D, **changes: Any) -> EngineInfo:
    return half(name, "decode", **changes)


def refusals(effects: list[WorkerEffect]) -> list[Outcome]:
    return [e.message.outcome for e in effects if isinstance(e, ToGateway) and isinstance(e.message, Refusal)]


@pytest.mark.parametrize("rule", ["never", "auto", "always", "beyond"])
def test_whatever_the_rule_they_serve_in_pairs(rule: str) -> None:
    agent = Scripted(config(rule, beyond_tokens=10_000), prompts(), answers())
    [grant] = granted(agent.submit(0.0, request()))
    assert (grant.prefill, grant.engine, grant.bootstrap_port) == (P, D, 8998)


def test_only_those_that_get_requests_at_once_are_told_of_by_a_port() -> None:
    agent = Scripted(
        config(), *(engine(name, kv="nixl-pull", role=role) for name, role in ((P, "prefill"), (D, "decode")))
    )
    assert [grant.bootstrap_port for grant in granted(agent.submit(0.0, request()))] == [0]


def test_whole_requests_go_to_those_that_need_no_partner() -> None:
    agent = Scripted(config("never"), prompts(), answers(), engine("whole"))
    made = {pair for number in range(16) for pair in pairs(agent.submit(0.0, request(f"r{number}")))}
    assert made == {(P, D), ("", "whole")}


@pytest.mark.parametrize("lone", [prompts(), answers()])
def test_one_that_is_left_alone_serves_nothing(lone: EngineInfo) -> None:
    agent = Scripted(config("auto"), lone)
    assert granted(agent.submit(0.0, request())) == []
    assert agent.state.up == []
    effects = [effect for now_s in (5.0, 11.0) for effect in agent.step(now_s, CycleTicked())]
    assert refusals(effects) == [Outcome.NO_ENGINE]
    [refusal] = [e.message for e in effects if isinstance(e, ToGateway) and isinstance(e.message, Refusal)]
    assert f"{lone.engine} is up and has no other engine" in refusal.message


def test_one_whose_partner_comes_back_serves_again() -> None:
    agent = Scripted(config(), prompts(), answers())
    agent.step(1.0, EngineWentDown(P, "gone"))
    assert granted(agent.submit(1.0, request())) == []
    assert pairs([*agent.up(2.0, prompts()), *agent.step(2.1, sampled(P))]) == [(P, D)]


def test_a_prompt_that_is_lost_is_computed_by_another_one_if_there_is_one() -> None:
    agent = Scripted(config(), prompts("p1"), prompts("p2"), answers())
    [first] = granted(agent.submit(0.0, request()))
    [second] = granted(agent.fail(0.1, "r1", at_prefill=True))
    assert ({first.prefill, second.prefill}, second.engine) == ({"p1", "p2"}, D)
    assert refusals(agent.fail(0.2, "r1", at_prefill=True)) == [Outcome.ENGINE_ERROR]


def test_a_request_that_nothing_is_left_for_holds_up_no_other() -> None:
    """It waits with a pause between, because its engine was full, while its own gateway has others."""
    agent = Scripted(config(), prompts(), answers())
    agent.submit(0.0, request("r1"))
    agent.fail(0.1, "r1", at_prefill=True)
    assert pairs(agent.submit(0.2, request("r2"))) == [(P, D)]


@pytest.mark.parametrize("computed", [False, True])
def test_a_request_that_runs_at_both_is_adopted_at_both(computed: bool) -> None:
    """What each engine shows beyond the books is this request, which then is in them."""
    agent = Scripted(config(), prompts(), answers())
    for now_s in (0.5, 1.0):
        agent.step(now_s, sampled(D, running=1))
        agent.step(now_s, sampled(P, running=int(not computed)))
    adopt = Adopt(
        request=request(), attempt=1, annotation=None, engine=D, grant=7, output_tokens=0, granted_s=0.9,
        first_token_s=None, prefill=P, prefilled=computed,
    )  # fmt: skip
    agent.connect(1.1, "g1", adopt)
    assert [agent.state.fleet[name].in_flight for name in (P, D)] == [int(not computed), 1]


def test_what_answers_has_the_request_from_the_grant_on() -> None:
    """A sample that shows it there shows nobody else's; unlike where it comes after the prompt is computed."""
    for engines, foreign in (((prompts(), answers()), 0), ((_nixl(P, "prefill"), _nixl(D, "decode")), 1)):
        agent = Scripted(config(), *engines)
        agent.submit(0.0, request())
        for now_s in (1.0, 2.0):
            agent.step(now_s, sampled(D, running=1))
        assert agent.state.fleet[D].counts.foreign == foreign
        agent.say(2.1, Prefilled("r1", 1))
        for now_s in (3.0, 4.0):
            agent.step(now_s, sampled(D, running=1))
        assert agent.state.fleet[D].counts.foreign == 0


def _nixl(name: str, role: str, version: str = "0.32.0", kv: str = "nixl-pull") -> EngineInfo:
    return engine(name, kv=kv, kv_version=version, role=role)


@pytest.mark.parametrize(
    ("other", "able"),
    [
        ({}, True),
        ({"kv_version": "0.31.0"}, False),
        ({"kv_version": ""}, False),
        ({"kv": "nixl-push"}, False),
        ({"kv": ""}, False),
    ],
)
def test_engines_of_different_connectors_or_versions_are_no_pair(other: dict[str, str], able: bool) -> None:
    first, second = _nixl(P, "prefill"), replace(_nixl(D, "decode"), **other)  # type: ignore[arg-type]
    assert hands_over(first, second) is able
    assert pairs(Scripted(config(), first, second).submit(0.0, request())) == ([(P, D)] if able else [("", P)])


@pytest.mark.parametrize(
    ("first", "second", "able"),
    [
        (prompts(), answers(), True),
        (answers(), prompts(), False),
        (prompts(), prompts("p2"), False),
        (prompts(kv_version="mooncake"), answers(kv_version="nixl"), False),
        (prompts(bootstrap_port=0), answers(), False),
        (prompts(), answers(bootstrap_port=0), True),
    ],
)
def test_halves_are_a_pair_in_one_order(first: EngineInfo, second: EngineInfo, able: bool) -> None:
    assert hands_over(first, second) is able


def test_while_versions_change_requests_are_served_whole_and_not_left_waiting() -> None:
    """Prompts' engines are of the old version still, and the answers' one is of the new one."""
    agent = Scripted(config(), _nixl("p1", "prefill"), _nixl("p2", "prefill"), _nixl(D, "decode", "0.33.0"))
    assert [prefill for prefill, _ in pairs(agent.submit(0.0, request("a"), request("b")))] == ["", ""]
    agent.up(1.0, _nixl("p3", "prefill", "0.33.0"))
    agent.step(1.1, sampled("p3"))
    assert pairs(agent.submit(1.2, request("c"))) == [("p3", D)]


def test_never_splits_what_can_be_served_whole() -> None:
    agent = Scripted(config("never"), _nixl(P, "prefill"), _nixl(D, "decode"), prompts("sp"), answers("sd"))
    made = {pair for name in "abcdef" for pair in pairs(agent.submit(0.0, request(name)))}
    assert (P, D) not in made
    assert made <= {("", P), ("", D), ("sp", "sd")}


def test_the_default_is_never() -> None:
    assert SplitConfig().rule == "never"


def unpaired(effects: list[WorkerEffect]) -> list[EnginesUnpaired]:
    return [effect for effect in effects if isinstance(effect, EnginesUnpaired)]


def test_engines_that_are_no_pair_although_both_hand_over_are_named() -> None:
    agent = Scripted(config(), _nixl(P, "prefill"), engine("whole"))
    assert unpaired(agent.up(1.0, _nixl("d1", "decode"))) == []
    found = unpaired(agent.up(1.0, _nixl("d2", "decode", "0.31.0")))
    assert found == [EnginesUnpaired("d2", "nixl-pull 0.31.0", ((P, "nixl-pull 0.32.0"),))]
    found = unpaired(agent.up(1.0, _nixl("p2", "prefill", kv="nixl-push")))
    assert found == [
        EnginesUnpaired("p2", "nixl-push 0.32.0", (("d1", "nixl-pull 0.32.0"), ("d2", "nixl-pull 0.31.0")))
    ]
    assert unpaired(agent.up(1.0, engine("plain"))) == []


def test_one_that_is_down_is_not_named() -> None:
    agent = Scripted(config(), _nixl(P, "prefill"))
    agent.step(1.0, EngineWentDown(P, "gone"))
    assert unpaired(agent.up(1.0, _nixl(D, "decode", "0.31.0"))) == []
