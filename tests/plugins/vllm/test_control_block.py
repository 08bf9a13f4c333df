"""The control block's layout, its file, and the engine's end of it."""

import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.plugins.vllm.block import BLOCK_BYTES, MAX_VALID_FOR_S, ControlBlock, StatusBlock
from hmas.plugins.vllm.block_file import BlockFile, status_path
from hmas.plugins.vllm.channel import ControlChannel

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)


@given(U64, U32, U32, st.integers(0, 60_000))
def test_control_block_round_trip(seq: int, n_run: int, b_token: int, valid_ms: int) -> None:
    block = ControlBlock(seq, n_run, b_token, valid_ms / 1000)
    data = block.pack()
    assert len(data) == BLOCK_BYTES
    back = ControlBlock.unpack(data)
    assert back is not None
    assert (back.seq, back.n_run, back.b_token) == (seq, n_run, b_token)
    assert back.valid_for_s == pytest.approx(valid_ms / 1000, abs=0.0011)


@given(
    st.builds(
        StatusBlock, seq=U64, cap=U32, token_budget=U32, running=U32, waiting=U32, steps=U64, refused=U32, faults=U32
    )
)
def test_status_block_round_trip(status: StatusBlock) -> None:
    assert StatusBlock.unpack(status.pack()) == status


@given(st.integers(-5, 2**40), st.floats(-1e9, 1e9))
def test_packing_clamps(number: int, valid_for_s: float) -> None:
    back = ControlBlock.unpack(ControlBlock(1, number, number, valid_for_s).pack())
    assert back is not None
    assert back.n_run == min(2**32 - 1, max(0, number))
    assert 0 <= back.valid_for_s <= MAX_VALID_FOR_S


@given(st.binary(max_size=200))
def test_noise_is_no_block(data: bytes) -> None:
    assert ControlBlock.unpack(data) is None
    assert StatusBlock.unpack(data) is None


@given(U64, U64, st.integers(1, BLOCK_BYTES - 1))
def test_a_torn_block_is_no_block(one: int, two: int, cut: int) -> None:
    old, new = ControlBlock(one, 1, 2, 3.0).pack(), ControlBlock(two, 7, 8, 9.0).pack()
    mixed = new[:cut] + old[cut:]
    assert (ControlBlock.unpack(mixed) is None) is (mixed not in (old, new))


def test_a_single_flipped_bit_is_found() -> None:
    data = bytearray(ControlBlock(5, 32, 1024, 3.0).pack())
    for bit in range(8 * BLOCK_BYTES):
        data[bit // 8] ^= 1 << bit % 8
        assert ControlBlock.unpack(bytes(data)) is None
        data[bit // 8] ^= 1 << bit % 8


class Writer:
    def __init__(self, path: Path) -> None:
        self.file = BlockFile(path, writable=True)
        self.seq = 0

    def write(self, n_run: int, valid_for_s: float = 3.0) -> None:
        self.seq += 1
        self.file.write(ControlBlock(self.seq, n_run, 64, valid_for_s).pack())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control"


def test_channel_follows_the_writer_and_forgets_what_is_not_renewed(path: Path) -> None:
    channel, writer = ControlChannel(path), Writer(path)
    writer.write(32)
    assert (block := channel.current(10.0)) is not None
    assert block.n_run == 32
    writer.write(4)
    assert (block := channel.current(10.1)) is not None
    assert block.n_run == 4
    assert channel.current(13.0) is not None
    assert channel.current(13.2) is None
    writer.write(12)
    assert (block := channel.current(20.0)) is not None
    assert block.n_run == 12


def test_channel_keeps_the_last_sound_block_over_a_torn_one(path: Path) -> None:
    channel, writer = ControlChannel(path), Writer(path)
    writer.write(32)
    assert channel.current(0.0) is not None
    path.write_bytes(random.Random(1).randbytes(BLOCK_BYTES))
    assert (block := channel.current(1.0)) is not None
    assert block.n_run == 32
    assert channel.refused == 1
    assert channel.current(1.1) is not None
    assert channel.refused == 1  # the same bytes count once


def test_channel_finds_a_file_that_comes_late_or_was_replaced(path: Path) -> None:
    channel = ControlChannel(path)
    assert channel.current(0.0) is None
    Writer(path).write(8)
    assert channel.current(0.5) is None  # looked for once a second only
    assert channel.current(1.2) is not None
    path.unlink()
    Writer(path).write(9)
    assert channel.current(5.0) is not None
    assert channel.current(5.0).n_run == 9  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "short"])
def test_channel_does_not_block_or_fail_on_what_is_no_file(path: Path, kind: str) -> None:
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to("/dev/zero")
        case _:
            path.write_bytes(b"HMAS")
    channel = ControlChannel(path)
    assert [channel.current(float(s)) for s in range(5)] == [None] * 5


def test_status_is_told_at_most_ten_times_a_second(path: Path) -> None:
    channel = ControlChannel(path)
    for step in range(100):
        channel.tell(
            step * 0.01,
            StatusBlock(seq=1, cap=2, token_budget=3, running=4, waiting=5, steps=step, refused=0, faults=0),
        )
    status = StatusBlock.unpack(status_path(path).read_bytes())
    assert status is not None
    assert status.steps in range(80, 100)


def test_without_a_path_nothing_is_in_force() -> None:
    channel = ControlChannel(None)
    assert channel.current(0.0) is None
    channel.tell(0.0, StatusBlock(seq=0, cap=0, token_budget=0, running=0, waiting=0, steps=0, refused=0, faults=0))
