"""What a grant tells of the choice between one engine and two."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.execution import Grant
from hmas.contracts.pair_forecast import PairDecision, PairForecast, PairReason
from hmas.contracts.request import Slo
from hmas.wire.codec import from_message, to_message
from hmas.worker.agent.config import SplitConfig
from tests.worker.builders import Scripted, engine, granted, request, sampled
from tests.worker.test_split_requests import alike, config, decoding, two

HOP_S, TOKEN_S = SplitConfig().hop_s, SplitConfig().token_s


def told(agent: Scripted, now_s: float = 0.0, **changes: Any) -> PairDecision:
    """A request comes, and is granted."""
    [grant] = granted(agent.submit(now_s, replace(request("new", arrival_s=now_s), **changes)))
    assert grant.choice is not None
    assert (grant.choice.taken.prefill, grant.choice.taken.engine) == (grant.prefill, grant.engine)
    return grant.choice


def engines(forecast: PairForecast | None) -> tuple[str, str]:
    assert forecast is not None
    return forecast.prefill, forecast.engine


def test_a_split_request_tells_the_best_single_engine_beside_its_pair() -> None:
    choice = told(alike("e1", "e2", "e3"), prompt_tokens=500)
    assert (engines(choice.taken), choice.reason) == (("e1", "e3"), PairReason.EVEN)
    assert choice.other is not None
    assert choice.other.prefill == ""
    read_s = HOP_S + 500 * TOKEN_S
    assert choice.taken.first_s == pytest.approx(choice.other.first_s + read_s)
    assert choice.taken.late == pytest.approx(choice.other.late, abs=0.05)


def test_a_request_that_stays_whole_tells_the_best_pair() -> None:
    agent = decoding("e1")
    choice = told(agent, 0.5, prompt_tokens=4000, slo=Slo(0.9, 0.03))
    assert choice.other is not None
    assert (choice.taken.prefill == "") is not (choice.other.prefill == "")
    assert (choice.taken.prefill or choice.taken.engine) == "e2"
    assert choice.reason is PairReason.FEWER_LATE
    assert choice.taken.late < choice.other.late


@pytest.mark.parametrize(
    ("rule", "tokens", "taken", "other"),
    [
        ("always", 100, ("p", "d"), ("", "p")),
        ("beyond", 100, ("", "d"), ("p", "d")),
        ("beyond", 400, ("p", "d"), ("", "p")),
    ],
)
def test_where_the_rule_decides_it_is_said_and_what_it_forbids_is_told(
    rule: str, tokens: int, taken: tuple[str, str], other: tuple[str, str]
) -> None:
    choice = told(two(rule, beyond_tokens=200), prompt_tokens=tokens)
    assert (engines(choice.taken), engines(choice.other), choice.reason) == (taken, other, PairReason.RULE)


def test_a_suspected_engine_is_no_alternative() -> None:
    agent = alike("e1", "e2")
    agent.state.fleet["e2"].suspect(0.0)
    agent.state.see_engines()
    for name in ("e1", "e2"):
        agent.step(20.0, sampled(name))
    choice = told(agent, 20.0)
    assert (engines(choice.taken), choice.other, choice.reason) == (("", "e1"), None, PairReason.NO_OTHER)
    assert choice.taken.late < 1.0


def test_those_late_are_requests_also_where_only_suspected_engines_are_left() -> None:
    agent = alike("e1", "e2")
    for name in ("e1", "e2"):
        agent.state.fleet[name].suspect(0.0)
    agent.state.see_engines()
    for name in ("e1", "e2"):
        agent.step(20.0, sampled(name))
    assert told(agent, 20.0, slo=Slo(0.4, 0.1)).taken.late < 1.0


def test_the_step_of_the_answering_engine_is_told() -> None:
    agent = decoding("e1", "e2")
    choice = told(agent, 0.5, prompt_tokens=4000, slo=Slo(0.9, 0.03))
    assert choice.taken.step_s >= 0.02


def test_without_a_choice_nothing_is_told() -> None:
    [whole] = granted(two("never").submit(0.0, request()))
    apart = Scripted(config(), engine("e1"), engine("e2"))
    [alone] = granted(apart.submit(0.0, request()))
    assert (whole.choice, alone.choice) == (None, None)


def test_a_choice_crosses_the_wire_and_is_not_in_what_a_grant_shows_itself_as() -> None:
    [grant] = granted(alike("e1", "e2").submit(0.0, request()))
    assert grant.choice is not None
    assert from_message(Grant, to_message(grant)) == grant
    assert repr(grant) == repr(replace(grant, choice=None))
