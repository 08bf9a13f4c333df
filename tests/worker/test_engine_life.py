"""An engine's life: the whole table, what each event does in each state, and what an illegal move leaves as it was."""

from collections.abc import Callable
from itertools import product

import pytest

from hmas.contracts.worker import (
    CycleTicked,
    EngineLeft,
    EngineReturned,
    EngineWentDown,
    EngineWentUp,
    ReleaseEngine,
    WorkerEffect,
    WorkerEvent,
)
from hmas.laws.transitions import IllegalTransition, following
from hmas.worker.agent.config import EngineStateConfig, WorkerConfig
from hmas.worker.agent.engines.life import TRANSITIONS, EngineLife, LifeState
from tests.worker.builders import Scripted, engine, request, sampled

UNKNOWN, DOWN, UNSEEN = LifeState.UNKNOWN, LifeState.DOWN, LifeState.UNSEEN
UP, SUSPECTED, LEAVING = LifeState.UP, LifeState.SUSPECTED, LifeState.LEAVING
ASLEEP = LifeState.ASLEEP
LEGAL = {
    (UNKNOWN, UNSEEN),
    (UNKNOWN, LEAVING),
    (DOWN, UNSEEN),
    (DOWN, LEAVING),
    (UNSEEN, UP),
    (UNSEEN, SUSPECTED),
    (UNSEEN, ASLEEP),
    (UNSEEN, DOWN),
    (UNSEEN, LEAVING),
    (UP, SUSPECTED),
    (UP, ASLEEP),
    (UP, DOWN),
    (UP, LEAVING),
    (SUSPECTED, UP),
    (SUSPECTED, ASLEEP),
    (SUSPECTED, DOWN),
    (SUSPECTED, LEAVING),
    (ASLEEP, UP),
    (ASLEEP, SUSPECTED),
    (ASLEEP, DOWN),
    (ASLEEP, LEAVING),
    (LEAVING, UNKNOWN),
    (LEAVING, ASLEEP),
    (LEAVING, DOWN),
    (LEAVING, UNSEEN),
    (LEAVING, UP),
    (LEAVING, SUSPECTED),
}
CONFIG = EngineStateConfig()
WORKER = WorkerConfig(worker="w1", incarnation="i1", address="", pool="m")

Move = Callable[[EngineLife], None]
MOVES: dict[str, Move] = {
    "come up": lambda life: life.come_up(10.0),
    "go down": lambda life: life.go_down(),
    "see": lambda life: life.see(11.0),
    "see asleep": lambda life: life.see(11.0, asleep=True),
    "suspect": lambda life: life.suspect(12.0),
    "trust": lambda life: life.trust(),
    "leave": lambda life: life.leave(99.0),
    "come back": lambda life: life.come_back(),
    "be released": lambda life: life.be_released(),
}
WAYS: dict[LifeState, tuple[str, ...]] = {
    UNKNOWN: (),
    DOWN: ("come up", "go down"),
    UNSEEN: ("come up",),
    UP: ("come up", "see"),
    SUSPECTED: ("come up", "see", "suspect"),
    ASLEEP: ("come up", "see", "see asleep"),
    LEAVING: ("come up", "see", "leave"),
}
# What each move leads to; where it is not named it raises, and where it leads to the same state it says nothing new.
AFTER: dict[LifeState, dict[str, LifeState]] = {
    UNKNOWN: {
        "come up": UNSEEN, "see": UNKNOWN, "see asleep": UNKNOWN, "suspect": UNKNOWN, "trust": UNKNOWN,
        "leave": LEAVING,
    },
    DOWN: {"come up": UNSEEN, "see": DOWN, "see asleep": DOWN, "suspect": DOWN, "trust": DOWN, "leave": LEAVING},
    UNSEEN: {
        "go down": DOWN, "see": UP, "see asleep": ASLEEP, "suspect": UNSEEN, "trust": UNSEEN, "leave": LEAVING,
    },
    UP: {"go down": DOWN, "see": UP, "see asleep": ASLEEP, "suspect": SUSPECTED, "trust": UP, "leave": LEAVING},
    SUSPECTED: {
        "go down": DOWN, "see": SUSPECTED, "see asleep": ASLEEP, "suspect": SUSPECTED, "trust": UP, "leave": LEAVING,
    },
    ASLEEP: {
        "go down": DOWN, "see": UP, "see asleep": ASLEEP, "suspect": ASLEEP, "trust": ASLEEP, "leave": LEAVING,
    },
    LEAVING: {
        "go down": LEAVING, "see": LEAVING, "see asleep": LEAVING, "suspect": LEAVING, "trust": LEAVING,
        "come back": UP, "be released": UNKNOWN,
    },
}  # fmt: skip


def life_in(state: LifeState, *further: str) -> EngineLife:
    life = EngineLife(CONFIG)
    for move in (*WAYS[state], *further):
        MOVES[move](life)
    return life


def contents(life: EngineLife) -> dict[str, object]:
    return {name: getattr(life, name) for name in EngineLife.__slots__}


def test_the_table_is_complete() -> None:
    assert set(TRANSITIONS) == set(LifeState)
    assert {(before, after) for before, follows in TRANSITIONS.items() for after in follows} == LEGAL


@pytest.mark.parametrize(("before", "after"), list(product(LifeState, LifeState)))
def test_only_what_the_table_has_may_follow(before: LifeState, after: LifeState) -> None:
    if (before, after) in LEGAL:
        assert following(TRANSITIONS, before, after) is after
    else:
        with pytest.raises(IllegalTransition, match=f"{after} may not follow {before}"):
            following(TRANSITIONS, before, after)


@pytest.mark.parametrize(("before", "move"), list(product(LifeState, MOVES)))
def test_what_each_move_does_in_each_state(before: LifeState, move: str) -> None:
    life = life_in(before)
    assert life.state is before
    was = contents(life)
    if move in AFTER[before]:
        MOVES[move](life)
        assert life.state is AFTER[before][move]
    else:
        with pytest.raises(IllegalTransition):
            MOVES[move](life)
        assert contents(life) == was


@pytest.mark.parametrize(
    ("state", "answers", "serves", "seen"),
    [
        (UNKNOWN, False, False, False),
        (DOWN, False, False, False),
        (UNSEEN, True, True, False),
        (UP, True, True, True),
        (SUSPECTED, True, True, True),
        (ASLEEP, True, True, False),
        (LEAVING, True, False, True),
    ],
)
def test_what_a_state_allows(state: LifeState, answers: bool, serves: bool, seen: bool) -> None:
    life = life_in(state)
    assert (life.answers, life.serves, life.seen, life.leaving) == (answers, serves, seen, state is LEAVING)


@pytest.mark.parametrize("state", [UNKNOWN, DOWN, UNSEEN, UP, SUSPECTED, ASLEEP])
def test_one_that_comes_back_is_what_it_was(state: LifeState) -> None:
    life = life_in(state, "leave", "come back")
    assert (life.state, life.apart) == (state, state)


def test_one_that_leaves_goes_on_living() -> None:
    life = life_in(UP, "leave", "go down")
    assert (life.state, life.apart, life.answers) == (LEAVING, DOWN, False)
    life.come_up(20.0)
    assert (life.apart, life.answers, life.starts) == (UNSEEN, True, 2)
    life.come_back()
    assert life.state is UNSEEN


def test_one_that_was_released_is_as_one_never_seen() -> None:
    life = life_in(LEAVING, "be released")
    assert (life.state, life.apart, life.starts, life.answers) == (UNKNOWN, UNKNOWN, 0, False)


def test_a_sample_of_before_it_came_up_shows_nothing() -> None:
    life = life_in(UNSEEN)
    life.see(9.9)
    life.see(9.9, asleep=True)
    assert life.state is UNSEEN
    life.see(10.0)
    assert life.state is UP


def test_a_suspicion_outlives_a_restart_until_a_token_comes() -> None:
    life = life_in(SUSPECTED, "go down", "come up")
    assert life.state is UNSEEN
    assert life.suspected
    life.see(11.0)
    assert life.state is SUSPECTED
    life.trust()
    assert (life.state, life.suspected, life.held_until_s < 0.0) == (UP, False, True)


def test_pauses_grow_only_from_one_trial_to_the_next() -> None:
    life = life_in(UP)
    life.suspect(0.0)
    life.suspect(1.0)  # a second run that stalls at once
    assert life.held_until_s == CONFIG.suspect_pause_s
    life.suspect(CONFIG.suspect_pause_s)
    assert life.held_until_s == 3.0 * CONFIG.suspect_pause_s


def test_the_agent_moves_an_engine_through_its_life() -> None:
    worker = Scripted(WORKER)
    worker.step(0.0, EngineWentUp(engine("e1")))
    life = worker.state.fleet["e1"].life
    passed = [life.state]

    def then(now_s: float, event: WorkerEvent) -> list[WorkerEffect]:
        effects = worker.step(now_s, event)
        passed.append(life.state)
        return effects

    then(0.1, sampled())
    worker.submit(0.2, request("r1"))
    worker.fail(30.0, "r1", stalled=True)
    passed.append(life.state)
    worker.submit(60.0, request("r2"))
    worker.first_token(61.0, "r2")
    passed.append(life.state)
    then(62.0, EngineWentDown("e1", "gone"))
    then(63.0, EngineWentUp(engine("e1")))
    then(64.0, EngineLeft("e1", "another's"))
    then(65.0, EngineReturned("e1"))
    then(66.0, EngineLeft("e1", "another's"))
    worker.finish(67.0, "r2")
    assert ReleaseEngine("e1") in then(68.0, CycleTicked())
    assert passed == [UNSEEN, UP, SUSPECTED, UP, DOWN, UNSEEN, LEAVING, UNSEEN, LEAVING, UNKNOWN]


def test_one_that_wakes_is_as_trusted_as_before() -> None:
    life = life_in(SUSPECTED, "see asleep", "see")
    assert life.state is SUSPECTED
    life = life_in(ASLEEP, "suspect", "trust", "see")
    assert life.state is UP


def test_one_that_leaves_in_its_sleep_is_still_asleep_if_it_comes_back() -> None:
    life = life_in(ASLEEP, "leave")
    assert (life.asleep, life.serves) == (True, False)
    life.see(12.0)
    life.come_back()
    assert (life.state, life.asleep) == (UP, False)


def test_a_sleep_begins_once() -> None:
    life = life_in(ASLEEP)
    life.see(15.0, asleep=True)
    assert life.slept_s == 11.0
