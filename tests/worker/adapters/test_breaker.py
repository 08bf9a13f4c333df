"""The breaker's states."""

from itertools import product

import pytest

from hmas.laws.transitions import IllegalTransition
from hmas.worker.adapters.breaker import TRANSITIONS, Breaker, BreakerConfig, BreakerState

CONFIG = BreakerConfig(failures=3, probes=2, cooldown_s=1.0, max_cooldown_s=4.0)


def closed() -> Breaker:
    breaker = Breaker(CONFIG)
    breaker.probed()
    breaker.succeeded()
    return breaker


def test_an_engine_is_used_once_it_answered_a_probe() -> None:
    breaker = Breaker(CONFIG)
    assert not breaker.usable
    assert breaker.probe_due(0.0)
    breaker.probed()
    states = [breaker.state]
    breaker.succeeded()
    assert [*states, breaker.state] == [BreakerState.HALF_OPEN, BreakerState.CLOSED]


def test_only_consecutive_failures_open_it() -> None:
    breaker = closed()
    assert [breaker.failed(0.0), breaker.failed(0.0)] == [False, False]
    breaker.succeeded()
    assert [breaker.failed(0.0), breaker.failed(0.0), breaker.failed(0.0)] == [False, False, True]
    assert not breaker.usable


def test_on_trial_one_failure_opens_it_and_the_cooldown_doubles_up_to_its_bound() -> None:
    breaker = closed()
    for _ in range(3):
        breaker.failed(0.0)
    now_s, waits = 0.0, []
    for _ in range(4):
        wait_s = next(s for s in (1.0, 2.0, 4.0, 8.0) if breaker.probe_due(now_s + s))
        waits.append(wait_s)
        now_s += wait_s
        breaker.probed()
        assert breaker.failed(now_s)
    assert waits == [1.0, 2.0, 4.0, 4.0]


def test_a_served_request_resets_the_cooldown() -> None:
    breaker = closed()
    for _ in range(2):
        assert breaker.probe_failed(0.0, certain=True)
        breaker.probed()
        breaker.succeeded()
    breaker.probe_failed(0.0, certain=True)
    assert breaker.probe_due(1.0)


def test_late_probes_open_it_only_together_and_a_certain_one_alone() -> None:
    breaker = closed()
    assert not breaker.probe_failed(0.0, certain=False)
    breaker.probed()
    assert not breaker.probe_failed(0.0, certain=False)
    assert breaker.probe_failed(0.0, certain=False)
    assert closed().probe_failed(0.0, certain=True)


def test_failures_from_before_it_opened_do_not_lengthen_the_cooldown() -> None:
    breaker = closed()
    breaker.probe_failed(0.0, certain=True)
    for _ in range(10):
        assert not breaker.failed(0.5)
    assert breaker.probe_due(1.0)


LEGAL = {
    (BreakerState.CLOSED, BreakerState.OPEN),
    (BreakerState.OPEN, BreakerState.HALF_OPEN),
    (BreakerState.HALF_OPEN, BreakerState.CLOSED),
    (BreakerState.HALF_OPEN, BreakerState.OPEN),
}


def test_the_table_is_complete() -> None:
    assert set(TRANSITIONS) == set(BreakerState)
    assert {(before, after) for before, follows in TRANSITIONS.items() for after in follows} == LEGAL


@pytest.mark.parametrize(("before", "after"), list(product(BreakerState, BreakerState)))
def test_an_illegal_step_raises_and_changes_nothing(before: BreakerState, after: BreakerState) -> None:
    breaker = Breaker(CONFIG)
    breaker.state = before
    was = dict(vars(breaker))
    if (before, after) in LEGAL:
        breaker._enter(after)
        assert vars(breaker) == was | {"state": after}
    else:
        with pytest.raises(IllegalTransition, match=f"{after} may not follow {before}"):
            breaker._enter(after)
        assert vars(breaker) == was
