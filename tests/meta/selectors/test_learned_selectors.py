"""The classifier, the bandit and the change-point detector."""

import json
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.views import ShareView, VLong
from hmas.meta.agent.config import MetaConfig, RulesConfig
from hmas.meta.agent.selectors.bandit import ARMS, BanditSelector
from hmas.meta.agent.selectors.changepoint import ChangePointSelector
from hmas.meta.agent.selectors.classifier import ClassifierSelector
from hmas.meta.agent.selectors.features import FEATURES, features
from hmas.meta.agent.selectors.learned import Leaf, Learned, Regime, Split, learned, parse_learned
from hmas.meta.agent.selectors.selector import Choice
from hmas.meta.agent.selectors.table import SELECTORS
from tests.meta.selectors.test_rules_selector import CALM

SJF, EDF, LANES = TopologyName.SJF, TopologyName.EDF, TopologyName.TWO_LANE
BACKLOG, PROMPT = FEATURES.index("log_backlog_s"), FEATURES.index("log_prompt_mean")
N = len(FEATURES)
SCALE = tuple((0.0, 1.0) for _ in FEATURES)


def _centre(**at: float) -> tuple[float, ...]:
    base = list(features(CALM))
    for name, v in at.items():
        base[FEATURES.index(name)] = v
    return tuple(base)


MADE = Learned(
    nodes=(Split(BACKLOG, 1.0, 1, 2), Leaf(EDF, 0.9), Split(PROMPT, 7.0, 3, 4), Leaf(SJF, 0.8), Leaf(LANES, 0.4)),
    scale=SCALE,
    regimes=(Regime("calm", _centre(), EDF), Regime("long prompts", _centre(log_prompt_mean=9.0), LANES)),
)
NOW = Choice(SJF, Hints(fast_weight=0.6), "before")


def view(**changes: Any) -> VLong:
    return replace(CALM, **changes)


def test_features_do_not_depend_on_the_size_of_the_pool() -> None:
    small, large = view(queued=20, arrival_rps=10.0), view(queued=2000, arrival_rps=1000.0)
    assert features(small) == features(large)
    assert len(features(small)) == N
    assert features(view(arrival_rps=0.0, queued=5))[BACKLOG] == 0.0


def test_the_tree_is_walked_to_its_leaf() -> None:
    tree = ClassifierSelector(RulesConfig(), MADE)
    assert tree.select(0.0, view(), NOW).topology is EDF
    assert tree.select(0.0, view(queued=100), NOW).topology is SJF


def test_a_doubtful_leaf_and_a_thin_view_change_nothing() -> None:
    tree = ClassifierSelector(RulesConfig(), MADE)
    doubtful = tree.select(0.0, view(queued=100, prompt_mean=5000.0), NOW)
    assert (doubtful.topology, doubtful.hints) == (SJF, NOW.hints)
    assert "in doubt (40%)" in doubtful.reason
    thin = view(
        tenants=(ShareView(name="a", offered=5, settled=5, ok=5, ttft_ok=5, tpot_ok=5, tokens_served=10, weight=1.0),)
    )
    for selector in (tree, BanditSelector(RulesConfig(), MADE), ChangePointSelector(RulesConfig(), MADE)):
        assert selector.select(0.0, thin, NOW).reason.startswith("kept: 5 requests settled")


def test_a_change_of_regime_is_looked_up_and_steadiness_is_not() -> None:
    selector = ChangePointSelector(RulesConfig(), MADE)
    first = selector.select(0.0, view(), NOW)
    assert (first.topology, first.reason) == (EDF, "first look: most like calm")
    choice = first
    for i in range(10):
        choice = selector.select(15.0 * i, view(), choice)
        assert choice.reason == "kept: no change of regime"
    seen = [selector.select(200.0 + 15.0 * i, view(prompt_mean=8000.0), choice) for i in range(8)]
    assert LANES in [c.topology for c in seen]
    assert any("log_prompt_mean changed: most like long prompts" in c.reason for c in seen)


def test_the_bandit_finds_the_arm_that_pays() -> None:
    """Two-lane meets 90 % of the SLOs, every other order 40 %."""
    selector, choice, chosen = BanditSelector(RulesConfig(), MADE), NOW, []
    for i in range(60):
        rate = 0.1 if choice.topology is LANES else 0.6
        choice = selector.select(15.0 * i, view(violation_rate=rate), choice)
        chosen.append(choice.topology)
    assert set(chosen[:12]) >= set(ARMS) - {SJF}
    assert chosen[-20:].count(LANES) >= 18


def test_the_bandit_does_not_credit_what_a_guard_took_away() -> None:
    selector = BanditSelector(RulesConfig(), MADE)
    overruled = Choice(TopologyName.WFQ, Hints(), "rolled back")
    for i in range(30):
        selector.select(15.0 * i, view(violation_rate=0.9), overruled)
    assert sum(selector._policy._counts.values()) == 0
    chosen = selector.select(500.0, view(violation_rate=0.9), overruled)
    selector.select(515.0, view(violation_rate=0.2), chosen)
    assert dict(selector._policy._counts) == {chosen.topology: 1}


def test_equal_histories_give_equal_choices() -> None:
    for name in ("classifier", "bandit", "changepoint"):
        one, two = (SELECTORS[name](MetaConfig()) for _ in range(2))
        a = b = NOW
        for i in range(20):
            seen = view(violation_rate=(i % 5) / 10, queued=i * 20, prompt_mean=300.0 + 200 * (i % 7))
            a, b = one.select(15.0 * i, seen, a), two.select(15.0 * i, seen, b)
            assert a == b


def test_what_was_learned_fits_the_features_and_names_topologies() -> None:
    found = learned()
    assert len(found.scale) == N
    assert found.regimes
    assert all(len(r.centre) == N for r in found.regimes)
    reached, todo = set(), [0]
    while todo:
        place = todo.pop()
        assert place not in reached
        reached.add(place)
        node = found.nodes[place]
        if isinstance(node, Split):
            todo += [node.low, node.high]
    assert reached == set(range(len(found.nodes)))
    document = json.loads((files("hmas.meta.agent.selectors") / "learned.json").read_text())
    with pytest.raises(ValueError, match="other features"):
        parse_learned(document | {"features": ["x"]})
