"""What travels to a vLLM with the scheduler plug-in in its control block."""

import asyncio
from dataclasses import replace
from pathlib import Path

from hmas.plugins.vllm.block import ControlBlock, StatusBlock
from hmas.plugins.vllm.block_file import status_path
from hmas.plugins.vllm.channel import ControlChannel
from hmas.worker.adapters.steering import ControlBlockBridge, SteeringConfig

CONFIG = SteeringConfig()


def test_caps_arrive_at_the_engines_end(tmp_path: Path) -> None:
    path = tmp_path / "control"
    bridge, channel = ControlBlockBridge("e", path, CONFIG), ControlChannel(path)
    seen: list[tuple[int, int]] = []
    for step, caps in enumerate([(32, 1024), (4, 1024), (12, 8)]):
        bridge.steer(*caps)
        block = channel.current(float(step))
        assert block is not None
        assert block.valid_for_s == CONFIG.valid_for_s
        seen.append((block.n_run, block.b_token))
    assert seen == [(32, 1024), (4, 1024), (12, 8)]
    assert channel.refused == 0


async def test_the_bridge_renews_what_is_in_force(tmp_path: Path) -> None:
    path = tmp_path / "control"
    bridge = ControlBlockBridge("e", path, replace(CONFIG, renew_s=0.0))
    task = asyncio.create_task(bridge.run())
    await asyncio.sleep(0)
    assert not path.exists(), "nothing is in force before the first caps"
    bridge.steer(7, 70)
    first = ControlBlock.unpack(path.read_bytes())
    for _ in range(5):
        await asyncio.sleep(0)
    later = ControlBlock.unpack(path.read_bytes())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert first is not None
    assert later is not None
    assert (later.n_run, later.b_token) == (7, 70)
    assert later.seq > first.seq


def test_a_path_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    bridge = ControlBlockBridge("e", tmp_path / "missing" / "control", CONFIG)
    bridge.steer(1, 1)
    (tmp_path / "missing").mkdir()
    bridge.steer(2, 2)
    block = ControlBlock.unpack((tmp_path / "missing" / "control").read_bytes())
    assert block is not None
    assert block.n_run == 2


def test_the_plugins_status_is_read(tmp_path: Path) -> None:
    path = tmp_path / "control"
    bridge = ControlBlockBridge("e", path, CONFIG)
    assert bridge.status() is None
    status = StatusBlock(seq=3, cap=4, token_budget=1024, running=4, waiting=9, steps=100, refused=0, faults=2)
    status_path(path).write_bytes(status.pack())
    assert bridge.status() == status
