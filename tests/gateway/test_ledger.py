"""The table of transitions: each legal one leads there, each other one raises and changes nothing."""

from collections.abc import Callable
from itertools import product

import pytest

from hmas.gateway.agent.ledger import TRANSITIONS, Ledger, LedgerEntry, RequestState
from hmas.laws.transitions import IllegalTransition
from tests.gateway.gateway_script import request

PLACE = ("w2", "e1")
MOVES: dict[RequestState, Callable[[Ledger, LedgerEntry], object]] = {
    RequestState.HELD: lambda ledger, entry: ledger.hold(entry, 1.0),
    RequestState.QUEUED: lambda ledger, entry: ledger.queue(entry, 1.0, "w2"),
    RequestState.RUNNING: lambda ledger, entry: ledger.bypass(entry, 1.0, 1, PLACE),
    RequestState.STREAMING: lambda ledger, entry: ledger.stream(entry, 2.0),
    RequestState.ENDED: lambda ledger, entry: ledger.settle(entry),
}
PATHS = {
    RequestState.HELD: (),
    RequestState.QUEUED: (RequestState.QUEUED,),
    RequestState.RUNNING: (RequestState.QUEUED, RequestState.RUNNING),
    RequestState.STREAMING: (RequestState.RUNNING, RequestState.STREAMING),
    RequestState.ENDED: (RequestState.ENDED,),
}


def opened(*path: RequestState) -> tuple[Ledger, LedgerEntry]:
    ledger = Ledger()
    entry = LedgerEntry(request=request(), pool="m", offered=True, body_bytes=100)
    ledger.open(entry)
    for state in path:
        MOVES[state](ledger, entry)
    return ledger, entry


def snapshot(ledger: Ledger, entry: LedgerEntry) -> tuple[object, ...]:
    kept = (entry.state, entry.worker, entry.attempt, entry.since_s, entry.first_token_s, entry.run)
    where = (ledger.held(), ledger.queued_at("w2"), ledger.running_at("w2"), ledger.running_on(PLACE))
    return *kept, *where, "r1" in ledger, ledger.body_bytes


@pytest.mark.parametrize(("before", "after"), list(product(RequestState, RequestState)))
def test_every_transition(before: RequestState, after: RequestState) -> None:
    ledger, entry = opened(*PATHS[before])
    assert entry.state is before
    told = snapshot(ledger, entry)
    if after in TRANSITIONS[before]:
        MOVES[after](ledger, entry)
        assert entry.state is after
        assert ("r1" in ledger) is (after is not RequestState.ENDED)
        assert ledger.held() == ([entry] if after is RequestState.HELD else [])
        assert ledger.queued_at("w2") == ([entry] if after is RequestState.QUEUED else [])
        assert ledger.running_at("w2") == ([entry] if entry.runs else [])
        assert ledger.running_on(PLACE) == entry.runs
        assert ledger.body_bytes == (0 if after in (RequestState.STREAMING, RequestState.ENDED) else 100)
    else:
        with pytest.raises(IllegalTransition, match=f"{after} may not follow {before}"):
            MOVES[after](ledger, entry)
        assert snapshot(ledger, entry) == told


def test_what_may_follow_what() -> None:
    """Nothing moves after its first token, and nothing follows an end."""
    told = {before.value: {after.value for after in states} for before, states in TRANSITIONS.items()}
    assert told == {
        "held": {"held", "queued", "running", "ended"},
        "queued": {"held", "queued", "running", "ended"},
        "running": {"held", "queued", "running", "streaming", "ended"},
        "streaming": {"ended"},
        "ended": set(),
    }


def test_a_run_that_comes_to_nothing_keeps_worker_and_attempt() -> None:
    ledger, entry = opened(RequestState.QUEUED)
    ledger.run(entry, 2.0, 1, "e1", 7)
    assert (entry.place, entry.attempt, entry.grant, ledger.queued_at("w2")) == (PLACE, 1, 7, [])
    ledger.requeue(entry, 3.0)
    assert (entry.worker, entry.attempt, entry.since_s, ledger.queued_at("w2")) == ("w2", 1, 3.0, [entry])


def test_one_that_stays_held_is_so_from_the_first_time_on() -> None:
    ledger, entry = opened(RequestState.HELD)
    ledger.hold(entry, 9.0)
    assert entry.since_s == 1.0
