"""The table of transitions: each legal one leads there, each other one raises and changes nothing."""

from collections.abc import Callable
from itertools import product

import pytest

from hmas.gateway.agent.config import (
    GatewayConfig,
)
from hmas.gateway.agent.requests.ledger import TRANSITIONS, Ledger, LedgerEntry, RequestState
from hmas.gateway.agent.state import GatewayState
from hmas.laws.transitions import IllegalTransition
from tests.gateway.gateway_script import request

CONFIG = GatewayConfig(gateway="g", incarnation="i")

PLACE = ("w2", "e1")
MOVES: dict[RequestState, Callable[[Ledger, LedgerEntry], object]] = {
    RequestState.HELD: lambda ledger, entry: ledger.hold(entry, 1.0),
    RequestState.QUEUED: lambda ledger, entry: ledger.queue(entry, 1.0, "w2"),
    RequestState.RUNNING: lambda ledger, entry: ledger.bypass(entry, 1.0, 1, PLACE),
    RequestState.COMMITTED: lambda ledger, entry: ledger.stream(entry, 2.0),
    RequestState.ENDED: lambda ledger, entry: ledger.settle(entry),
}
PATHS = {
    RequestState.HELD: (),
    RequestState.QUEUED: (RequestState.QUEUED,),
    RequestState.RUNNING: (RequestState.QUEUED, RequestState.RUNNING),
    RequestState.COMMITTED: (RequestState.RUNNING, RequestState.COMMITTED),
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
        assert ledger.body_bytes == (0 if after in (RequestState.COMMITTED, RequestState.ENDED) else 100)
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
        "running": {"held", "queued", "running", "committed", "ended"},
        "committed": {"ended"},
        "ended": set(),
    }


def test_a_run_that_comes_to_nothing_keeps_worker_and_attempt() -> None:
    ledger, entry = opened(RequestState.QUEUED)
    ledger.run(entry, 2.0, 1, "e1", 7)
    assert (entry.ref, entry.attempt, entry.grant, ledger.queued_at("w2")) == (PLACE, 1, 7, [])
    ledger.requeue(entry, 3.0)
    assert (entry.worker, entry.attempt, entry.since_s, ledger.queued_at("w2")) == ("w2", 1, 3.0, [entry])


def test_one_that_stays_held_is_so_from_the_first_time_on() -> None:
    ledger, entry = opened(RequestState.HELD)
    ledger.hold(entry, 9.0)
    assert entry.since_s == 1.0


def test_a_body_is_not_counted_once_a_proxy_has_it() -> None:
    ledger, entry = opened(RequestState.RUNNING)
    ledger.hand_over(entry)
    assert (entry.state, ledger.body_bytes) == (RequestState.COMMITTED, 0)
    assert ledger.settle(entry)
    assert ledger.body_bytes == 0


def test_the_ledger_counts_bodies_and_runs() -> None:
    ledger = Ledger()
    entries = [LedgerEntry(request=request(f"r{i}"), pool="m", offered=True, body_bytes=2**i) for i in range(4)]
    for entry in entries:
        ledger.open(entry)
    for entry in entries:
        ledger.queue(entry, 1.0, "w1")
    for entry in entries[:3]:
        ledger.run(entry, 2.0, 7, "e1", 9)
    assert (ledger.body_bytes, ledger.running_on(("w1", "e1")), len(ledger.queued_at("w1"))) == (15, 3, 1)
    ledger.stream(entries[0], 3.0)
    ledger.hand_over(entries[1])
    assert ledger.body_bytes == 12
    assert [ledger.settle(entry) for entry in entries[:3]] == [True, True, False]
    assert (ledger.body_bytes, ledger.running_on(("w1", "e1")), len(ledger)) == (8, 0, 1)
    ledger.bypass(entries[3], 4.0, 8, ("w2", "e2"))
    assert (entries[3].attempt, entries[3].grant, entries[3].granted_s, entries[3].ref) == (2, 0, 4.0, ("w2", "e2"))
    entries[3].output_tokens = 0
    ledger.hold(entries[3], 5.0)
    assert (entries[3].worker, entries[3].since_s, ledger.held_count) == ("", 5.0, 1)
    assert ledger.settle(entries[3]) is False
    assert ledger.body_bytes == 0
    assert (ledger._held, ledger._queued, ledger._running) == ({}, {}, {})


def test_runs_and_workers_are_numbered_from_one() -> None:
    state = GatewayState(CONFIG)
    assert [state.next_run(), state.next_run()] == [1, 2]
