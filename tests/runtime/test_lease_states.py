"""The table of a lease's states: every row does what it says, and what has no row changes nothing."""

from typing import Any

import pytest

from hmas.runtime.lease import TRANSITIONS, IllegalLeaseChange, Lease, LeaseChange, LeaseState

PATHS: dict[LeaseState, list[LeaseChange]] = {LeaseState.STANDBY: [], LeaseState.HELD: [LeaseChange.GRANTED]}


def lease_in(state: LeaseState) -> tuple[Lease, list[object]]:
    heard: list[object] = []
    bucket: Any = None  # a change of state writes nothing
    lease = Lease(bucket, "meta", "a", heard.append, lambda: heard.append("lost"))
    for change in PATHS[state]:
        lease.change(change)
    heard.clear()
    assert lease.state is state
    return lease, heard


def test_every_state_has_its_row() -> None:
    assert set(TRANSITIONS) == set(LeaseState) == set(PATHS)


@pytest.mark.parametrize("change", LeaseChange)
@pytest.mark.parametrize("before", LeaseState)
def test_a_change_follows_the_table_or_raises_and_changes_nothing(before: LeaseState, change: LeaseChange) -> None:
    lease, heard = lease_in(before)
    after = TRANSITIONS[before].get(change)
    if after is None:
        with pytest.raises(IllegalLeaseChange, match=f"{change} while {before}"):
            lease.change(change)
        assert (lease.state, heard) == (before, [])
        return
    lease.change(change)
    assert lease.state is after
    assert lease.held == (after is LeaseState.HELD)
    assert heard == ([] if after is before else [0] if lease.held else ["lost"])
