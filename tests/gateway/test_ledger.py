"""The table of transitions: each legal one leads there, each other one raises and changes nothing."""

from collections.abc import Callable
from itertools import product

import pytest

from hmas.gateway.agent.ledger import TRANSITIONS, Ledger, LedgerEntry, RequestState
from hmas.laws.transitions import IllegalTransition
from tests.gateway.gateway_script import request

MOVES: dict[RequestState, Callable[[Ledger, LedgerEntry], object]] = {
    RequestState.HELD: lambda ledger, entry: ledger.hold(entry, 1.0),
    RequestState.SENT: lambda ledger, entry: ledger.send(entry, "w2"),
    RequestState.STREAMING: lambda ledger, entry: ledger.stream(entry, 2.0),
    RequestState.ENDED: lambda ledger, entry: ledger.settle(entry),
}
PATHS = {
    RequestState.HELD: (RequestState.HELD,),
    RequestState.SENT: (RequestState.SENT,),
    RequestState.STREAMING: (RequestState.SENT, RequestState.STREAMING),
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
    kept = (entry.state, entry.worker, entry.attempt, entry.held_s, entry.first_token_s, entry.recalled)
    return *kept, "r1" in ledger, len(ledger.held()), ledger.at("w2"), ledger.body_bytes


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
        assert ledger.body_bytes == (100 if after in (RequestState.HELD, RequestState.SENT) else 0)
    else:
        with pytest.raises(IllegalTransition, match=f"{after} may not follow {before}"):
            MOVES[after](ledger, entry)
        assert snapshot(ledger, entry) == told


def test_what_may_follow_what() -> None:
    """Nothing moves after its first token, and nothing follows an end."""
    told = {before.value: {after.value for after in states} for before, states in TRANSITIONS.items()}
    assert told == {
        "held": {"held", "sent", "ended"},
        "sent": {"held", "sent", "streaming", "ended"},
        "streaming": {"ended"},
        "ended": set(),
    }
