"""The session link: numbering, acknowledgements, healing; two of them joined by a wire that breaks."""

from collections import deque
from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hmas.wire.link import ACK_BYTES, ACK_EVERY, Link, SessionLost
from tests.conftest import examples


@dataclass
class FakeFrame:
    seq: int = 0
    ack: int = 0
    payload: int = 0
    size: int = 10

    def ByteSize(self) -> int:
        return self.size


def link(**bounds: int) -> Link[FakeFrame]:
    return Link("s", **bounds)


def test_frames_are_numbered_from_one_and_carry_the_acknowledgement() -> None:
    sender = link()
    assert sender.accept(FakeFrame(seq=1))
    frame = sender.number(FakeFrame())
    assert (frame.seq, frame.ack) == (1, 1)
    assert sender.number(FakeFrame()).seq == 2
    assert not sender.ack_pending


def test_an_acknowledgement_forgets_frames_and_a_duplicate_changes_nothing() -> None:
    sender = link()
    for _ in range(3):
        sender.number(FakeFrame())
    assert not sender.accept(FakeFrame(seq=0, ack=2))
    assert sender.unacked == 1
    assert sender.accept(FakeFrame(seq=1))
    assert not sender.accept(FakeFrame(seq=1))
    assert sender.received == 1


def test_an_acknowledgement_is_due_by_count_and_by_bytes() -> None:
    by_count, by_bytes = link(), link()
    for seq in range(1, ACK_EVERY + 1):
        assert not by_count.ack_due
        by_count.accept(FakeFrame(seq=seq))
    assert by_count.ack_due
    by_bytes.accept(FakeFrame(seq=1, size=ACK_BYTES))
    assert by_bytes.ack_due
    by_bytes.stamp(FakeFrame())
    assert not by_bytes.ack_due


def test_the_window_closes_on_unacknowledged_bytes_and_opens_on_their_acknowledgement() -> None:
    sender = link(window_bytes=100)
    while sender.window_open:
        sender.number(FakeFrame(size=30))
    assert sender.unacked == 4
    sender.accept(FakeFrame(ack=1))
    assert sender.window_open


@pytest.mark.parametrize("bounds", [{"max_frames": 3}, {"max_bytes": 35}])
def test_a_bound_passed_ends_the_session(bounds: dict[str, int]) -> None:
    sender = link(**bounds)
    for _ in range(3):
        sender.number(FakeFrame())
    with pytest.raises(SessionLost, match="never acknowledged"):
        sender.number(FakeFrame())


def test_a_gap_ends_the_session() -> None:
    with pytest.raises(SessionLost, match="frame 2 came after frame 0"):
        link().accept(FakeFrame(seq=2))


def test_an_acknowledgement_of_what_was_never_sent_ends_the_session() -> None:
    with pytest.raises(SessionLost):
        link().accept(FakeFrame(ack=1))
    with pytest.raises(SessionLost):
        link().resume(1)


def test_a_peer_that_forgot_acknowledged_frames_ends_the_session() -> None:
    sender = link()
    sender.number(FakeFrame())
    sender.accept(FakeFrame(ack=1))
    with pytest.raises(SessionLost, match="the peer needs frame 1 again"):
        sender.resume(0)


class BreakingWire(RuleBasedStateMachine):
    """Whatever breaks when, each side gets what the other sent, once and in order."""

    def __init__(self) -> None:
        super().__init__()
        self.links = (link(), link())
        self.flying: tuple[deque[FakeFrame], deque[FakeFrame]] = (deque(), deque())  # towards that side
        self.sent: tuple[list[int], list[int]] = ([], [])  # by that side
        self.got: tuple[list[int], list[int]] = ([], [])

    def transmit(self, side: int, frame: FakeFrame) -> None:
        self.flying[1 - side].append(replace(frame))

    @rule(side=st.sampled_from((0, 1)))
    def send(self, side: int) -> None:
        payload = len(self.sent[side])
        self.sent[side].append(payload)
        self.transmit(side, self.links[side].number(FakeFrame(payload=payload)))

    @rule(side=st.sampled_from((0, 1)))
    def acknowledge(self, side: int) -> None:
        self.transmit(side, self.links[side].stamp(FakeFrame(payload=-1)))

    @rule(side=st.sampled_from((0, 1)), count=st.integers(1, 5))
    def deliver(self, side: int, count: int) -> None:
        for _ in range(min(count, len(self.flying[side]))):
            frame = self.flying[side].popleft()
            if self.links[side].accept(frame):
                self.got[side].append(frame.payload)

    @rule()
    def break_and_heal(self) -> None:
        for side in (0, 1):
            self.flying[side].clear()
        received = [one.received for one in self.links]  # as in the two hellos
        for side in (0, 1):
            for frame in self.links[side].resume(received[1 - side]):
                self.transmit(side, self.links[side].stamp(frame))

    @invariant()
    def nothing_doubled_or_reordered(self) -> None:
        for side in (0, 1):
            assert self.got[side] == self.sent[1 - side][: len(self.got[side])]

    def teardown(self) -> None:
        self.break_and_heal()
        for side in (0, 1):
            self.deliver(side, 10**6)
            assert self.got[side] == self.sent[1 - side]


BreakingWire.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40)
TestBreakingWire = BreakingWire.TestCase
