"""The classifier, the bandit and the change-point detector."""

import json
from collections.abc import Iterator
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
from hmas.meta.agent.selectors.learned import Fork, Leaf, Learned, Regime, parse_learned
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
    nodes=(Fork(BACKLOG, 1.0, 1, 2), Leaf(EDF, 0.9), Fork(PROMPT, 7.0, 3, 4), Leaf(SJF, 0.8), Leaf(LANES, 0.4)),
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


def test_a_bandit_whose_choices_are_refused_proposes_every_other_arm() -> None:
    """As with rehearsals that find no gain: what is in force stays."""
    selector = BanditSelector(RulesConfig(), MADE)
    kept = Choice(TopologyName.MAX_ON_TIME, Hints(), "initial topology")
    chosen = [selector.select(15.0 * i, view(violation_rate=0.3), kept).topology for i in range(2 * len(ARMS))]
    assert set(chosen) >= set(ARMS) - {TopologyName.MAX_ON_TIME}


def test_equal_histories_give_equal_choices() -> None:
    for name in ("classifier", "bandit", "changepoint"):
        one, two = (SELECTORS[name](MetaConfig()) for _ in range(2))
        a = b = NOW
        for i in range(20):
            seen = view(violation_rate=(i % 5) / 10, queued=i * 20, prompt_mean=300.0 + 200 * (i % 7))
            a, b = one.select(15.0 * i, seen, a), two.select(15.0 * i, seen, b)
            assert a == b


def paths_to_leaves(tree: Learned) -> Iterator[tuple[int, Leaf, tuple[float, ...]]]:
    """Each leaf's place, the leaf, and the features of a view that the splits send there."""
    todo: list[tuple[int, dict[int, tuple[float, float]]]] = [(0, {})]
    while todo:
        place, bounds = todo.pop()
        node = tree.nodes[place]
        if isinstance(node, Leaf):
            middle = (bounds.get(i, (-1e6, 1e6)) for i in range(N))
            yield place, node, tuple((low + high) / 2 for low, high in middle)
        else:
            low, high = bounds.get(node.feature, (-1e6, 1e6))
            assert low < node.threshold < high, f"node {place} sends everything one way"
            todo += [
                (node.low, bounds | {node.feature: (low, node.threshold)}),
                (node.high, bounds | {node.feature: (node.threshold, high)}),
            ]


def check(document: dict[str, Any]) -> None:
    """The tree is one, and says what the training found: of one best topology a leaf, of several a choice."""
    found, best = parse_learned(document), set(document["trained"]["best"])
    leaves = list(paths_to_leaves(found))
    places = sorted(place for place, _, _ in leaves)
    assert places == [i for i, node in enumerate(found.nodes) if isinstance(node, Leaf)]
    assert all(found.classify(values) is leaf and 0.0 < leaf.share <= 1.0 for _, leaf, values in leaves)
    told = {leaf.topology for _, leaf, _ in leaves}
    assert told <= best
    assert (len(told) > 1) == (len(best) > 1)
    assert {regime.topology for regime in found.regimes} == best
    assert len(found.scale) == N
    for regime in found.regimes:
        values = tuple(mean + deviation * c for c, (mean, deviation) in zip(regime.centre, found.scale, strict=True))
        assert found.nearest(values) == regime


SPLIT = {"feature": 0, "threshold": 1.0, "low": 1, "high": 2}
TWO = [SPLIT, {"topology": "sjf", "share": 0.9}, {"topology": "edf", "share": 0.8}]
BOTH = {"best": {"sjf": 1, "edf": 1}}
CENTRES = [{"name": str(t), "centre": [float(t is EDF)] * N, "topology": str(t)} for t in (SJF, EDF)]
DOCUMENT = {"features": list(FEATURES), "nodes": TWO, "scale": [[0.0, 1.0]] * N, "regimes": CENTRES, "trained": BOTH}


def test_the_tree_that_is_shipped_says_what_its_training_found() -> None:
    check(DOCUMENT)
    check(json.loads((files("hmas.meta.agent.selectors") / "learned.json").read_text()))


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": TWO[1:2]},  # one leaf, although two topologies were best
        {"nodes": [*TWO, TWO[1]]},  # a leaf that nothing leads to
        {"nodes": [SPLIT, SPLIT | {"low": 3, "high": 4}, TWO[2], TWO[1], TWO[2]]},  # the same question twice
        {"nodes": [SPLIT, TWO[1], TWO[1]]},  # both answers say the same
        {"nodes": [SPLIT, TWO[1], {"topology": "wfq", "share": 0.8}]},  # best nowhere
        {"regimes": CENTRES[:1]},
        {"regimes": [CENTRES[0], CENTRES[1] | {"centre": CENTRES[0]["centre"]}]},  # two that cannot be told apart
    ],
)
def test_what_a_tree_may_not_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        check(DOCUMENT | wrong)


def test_what_was_learned_for_other_features_is_refused() -> None:
    with pytest.raises(ValueError, match="other features"):
        parse_learned(DOCUMENT | {"features": ["x"]})
