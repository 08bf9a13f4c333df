"""The layout of a pool: pinned, chosen from the views, carried by every decision, restored."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.control import MIXED, Pin, Split, TopologyName
from hmas.contracts.control_agents import (
    EpochGranted,
    LayoutRestored,
    LongViewReceived,
    MetaEffect,
    PinChanged,
    PublishLayout,
    Rehearse,
    ShortViewReceived,
    TimerTicked,
)
from hmas.contracts.registry import EngineInfo, HeartbeatReceived, WorkerHeartbeat
from hmas.contracts.rehearsal import PastLayout
from hmas.contracts.views import DemandView, PaceView, VShort
from hmas.laws.layout import described, split_of
from hmas.meta.agent.config import LayoutConfig, RehearsalConfig
from tests.builders.registry import engine_info
from tests.builders.views import engine_view
from tests.meta.test_meta_agent import CALM, COLLAPSED, HEARTBEAT, SHORT, Drive, kinds, records

ADAPTIVE = LayoutConfig(adaptive=True)
ENGINE = engine_view(
    running=8, kv_usage=0.5, utilisation=0.9, step_s=0.09, n_run=8, b_token=8, b_saturated=0, goodput_tokens_per_s=100.0
)
SPLIT = Split((0.1,), (1, 1))


def engine(name: str, *, up: bool = True) -> EngineInfo:
    return engine_info(name, up=up, hardware="", max_model_len=0, kv_capacity_tokens=0)


def beat(*names: str, down: tuple[str, ...] = (), worker: str = "w", **changes: Any) -> HeartbeatReceived:
    engines = tuple(engine(name, up=name not in down) for name in names)
    heartbeat: WorkerHeartbeat = replace(HEARTBEAT, worker=worker, engines=engines, **changes)
    return HeartbeatReceived(heartbeat)


def demand(slo_s: float, rps: float, output: int) -> DemandView:
    return DemandView(
        tpot_slo_s=slo_s,
        rps=rps,
        requests=400,
        prompt_tokens=400 * 200,
        output_tokens=400 * output,
        context_tokens=400.0 * (200 * output + output * output / 2),
    )


def pace(name: str, base_s: float = 0.04, context_s: float = 1e-6, observations: int = 20) -> PaceView:
    return PaceView(
        worker="w", engine=name, base_s=base_s, sequence_s=0.0, context_s=context_s, prompt_s=2e-4,
        observations=observations,
    )  # fmt: skip


TIGHT = replace(
    CALM,
    arrival_rps=4.0,
    demands=(demand(0.065, 2.0, 100), demand(0.2, 2.0, 600)),
    paces=(pace("e1"), pace("e2")),
    stated_share=1.0,
)
FAST = replace(TIGHT, paces=(pace("e1", 0.01, 1e-8), pace("e2", 0.01, 1e-8)))


def stepping(step_s: float) -> VShort:
    views = tuple(replace(ENGINE, engine=name, step_s=step_s) for name in ("e1", "e2"))
    return replace(SHORT, engines=views)


def begun(config: LayoutConfig = ADAPTIVE) -> Drive:
    drive = Drive(layout=config)
    drive.at(0.0, beat("e1", "e2"), EpochGranted(3), TimerTicked())
    drive.at(0.9, ShortViewReceived(stepping(0.09)))
    return drive


def layouts(effects: list[MetaEffect]) -> list[str]:
    return [described(e.decision.layout) for e in effects if isinstance(e, PublishLayout)]


def test_a_pool_is_split_where_the_pace_is_short_and_says_why() -> None:
    effects = begun().at(1.0, LongViewReceived(TIGHT))
    assert layouts(effects) == ["<= 65 ms: 1, > 65 ms: 1"]
    (record,) = records(effects)
    assert (record.kind, record.selector) == ("layout", "pace")
    assert "demands" not in record.view_json
    (decision,) = [e.decision for e in effects if isinstance(e, PublishLayout)]
    assert [each.place for each in decision.layout.engines] == ["w/e1", "w/e2"]


def test_a_rehearsal_is_told_of_the_layouts_before() -> None:
    drive = Drive(layout=ADAPTIVE, rehearsal=RehearsalConfig(enabled=True))
    drive.at(0.0, beat("e1", "e2"), EpochGranted(3), TimerTicked())
    drive.at(0.9, ShortViewReceived(stepping(0.09)))
    assert layouts(drive.at(1.0, LongViewReceived(TIGHT)))
    late = replace(TIGHT, violation_rate=0.2, ttft_violation_rate=0.2)
    effects = drive.at(31.0, beat("e1", "e2"), ShortViewReceived(stepping(0.09)), LongViewReceived(late))
    (asked,) = [effect for effect in effects if isinstance(effect, Rehearse)]
    assert asked.facts.layouts == (PastLayout(30.0, Split()),)
    assert [each.pace.engine for each in asked.facts.engines if each.pace] == ["e1", "e2"]
    assert asked.in_force.split.cuts_s == (0.065,)


def test_it_stays_mixed_where_the_pace_is_not_short_or_nothing_is_known() -> None:
    few = replace(TIGHT, demands=tuple(replace(d, requests=20) for d in TIGHT.demands))
    young = replace(TIGHT, paces=(pace("e1", observations=2), pace("e2", observations=2)))
    for view in (FAST, few, young, replace(TIGHT, paces=()), replace(TIGHT, demands=())):
        assert layouts(begun().at(1.0, LongViewReceived(view))) == []
    assert layouts(begun(LayoutConfig(adaptive=False)).at(1.0, LongViewReceived(TIGHT))) == []  # off


def test_it_is_mixed_where_few_clients_state_their_slos() -> None:
    tagged = replace(TIGHT, stated_share=0.4)
    assert layouts(begun().at(1.0, LongViewReceived(tagged))) == []
    drive = begun()
    assert layouts(drive.at(1.0, LongViewReceived(TIGHT))) == ["<= 65 ms: 1, > 65 ms: 1"]
    effects = drive.at(100.0, LongViewReceived(tagged))
    assert layouts(effects)[-1] == "mixed"
    assert "40% of the requests state their SLOs" in records(effects)[0].reason
    by_tags = begun(LayoutConfig(least_stated=0.0))
    assert layouts(by_tags.at(1.0, LongViewReceived(tagged))) == ["<= 65 ms: 1, > 65 ms: 1"]


def test_it_stays_mixed_where_short_steps_cost_little_of_an_engines_work() -> None:
    """The model expects a gain at this load, and the steps are slow now; but most of a step is work."""
    busy = replace(
        TIGHT,
        demands=(demand(0.065, 6.0, 100), demand(0.2, 6.0, 600)),
        paces=(pace("e1", 0.012), pace("e2", 0.012)),
    )
    assert layouts(begun(replace(ADAPTIVE, least_base=0.0)).at(1.0, LongViewReceived(busy))) != []
    assert layouts(begun().at(1.0, LongViewReceived(busy))) == []


def test_it_stays_mixed_while_steps_are_fast_enough_whatever_the_model_expects() -> None:
    drive = begun()
    drive.at(0.95, ShortViewReceived(stepping(0.03)))
    assert layouts(drive.at(1.0, LongViewReceived(TIGHT))) == []
    drive.at(5.9, ShortViewReceived(stepping(0.09)))
    assert layouts(drive.at(6.0, LongViewReceived(replace(TIGHT, seq=2)))) == ["<= 65 ms: 1, > 65 ms: 1"]


def test_a_gain_within_the_margin_changes_nothing() -> None:
    assert layouts(begun(LayoutConfig(adaptive=True, margin=0.9)).at(1.0, LongViewReceived(TIGHT))) == []


def test_it_is_mixed_again_when_the_strict_requests_are_gone() -> None:
    drive = begun()
    drive.at(1.0, LongViewReceived(TIGHT))
    lax = replace(TIGHT, seq=2, demands=(demand(0.2, 4.0, 600),))
    assert layouts(drive.at(10.0, LongViewReceived(lax))) == []  # a layout is kept for a while
    assert layouts(drive.at(70.0, beat("e1", "e2"), LongViewReceived(replace(lax, seq=3))))[-1:] == ["mixed"]


def test_a_pinned_layout_outranks_the_choice_and_is_lifted_with_the_pin() -> None:
    drive = begun()
    drive.at(1.0, LongViewReceived(TIGHT))
    pinned = drive.at(2.0, PinChanged(Pin("m", TopologyName.EDF, split=SPLIT)))
    assert layouts(pinned) == ["<= 100 ms: 1, > 100 ms: 1"]
    assert layouts(drive.at(50.0, LongViewReceived(replace(FAST, seq=2)))) == []
    assert layouts(drive.at(51.0, PinChanged(Pin("m", None)))) == ["<= 65 ms: 1, > 65 ms: 1"]
    assert layouts(drive.at(52.0, PinChanged(Pin("m", TopologyName.EDF, split=Split())))) == ["mixed"]


def test_a_pin_without_a_layout_leaves_it_to_the_controller() -> None:
    drive = begun()
    drive.at(0.5, PinChanged(Pin("m", TopologyName.EDF)))
    assert layouts(drive.at(1.0, LongViewReceived(TIGHT))) == ["<= 65 ms: 1, > 65 ms: 1"]


def test_no_layout_is_chosen_under_bypass_which_workers_mix_by_themselves() -> None:
    drive = begun()
    drive.at(1.0, LongViewReceived(TIGHT))
    effects = drive.run(2.0, 14.0, COLLAPSED)
    assert ("bypass_on", "fcfs") in kinds(effects)
    assert set(layouts(effects)) == {"<= 65 ms: 1, > 65 ms: 1"}
    assert layouts(drive.at(60.0, LongViewReceived(replace(TIGHT, seq=3)))) == []


def test_engines_that_come_and_go_are_dealt_out_anew() -> None:
    drive = begun()
    drive.at(1.0, LongViewReceived(TIGHT))
    assert layouts(drive.at(2.0, beat("e1", "e2", down=("e1",)), TimerTicked())) == ["mixed"]
    assert layouts(drive.at(3.0, beat("e1", "e2"), TimerTicked())) == ["<= 65 ms: 1, > 65 ms: 1"]
    three = drive.at(4.0, beat("e1", worker="v"), TimerTicked())
    assert layouts(three) == ["<= 65 ms: 1, > 65 ms: 2"]
    drive.at(5.0, beat("e1", "e2"))
    assert layouts(drive.at(5.0, beat("e1", worker="v", draining=True), TimerTicked())) == ["<= 65 ms: 1, > 65 ms: 1"]


def test_a_new_writer_goes_on_with_the_layout() -> None:
    first = begun()
    first.at(1.0, LongViewReceived(TIGHT))
    (decision,) = first.agent.layouts()
    second = Drive(layout=ADAPTIVE)
    second.at(0.0, beat("e1", "e2"), LayoutRestored(decision), EpochGranted(4))
    assert layouts(second.at(0.1, TimerTicked())) == ["<= 65 ms: 1, > 65 ms: 1"]


def test_a_writer_follows_a_layout_of_one_before_it_until_it_has_chosen_itself() -> None:
    first = begun()
    first.at(1.0, LongViewReceived(TIGHT))
    (decision,) = first.agent.layouts()
    second = Drive(layout=ADAPTIVE)
    second.at(0.0, beat("e1", "e2"), EpochGranted(4))
    second.at(0.1, LayoutRestored(replace(decision, epoch=4)))  # its own: not of one before it
    assert second.agent.layouts()[0].layout == MIXED
    for layout in (decision.layout, MIXED, decision.layout):  # what is followed counts as nobody's choice here
        second.at(0.2, LayoutRestored(replace(decision, layout=layout, epoch=3)))
        assert second.agent.layouts()[0].layout == layout


def test_the_shape_of_a_layout_with_an_empty_class_is_mixed() -> None:
    assert split_of(MIXED) == Split()
    (decision,) = begun().agent.layouts()
    assert split_of(replace(decision.layout, cuts_s=(0.1,))) == Split()


def test_the_strictest_class_gets_the_fastest_engine_and_keeps_it_under_the_next_writer() -> None:
    much = (demand(0.05, 3.0, 100), demand(0.2, 4.0, 600))
    mixed_pool = replace(TIGHT, demands=much, paces=(pace("e1"), pace("e2", 0.025, 8e-7)))
    first = begun()
    effects = first.at(1.0, LongViewReceived(mixed_pool))
    (decision,) = [e.decision for e in effects if isinstance(e, PublishLayout)]
    assert [(each.place, each.pace_class) for each in decision.layout.engines] == [("w/e2", 0), ("w/e1", 1)]
    second = Drive(layout=ADAPTIVE)
    effects = second.at(0.0, beat("e1", "e2"), LayoutRestored(decision), EpochGranted(4), TimerTicked())
    (again,) = [e.decision for e in effects if isinstance(e, PublishLayout)]
    assert again.layout == decision.layout


def test_an_engine_that_has_become_slow_loses_the_strict_class() -> None:
    drive = begun()
    drive.at(1.0, LongViewReceived(TIGHT))
    slow = replace(TIGHT, seq=2, paces=(pace("e1", 0.12, 3e-6), pace("e2")))
    effects = drive.at(70.0, beat("e1", "e2"), LongViewReceived(slow))
    decision = [e.decision for e in effects if isinstance(e, PublishLayout)][-1]
    assert [(each.place, each.pace_class) for each in decision.layout.engines] == [("w/e2", 0), ("w/e1", 1)]


@pytest.mark.parametrize("workers", ["one", "one an engine"])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_pools_of_one_three_and_eight_engines(count: int, workers: str) -> None:
    """One engine is never split. Of more, each class has some, and the strict requests get no more than they need."""
    owned = [("w" if workers == "one" else f"w{n}", f"e{n}") for n in range(count)]
    paces = tuple(replace(pace(engine), worker=worker) for worker, engine in owned)
    demands = (demand(0.065, 1.0 * count, 100), demand(0.2, 1.0 * count, 600))
    view = replace(TIGHT, arrival_rps=2.0 * count, demands=demands, paces=paces)
    steps = tuple(replace(ENGINE, worker=worker, engine=engine, step_s=0.09) for worker, engine in owned)
    drive = Drive(layout=ADAPTIVE)
    beats = [
        beat(*(e for w, e in owned if w == worker), worker=worker) for worker in dict.fromkeys(w for w, _ in owned)
    ]
    drive.at(0.0, *beats, EpochGranted(3), TimerTicked())
    drive.at(0.9, ShortViewReceived(replace(SHORT, engines=steps)))
    effects = drive.at(1.0, LongViewReceived(view))
    decisions = [e.decision for e in effects if isinstance(e, PublishLayout)]
    if count == 1:
        assert not [d for d in decisions if d.layout != MIXED]
        return
    layout = decisions[-1].layout
    assert layout.cuts_s == (0.065,)
    assert {each.place for each in layout.engines} == {f"{worker}/{engine}" for worker, engine in owned}
    strict = sum(each.pace_class == 0 for each in layout.engines)
    assert 1 <= strict <= count // 2


# --- a pinned split of a mixed pool


def mixed(*names: str, quick: str, worker: str = "w") -> HeartbeatReceived:
    """A pool of two kinds of engine, of which those of `quick` have the shorter steps."""
    made = beat(*names, worker=worker).heartbeat
    cards = {True: "B200", False: "A100"}
    return HeartbeatReceived(
        replace(
            made, engines=tuple(replace(each, hardware=cards[each.engine in quick.split()]) for each in made.engines)
        )
    )


def paced(*, now: Drive, at_s: float, seq: int, **steps_s: float) -> list[list[str]]:
    """The engines of each class that is published, once a view has told of these paces."""
    least = ADAPTIVE.min_observations
    view = replace(TIGHT, seq=seq, paces=tuple(pace(n, step_s, observations=least) for n, step_s in steps_s.items()))
    return classes([*now.at(at_s, LongViewReceived(view)), *now.at(at_s + 0.1, TimerTicked())])


def classes(effects: list[MetaEffect]) -> list[list[str]]:
    told = [e.decision.layout for e in effects if isinstance(e, PublishLayout)]
    return [[each.place.removeprefix("w/") + "<>"[each.pace_class] for each in layout.engines] for layout in told]


PIN_OF_ONE = Pin("m", TopologyName.FCFS, split=Split((0.1,), (1, 1)))


def test_a_pinned_split_takes_the_engines_by_number_until_their_steps_are_known_of_each_kind() -> None:
    drive = Drive(layout=ADAPTIVE)
    drive.at(0.0, mixed("e10", "e2", "e3", quick="e3"), EpochGranted(3))
    assert classes(drive.at(0.1, PinChanged(PIN_OF_ONE))) == [["e2<", "e3>", "e10>"]]
    assert paced(now=drive, at_s=1.0, seq=1, e2=0.04) == []
    assert paced(now=drive, at_s=1.5, seq=2, e2=0.04, e3=0.02) == [["e3<", "e2>", "e10>"]]


def test_a_pinned_split_is_ranked_at_once_where_steps_are_known_and_agrees_with_a_chosen_one() -> None:
    view = replace(TIGHT, paces=(pace("e2", 0.045), pace("e10", 0.03), pace("e3", 0.045)))
    told = []
    for pin in (False, True):
        drive = Drive(layout=ADAPTIVE)
        drive.at(0.0, mixed("e2", "e3", "e10", quick="e10"), EpochGranted(3), TimerTicked())
        if pin:
            drive.at(0.8, LongViewReceived(replace(view, demands=())))
            told += classes(drive.at(1.0, PinChanged(PIN_OF_ONE)))
        else:
            drive.at(0.9, ShortViewReceived(stepping(0.09)))
            told += classes(drive.at(1.0, LongViewReceived(view)))
    assert told == [["e10<", "e2>", "e3>"]] * 2


def test_engines_of_a_kind_keep_their_order_under_a_pin_whatever_was_measured_of_each() -> None:
    drive = Drive(layout=ADAPTIVE)
    drive.at(0.0, beat("e1", "e2"), EpochGranted(3), PinChanged(PIN_OF_ONE))
    assert paced(now=drive, at_s=1.0, seq=1, e1=0.04, e2=0.02) == []


def test_a_pinned_split_keeps_its_order_while_kinds_are_alike_and_changes_it_for_a_slow_one() -> None:
    drive = Drive(layout=ADAPTIVE)
    drive.at(0.0, mixed("e1", "e2", quick="e2"), EpochGranted(3), PinChanged(PIN_OF_ONE))
    assert paced(now=drive, at_s=1.0, seq=1, e1=0.02, e2=0.03) == []
    assert paced(now=drive, at_s=1.5, seq=2, e1=0.03, e2=0.026) == []
    assert paced(now=drive, at_s=2.0, seq=3, e1=0.04, e2=0.026) == [["e2<", "e1>"]]
    assert paced(now=drive, at_s=2.5, seq=4, e1=0.026, e2=0.03) == []


def test_an_engine_that_comes_joins_its_kind_at_once_and_its_steps_rank_it_later() -> None:
    drive = Drive(layout=ADAPTIVE)
    pin = Pin("m", TopologyName.FCFS, split=Split((0.1,), (2, 1)))
    drive.at(0.0, mixed("e1", "e2", "e3", quick="e3"), EpochGranted(3), PinChanged(pin))
    assert paced(now=drive, at_s=1.0, seq=1, e1=0.04, e2=0.04, e3=0.02) == [["e3<", "e1<", "e2>"]]
    drive.at(1.5, mixed("e0", "e1", "e2", "e3", quick="e0 e3"))
    assert classes(drive.at(1.6, TimerTicked())) == [["e3<", "e0<", "e1>", "e2>"]]
    known = {"e1": 0.04, "e2": 0.04, "e3": 0.02}
    assert paced(now=drive, at_s=2.0, seq=2, **known, e0=0.02) == [["e0<", "e3<", "e1>", "e2>"]]


def test_the_next_writer_takes_over_the_order_under_a_pin() -> None:
    drive = Drive(layout=ADAPTIVE)
    drive.at(0.0, mixed("e1", "e2", quick="e2"), EpochGranted(3), PinChanged(PIN_OF_ONE))
    paced(now=drive, at_s=1.0, seq=1, e1=0.04, e2=0.026)
    (pool,) = drive.agent.layouts()
    other = Drive(layout=ADAPTIVE)
    other.at(1.0, mixed("e1", "e2", quick="e2"), PinChanged(PIN_OF_ONE), LayoutRestored(pool))
    assert classes(other.at(1.1, EpochGranted(4), TimerTicked()))[-1] == ["e2<", "e1>"]
    assert layouts(other.at(1.2, PinChanged(Pin("m", None)))) == ["mixed"], "nobody chose the split"


def test_an_engine_that_was_not_measured_yet_is_laid_out_with_its_kind() -> None:
    drive = Drive(layout=ADAPTIVE)
    drive.at(0.0, mixed("e2", "e3", "e10", "e11", quick="e10 e11"), EpochGranted(3), TimerTicked())
    drive.at(0.9, ShortViewReceived(stepping(0.09)))
    view = replace(TIGHT, paces=(pace("e2", 0.06), pace("e10", 0.02), pace("e3", 0.06)))
    (laid_out,) = classes(drive.at(1.0, LongViewReceived(view)))
    assert [each[:-1] for each in laid_out] == ["e10", "e11", "e2", "e3"]
