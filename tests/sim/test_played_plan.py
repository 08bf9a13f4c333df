"""A plan is played with its steps: what stays, what joins when it has started, and what drains."""

from dataclasses import replace

import pytest

from hmas.contracts.control import Split, TopologyName
from hmas.contracts.pool_plan import InstanceType
from hmas.contracts.rehearsal import InstanceCount, PastLayout, Policy
from hmas.engine.core.catalogued import profile_of
from hmas.sim.engine_changes import ChangeKind, EngineChange
from hmas.sim.past.fitted import FITTED
from hmas.sim.past.played_plan import played_engines
from hmas.sim.past.rehearsal import rehearse
from hmas.sim.past.replay import LEAD_S, Scene, replay_of
from tests.sim.sim_cases import SMALL
from tests.sim.test_past_replay import MOT, row
from tests.sim.test_rehearsal import FCFS, past

BIG = InstanceType(
    name="big", model="m", hardware="h100", gpus=4, step=SMALL.cost.times(0.5), kv_tokens=16384, max_num_seqs=32,
    max_num_batched_tokens=512, start_s=30.0,
)  # fmt: skip
SLIM = replace(BIG, name="slim", gpus=1, step=SMALL.cost, kv_tokens=8192, start_s=20.0)
FIRST, SECOND, OTHER = (
    replace(SMALL, name="slim"),
    replace(SMALL, name="slim", hardware="x"),
    replace(SMALL, name=FITTED),
)


def join(at_s: float, engine: str) -> EngineChange:
    return EngineChange(at_s, ChangeKind.JOIN, engine)


def drain(at_s: float, engine: str) -> EngineChange:
    return EngineChange(at_s, ChangeKind.DRAIN, engine)


def test_without_a_plan_nothing_changes_in_a_run() -> None:
    assert played_engines([FIRST, OTHER], None, 9.0).profiles == (FIRST, OTHER)
    assert played_engines([FIRST, FIRST], 3, 9.0).profiles == (FIRST, FIRST, FIRST)
    assert played_engines([FIRST, FIRST], 1, 9.0).changes == ()


def test_what_a_plan_has_stays_what_it_lacks_drains_and_what_it_adds_joins() -> None:
    plan = InstanceCount(BIG, 1), InstanceCount(SLIM, 1)
    played = played_engines([FIRST, OTHER, SECOND], plan, 9.0)
    new, *rest = played.profiles
    assert (new.name, new.cost, new.limits.enable_prefix_caching) == ("big", BIG.step, False)
    assert new.limits == replace(profile_of(BIG).limits, enable_prefix_caching=False)
    assert rest == [FIRST, OTHER, SECOND]
    assert played.changes == (join(39.0, "e0"), drain(9.0, "e2"), drain(9.0, "e3"))


def test_one_more_of_a_type_is_like_the_measured_ones() -> None:
    played = played_engines([FIRST, SECOND], (InstanceCount(SLIM, 4),), 9.0)
    assert played.profiles == (FIRST, SECOND, FIRST, FIRST)
    assert played.changes == (join(29.0, "e2"), join(29.0, "e3"))


def test_a_type_that_a_plan_names_twice_is_counted_once() -> None:
    plan = InstanceCount(SLIM, 1), InstanceCount(BIG, 1), InstanceCount(SLIM, 1)
    played = played_engines([FIRST, SECOND], plan, 0.0)
    assert [each.name for each in played.profiles] == ["slim", "big", "slim"]
    assert played.changes == (join(30.0, "e1"),)


def test_engines_without_a_place_leave_as_late_as_the_policy_says() -> None:
    plan = InstanceCount(BIG, 1), InstanceCount(SLIM, 1)
    assert played_engines([OTHER], plan, 9.0, 30.0).changes[-1] == drain(39.0, "e2")
    assert played_engines([OTHER], plan, -25.0, 30.0).changes[-1] == drain(5.0, "e2")


@pytest.mark.long
def test_a_step_that_was_taken_before_the_first_request_is_taken_when_the_replay_begins() -> None:
    plan = InstanceCount(BIG, 1), InstanceCount(SLIM, 1)
    assert played_engines([OTHER], plan, -25.0).changes == (join(5.0, "e0"), join(0.0, "e1"), drain(0.0, "e2"))
    scene = Scene(rows=past(), window_s=500.0, profiles=(FIRST, FIRST), workers=1, in_force=FCFS)
    found = rehearse(scene, [Policy(topology=TopologyName.FCFS, engines=(InstanceCount(SLIM, 1),))])
    assert found.candidates[0].gain < 0.0


def test_steps_begin_with_what_is_judged_and_so_does_the_layout() -> None:
    split, planned = Split((0.05,), (1, 1)), Split((0.08,), (2, 1))
    layouts = (PastLayout(30.0, Split()),)
    policy = replace(MOT, split=split)
    scene = Scene(
        rows=(row(-99.0),), window_s=60.0, profiles=(FIRST, FIRST), workers=1, in_force=policy, layouts=layouts
    )
    replay = replay_of(scene, -100.0, 36.0, -60.0)
    change = replace(policy, engines=(InstanceCount(SLIM, 3),), split=planned)
    begun_s = LEAD_S + 39.0
    assert replay.engines(change).changes == (join(begun_s + SLIM.start_s, "e2"),)
    setup = replay.setup(change)
    assert setup.changes == replay.engines(change).changes
    known = setup.statera_config.band.steps.known
    assert [name for name, _ in known] == ["e0", "e1"], "what an engine that joins costs is still to be learnt"
    assert replay.layouts(policy) == ((0.0, Split()), (LEAD_S + 69.0, split))
    assert replay.layouts(change) == ((0.0, Split()), (LEAD_S + 69.0, split), (LEAD_S + 69.0, planned))
    assert replay.layouts(replace(change, split=split)) == replay.layouts(policy)
    earlier = replace(scene, layouts=())
    assert replay_of(earlier, -100.0, 36.0, -60.0).layouts(change) == ((0.0, split), (begun_s, planned))


@pytest.mark.long
def test_a_rehearsed_plan_is_worth_what_its_steps_leave_of_it() -> None:
    """Two engines are too few: a plan that adds two gains the more the sooner they are there, and one that takes one
    away loses."""
    scene = Scene(rows=past(), window_s=20.0, profiles=(FIRST, FIRST), workers=1, in_force=FCFS)

    def planned(count: int, start_s: float) -> Policy:
        return Policy(topology=TopologyName.FCFS, engines=(InstanceCount(replace(SLIM, start_s=start_s), count),))

    found = rehearse(scene, [planned(4, 0.0), planned(4, 8.0), planned(4, 1e4), planned(2, 0.0), planned(1, 0.0)])
    at_once, later, never, same, fewer = [each.figures.on_time for each in found.candidates]
    assert at_once > later + 0.02
    assert later > never + 0.02
    assert never == same
    assert same > fewer + 0.02
    assert [each.gain for each in found.candidates][2:4] == [0.0, 0.0]


def test_a_request_that_only_the_largest_engine_can_serve_is_replayed() -> None:
    large = replace(SMALL, limits=replace(SMALL.limits, max_model_len=8192))
    long_one = replace(row(-50.0, 1.0, 9.0), prompt_tokens=6000)
    scene = Scene(rows=(long_one,), window_s=60.0, profiles=(SMALL, large), workers=1, in_force=MOT)
    assert len(replay_of(scene, -100.0, 36.0, -60.0).rows) == 1
    assert replay_of(replace(scene, profiles=(SMALL, SMALL)), -100.0, 36.0, -60.0).rows == ()
