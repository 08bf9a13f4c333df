"""Who decides a pool's topology: the whole table, and what an illegal step leaves as it was."""

from copy import deepcopy
from itertools import product
from typing import Any

import pytest

from hmas.laws.transitions import IllegalTransition
from hmas.meta.agent.config import MetaConfig
from hmas.meta.agent.pool import TRANSITIONS, Decider, PoolState, new_pool
from tests.meta.test_guards import FINE

ILLEGAL = {
    (Decider.BYPASSED, Decider.WATCHED),  # nothing is switched during a bypass
    (Decider.PINNED, Decider.WATCHED),
    (Decider.PINNED, Decider.BYPASSED),
}


def pool(mode: Decider) -> PoolState:
    made = new_pool(MetaConfig(), "m", 0.0)
    made.short = FINE
    made.enter(1.0, mode)
    return made


def contents(made: PoolState) -> tuple[Any, ...]:
    return (made.mode, vars(deepcopy(made.bypass)), vars(deepcopy(made.rollback)))


def test_the_table_is_complete() -> None:
    pairs = {(before, after) for before, follows in TRANSITIONS.items() for after in follows}
    assert pairs == set(product(Decider, Decider)) - ILLEGAL


@pytest.mark.parametrize(("before", "after"), list(product(Decider, Decider)))
def test_an_illegal_step_raises_and_changes_nothing(before: Decider, after: Decider) -> None:
    made = pool(before)
    was = contents(made)
    if (before, after) in ILLEGAL:
        with pytest.raises(IllegalTransition, match=f"{after} may not follow {before}"):
            made.enter(2.0, after)
        assert contents(made) == was
    else:
        made.enter(2.0, after)
        assert made.mode is after
        assert (made.rollback._before is FINE) == (after is Decider.WATCHED)
        assert made.in_force().bypass == (after is Decider.BYPASSED)
