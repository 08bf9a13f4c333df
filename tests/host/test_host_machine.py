"""The states of an engine of a card: the table, and what no row of it allows."""

from itertools import product

import pytest

from hmas.contracts.residency import Readiness
from hmas.host.agent.machine import MOVING, TRANSITIONS, Signal, after, holds_gb


def test_an_engine_comes_up_serves_sleeps_and_wakes() -> None:
    state = Readiness.COLD
    told = []
    for signal in (Signal.START, Signal.DONE, Signal.DRAIN, Signal.SLEEP, Signal.DONE, Signal.WAKE, Signal.DONE):
        state = after(state, signal)
        told.append(state.value)
    assert told == ["starting", "awake", "draining", "falling", "asleep", "waking", "awake"]


@pytest.mark.parametrize(("readiness", "signal"), sorted(set(product(Readiness, Signal)) - set(TRANSITIONS)))
def test_what_the_table_does_not_have_is_refused(readiness: Readiness, signal: Signal) -> None:
    with pytest.raises(ValueError, match=f"{signal.value} is not possible while an engine is {readiness.value}"):
        after(readiness, signal)


def test_every_move_ends_well_or_fails() -> None:
    assert {state for state in Readiness if {(state, Signal.DONE), (state, Signal.FAIL)} <= set(TRANSITIONS)} == MOVING


def test_all_that_an_engine_may_take_counts_until_it_is_known_to_take_less() -> None:
    held = {state.value: holds_gb(state, 20.0, 1.0) for state in Readiness}
    assert held == dict.fromkeys(held, 20.0) | {"cold": 0.0, "asleep": 1.0}
