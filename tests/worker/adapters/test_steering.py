"""What travels to a vLLM with the scheduler plug-in: caps in the control block, ranks in the body."""

import asyncio
from dataclasses import replace
from math import inf
from pathlib import Path

import orjson
import pytest

from hmas.plugins.vllm.block import ControlBlock, StatusBlock
from hmas.plugins.vllm.block_file import status_path
from hmas.plugins.vllm.channel import ControlChannel
from hmas.worker.adapters.base import EngineJob
from hmas.gateway.engines.body import with_xargs
from hmas.worker.adapters.steering import ControlBlockBridge, SteeringConfig

CONFIG = SteeringConfig()
JOB = EngineJob(
    request_id="r",
    path="/v1/completions",
    body=b"{}",
    stream=True,
    strip_usage=True,
    prompt_tokens=5,
    urgency=2.5,
    tpot_s=0.05,
)


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


def test_rank_and_promise_travel_with_the_request(tmp_path: Path) -> None:
    bridge = ControlBlockBridge("e", tmp_path / "control", CONFIG)
    assert bridge.xargs(JOB) == {"hmas_urgency": 2.5, "hmas_tpot_ms": 50.0}
    assert bridge.xargs(replace(JOB, urgency=inf, tpot_s=None)) == {}, "JSON has no infinity"


@pytest.mark.parametrize(
    ("body", "xargs"),
    [
        (b'{"model":"m"}', {"hmas_urgency": 2.5}),
        (b'{"model":"m","vllm_xargs":{"own":1}}', {"own": 1, "hmas_urgency": 2.5}),
        (b'{"model":"m","vllm_xargs":{"hmas_urgency":-1e9}}', {"hmas_urgency": 2.5}),
        (b'{"model":"m","vllm_xargs":"odd"}', {"hmas_urgency": 2.5}),
        (b'{"model":"m","prompt":"say \\"vllm_xargs\\""}', {"hmas_urgency": 2.5}),
    ],
)
def test_clients_keep_their_own_arguments_but_not_our_ranks(body: bytes, xargs: dict[str, float]) -> None:
    document = orjson.loads(with_xargs(body, {"hmas_urgency": 2.5}))
    assert document["vllm_xargs"] == xargs
    assert document["model"] == "m"
