"""The adapter against a server that behaves as SGLang documents: names, polarity, live cap."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from hmas.contracts.registry import API_PATHS, USUAL_PATHS
from hmas.contracts.worker import EngineSampled, EngineWentDown, EngineWentUp
from hmas.worker.adapters.base import EngineEvent, GrantedRun
from hmas.worker.adapters.breaker import BreakerConfig
from hmas.worker.adapters.engine_facts import EngineFacts
from hmas.worker.adapters.monitor import MonitorConfig
from hmas.worker.adapters.openai_http import OpenAiHttpAdapter, OpenAiHttpConfig
from tests.conftest import PATIENCE_S
from tests.worker.adapters.scripted_engine import Peer, ScriptedEngine

METRICS = b"""\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="0"} 3.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",tp_rank="0"} 2.0
sglang:token_usage{engine_type="unified",model_name="m",tp_rank="0"} 0.25
sglang:num_retracted_requests_total{engine_type="unified",model_name="m",tp_rank="0"} 1.0
sglang:prompt_tokens_total{model_name="m"} 1000.0
sglang:generation_tokens_total{model_name="m"} 500.0
sglang:inter_token_latency_seconds_sum{model_name="m"} 5.0
sglang:inter_token_latency_seconds_count{model_name="m"} 250.0
"""


class Sglang:
    """What `/server_info` says, and the caps that were set."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.caps: list[int] = []
        self.refuse = False
        self.answering = asyncio.Event()
        self.answering.set()
        self.info: dict[str, Any] = {
            "page_size": 1,
            "max_total_num_tokens": 20480,
            "max_running_requests": None,
            "pp_size": 1,
            "enable_priority_scheduling": True,
            "schedule_low_priority_values_first": False,
            "internal_states": [{"effective_max_running_requests_per_dp": 128}],
        }
        engine.script |= {
            "/health": self._empty,
            "/metrics": lambda peer: peer.reply(METRICS),
            "/v1/models": lambda peer: peer.reply(b'{"data":[{"id":"m","max_model_len":8192}]}'),
            "/server_info": lambda peer: peer.reply(orjson.dumps(self.info)),
            "/set_internal_state": self._set,
        }

    async def _empty(self, peer: Peer) -> None:
        await peer.reply(b"")

    async def _set(self, peer: Peer) -> None:
        if self.refuse:
            await peer.reply(b'{"detail":"Unauthorized"}', 401)
            return
        self.caps.append(orjson.loads(peer.body)["server_args"]["pp_max_micro_batch_size"])
        await self.answering.wait()
        await peer.reply(b"[true]")

    async def cap(self, value: int) -> None:
        """Waits until a cap was set."""
        while not self.caps or self.caps[-1] != value:
            await asyncio.sleep(0.01)


class Rig:
    def __init__(
        self, engine: ScriptedEngine, max_num_seqs: int | None = None, admin_key: str = "", **facts: Any
    ) -> None:
        self.engine, self.sglang = engine, Sglang(engine)
        self.events: asyncio.Queue[EngineEvent] = asyncio.Queue()
        config = OpenAiHttpConfig(
            facts=EngineFacts(name="e1", max_num_seqs=max_num_seqs, **facts), url=engine.url, api_key="k",
            admin_key=admin_key, probe_period_s=0.05, monitor=MonitorConfig(timeout_s=0.5), scrape_period_s=0.02,
            breaker=BreakerConfig(cooldown_s=0.02, max_cooldown_s=0.05),
        )  # fmt: skip
        self.adapter = OpenAiHttpAdapter(config, self.events.put_nowait)
        self.task = asyncio.create_task(self.adapter.run())

    async def event(self, kind: type[Any]) -> Any:
        while True:
            event = await asyncio.wait_for(self.events.get(), PATIENCE_S)
            if isinstance(event, kind):
                return event

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.adapter.close()


@pytest.fixture
async def rig(engine: ScriptedEngine) -> AsyncIterator[Rig]:
    rig = Rig(engine)
    yield rig
    await rig.close()


async def test_it_is_discovered_with_its_own_bounds(rig: Rig) -> None:
    info = (await rig.event(EngineWentUp)).info
    assert (info.dialect, info.max_num_seqs, info.kv_capacity_tokens, info.block_size) == ("sglang", 128, 20480, 1)
    assert info.max_model_len == 8192


async def test_its_model_is_told_by_what_it_was_loaded_from(rig: Rig) -> None:
    rig.sglang.info["model_path"] = "Qwen/Qwen3-8B"
    assert (await rig.event(EngineWentUp)).info.model == "Qwen/Qwen3-8B"


async def test_its_metrics_are_read(rig: Rig) -> None:
    sample = await rig.event(EngineSampled)
    assert (sample.running, sample.waiting, sample.kv_usage, sample.preemptions_total) == (3, 2, 0.25, 1)


@pytest.mark.parametrize(
    ("enabled", "low_first", "priorities"),
    [(True, False, [5, 8, 6]), (True, True, [5, 2, 4]), (False, False, [None] * 3)],
)
async def test_its_polarity_is_taken_from_what_it_says(
    rig: Rig, enabled: bool, low_first: bool, priorities: list[int | None]
) -> None:
    rig.sglang.info |= {"enable_priority_scheduling": enabled, "schedule_low_priority_values_first": low_first}
    await rig.event(EngineWentUp)
    runs = [GrantedRun(prompt_tokens=5, urgency=urgency) for urgency in (3.0, 1.0, 2.0)]
    for run in runs:
        rig.adapter.add(run)
    assert [run.priority for run in runs] == priorities


async def test_levels_are_given_among_those_that_still_wait(rig: Rig) -> None:
    await rig.event(EngineWentUp)

    def add(urgency: float | None, output_tokens: int = 0) -> GrantedRun:
        run = GrantedRun(prompt_tokens=5, urgency=urgency, output_tokens=output_tokens)
        rig.adapter.add(run)
        return run

    add(None)  # adopted, so that its rank is unknown
    first = add(3.0)
    assert add(1.0).priority == 8
    first.output_tokens = 1  # it does not wait any more
    assert add(2.0).priority == 3
    gone = add(0.5)
    assert gone.priority == 9
    rig.adapter.remove(gone, None)
    assert add(0.6).priority == 9


async def test_n_run_becomes_its_live_cap_and_is_put_back_at_the_end(rig: Rig) -> None:
    await rig.event(EngineWentUp)
    rig.adapter.steer(128, 1024)  # its own bound: nothing to tell
    rig.adapter.steer(32, 1024)
    await asyncio.wait_for(rig.sglang.cap(32), PATIENCE_S)
    for n_run in (31, 20, 4):  # close together: the last one counts
        rig.adapter.steer(n_run, 1024)
    await asyncio.wait_for(rig.sglang.cap(4), PATIENCE_S)
    assert rig.sglang.caps == [32, 4]
    rig.adapter.steer(1000, 1024)
    await asyncio.wait_for(rig.sglang.cap(128), PATIENCE_S)
    rig.adapter.steer(0, 1024)
    await asyncio.wait_for(rig.sglang.cap(1), PATIENCE_S)
    await rig.adapter.close()
    assert rig.sglang.caps == [32, 4, 128, 1, 128]


async def test_a_cap_that_it_has_not_answered_is_put_back_too(engine: ScriptedEngine) -> None:
    rig = Rig(engine)
    await rig.event(EngineWentUp)
    rig.sglang.answering.clear()
    rig.adapter.steer(32, 1024)
    await asyncio.wait_for(rig.sglang.cap(32), PATIENCE_S)
    rig.task.cancel()
    rig.sglang.answering.set()
    await rig.close()
    assert rig.sglang.caps == [32, 128]


async def test_one_that_does_not_answer_at_the_end_is_asked_again(engine: ScriptedEngine) -> None:
    rig = Rig(engine)
    await rig.event(EngineWentUp)
    rig.adapter.steer(32, 1024)
    await asyncio.wait_for(rig.sglang.cap(32), PATIENCE_S)
    well = engine.script["/set_internal_state"]

    async def silent(peer: Peer) -> None:
        engine.script["/set_internal_state"] = well
        await asyncio.sleep(60)

    engine.script["/set_internal_state"] = silent
    await rig.close()
    assert rig.sglang.caps == [32, 128]


async def test_one_that_was_out_of_reach_for_a_while_gets_its_own_cap_back(rig: Rig) -> None:
    await rig.event(EngineWentUp)
    rig.adapter.steer(32, 1024)
    await asyncio.wait_for(rig.sglang.cap(32), PATIENCE_S)
    well = rig.engine.script["/health"]
    rig.engine.script["/health"] = lambda peer: peer.reply(b"", 503)
    await rig.event(EngineWentDown)
    rig.engine.script["/health"] = well
    await rig.event(EngineWentUp)
    rig.adapter.steer(128, 1024)
    await asyncio.wait_for(rig.sglang.cap(128), PATIENCE_S)


async def test_the_operator_cannot_say_more_than_it_runs(engine: ScriptedEngine) -> None:
    rig = Rig(engine, max_num_seqs=256)
    assert (await rig.event(EngineWentUp)).info.max_num_seqs == 128
    rig.adapter.steer(64, 1024)
    await asyncio.wait_for(rig.sglang.cap(64), PATIENCE_S)
    rig.adapter.steer(256, 1024)  # it refuses more than its own bound
    await asyncio.wait_for(rig.sglang.cap(128), PATIENCE_S)
    await rig.close()


async def test_the_operator_may_say_less_and_its_own_bound_is_put_back(engine: ScriptedEngine) -> None:
    rig = Rig(engine, max_num_seqs=16)
    assert (await rig.event(EngineWentUp)).info.max_num_seqs == 16
    rig.adapter.steer(16, 1024)
    await asyncio.wait_for(rig.sglang.cap(16), PATIENCE_S)
    await rig.close()
    assert rig.sglang.caps == [16, 128]


async def test_an_older_one_is_asked_by_the_older_name(engine: ScriptedEngine) -> None:
    rig = Rig(engine)
    engine.script["/get_server_info"] = engine.script.pop("/server_info")
    engine.script["/server_info"] = lambda peer: peer.reply(b'{"detail":"Not Found"}', 404)
    assert (await rig.event(EngineWentUp)).info.max_num_seqs == 128
    await rig.close()


async def test_pipeline_stages_share_the_cap(engine: ScriptedEngine) -> None:
    rig = Rig(engine)
    rig.sglang.info["pp_size"] = 4
    await rig.event(EngineWentUp)
    rig.adapter.steer(32, 1024)
    await asyncio.wait_for(rig.sglang.cap(8), PATIENCE_S)
    await rig.close()


async def test_a_refused_cap_is_not_told_again_and_again(rig: Rig) -> None:
    rig.sglang.refuse = True
    await rig.event(EngineWentUp)
    rig.adapter.steer(32, 1024)
    while not any(p.path == "/set_internal_state" for p in rig.engine.requests):
        await asyncio.sleep(0.01)
    for _ in range(3):
        await rig.event(EngineSampled)
    assert sum(p.path == "/set_internal_state" for p in rig.engine.requests) == 1


@pytest.mark.parametrize(("admin_key", "sent"), [("admin", "admin"), ("", "k")])
async def test_the_admin_key_goes_to_admin_paths_only(engine: ScriptedEngine, admin_key: str, sent: str) -> None:
    rig = Rig(engine, admin_key=admin_key)
    await rig.event(EngineWentUp)
    rig.adapter.steer(32, 1024)
    await asyncio.wait_for(rig.sglang.cap(32), PATIENCE_S)
    await rig.close()
    keys = {(peer.path == "/set_internal_state", peer.headers["authorization"]) for peer in engine.requests}
    assert keys == {(True, f"Bearer {sent}"), (False, "Bearer k")}


HALF = {"disaggregation_transfer_backend": "nixl", "disaggregation_bootstrap_port": 9001}


@pytest.mark.parametrize(
    ("facts", "mode", "found"),
    [
        ({}, None, ("", "", 0, "")),
        ({}, "null", ("", "", 0, "")),
        ({}, "prefill", ("sglang", "prefill", 9001, "nixl")),
        ({}, "decode", ("sglang", "decode", 9001, "nixl")),
        ({"bootstrap_port": 9002}, "prefill", ("sglang", "prefill", 9002, "nixl")),
        ({"kv_transfer": "sglang", "role": "decode"}, "prefill", ("sglang", "prefill", 9001, "nixl")),
        ({"kv_transfer": "sglang", "role": "decode"}, "null", ("", "decode", 0, "")),  # it would serve whole requests
        ({"kv_transfer": "sglang", "role": "decode"}, None, ("sglang", "decode", 8998, "")),  # it does not say
    ],
)
async def test_how_it_hands_kv_over_is_what_it_says(
    engine: ScriptedEngine, facts: dict[str, Any], mode: str | None, found: tuple[str, str, int, str]
) -> None:
    rig = Rig(engine, **facts)
    if mode is not None:
        rig.sglang.info |= {**HALF, "disaggregation_mode": mode}
    info = (await rig.event(EngineWentUp)).info
    assert (info.kv, info.role, info.bootstrap_port, info.kv_version) == found
    await rig.close()


async def test_one_in_a_disaggregation_mode_is_asked_for_what_pairs_can_serve(engine: ScriptedEngine) -> None:
    """Its other forms do not take the fields by which the two engines find one another."""
    rig = Rig(engine)
    rig.sglang.info |= {**HALF, "disaggregation_mode": "decode"}
    for path in API_PATHS:
        engine.script[path] = lambda peer: peer.reply(b"", 405)
    assert (await rig.event(EngineWentUp)).info.paths == USUAL_PATHS
    await rig.close()


async def test_what_waits_for_its_other_half_counts_as_waiting(rig: Rig) -> None:
    parked = b"".join(
        b'sglang:num_%b_queue_reqs{tp_rank="0"} 1.0\n' % name
        for name in (b"prefill_bootstrap", b"prefill_inflight", b"decode_prealloc", b"decode_transfer")
    )
    rig.engine.script["/metrics"] = lambda peer: peer.reply(METRICS + parked)
    sample = await rig.event(EngineSampled)
    while sample.waiting == 2:
        sample = await rig.event(EngineSampled)
    assert (sample.running, sample.waiting) == (3, 6)
