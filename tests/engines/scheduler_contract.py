"""The plug-in on vLLM's real scheduler, step by step, without a model: run by an engine's Python, prints JSON.

usage: python scheduler_contract.py MODEL_DIR. Each case runs on both scheduler classes.
"""

import inspect
import json
import os
import random
import sys
import tempfile
import traceback
import zlib
from pathlib import Path
from typing import Any

import torch
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from hmas.plugins.vllm import HmasAsyncScheduler, HmasScheduler
from hmas.plugins.vllm.block import ControlBlock, StatusBlock
from hmas.plugins.vllm.block_file import status_path
from hmas.plugins.vllm.chunking import MIN_CHUNK_TOKENS, StepCost
from tests.engines.scheduler_noise import hostile_write

BLOCK_TOKENS = 16
SLOTS, BATCHED_TOKENS = 64, 1024
MODEL = sys.argv[1]
HASHER_SEED = lambda data: zlib.crc32(repr(data).encode()).to_bytes(32, "big")  # noqa: E731


class Engine:
    """A scheduler and what an engine core does around it; every running request samples one token a step."""

    def __init__(self, cls: Any, *, blocks: int = 4096) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.control = Path(self.folder.name) / "control"
        os.environ["HMAS_CONTROL_BLOCK"] = str(self.control)
        args = EngineArgs(
            model=MODEL, max_num_seqs=SLOTS, max_num_batched_tokens=BATCHED_TOKENS, max_model_len=2048,
            enforce_eager=True, distributed_executor_backend="uni", block_size=BLOCK_TOKENS,
        )  # fmt: skip
        config = args.create_engine_config()
        config.cache_config.num_gpu_blocks = blocks
        spec = FullAttentionSpec(block_size=BLOCK_TOKENS, num_kv_heads=1, head_size=8, dtype=torch.float32)
        options = {
            "vllm_config": config,
            "kv_cache_config": KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
            "structured_output_manager": StructuredOutputManager(config),
            "block_size": BLOCK_TOKENS,
            "log_stats": True,
        }
        init_none_hash(HASHER_SEED)
        known = inspect.signature(cls.__mro__[2].__init__).parameters
        self.scheduler = cls(**{k: v for k, v in options.items() if k in known or "args" in known})
        self.clock_s = 100.0
        self.scheduler._steering._clock = lambda: self.clock_s
        self.hasher = get_request_block_hasher(BLOCK_TOKENS, HASHER_SEED)
        self.seq = 0
        self.finished: set[str] = set()
        self.first_scheduled: list[str] = []

    def add(self, name: str, prompt: int = 20, output: int = 8, **xargs: Any) -> None:
        params = SamplingParams(max_tokens=output, ignore_eos=True, extra_args=xargs or None)
        params.update_from_generation_config({}, 1)
        seed = random.Random(name)
        tokens = [seed.randrange(3, 900) for _ in range(prompt)]
        self.scheduler.add_request(Request(name, tokens, params, None, block_hasher=self.hasher))

    def steer(self, n_run: int, b_token: int, valid_for_s: float = 60.0) -> None:
        self.seq += 1
        self.control.write_bytes(ControlBlock(self.seq, n_run, b_token, valid_for_s).pack())

    def step(self, seconds: float = 0.01) -> dict[str, int]:
        """Tokens scheduled by request."""
        output = self.scheduler.schedule()
        scheduled = dict(output.num_scheduled_tokens)
        self.first_scheduled += [new.req_id for new in output.scheduled_new_reqs]
        names = list(scheduled)
        requests = self.scheduler.requests
        sampled = [[] if _in_prefill(requests[n]) else [7] for n in names]
        result = ModelRunnerOutput(names, {n: i for i, n in enumerate(names)}, sampled)
        outputs = self.scheduler.update_from_output(output, result)
        for core_outputs in outputs.values():
            self.finished |= {o.request_id for o in core_outputs.outputs if o.finish_reason is not None}
        self.clock_s += seconds
        return scheduled

    @property
    def running(self) -> int:
        return len(self.scheduler.running)

    @property
    def cap(self) -> int:
        return int(getattr(self.scheduler, self.steering._cap_name))

    @property
    def steering(self) -> Any:
        return self.scheduler._steering

    def run_until_done(self, names: set[str], most: int = 20_000) -> int:
        steps = 0
        while not names <= self.finished:
            self.step()
            steps += 1
            assert steps < most, f"unfinished after {most} steps: {sorted(names - self.finished)[:5]}"
        return steps

    def status(self) -> StatusBlock:
        status = StatusBlock.unpack(status_path(self.control).read_bytes())
        assert status is not None
        return status


def _in_prefill(request: Any) -> bool:
    """`schedule` has already counted the scheduled tokens as computed."""
    return bool(request.num_computed_tokens < request.num_prompt_tokens + len(request.output_token_ids))


def n_run_caps_the_running(engine: Engine) -> None:
    names = [f"r{i}" for i in range(400)]
    for number, name in enumerate(names):
        engine.add(name, output=5 + number % 7)
    for cap in (32, 4, 12):
        engine.steer(cap, 0)
        for _ in range(15):
            engine.step()  # what already runs goes on
        peak = max(len(engine.step()) for _ in range(10))
        assert peak == cap, (cap, peak)
        assert engine.status().cap == cap
    engine.run_until_done(set(names))
    assert engine.steering.faults == 0


def b_token_caps_the_decodes_and_all_of_them_move(engine: Engine) -> None:
    for i in range(200):
        engine.add(f"r{i}", output=30)
    engine.steer(64, 1024)
    for _ in range(5):
        engine.step()
    assert engine.running == SLOTS
    engine.steer(64, 8)
    for _ in range(60):
        before = {r.request_id for r in engine.scheduler.running}
        scheduled = engine.step()
        assert before <= set(scheduled), "a running sequence stood still"
    assert engine.running == 8, engine.running
    assert sum(engine.step().values()) <= 8 + 7 * 20  # decodes, and prompts of those that took the place of others


def a_block_that_nobody_renews_runs_out(engine: Engine) -> None:
    for i in range(100):
        engine.add(f"r{i}", output=200)
    engine.steer(4, 0, valid_for_s=0.5)
    engine.step()
    assert engine.running == 4
    engine.step(1.0)
    engine.step()
    engine.step()
    assert engine.running == SLOTS, engine.running


def waiting_requests_follow_their_urgency(engine: Engine) -> None:
    engine.steer(1, 0)
    engine.add("first", output=3)
    engine.step()
    urgencies = {f"r{i}": float((i * 37) % 50) for i in range(50)}
    for name, urgency in urgencies.items():
        engine.add(name, output=2, hmas_urgency=urgency)
    engine.add("plain", output=2)
    for name, value in {"text": "soon", "nan": float("nan"), "huge": 2**63, "list": [1.0]}.items():
        engine.add(name, output=2, hmas_urgency=value)
    everyone = {"first", "plain", "text", "nan", "huge", "list", *urgencies}
    engine.run_until_done(everyone)
    ranked = [name for name in engine.first_scheduled if name in urgencies]
    assert ranked == sorted(urgencies, key=lambda name: urgencies[name]), ranked
    assert engine.first_scheduled[1:51] == ranked, "a request without a rank went before ranked ones"
    assert engine.steering.faults == 0


def chunks_leave_decodes_their_slack(engine: Engine) -> None:
    for i in range(8):
        engine.add(f"d{i}", prompt=16, output=400, hmas_tpot_ms=20.0)
    for _ in range(10):
        engine.step(0.010)
    engine.add("teacher", prompt=1000, output=1)
    engine.step(0.010 + 1000 * 0.0001)  # a prefill token costs 0.1 ms
    cost: StepCost = engine.steering._cost
    engine.step(0.010)
    assert 5e-5 < cost.prefill_token_s < 2e-4, cost
    engine.add("long", prompt=1500, output=1)
    chunks = []
    while "long" not in engine.finished:
        scheduled = engine.step(0.0)
        assert all(f"d{i}" in scheduled for i in range(8)), "a decode stood still"
        chunk = scheduled.get("long", 0)
        chunks.append(chunk)
        engine.clock_s += 0.010 + chunk * 0.0001
        assert len(chunks) < 200
    assert min(chunks[:-1]) >= MIN_CHUNK_TOKENS, chunks
    assert max(chunks) < 400, chunks  # far less than the 1016 tokens that vLLM alone would take
    assert sum(chunks) == 1500
    assert engine.steering.faults == 0


def without_promises_the_chunk_is_vllms_own(engine: Engine) -> None:
    for i in range(8):
        engine.add(f"d{i}", prompt=16, output=100)
    for _ in range(20):
        engine.step()
    engine.add("long", prompt=1500, output=1)
    assert engine.step()["long"] == BATCHED_TOKENS - 8


def hostile_blocks(engine: Engine) -> None:
    """Requests of all kinds go on being served, whatever stands in the block."""
    draw = random.Random(5)
    control = engine.control
    names: set[str] = set()
    for number in range(10_000):
        hostile_write(control, draw)
        if len(names) - len(engine.finished) < 100:
            name = f"r{number}"
            names.add(name)
            engine.add(
                name, prompt=draw.randrange(1, 300), output=draw.randrange(1, 20),
                hmas_urgency=draw.choice([1.0, -1e300, float("inf"), "x"]), hmas_tpot_ms=draw.choice([0, -5, 20, "y"]),
            )  # fmt: skip
        engine.step(draw.choice([0.0, 0.001, 0.05, 2.0]))
        assert 1 <= engine.cap <= SLOTS
        assert engine.running <= SLOTS
    hostile_write(control, draw, clear=True)
    engine.run_until_done(names)
    assert engine.steering._channel.refused > 100
    assert engine.steering.faults == 0


def memory_pressure_with_changing_caps(engine: Engine) -> None:
    draw = random.Random(3)
    names = {f"r{i}" for i in range(80)}
    for name in sorted(names):
        engine.add(name, prompt=draw.randrange(20, 200), output=draw.randrange(20, 150), hmas_urgency=draw.random())
    preempted = 0
    for _ in range(4000):
        engine.steer(draw.randrange(1, 64), draw.choice([1, 4, 8, 1024]))
        engine.step()
        preempted = max(preempted, max((r.num_preemptions for r in engine.scheduler.requests.values()), default=0))
        if names <= engine.finished:
            break
    assert names <= engine.finished
    assert preempted > 0, "this case is about preemptions"
    assert engine.steering.faults == 0


def a_fault_is_counted_and_the_engine_goes_on(engine: Engine) -> None:
    def broken(now_s: float) -> None:
        raise RuntimeError("broken on purpose")

    engine.steer(4, 0)
    names = {f"r{i}" for i in range(100)}
    for name in names:
        engine.add(name, output=50)
    engine.step()
    assert engine.running == 4
    engine.steering._channel.current = broken
    engine.step()
    engine.step()
    assert engine.running == SLOTS, "vLLM's own limits are back"
    engine.run_until_done(names)
    assert engine.steering.faults > 1
    assert engine.status().faults > 1


CASES: dict[Any, dict[str, Any]] = {
    n_run_caps_the_running: {},
    b_token_caps_the_decodes_and_all_of_them_move: {},
    a_block_that_nobody_renews_runs_out: {},
    waiting_requests_follow_their_urgency: {},
    chunks_leave_decodes_their_slack: {},
    without_promises_the_chunk_is_vllms_own: {},
    hostile_blocks: {},
    memory_pressure_with_changing_caps: {"blocks": 150},
    a_fault_is_counted_and_the_engine_goes_on: {},
}


def main() -> None:
    import vllm

    results = {"version": vllm.__version__}
    for cls in (HmasScheduler, HmasAsyncScheduler):
        for case, options in CASES.items():
            try:
                case(Engine(cls, **options))
                results[f"{cls.__name__}.{case.__name__}"] = "ok"
            except Exception:
                results[f"{cls.__name__}.{case.__name__}"] = traceback.format_exc()
    print("\n" + json.dumps(results))


if __name__ == "__main__":
    main()
