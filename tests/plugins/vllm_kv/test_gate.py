"""Chunks of transfers leave by deadline, through an agent that behaves as NIXL's."""

from collections.abc import Callable
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.plugins.vllm_kv.gate import Gate, GatedAgent

CHUNK, BYTES = 4, 1000


class Link:
    """NIXL's agent over a link on which what was posted first lands first. `lost`: notifications whose chunk fails."""

    def __init__(self) -> None:
        self.posted: list[tuple[bytes, int]] = []  # the transfer's name, in its descriptors; which of its chunks
        self.told: list[bytes] = []
        self.lost: set[tuple[bytes, int]] = set()
        self.refused: set[bytes] = set()
        self.states: list[str] = []
        self.released: set[int] = set()

    def make_prepped_xfer(self, kind: str, here: str, ours: Any, there: str, theirs: Any, notif_msg: bytes) -> int:
        assert (kind, here, there) == ("READ", "here", "there")
        assert [each + 1000 for each in ours] == list(theirs)
        name = b"%d" % (ours[0] // 100)
        if name in self.refused:
            raise RuntimeError("no such peer")
        self.posted.append((name, int(ours[0] % 100) // CHUNK))
        self.states.append("made")
        if notif_msg:
            self.told.append(notif_msg)
        return len(self.states) - 1

    def transfer(self, handle: int) -> str:
        assert self.states[handle] == "made"
        self.states[handle] = "PROC"
        return "PROC"

    def check_xfer_state(self, handle: int) -> str:
        return self.states[handle]

    def release_xfer_handle(self, handle: int) -> None:
        assert self.states[handle] != "PROC"
        self.released.add(handle)

    def land(self) -> bool:
        """Has the first chunk that is on its way land, if there is one."""
        flying = [n for n, state in enumerate(self.states) if state == "PROC"]
        if flying:
            self.states[flying[0]] = "ERR" if self.posted[flying[0]] in self.lost else "DONE"
        return bool(flying)

    @property
    def flying(self) -> int:
        return self.states.count("PROC")

    def a_name(self) -> str:
        return "of the agent itself"


class Gated:
    """A gate that is stepped by hand before a link, at an instant that the test sets."""

    def __init__(self, window: int = 2, due: Callable[[bytes], float] | None = None) -> None:
        self.link, self.now_s = Link(), 0.0
        self.due_s: dict[bytes, float] = {}
        self.gate = Gate(self.link, window, start=False)
        self.agent = GatedAgent(self.link, self.gate, CHUNK, BYTES, lambda told: self.due_s.get(told, inf))

    def read(self, name: int, descriptors: int, due_s: float = inf) -> Any:
        told = b"%d" % name
        self.due_s[told] = due_s
        ours = [100 * name + n for n in range(descriptors)]
        handle = self.agent.make_prepped_xfer("READ", "here", ours, "there", [o + 1000 for o in ours], notif_msg=told)
        assert self.agent.check_xfer_state(handle) == "PROC"
        self.agent.transfer(handle)
        return handle

    def run(self) -> None:
        """Until nothing moves any more; a chunk lands each second."""
        while self.gate.step(self.now_s) or self.link.land():
            self.now_s += 1.0
            assert self.link.flying <= 2

    def posted(self) -> list[bytes]:
        return [name for name, _ in self.link.posted]


def test_the_read_that_is_due_first_overtakes_those_that_came_before() -> None:
    gated = Gated()
    lax = gated.read(1, 10 * CHUNK, due_s=100.0)
    gated.gate.step(0.0)
    tight = gated.read(2, 2 * CHUNK, due_s=50.0)
    gated.run()
    # A read's last chunk waits for those before it, and the link for nobody.
    assert gated.posted()[:5] == [b"1", b"1", b"2", b"1", b"2"]
    assert gated.link.told == [b"2", b"1"]
    assert tight.last_s < lax.last_s


def test_what_is_late_comes_last_and_lands_all_the_same() -> None:
    gated = Gated(window=1)
    gated.now_s = 50.0
    late, timely, whenever = gated.read(1, 8, due_s=20.0), gated.read(2, 8, due_s=90.0), gated.read(3, 8)
    gated.run()
    assert gated.posted() == [b"2", b"2", b"3", b"3", b"1", b"1"]
    assert {each.state for each in (late, timely, whenever)} == {"DONE"}


def test_without_deadlines_they_go_in_the_order_in_which_they_came() -> None:
    gated = Gated(window=1)
    for name in (3, 1, 2):
        gated.read(name, 2 * CHUNK)
    gated.run()
    assert gated.posted() == [b"3", b"3", b"1", b"1", b"2", b"2"]


@given(st.integers(0, 2**32))
def test_the_notification_leaves_once_all_else_has_landed(seed: int) -> None:
    draw, gated = Random(seed), Gated()
    sizes = {name: draw.randint(1, 20) for name in range(draw.randint(1, 6))}
    told: set[bytes] = set()
    for name, size in sizes.items():
        gated.read(name, size, draw.choice([inf, draw.uniform(0.0, 60.0)]))
        gated.gate.step(gated.now_s)
    while gated.gate.step(gated.now_s) or gated.link.land():
        gated.now_s += draw.random()
        for new in set(gated.link.told) - told:
            states = [s for (name, _), s in zip(gated.link.posted, gated.link.states, strict=True) if name == new]
            assert states[:-1] == ["DONE"] * (len(states) - 1)
            assert len(states) == -(-sizes[int(new)] // CHUNK)
        told |= set(gated.link.told)
    assert sorted(told) == sorted(b"%d" % name for name in sizes)
    assert len(gated.link.released) == len(gated.link.states)
    assert len(gated.link.told) == len(sizes)


def test_a_chunk_that_is_lost_ends_its_read_alone() -> None:
    gated = Gated()
    gated.link.lost.add((b"1", 1))
    lost, other = gated.read(1, 40), gated.read(2, 40)
    gated.run()
    assert (lost.state, other.state) == ("ERR", "DONE")
    assert gated.link.told == [b"2"]
    gated.agent.release_xfer_handle(lost)


def test_a_chunk_that_cannot_be_posted_ends_its_read_alone() -> None:
    gated = Gated()
    gated.link.refused.add(b"1")
    lost, other = gated.read(1, 8), gated.read(2, 8)
    gated.run()
    assert (lost.state, other.state) == ("ERR", "DONE")


def test_a_read_that_is_given_up_posts_no_more_and_is_released_when_its_chunks_have_landed() -> None:
    gated = Gated()
    given_up, other = gated.read(1, 40, due_s=1.0), gated.read(2, 8)
    gated.gate.step(0.0)
    with pytest.raises(RuntimeError, match="2 chunks are still on their way"):
        gated.agent.release_xfer_handle(given_up)
    gated.run()
    assert gated.posted() == [b"1", b"1", b"2", b"2"]
    gated.agent.release_xfer_handle(given_up)
    assert other.state == "DONE"


def test_what_vllm_counts_is_that_of_the_whole_read() -> None:
    gated = Gated()
    read = gated.read(1, 10)
    gated.run()
    told = gated.agent.get_xfer_telemetry(read)
    assert (told.totalBytes, told.descCount) == (10 * BYTES, 10)
    assert told.xferDuration >= told.postDuration


def test_all_else_is_the_agents_own() -> None:
    gated = Gated()
    assert gated.agent.a_name() == "of the agent itself"
    gated.link.states.append("PROC")
    assert gated.agent.check_xfer_state(0) == "PROC"


def test_on_its_own_thread_all_lands() -> None:
    link = Link()
    gate = Gate(link, 2)
    agent = GatedAgent(link, gate, CHUNK, BYTES, lambda _: inf)
    ours = list(range(100, 120))
    read = agent.make_prepped_xfer("READ", "here", ours, "there", [o + 1000 for o in ours], notif_msg=b"1")
    agent.transfer(read)
    while agent.check_xfer_state(read) == "PROC":
        link.land()
    assert (read.state, link.told) == ("DONE", [b"1"])
