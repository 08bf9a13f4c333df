"""The table of a lease's states: every row does what it says, and what has no row changes nothing."""

from typing import Any

import pytest

from hmas.laws.transitions import IllegalTransition
from hmas.runtime.bucket import BucketUnavailable
from hmas.runtime.lease import TRANSITIONS, Holding, Lease, LeaseChange, LeaseState

PATHS: dict[LeaseState, list[LeaseChange]] = {LeaseState.STANDBY: [], LeaseState.HELD: [LeaseChange.GRANTED]}


def lease_in(state: LeaseState) -> tuple[Lease, list[object]]:
    heard: list[object] = []
    bucket: Any = None  # a change of state writes nothing
    lease = Lease(bucket, "meta", "a", heard.append, lambda: heard.append("lost"))
    for change in PATHS[state]:
        lease.change(change, Holding(7, 3, 0.0))
    heard.clear()
    assert lease.state is state
    return lease, heard


def test_every_state_has_its_row() -> None:
    assert set(TRANSITIONS) == set(LeaseState) == set(PATHS)


@pytest.mark.parametrize("change", LeaseChange)
@pytest.mark.parametrize("before", LeaseState)
def test_a_change_follows_the_table_or_raises_and_changes_nothing(before: LeaseState, change: LeaseChange) -> None:
    lease, heard = lease_in(before)
    after, held_before = TRANSITIONS[before].get(change), lease._holding
    if after is None:
        with pytest.raises(IllegalTransition, match=f"`{change}` is not allowed while the lease is {before}"):
            lease.change(change, Holding(8, 4, 1.0))
        assert (lease.state, heard) == (before, [])
        assert lease._holding == held_before
        return
    lease.change(change, Holding(8, 4, 1.0) if after is LeaseState.HELD else None)
    assert lease.state is after
    assert lease.held == (after is LeaseState.HELD)
    assert heard == ([] if after is before else [4] if lease.held else ["lost"])


class SlowBucket:
    """A bucket that answers `answer_s` seconds after it was asked, by the clock that the lease reads, or never."""

    def __init__(self) -> None:
        self.now_s, self.answer_s, self.revision = 0.0, 0.0, 0

    async def get(self, key: str) -> None:
        return None

    async def swap(self, key: str, value: bytes, revision: int) -> int:
        if self.answer_s == float("inf"):
            raise BucketUnavailable("it is gone")
        self.now_s += self.answer_s
        self.revision += 1
        return self.revision


async def test_a_renewal_counts_from_when_it_was_asked_for() -> None:
    """Others count from the write, which may have come long before its answer."""
    bucket: Any = SlowBucket()
    heard: list[object] = []
    lease = Lease(
        bucket, "meta", "a", heard.append, lambda: heard.append("lost"), ttl_s=3.0, clock=lambda: float(bucket.now_s)
    )
    bucket.answer_s = 2.0
    await lease.tick()  # asked for at 0 s, granted at 2 s
    await lease.tick()  # renewed at 2 s, known at 4 s
    bucket.answer_s = float("inf")
    bucket.now_s = 5.0
    await lease.tick()
    assert lease.held
    bucket.now_s = 5.1
    await lease.tick()
    assert not lease.held
    assert heard == [1, "lost"]
