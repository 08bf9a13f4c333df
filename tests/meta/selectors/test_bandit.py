"""The bandit and its features."""

from dataclasses import replace
from typing import Any

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.views import ShareView, VLong
from hmas.meta.agent.config import MetaConfig, RulesConfig
from hmas.meta.agent.selectors.bandit import ARMS, BanditSelector
from hmas.meta.agent.selectors.features import FEATURES, features
from hmas.meta.agent.selectors.selector import Choice
from hmas.meta.agent.selectors.table import SELECTORS
from tests.meta.selectors.test_rules_selector import CALM

SJF, LANES = TopologyName.SJF, TopologyName.TWO_LANE
BACKLOG = FEATURES.index("log_backlog_s")
NOW = Choice(SJF, Hints(fast_weight=0.6), "before")


def view(**changes: Any) -> VLong:
    return replace(CALM, **changes)


def test_features_do_not_depend_on_the_size_of_the_pool() -> None:
    small, large = view(queued=20, arrival_rps=10.0), view(queued=2000, arrival_rps=1000.0)
    assert features(small) == features(large)
    assert len(features(small)) == len(FEATURES)
    assert features(view(arrival_rps=0.0, queued=5))[BACKLOG] == 0.0


def test_a_thin_view_changes_nothing() -> None:
    thin = view(
        tenants=(ShareView(name="a", offered=5, settled=5, ok=5, ttft_ok=5, tpot_ok=5, tokens_served=10, weight=1.0),)
    )
    kept = BanditSelector(RulesConfig()).select(0.0, thin, NOW)
    assert (kept.topology, kept.hints) == (SJF, NOW.hints)
    assert kept.reason.startswith("kept: 5 requests settled")


def test_the_bandit_finds_the_arm_that_pays() -> None:
    """Two-lane meets 90 % of the SLOs, every other order 40 %."""
    selector, choice, chosen = BanditSelector(RulesConfig()), NOW, []
    for i in range(60):
        rate = 0.1 if choice.topology is LANES else 0.6
        choice = selector.select(15.0 * i, view(violation_rate=rate), choice)
        chosen.append(choice.topology)
    assert set(chosen[:12]) >= set(ARMS) - {SJF}
    assert chosen[-20:].count(LANES) >= 18


def test_the_bandit_does_not_credit_what_a_guard_took_away() -> None:
    selector = BanditSelector(RulesConfig())
    overruled = Choice(TopologyName.WFQ, Hints(), "rolled back")
    for i in range(30):
        selector.select(15.0 * i, view(violation_rate=0.9), overruled)
    assert sum(selector._policy._counts.values()) == 0
    chosen = selector.select(500.0, view(violation_rate=0.9), overruled)
    selector.select(515.0, view(violation_rate=0.2), chosen)
    assert dict(selector._policy._counts) == {chosen.topology: 1}


def test_a_bandit_whose_choices_are_refused_proposes_every_other_arm() -> None:
    """As with rehearsals that find no gain: what is in force stays."""
    selector = BanditSelector(RulesConfig())
    kept = Choice(TopologyName.MAX_ON_TIME, Hints(), "initial topology")
    chosen = [selector.select(15.0 * i, view(violation_rate=0.3), kept).topology for i in range(2 * len(ARMS))]
    assert set(chosen) >= set(ARMS) - {TopologyName.MAX_ON_TIME}


def test_equal_histories_give_equal_choices() -> None:
    for name in SELECTORS:
        one, two = (SELECTORS[name](MetaConfig()) for _ in range(2))
        a = b = NOW
        for i in range(20):
            seen = view(violation_rate=(i % 5) / 10, queued=i * 20, prompt_mean=300.0 + 200 * (i % 7))
            a, b = one.select(15.0 * i, seen, a), two.select(15.0 * i, seen, b)
            assert a == b
